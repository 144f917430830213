//! A core's stores that are under way.
//!
//! A core goes on when it has stored to a line that it does not have: the value waits in the store buffer, and the line has
//! been asked for. So that what it writes to a packet's lines one after the other is there after one way, not after as many
//! as there are lines. The stores are done in the order in which they were made (x86's total store order), and a
//! read-modify-write waits until all are.
//!
//! How many lines can be under way is a number of the machine ([`Line::stores`](crate::machine::Line::stores)): a core's
//! line fill buffers, or miss address buffers. A store that finds them all in use waits for the first.
//!
//! A store that releases is one of them: it is done when all before it are, and until then nobody has its line. Its effect is
//! at once, as that of every store, for the memory may be gone when its line is there; who looks has to wait for the line.

use crate::machine::Picos;

/// The stores of a task on its core.
#[derive(Debug)]
pub(crate) struct Stores {
    /// When each is done that may be under way, from `next` on in their order.
    done: Box<[Picos]>,
    next: usize,
    /// When the last one is.
    last: Picos,
}

impl Stores {
    pub(crate) fn new(room: u32) -> Self {
        Self { done: vec![0; room as usize].into(), next: 0, last: 0 }
    }

    /// When all are done.
    #[inline]
    pub(crate) fn done(&self) -> Picos {
        self.last
    }

    /// One more, whose line comes at `at`. Tells when there is room for it.
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
        // Each takes the place of the one that is done first: the second waited for the first one's line.
        assert_eq!([500, 500, 500].map(|at| stores.add(at)), [300, 300, 400]);
    }

    #[test]
    fn without_room_a_store_waits_for_its_line() {
        let mut stores = Stores::new(0);
        assert_eq!([stores.add(300), stores.add(700)], [300, 700]);
    }
}
