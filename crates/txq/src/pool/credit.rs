//! Sleeping until packets are freed: what a sender does at its limit (`sock_wait_for_wmem`, `sock_def_write_space`).

use crate::arch::{Arch, Event, Nanos};
use crate::pool::cache::Cache;

impl<A: Arch> Cache<A> {
    /// Sleeps until the limit allows to allocate, or until `deadline`, and tells whether it does.
    ///
    /// A sender that lies down gets up when half of its limit is free, as the kernel's do: one wake for many packets.
    /// Packets that the caller still holds do not get free by themselves; it should hand them in before.
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
            // What was freed up to this moment is in the word; who frees after it finds that we sleep.
            self.note_credit(word);
            if self.out >= self.limit {
                self.home().event().wait(deadline);
            }
            self.home().account().rouse();
        }
    }
}
