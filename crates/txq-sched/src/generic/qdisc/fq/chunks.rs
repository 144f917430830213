//! An array that grows without copying its elements.

use std::ops::{Index, IndexMut};

/// The number of elements in a chunk.
const ELEMENTS_PER_CHUNK: usize = 256;

/// An array of elements that never move.
pub(super) struct Chunks<T> {
    chunks: Vec<Box<[T; ELEMENTS_PER_CHUNK]>>,
}

impl<T> Chunks<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.chunks.len() * ELEMENTS_PER_CHUNK
    }

    /// Adds a chunk, whose elements `make` returns.
    pub(super) fn grow(&mut self, make: impl FnMut() -> T) {
        let chunk: Box<[T]> = std::iter::repeat_with(make).take(ELEMENTS_PER_CHUNK).collect();
        self.chunks.extend(chunk.try_into().ok());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut())
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.chunks[at / ELEMENTS_PER_CHUNK][at % ELEMENTS_PER_CHUNK]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / ELEMENTS_PER_CHUNK][at % ELEMENTS_PER_CHUNK]
    }
}
