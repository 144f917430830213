//! A heap with four children per node: half as deep as a binary one, and the children of a node share a cache line.

use super::{Key, LAST_KEY};

#[derive(Debug, Default)]
pub(super) struct Heap(Vec<Key>);

impl Heap {
    /// Returns the least key, or [`LAST_KEY`].
    #[inline]
    pub(super) fn first(&self) -> Key {
        self.0.first().map_or(LAST_KEY, |key| *key)
    }

    pub(super) fn put(&mut self, key: Key) {
        let mut i = self.0.len();
        self.0.push(key);
        while i > 0 {
            let parent = (i - 1) / 4;
            if self.0[parent] <= key {
                break;
            }
            self.0[i] = self.0[parent];
            i = parent;
        }
        self.0[i] = key;
    }

    /// Removes the least key.
    pub(super) fn take(&mut self) {
        if let Some(last) = self.0.pop().filter(|_| !self.0.is_empty()) {
            self.sift(last);
        }
    }

    /// Inserts `key` over the first key: sifts it down from the top.
    fn sift(&mut self, key: Key) {
        let heap = &mut self.0[..];
        let (mut i, n) = (0, heap.len());
        loop {
            let child = 4 * i + 1;
            if child >= n {
                break;
            }
            let (mut least, mut at) = (heap[child], child);
            for (c, &k) in heap.iter().enumerate().take((child + 4).min(n)).skip(child + 1) {
                if k < least {
                    (least, at) = (k, c);
                }
            }
            if key <= least {
                break;
            }
            heap[i] = least;
            i = at;
        }
        heap[i] = key;
    }
}
