//! Sleep of a sender at its limit, until packets are freed (`sock_wait_for_wmem`, `sock_def_write_space`).

use crate::arch::{Arch, Event, Nanos};
use crate::pool::cache::Cache;

impl<A: Arch> Cache<A> {
    /// Sleeps until the limit allows an allocation or until `deadline`; returns whether the limit allows it.
    ///
    /// A sleeping sender is woken once half of its limit is free, as in the kernel: one wake for many packets. Packets that
    /// the caller holds count against the limit; it should send or free them first.
    pub fn wait_credit(&mut self, deadline: Option<Nanos>) -> bool {
        loop {
            self.note_credit(self.home().account().read());
            if self.out < self.limit {
                return true;
            }
            if deadline.is_some_and(|at| A::now() >= at) {
                return false;
            }
            let need = (self.out - self.limit / 2).max(1);
            let word = self.home().lie_down(self.seen, need as u32);
            // The word counts all packets freed up to this moment; a thread that frees later finds `SLEEPS` set.
            self.note_credit(word);
            if self.out >= self.limit {
                self.home().event().wait(deadline);
            }
            self.home().account().rouse();
        }
    }
}
