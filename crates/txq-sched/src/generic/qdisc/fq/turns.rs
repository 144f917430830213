//! A list of flows that take turns: a queue of flow numbers.
//!
//! The queue is an array and not a list through the flows. So the next flows are known before the first of them is read,
//! and can be prefetched together.

use std::collections::VecDeque;

/// The capacity that an empty queue keeps, in flows.
const KEPT_FLOWS: usize = 1 << 16;

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

    /// Returns the flow `ahead` places behind the first.
    #[inline]
    pub(super) fn get(&self, ahead: usize) -> Option<u32> {
        self.0.get(ahead).copied()
    }

    #[inline]
    pub(super) fn push(&mut self, id: u32) {
        self.0.push_back(id);
    }

    /// Removes the first flow. An empty queue gives back memory beyond [`KEPT_FLOWS`] flows.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.0.pop_front();
        if self.0.is_empty() && self.0.capacity() > KEPT_FLOWS {
            self.0 = VecDeque::new();
        }
    }

    /// Returns all flows, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}
