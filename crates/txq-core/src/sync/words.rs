//! A row of 64-bit words on cache lines of their own: no other data shares its lines, and which words share a line does not
//! depend on the row's address.

use std::fmt::Display;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic};

/// AtomicWords of a block.
const WORDS_PER_BLOCK: usize = 16;

/// The row.
pub struct AtomicWords<A: Arch> {
    blocks: Box<[CachePadded<[A::AtomicU64; WORDS_PER_BLOCK]>]>,
    len: usize,
}

impl<A: Arch> AtomicWords<A> {
    /// `len` words that hold `value`.
    pub fn new(len: usize, value: u64) -> Self {
        let block = |_| CachePadded::new(std::array::from_fn(|_| A::AtomicU64::new(value)));
        Self { blocks: (0..len.div_ceil(WORDS_PER_BLOCK)).map(block).collect(), len }
    }

    /// Names its lines ([`Arch::name`]).
    pub fn name_lines(&self, what: impl Display) {
        A::name(&*self.blocks, what);
    }

    /// Returns word `i`.
    #[inline]
    pub fn at(&self, i: usize) -> &A::AtomicU64 {
        &self.blocks[i / WORDS_PER_BLOCK][i % WORDS_PER_BLOCK]
    }

    /// Returns all words, in order.
    pub fn iter(&self) -> impl Iterator<Item = &A::AtomicU64> {
        self.blocks.iter().flat_map(|block| block.iter()).take(self.len)
    }
}
