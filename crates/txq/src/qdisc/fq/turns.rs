//! The flows of a list that take turns: a queue of numbers.
//!
//! It is an array and not a list through the flows, so that the flows that come next are known before the first of them is
//! read, and can be fetched together.

use std::collections::VecDeque;

/// So many numbers an empty queue keeps its memory for.
const KEPT: usize = 1 << 16;

/// A first-in first-out queue of flows.
#[derive(Default)]
pub(super) struct Turns(VecDeque<u32>);

impl Turns {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number that is `ahead` behind the first.
    #[inline]
    pub(super) fn get(&self, ahead: usize) -> Option<u32> {
        self.0.get(ahead).copied()
    }

    #[inline]
    pub(super) fn push(&mut self, id: u32) {
        self.0.push_back(id);
    }

    /// Takes the first number away.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.0.pop_front();
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = VecDeque::new();
        }
    }

    /// All numbers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}
