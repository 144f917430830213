//! A core's stores in flight.
//!
//! A core continues after a store to a line that it does not have: the value waits in the store buffer while the line is
//! fetched. So stores to several lines of a packet, one after the other, take the time of one transfer, not the sum. The
//! stores complete in program order (x86's total store order), and a read-modify-write waits until all are complete.
//!
//! The machine says how many lines can be in flight ([`Line::stores`](crate::sim::machine::Line::stores)): a core's line fill
//! buffers, or miss address buffers. A store that finds them all in use waits for the first.
//!
//! A store with release ordering completes when all stores before it have, and until then no other core gets its line. Its
//! effect is immediate, as that of every store, because the memory may be freed before its line arrives; a task that reads
//! it waits for the line.

use crate::sim::machine::Picos;

/// The stores in flight of a task, on its core.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Completion times of the last stores, a ring whose oldest entry is at `next`.
    done: Box<[Picos]>,
    next: usize,
    /// When the last store completes.
    last: Picos,
}

impl Stores {
    pub(crate) fn new(room: u32) -> Self {
        Self { done: vec![0; room as usize].into(), next: 0, last: 0 }
    }

    /// Returns when all stores are complete.
    #[inline]
    pub(crate) fn done(&self) -> Picos {
        self.last
    }

    /// Adds a store whose line arrives at `at`; returns when there is room for it.
    #[inline]
    pub(crate) fn add(&mut self, at: Picos) -> Picos {
        self.last = self.last.max(at);
        let room = self.done.len();
        let Some(place) = self.done.get_mut(self.next) else { return at };
        self.next = if self.next + 1 == room { 0 } else { self.next + 1 };
        std::mem::replace(place, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_done_in_their_order() {
        let mut stores = Stores::new(3);
        assert_eq!([300, 100, 400].map(|at| stores.add(at)), [0, 0, 0]);
        assert_eq!(stores.done(), 400);
        // Each replaces the one that completes first: the second waited for the first one's line.
        assert_eq!([500, 500, 500].map(|at| stores.add(at)), [300, 300, 400]);
    }

    #[test]
    fn without_room_a_store_waits_for_its_line() {
        let mut stores = Stores::new(0);
        assert_eq!([stores.add(300), stores.add(700)], [300, 700]);
    }
}
