//! Buffers: one contiguous region, a stock for each sender, and a lock-free way back for buffers freed on another thread.
//!
//! A sender allocates from its own stock without an atomic operation. A buffer freed elsewhere returns to the sender
//! that allocated it, and so to the CPU in whose caches it lies (Linux e20dfbad8aab). [`PoolConfig`] has the sizes and
//! bounds; [`Pool::resize`] changes the size under traffic.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;

use txq_core::arch::CpuId;
use txq_core::pool as generic;

use crate::Instant;
use crate::driver::Link;
use crate::packet::{Packet, PacketList};

pub use txq_core::pool::{
    AllocError, Backing, CACHE_SIZE, DEFER_MAX, FreeMode, LentMemory, PoolConfig, PoolError,
};

/// A pool of buffers. Clones are the same pool.
#[derive(Clone)]
#[repr(transparent)]
pub struct Pool(#[doc(hidden)] pub generic::Pool);

txq_core::transparent!(pub(crate) Pool, generic::Pool);

impl Pool {
    /// Creates a pool whose buffers are all free. Returns an error for a size out of range, or without memory.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        generic::Pool::new(config).map(Self)
    }

    /// Creates a pool in memory of someone else. [`PoolConfig::backing`] is not used.
    ///
    /// # Errors
    /// A size out of range, or buffers that do not fit into the memory or its stride.
    pub fn on(config: &PoolConfig, memory: LentMemory) -> Result<Self, PoolError> {
        generic::Pool::on(config, memory).map(Self)
    }

    /// Returns the number of buffers that the pool was last set to ([`Pool::resize`]).
    pub fn buffers(&self) -> u32 {
        self.0.buffers()
    }

    /// Returns the largest number that [`Pool::resize`] accepts.
    pub fn max_buffers(&self) -> u32 {
        self.0.max_buffers()
    }

    /// Returns the buffers guaranteed to each sender: [`PoolConfig::reserve`], or what a pool of this size allows.
    pub fn reserve(&self) -> u32 {
        self.0.reserve()
    }

    /// Returns the number of buffers out of circulation: [`Pool::max_buffers`] less [`Pool::buffers`], or fewer while
    /// surplus buffers are still in use.
    pub fn parked(&self) -> u32 {
        self.0.parked()
    }

    /// Changes the number of buffers under traffic, to a number from 1 to [`Pool::max_buffers`].
    ///
    /// Additional buffers are available at once. If the pool shrinks, free buffers leave circulation now, buffers in use
    /// when they are freed, and those in a sender's cache at that sender's next call. A sender that makes no call keeps up
    /// to [`CACHE_SIZE`]. The region stays as it is.
    pub fn resize(&self, buffers: u32) -> Result<(), PoolError> {
        self.0.resize(buffers)
    }

    /// Returns the length of the longest packet, in bytes.
    pub fn room(&self) -> usize {
        self.0.room()
    }

    /// Returns the number of free bytes in front of a packet that was just allocated.
    pub fn headroom(&self) -> usize {
        self.0.headroom()
    }

    /// Returns [`PoolConfig::tailroom`].
    pub fn tailroom(&self) -> usize {
        self.0.tailroom()
    }

    /// Returns the kind of memory that the buffers lie in: never [`Backing::Auto`].
    pub fn backing(&self) -> Backing {
        self.0.backing()
    }

    /// Returns the region's start and the distance between buffers in bytes, as a UMEM's registration needs them.
    pub fn region(&self) -> (NonNull<u8>, usize) {
        self.0.region()
    }

    /// Returns the number of buffers in use by the name of the sender that allocated them. Exact while no thread allocates
    /// or frees; empty in release builds.
    pub fn in_use(&self) -> BTreeMap<String, usize> {
        self.0.in_use()
    }

    /// Where a buffer goes when a thread other than the one that allocated it frees it.
    pub fn free_mode(&self) -> FreeMode {
        self.0.free_mode()
    }

    /// Returns the current [`PoolConfig::defer_max`].
    pub fn defer_max(&self) -> u32 {
        self.0.defer_max()
    }

    /// Changes [`PoolConfig::defer_max`] under traffic. A sender for which more than half of the new value waits empties its
    /// inbox at its next call.
    pub fn set_defer_max(&self, packets: u32) {
        self.0.set_defer_max(packets);
    }

    /// Returns the number of buffers that other threads freed and that wait for their senders to take them.
    pub fn backlog(&self) -> u64 {
        self.0.backlog()
    }

    /// Returns whether the packet's buffer is one of this pool's.
    pub fn owns(&self, packet: &Packet) -> bool {
        self.0.owns(&packet.0)
    }

    /// Returns the packet whose buffer holds `offset` of the region, for devices that report completions by address.
    ///
    /// # Safety
    /// [`take_offset`](Pool::take_offset) of this pool gave the packet to the device, and the device returns it for the first time.
    ///
    /// # Panics
    /// When `offset` is outside of the region; in debug builds also when that buffer is not in use.
    pub unsafe fn packet_at(&self, offset: usize) -> Packet {
        // SAFETY: the promise of the caller.
        Packet(unsafe { self.0.packet_at(offset) })
    }

    /// Creates the stock of buffers of a thread that runs on `cpu`.
    pub fn cache(&self, name: &str, cpu: CpuId) -> Cache {
        Cache(self.0.cache(name, cpu))
    }

    /// Gives up a packet for a device that reports completions by address; returns the offset of its first byte in the
    /// pool's region. [`packet_at`](Pool::packet_at) takes it back; until then nothing frees the buffer.
    ///
    /// The offset is always within the packet's own buffer. An empty packet at the buffer's end, where the next buffer
    /// begins, has the offset of the buffer's last byte.
    ///
    /// # Panics
    /// The packet is not of this pool ([`owns`](Pool::owns)).
    pub fn take_offset(&self, packet: Packet) -> usize {
        packet.0.into_offset(&self.0)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A stock of buffers of one thread, beside senders: for receivers and benchmarks. A sender has its own.
pub struct Cache(#[doc(hidden)] pub generic::Cache);

impl Cache {
    /// Allocates a packet of `len` bytes behind the pool's headroom. The bytes are those that the buffer held before.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Packet, AllocError> {
        self.0.alloc(len).map(Packet)
    }

    /// Allocates up to `n` packets of `len` bytes, appends them to `list` and returns their number. The number is lower if
    /// the pool has no more buffers or the limit allows no more. Returns an error instead of 0.
    #[inline]
    pub fn alloc_batch(&mut self, n: usize, len: usize, list: &mut PacketList) -> Result<usize, AllocError> {
        self.0.alloc_batch(n, len, &mut list.0)
    }

    /// Frees a list: the sender's own buffers to the stack, others as the pool's [`FreeMode`] says. Credit returns to the
    /// senders that allocated them in every mode.
    #[inline]
    pub fn free(&mut self, list: &mut PacketList) {
        self.0.free(&mut list.0);
    }

    /// Sets what the packets begin with that it allocates from now on ([`Packet::link`]).
    pub fn set_link(&mut self, link: Link) {
        self.0.set_link(link);
    }

    /// Limits the buffers that the sender may have in use at a time (the kernel's `SO_SNDBUF`, counted in packets).
    pub fn set_limit(&mut self, packets: u64) {
        self.0.set_limit(packets);
    }

    /// Sets the CPU on which this sender allocates ([`Packet::alloc_cpu`]).
    pub fn set_cpu(&mut self, cpu: CpuId) {
        self.0.set_cpu(cpu);
    }

    /// Sleeps until the limit allows an allocation or until `deadline`; returns whether the limit allows it.
    ///
    /// A sleeping sender is woken once half of its limit is free, as in the kernel: one wake for many packets. Packets that
    /// the caller holds count against the limit; it should send or free them first.
    pub fn wait_credit(&mut self, deadline: Option<Instant>) -> bool {
        self.0.wait_credit(deadline.map(Instant::as_nanos))
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}
