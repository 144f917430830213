//! A sender's own stock of buffers. The sender allocates from it and frees to it without an atomic operation
//! (`napi_skb_cache`, and DPDK's mempool cache).

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::arch::{Arch, Atomic, CellApi, CpuId, Native, Work};
use crate::drop::DropReason;
use crate::flow::Link;
use crate::packet::{Packet, PacketList};
use crate::pool::Shared;
use crate::pool::error::AllocError;
use crate::pool::fate::Tally;
use crate::pool::home::Home;
use crate::pool::retired::Run;
use crate::pool::slot::{Body, Slot};
use crate::pool::store::{FreeMode, Store};

mod free;
mod stock;

/// The most buffers that a cache holds (`NAPI_SKB_CACHE_SIZE`). In a small pool a cache holds a 32nd of the pool's buffers.
pub const CACHE_SIZE: usize = 128;

/// One sender's stock of buffers. Dropping it returns its buffers to the pool.
pub struct Cache<A: Arch = Native> {
    pub(super) shared: Arc<Shared<A>>,
    home: NonNull<Home<A>>,
    /// Free buffers, the one freed last at the end.
    pub(super) stack: Vec<NonNull<Slot<A>>>,
    mode: FreeMode,
    /// The most buffers that the stack may hold.
    size: usize,
    /// Whether the pool shrinks, or senders wait for a buffer: then the stack keeps no buffer beyond a call.
    sharing: bool,
    /// Whether the sender has joined the line of senders that wait for a buffer, and has neither left it nor taken the
    /// buffer that it has got there.
    pub(super) in_line: bool,
    /// Whether the sender has a guarantee in the pool, and keeps to the guarantees of others (`pool/reserve.rs`).
    guaranteed: bool,
    /// Whether the sender has registered a waker for credit.
    pub(super) waits_for_credit: bool,
    /// Whether the sender has left packets in a device, to reap them in a later call.
    deferred: bool,
    /// The node of the CPU that the sender runs on.
    node: usize,
    /// Buffers allocated here and not yet freed, including those freed elsewhere since `seen`.
    pub(super) out: i64,
    pub(super) limit: i64,
    /// [`AccountWord::freed`](super::account::AccountWord::freed) when `out` was last reduced by it.
    pub(super) seen: u32,
    /// The flags of a packet that is allocated: those of the link.
    flags: u8,
}

impl<A: Arch> fmt::Debug for Cache<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("pool", &self.shared.name)
            .field("out", &self.out)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

// SAFETY: the pointers are into the pool that `shared` keeps alive, and the buffers on the stack belong to this cache.
unsafe impl<A: Arch> Send for Cache<A> {}

impl<A: Arch> Cache<A> {
    pub(super) fn new(shared: Arc<Shared<A>>, name: &str, cpu: CpuId) -> Self {
        let store = &shared.memory.store;
        let (mode, node) = (store.mode(), store.node_of(cpu));
        let home = shared.memory.homes.occupy(name, cpu, store);
        let (size, sharing) = store.size.join(|| home.open_inboxes());
        let stack = Vec::with_capacity(store.size.cache_max());
        let seen = home.account().read().freed();
        let home = NonNull::from(home);
        let cache = Self {
            shared,
            home,
            stack,
            mode,
            size,
            sharing,
            in_line: false,
            guaranteed: false,
            waits_for_credit: false,
            deferred: false,
            node,
            out: 0,
            limit: i64::MAX,
            seen,
            flags: 0,
        };
        if sharing {
            // A sender that waits for a buffer may have walked the homes before this one was on the list.
            cache.close_inboxes();
        }
        cache
    }

    /// Closes the inboxes of its home, and puts their buffers into the stock.
    #[cold]
    fn close_inboxes(&self) {
        for first in self.home().close_inboxes() {
            // SAFETY: buffers taken from an inbox are ours, linked up to a null.
            let mut run = unsafe { Run::of(first) };
            self.home().account().taken(run.len());
            self.store().put(&mut run);
        }
    }

    #[inline]
    pub(super) fn home(&self) -> &Home<A> {
        // SAFETY: homes live as long as the pool, which `shared` keeps alive.
        unsafe { self.home.as_ref() }
    }

    /// Gives the sender a guarantee ([`PoolConfig::reserve`](super::PoolConfig::reserve)).
    #[doc(hidden)]
    pub fn guarantee(&mut self) {
        if !self.guaranteed {
            self.guaranteed = true;
            self.store().reserve.join();
        }
    }

    /// Returns whether the sender may take buffers from the stock.
    fn may_take(&self) -> bool {
        let size = &self.store().size;
        !self.guaranteed || self.store().reserve.allows(self.out, size.get(), size.bulk())
    }

    /// The home, as the line knows it.
    pub(super) fn home_ptr(&self) -> *const Home<A> {
        self.home.as_ptr().cast_const()
    }

    pub(super) fn store(&self) -> &Store<A> {
        &self.shared.memory.store
    }

    /// Returns the number of buffers that move between the stack and the stock at a time.
    pub(super) fn bulk(&self) -> usize {
        self.store().size.bulk()
    }

    /// Returns the length of the longest packet.
    pub(super) fn room(&self) -> usize {
        self.shared.room
    }

    /// Sets what the packets begin with that it allocates from now on ([`Packet::link`]).
    pub fn set_link(&mut self, link: Link) {
        self.flags = Body::<A>::link_flag(link);
    }

    /// Limits the buffers that the sender may have in use at a time (the kernel's `SO_SNDBUF`, counted in packets).
    pub fn set_limit(&mut self, packets: u64) {
        self.limit = i64::try_from(packets).unwrap_or(i64::MAX);
    }

    /// Sets the CPU on which this sender allocates ([`Packet::alloc_cpu`]).
    pub fn set_cpu(&mut self, cpu: CpuId) {
        self.home().cpu.store(cpu, Relaxed);
        self.node = self.shared.memory.store.node_of(cpu);
    }

    /// Allocates a packet of `len` bytes behind the pool's headroom. The bytes are those that the buffer held before.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Packet<A>, AllocError> {
        if len > self.shared.room {
            return Err(self.too_long(len));
        }
        if self.home().is_kicked() {
            self.empty_inbox();
        }
        if self.stack.is_empty() || self.out >= self.limit {
            self.refill()?;
        }
        let slot = self.stack.pop().expect("refilled");
        A::spend(|| Work::Alloc(1));
        self.out += 1;
        Ok(self.hand_out(slot, len as u32))
    }

    /// Allocates up to `n` packets of `len` bytes, appends them to `list` and returns their number. The number is lower if
    /// the pool has no more buffers or the limit allows no more. Returns an error instead of 0.
    #[inline]
    pub fn alloc_batch(
        &mut self,
        n: usize,
        len: usize,
        list: &mut PacketList<A>,
    ) -> Result<usize, AllocError> {
        if n <= self.stack.len()
            && self.out + n as i64 <= self.limit
            && len <= self.shared.room
            && !self.home().is_kicked()
        {
            self.take(n, len, list);
            A::spend(move || Work::Alloc(n));
            return Ok(n);
        }
        self.alloc_slow(n, len, list)
    }

    /// Moves `n` buffers from the stack to `list`. The stack must have them, and the limit allow them.
    #[inline(always)]
    fn take(&mut self, n: usize, len: usize, list: &mut PacketList<A>) {
        let rest = self.stack.len() - n;
        for &slot in self.stack[rest..].iter().rev() {
            list.push_fresh(self.hand_out(slot, len as u32), self.home.as_ptr());
        }
        list.add_fresh(n, len);
        self.stack.truncate(rest);
        self.out += n as i64;
    }

    /// As [`alloc_batch`](Cache::alloc_batch), where the stack may have fewer than `n` buffers, or the limit allow fewer.
    #[inline(never)]
    fn alloc_slow(&mut self, n: usize, len: usize, list: &mut PacketList<A>) -> Result<usize, AllocError> {
        if len > self.shared.room {
            return Err(self.too_long(len));
        }
        if self.home().is_kicked() {
            self.empty_inbox();
        }
        let mut got = 0;
        while got < n {
            if self.stack.is_empty() || self.out >= self.limit {
                match self.refill() {
                    Err(e) if got == 0 => return Err(e),
                    Err(_) => break,
                    Ok(()) => {}
                }
            }
            let left = usize::try_from(self.limit - self.out).unwrap_or(usize::MAX);
            let take = (n - got).min(self.stack.len()).min(left);
            self.take(take, len, list);
            got += take;
        }
        A::spend(move || Work::Alloc(got));
        Ok(got)
    }

    /// Allocates a packet of a buffer that the sender has got in the line. The limit must allow it.
    pub(super) fn hand_out_own(&mut self, slot: NonNull<Slot<A>>, len: usize) -> Packet<A> {
        A::spend(|| Work::Alloc(1));
        self.out += 1;
        self.hand_out(slot, len as u32)
    }

    /// Makes a packet of `len` bytes of a buffer that the caller has taken off the stack.
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
            b.flags = self.flags;
        });
        // SAFETY: the one handle to this buffer.
        unsafe { Packet::from_slot(slot) }
    }

    /// Returns a view of the counters that this sender's home keeps of it.
    #[doc(hidden)]
    pub fn tally(&self) -> Tally<A> {
        Tally::new(self.shared.clone(), self.home)
    }

    /// Returns the number of buffers out and the [`AccountWord::freed`](super::account::AccountWord::freed) that it accounts for, both for [`Tally::pending`].
    #[doc(hidden)]
    #[inline]
    pub fn credit(&self) -> (u32, u32) {
        // Never negative: each buffer is counted once out and once back. Never above 2^31, as a pool is smaller.
        (self.out as u32, self.seen)
    }

    /// Returns whether the limit allows no allocation, as far as the sender knows.
    #[doc(hidden)]
    pub fn is_at_limit(&self) -> bool {
        self.out >= self.limit
    }

    /// Returns a number that differs from those of all other senders alive.
    #[doc(hidden)]
    #[inline]
    pub fn id(&self) -> usize {
        self.home.addr().get()
    }

    /// Notes that the sender has left packets in a device, to reap them in a later call.
    #[doc(hidden)]
    #[inline]
    pub fn note_deferred(&mut self) {
        self.deferred = true;
    }

    /// Returns whether [`note_deferred`](Cache::note_deferred) was called since the last call of this, and clears the note.
    #[doc(hidden)]
    pub fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred)
    }
}

impl<A: Arch> Drop for Cache<A> {
    fn drop(&mut self) {
        self.stop_waiting();
        if self.guaranteed {
            self.store().reserve.leave();
        }
        // SAFETY: as in `empty_inbox`.
        let home = unsafe { self.home.as_ref() };
        self.note_credit(home.account().read());
        // First, so that from now on buffers freed to this home go to the stock. A run counted before still goes to the
        // inbox, where a sender without buffers finds it.
        self.shared.memory.homes.vacate(home, self.seen, self.out as u32);
        if home.account().read().backlog() > 0 {
            self.take_from(home);
        }
        self.shared.memory.store.stock(self.stack.drain(..));
    }
}
