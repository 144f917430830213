//! A sender's own stock of buffers: what it allocates from and frees to without an atomic operation
//! (`napi_skb_cache`, and DPDK's mempool cache).

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use thiserror::Error;

use crate::arch::{Arch, Atomic, CellApi, CpuId, Native};
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};
use crate::pool::Shared;
use crate::pool::home::Home;
use crate::pool::retired::Retired;
use crate::pool::slot::Slot;

/// Buffers that a cache holds at most (`NAPI_SKB_CACHE_SIZE`); fewer in a small pool, a 32nd of its buffers.
pub const CACHE_SIZE: usize = 128;
/// Homes that [`Cache::free`] collects for before it flushes one.
const OPEN: usize = 4;

/// Why there is no buffer. None of them waits; the caller decides what to do with its packet.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum AllocError {
    /// Every buffer of the pool is in use or in other senders' caches.
    #[error(
        "pool \"{pool}\" has no free buffer of its {buffers}: send less at a time, or give the pool more buffers"
    )]
    Exhausted {
        /// The pool's name.
        pool: String,
        /// How many buffers it has.
        buffers: u32,
    },
    /// This sender has as many packets on their way as it may (`SO_SNDBUF`).
    #[error("sender \"{sender}\" has all of its {limit} packets on their way: try again when some are sent")]
    Limit {
        /// The sender's name.
        sender: String,
        /// How many it may have.
        limit: u64,
    },
    /// The packet is longer than a buffer.
    #[error("a packet of {len} bytes is longer than the {room} that a buffer of pool \"{pool}\" holds")]
    TooLong {
        /// The pool's name.
        pool: String,
        /// What was asked for, in bytes.
        len: usize,
        /// What fits, in bytes.
        room: usize,
    },
}

/// One sender's stock. Dropping it gives every buffer it holds back to the pool.
pub struct Cache<A: Arch = Native> {
    shared: Arc<Shared<A>>,
    home: NonNull<Home<A>>,
    /// Free buffers, the hottest last.
    pub(super) stack: Vec<NonNull<Slot<A>>>,
    /// Buffers allocated here and not yet back. May fall below zero: a home can inherit packets of its last occupant.
    out: i64,
    limit: i64,
    /// `Home::taken_away` when it was last subtracted from `out`.
    taken_seen: u64,
}

// SAFETY: the pointers are into the pool that `shared` keeps alive, and the buffers on the stack belong to this cache.
unsafe impl<A: Arch> Send for Cache<A> {}

impl<A: Arch> Cache<A> {
    pub(super) fn new(shared: Arc<Shared<A>>, name: &str, cpu: CpuId) -> Self {
        let stack = Vec::with_capacity(shared.cache_size);
        let home = shared.memory.homes.occupy(name, cpu);
        let taken_seen = home.taken_away.load(Relaxed);
        let home = NonNull::from(home);
        Self { shared, home, stack, out: 0, limit: i64::MAX, taken_seen }
    }

    fn home(&self) -> &Home<A> {
        // SAFETY: homes live as long as the pool, which `shared` keeps alive.
        unsafe { self.home.as_ref() }
    }

    /// Bounds the buffers that may be out at a time (the kernel's `SO_SNDBUF`, counted in packets).
    pub fn set_limit(&mut self, packets: u64) {
        self.limit = i64::try_from(packets).unwrap_or(i64::MAX);
    }

    /// Tells the pool on which CPU this sender allocates ([`Packet::alloc_cpu`]).
    pub fn set_cpu(&mut self, cpu: CpuId) {
        self.home().cpu.store(cpu, Relaxed);
    }

    /// A packet of `len` bytes behind the pool's headroom. Its content is whatever the buffer held before.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Packet<A>, AllocError> {
        if len > self.shared.room {
            return Err(self.too_long(len));
        }
        if self.stack.is_empty() || self.out >= self.limit {
            self.refill()?;
        }
        let slot = self.stack.pop().expect("refilled");
        self.out += 1;
        Ok(self.hand_out(slot, len as u32))
    }

    /// Up to `n` packets of `len` bytes, appended to `list`. Fewer when the pool or the limit has no more; an error
    /// when there is not one.
    #[inline]
    pub fn alloc_batch(
        &mut self,
        n: usize,
        len: usize,
        list: &mut PacketList<A>,
    ) -> Result<usize, AllocError> {
        let mut got = 0;
        while got < n {
            match self.alloc(len) {
                Ok(packet) => list.push_fresh(packet, len),
                Err(_) if got > 0 => break,
                Err(e) => return Err(e),
            }
            got += 1;
        }
        Ok(got)
    }

    #[inline]
    fn hand_out(&self, slot: NonNull<Slot<A>>, len: u32) -> Packet<A> {
        let home = self.home.as_ptr().cast_const();
        // SAFETY: a buffer on the stack is ours alone.
        let s = unsafe { slot.as_ref() };
        s.check.out(home);
        s.body.with_mut(|b| {
            // SAFETY: as above. Only the first line is written; the second is valid by flags.
            let b = unsafe { &mut *b };
            b.home = home;
            b.tstamp = 0;
            b.stamp = 0;
            b.hash = 0;
            b.mark = 0;
            b.priority = 0;
            b.len = len;
            b.off = self.shared.headroom;
            b.txq = 0;
            b.gso_segs = 1;
            b.reason = DropReason::NotSpecified;
            b.flags = 0;
        });
        // SAFETY: the one handle to this buffer.
        unsafe { Packet::from_slot(slot) }
    }

    /// Frees a list: our own buffers to the stack, others to the inboxes of their homes.
    pub fn free(&mut self, list: &mut PacketList<A>) {
        let mut open = [const { Retired::new() }; OPEN];
        let mut turn = 0;
        while let Some(packet) = list.pop_front() {
            let slot = packet.retire();
            // SAFETY: retired, so ours until it is pushed somewhere.
            let home = unsafe { slot.as_ref().body.with(|b| (*b).home) };
            if ptr::eq(home, self.home.as_ptr()) {
                self.out -= 1;
                self.keep(slot);
                continue;
            }
            let at = open.iter().position(|list| list.is_for(home)).unwrap_or_else(|| {
                turn = (turn + 1) % OPEN;
                open[turn].restart(home);
                turn
            });
            open[at].push(slot);
        }
        open.iter_mut().for_each(Retired::send_home);
    }

    #[inline]
    fn keep(&mut self, slot: NonNull<Slot<A>>) {
        if self.stack.len() == self.shared.cache_size {
            self.spill();
        }
        self.stack.push(slot);
    }

    /// Gives the coldest buffers to the depot.
    fn spill(&mut self) {
        let cold = self.shared.bulk();
        self.shared.stock(self.stack.drain(..cold));
    }

    /// Makes sure that there is a buffer on the stack, and that the limit allows to take it.
    #[cold]
    fn refill(&mut self) -> Result<(), AllocError> {
        self.take_inbox();
        if self.out >= self.limit {
            let taken = self.home().taken_away.load(Relaxed);
            self.out -= taken.wrapping_sub(self.taken_seen) as i64;
            self.taken_seen = taken;
            if self.out >= self.limit {
                return Err(AllocError::Limit { sender: self.home().name(), limit: self.limit as u64 });
            }
        }
        if self.stack.is_empty() && !self.take_depot() {
            self.scavenge();
        }
        if self.stack.is_empty() {
            return Err(AllocError::Exhausted {
                pool: self.shared.name.clone(),
                buffers: self.shared.buffers,
            });
        }
        Ok(())
    }

    /// Buffers that others freed for us.
    fn take_inbox(&mut self) {
        // SAFETY: the home lives as long as the pool; the borrow is of the pool, not of `self`.
        let home = unsafe { self.home.as_ref() };
        self.out -= self.take_from(home) as i64;
    }

    /// Empties the inbox of `home` into the stack, and what does not fit into the depot. Returns how many there were.
    fn take_from(&mut self, home: &Home<A>) -> usize {
        let mut list = home.inbox.take_all();
        let mut taken = 0;
        let mut surplus = Vec::new();
        while !list.is_null() {
            let mut slot = list;
            // SAFETY: lists taken from an inbox are ours, each ends in null, and their packets are retired.
            list = unsafe { (*list).older.with(|l| *l) };
            while let Some(s) = NonNull::new(slot) {
                // SAFETY: as above.
                slot = unsafe { s.as_ref().next.with(|n| *n) };
                taken += 1;
                if self.stack.len() < self.shared.cache_size {
                    self.stack.push(s);
                } else {
                    surplus.push(s);
                }
            }
        }
        self.shared.stock(surplus.into_iter());
        taken
    }

    fn take_depot(&mut self) -> bool {
        let memory = &self.shared.memory;
        let Some(first) = memory.depot.pop(&memory.slots) else { return false };
        let mut slot = ptr::from_ref(first).cast_mut();
        while let Some(s) = NonNull::new(slot) {
            self.stack.push(s);
            // SAFETY: a popped batch is ours and ends in null.
            slot = unsafe { s.as_ref().next.with(|n| *n) };
        }
        true
    }

    /// The last resort before an error: buffers that came home to a sender that is gone or has no use for them now.
    fn scavenge(&mut self) {
        let shared = self.shared.clone();
        for home in shared.memory.homes.iter().filter(|h| !h.inbox.is_empty()) {
            let taken = self.take_from(home) as u64;
            home.taken_away.fetch_add(taken, Relaxed);
        }
    }

    #[cold]
    fn too_long(&self, len: usize) -> AllocError {
        AllocError::TooLong { pool: self.shared.name.clone(), len, room: self.shared.room }
    }
}

impl<A: Arch> Drop for Cache<A> {
    fn drop(&mut self) {
        self.take_inbox();
        self.shared.stock(self.stack.drain(..));
        self.home().vacate();
    }
}
