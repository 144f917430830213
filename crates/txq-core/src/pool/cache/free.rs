//! Frees packets to a sender's stock, or to the homes of their buffers.

use std::ptr;

use super::Cache;
use crate::arch::{Arch, Work};
use crate::packet::PacketList;
use crate::pool::retired::{Run, Sorted, retire};
use crate::pool::store::FreeMode;

impl<A: Arch> Cache<A> {
    /// Whether all packets of a list are this sender's own, and no flow counts them.
    #[doc(hidden)]
    #[inline]
    pub fn is_home_of(&self, list: &PacketList<A>) -> bool {
        list.is_of(self.home.as_ptr())
    }

    /// Frees dropped packets, and counts them as drops of the senders that allocated them.
    #[doc(hidden)]
    pub fn free_dropped(&mut self, list: &mut PacketList<A>) {
        list.for_each_drop(|home, reason, n| home.note_dropped(reason, n));
        self.free(list);
    }

    /// Frees a list: the sender's own buffers to the stack, others as the pool's [`FreeMode`] says. Credit returns to the
    /// senders that allocated them in every mode.
    #[inline]
    pub fn free(&mut self, list: &mut PacketList<A>) {
        A::spend(|| Work::Free(list.len()));
        let fits =
            self.stack.len() + list.len() <= self.size && !self.sharing && self.mode != FreeMode::Shared;
        if fits && list.is_of(self.home.as_ptr()) && !self.home().is_kicked() {
            // All buffers are this sender's: they go on the stack in the list's order.
            let (before, n) = (self.stack.len(), list.len());
            self.out -= n as i64;
            let mut free = self.stack.spare_capacity_mut()[..n].iter_mut();
            list.take_each(|slot| {
                free.next().expect("a place for each").write(slot);
            });
            let filled = n - free.len();
            // SAFETY: the first `filled` places behind the stack are within its capacity, and a buffer was written into each.
            unsafe { self.stack.set_len(before + filled) };
            return;
        }
        self.free_slow(list);
    }

    /// As [`free`](Cache::free), for buffers of any sender.
    #[inline(never)]
    fn free_slow(&mut self, list: &mut PacketList<A>) {
        if self.home().is_kicked() {
            self.empty_inbox();
        }
        match self.mode {
            FreeMode::Defer => self.free_home(list),
            FreeMode::Keep => self.free_here(list, |cache, run| run.for_each(|slot| cache.keep(slot))),
            FreeMode::Shared => {
                let mut all = Run::new();
                self.free_here(list, |_, run| all.append(run));
                if all.len() > 0 {
                    self.shared.memory.store.put(&mut all);
                }
            }
        }
        if self.sharing {
            self.give_up();
        }
    }

    /// Frees under [`FreeMode::Defer`]: the sender's own buffers to the stack, others to the inboxes of their homes.
    fn free_home(&mut self, list: &mut PacketList<A>) {
        // Built at the first foreign packet: a sender that frees only its own does not pay for it.
        let mut sorted = None;
        retire(list, |home, run| {
            if ptr::eq(home, self.home.as_ptr()) {
                self.out -= i64::from(run.len());
                run.for_each(|slot| self.keep(slot));
            } else {
                sorted.get_or_insert_with(|| Sorted::new(self.node)).of(home).append(run);
            }
        });
        if let Some(sorted) = sorted {
            sorted.send_home();
        }
    }

    /// Frees under the other modes: hands buffers of this pool to `keep` and returns only their credit. Buffers of other
    /// pools go home.
    fn free_here(&mut self, list: &mut PacketList<A>, mut keep: impl FnMut(&mut Self, Run<A>)) {
        let mut sorted = Sorted::new(self.node);
        retire(list, |home, run| {
            if ptr::eq(home, self.home.as_ptr()) {
                self.out -= i64::from(run.len());
                return keep(self, run);
            }
            let retired = sorted.of(home);
            if retired.keep(run.len(), &self.shared.memory.store) {
                keep(self, run);
            } else {
                retired.append(run);
            }
        });
        sorted.send_home();
    }
}
