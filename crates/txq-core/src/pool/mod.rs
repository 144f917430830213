//! Buffers: one contiguous region, a cache per sender, and a lock-free return path for buffers freed on another thread.
//!
//! ```text
//!   Cache (a sender)  --alloc-->  Packet  --xmit, completion on any CPU-->  freed
//!     ^   ^                                                                   |
//!     |   +------- inbox of the sender's home (push / take all) <-------------+
//!     +--------- depots (batches of 32, lock-free stacks) <--- spills, surplus, senders that ended
//! ```
//!
//! A sender allocates from its own cache without an atomic operation. When another thread frees a packet, the sender's
//! credit ([`Cache::set_limit`]) returns at once, and wakes a sender that sleeps for credit ([`Cache::wait_credit`]). Only
//! the memory travels. It goes to the inbox of the sender that allocated it, and so returns to the CPU in whose caches it
//! lies (Linux e20dfbad8aab, "fix napi_consume_skb() with alien skbs"). A run of packets of any length costs one addition
//! and one compare-and-swap on one cache line.
//!
//! An inbox is bounded ([`PoolConfig::defer_max`]). Buffers freed beyond the bound go to the depot, for all senders. Buffers
//! of a sender that is gone go there, too. Above half of the bound the sender is kicked: its next call of alloc or free
//! empties the inbox although it has buffers left. A sender without buffers tries its inbox, then the depot, then the
//! inboxes of all other senders. If all are empty, it returns [`AllocError::Exhausted`]. No buffer is out of reach because a
//! sender is idle or gone.
//!
//! A pool can be resized under traffic, up to [`PoolConfig::max_buffers`] (`pool/size.rs`).
//!
//! Two other modes ([`FreeMode`]) exist for comparison: as the kernel did before that commit, and one list under one lock.
//! Both may wait for that lock; the default never waits for another thread.
//!
//! The pool's memory lives until its last handle is dropped. If packets are still alive then, the memory is leaked rather
//! than freed under them, and debug builds print the senders that allocated them.

mod account;
mod cache;
pub(crate) mod check;
mod copy;
mod credit;
mod depot;
mod error;
#[doc(hidden)]
pub mod fate;
pub(crate) mod home;
mod inbox;
mod lent;
mod line;
mod offset;
mod region;
mod reserve;
pub(crate) mod retired;
mod size;
#[doc(hidden)]
pub mod slot;
mod slots;
pub(crate) mod store;
pub mod times;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arch::{Arch, CellApi, CpuId, Native};
use crate::cpumask::CpuMask;
use crate::sync::contention::Retries;
use home::Homes;
use region::Region;
use retired::Run;
use slot::Slot;
use slots::Slots;
use store::Store;

pub use cache::{CACHE_SIZE, Cache};
pub use error::{AllocError, PoolError};
pub use lent::LentMemory;
pub use region::Backing;
pub use store::FreeMode;

/// Default number of buffers that may wait for a sender to take them (`net.core.skb_defer_max`).
pub const DEFER_MAX: u32 = 128;

/// Default number of buffers guaranteed to each sender ([`PoolConfig::reserve`]).
const RESERVE: u32 = 128;

/// Configuration of a pool. Write `..PoolConfig::default()` last: a later version may have more fields.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The pool's name, for messages.
    pub name: String,
    /// Number of buffers, 1 to 2^31 - 1: as many packets can exist at a time.
    pub buffers: u32,
    /// Largest number of buffers that [`Pool::resize`] accepts; a value below `buffers` counts as `buffers`. A buffer takes
    /// memory from its first use on, for its bytes and for a descriptor of 128 bytes; before that it takes address space alone
    /// (huge pages are reserved at once).
    pub max_buffers: u32,
    /// Length of the longest packet, in bytes, without the headroom.
    pub room: usize,
    /// Bytes that stay free in front of a new packet, for headers; at most 16384.
    pub headroom: u16,
    /// Bytes that stay free behind a packet of `room` bytes, for trailers ([`Packet::put`](crate::packet::Packet::put)); at most
    /// 16384. A shorter packet has more, and so has a buffer of the pool's own memory, whose length is rounded up to cache lines.
    pub tailroom: u16,
    /// Where the memory comes from.
    pub backing: Backing,
    /// Where a buffer goes when a thread other than the one that allocated it frees it.
    pub free: FreeMode,
    /// Under [`FreeMode::Defer`], how many buffers may wait for each sender to take them (`net.core.skb_defer_max`). Buffers
    /// freed beyond that number go to the depot, for all senders. Above half of it the sender takes them at its next call. 0
    /// turns deferring off.
    pub defer_max: u32,
    /// Buffers guaranteed to each sender of a device: a sender that has as many in use takes no more while the rest of the
    /// stock is needed for the guarantees of other senders, and of one more that may begin. Then its allocation is
    /// [`AllocError::Reserved`] until its own packets leave. At most a 32nd of the pool for each sender, and half of the
    /// pool for all; 0 guarantees nothing. Senders that send on may then lack buffers while one sender's packets queue.
    pub reserve: u32,
    /// The CPUs of each NUMA node (`Topology::nodes`): each node frees to an inbox of
    /// its own, so that two nodes do not pass one cache line back and forth. Every eight CPUs have a depot of their own,
    /// because one word is not enough where many threads allocate at once. Empty means one node and one depot. A CPU that no
    /// node lists counts as one of the first node.
    pub nodes: Vec<CpuMask>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            name: "pool".into(),
            buffers: 4096,
            max_buffers: 0,
            room: 1920,
            headroom: 128,
            tailroom: 0,
            backing: Backing::Auto,
            free: FreeMode::Defer,
            defer_max: DEFER_MAX,
            reserve: RESERVE,
            nodes: Vec::new(),
        }
    }
}

/// A pool of buffers. Clones are the same pool.
pub struct Pool<A: Arch = Native>(Arc<Shared<A>>);

impl<A: Arch> fmt::Debug for Pool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.0.name)
            .field("buffers", &self.buffers())
            .finish_non_exhaustive()
    }
}

impl<A: Arch> Clone for Pool<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<A: Arch> {
    name: String,
    room: usize,
    headroom: u16,
    tailroom: u16,
    stride: usize,
    memory: ManuallyDrop<Memory<A>>,
}

/// The memory that packets point into.
struct Memory<A: Arch> {
    slots: Slots<A>,
    store: Arc<Store<A>>,
    homes: Homes<A>,
}

impl<A: Arch> Memory<A> {
    /// Moves the buffers of all inboxes to the stock, because their senders may not make a call for a long time.
    fn empty_inboxes(&self) {
        for home in self.homes.iter().filter(|h| h.account().read().backlog() > 0) {
            for first in home.take_all() {
                // SAFETY: buffers taken from an inbox are ours, linked up to a null.
                let mut run = unsafe { Run::of(first) };
                let n = run.len();
                if n > 0 {
                    self.store.put(&mut run);
                    home.account().taken(n);
                }
            }
        }
    }

    /// Counts the free buffers in the stock and the inboxes that have begun. Takes them off their lists.
    fn count_home(&self) -> usize {
        let mut home = 0;
        // Opens the stock, and moves the parked buffers into it.
        self.store.resize(self.slots.len() as u32, &self.slots);
        self.store.take_used(&self.slots, usize::MAX, |_| home += 1);
        for mut slot in self.homes.iter().flat_map(|h| h.take_all()) {
            while !slot.is_null() {
                home += 1;
                // SAFETY: buffers in an inbox, taken by us.
                slot = unsafe { (*slot).next.with(|n| *n) };
            }
        }
        home
    }
}

impl<A: Arch> Pool<A> {
    /// Creates a pool whose buffers are all free. Its memory grows with the number of buffers in use at one time. Returns an
    /// error for a size out of range, or without memory.
    #[inline(never)]
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        Self::create(config, None)
    }

    /// Creates a pool in memory of someone else. [`PoolConfig::backing`] is not used.
    ///
    /// # Errors
    /// A size out of range, or buffers that do not fit into the memory or its stride.
    #[inline(never)]
    pub fn on(config: &PoolConfig, memory: LentMemory) -> Result<Self, PoolError> {
        Self::create(config, Some(memory))
    }

    fn create(config: &PoolConfig, lent: Option<LentMemory>) -> Result<Self, PoolError> {
        let PoolConfig {
            name,
            buffers,
            max_buffers,
            room,
            headroom,
            tailroom,
            backing,
            free,
            defer_max,
            reserve,
            nodes,
        } = config.clone();
        let size = |what, value, range: &str| PoolError::Size {
            name: name.clone(),
            what,
            value,
            range: range.into(),
        };
        if buffers == 0 || buffers > i32::MAX as u32 {
            return Err(size("buffers", buffers as usize, "1 to 2147483647"));
        }
        let max = max_buffers.max(buffers);
        if max > i32::MAX as u32 {
            return Err(size("max_buffers", max as usize, "1 to 2147483647"));
        }
        if room == 0 || room > 1 << 20 {
            return Err(size("room", room, "1 to 1048576 bytes"));
        }
        if headroom > 16384 {
            return Err(size("headroom", headroom.into(), "0 to 16384 bytes"));
        }
        if tailroom > 16384 {
            return Err(size("tailroom", tailroom.into(), "0 to 16384 bytes"));
        }
        let each = usize::from(headroom) + room + usize::from(tailroom);
        // An odd number of cache lines, so that the first lines of successive buffers fall into different cache sets.
        let stride = lent.as_ref().and_then(|lent| lent.stride).unwrap_or((each.div_ceil(64) | 1) * 64);
        if each > stride {
            let around = usize::from(headroom) + usize::from(tailroom);
            let range =
                format!("1 to {} bytes (stride less headroom and tailroom)", stride.saturating_sub(around));
            return Err(size("room", room, &range));
        }
        if let Some(lent) = &lent
            && stride.saturating_mul(max as usize) > lent.len
        {
            let range = format!("1 to {}: the memory has {} bytes", lent.len / stride, lent.len);
            return Err(size("buffers", max as usize, &range));
        }
        let places = Slots::reserve(max as usize).map_err(|_| PoolError::Memory {
            name: name.clone(),
            what: "descriptors",
            bytes: size_of::<Slot<A>>().saturating_mul(max as usize),
            remedy: format!("max_buffers {max} takes one for each buffer, used or not: ask for fewer"),
            source: io::ErrorKind::OutOfMemory.into(),
        })?;
        let bytes = stride.saturating_mul(max as usize);
        // Behind `each`, an element of someone else's memory may hold their own data.
        let space = if lent.is_some() { each } else { stride };
        let region = match lent {
            Some(memory) => Ok(Region::lent(memory)),
            None => Region::new(bytes, stride, backing),
        };
        let region = region.map_err(|source| {
            let remedy = "use fewer or smaller buffers, or backing \"auto\"".to_owned();
            PoolError::Memory { name: name.clone(), what: "buffers", bytes, remedy, source }
        })?;
        // The region has `max` times `stride` bytes.
        let slots = Slots::new(places, region, stride);
        let store = Arc::new(Store::new(free, &slots, buffers, (defer_max, reserve), space, &nodes));
        let memory = ManuallyDrop::new(Memory { slots, store, homes: Homes::new() });
        // From here on the box of descriptors does not move: a move would invalidate pointers into it.
        let shared = Arc::new(Shared { name, room, headroom, tailroom, stride, memory });
        A::name(shared.memory.slots.bytes(), "packet: descriptor");
        A::name(shared.memory.slots.region.bytes(), "packet: data");
        shared.memory.store.name_lines();
        Ok(Self(shared))
    }

    /// Creates the stock of buffers of a sender that runs on `cpu`.
    #[inline(never)]
    pub fn cache(&self, name: &str, cpu: CpuId) -> Cache<A> {
        Cache::new(self.0.clone(), name, cpu)
    }

    /// Returns the number of buffers that the pool was last set to ([`Pool::resize`]).
    #[inline(never)]
    pub fn buffers(&self) -> u32 {
        self.0.memory.store.size.get()
    }

    /// Returns the largest number that [`Pool::resize`] accepts.
    #[inline(never)]
    pub fn max_buffers(&self) -> u32 {
        self.0.memory.slots.len() as u32
    }

    /// Returns the buffers guaranteed to each sender: [`PoolConfig::reserve`], or what a pool of this size allows.
    #[inline(never)]
    pub fn reserve(&self) -> u32 {
        self.0.memory.store.reserve.each(self.buffers())
    }

    /// Returns the number of buffers out of circulation: [`Pool::max_buffers`] less [`Pool::buffers`], or fewer while
    /// surplus buffers are still in use.
    #[inline(never)]
    pub fn parked(&self) -> u32 {
        self.0.memory.store.size.parked()
    }

    /// Changes the number of buffers under traffic, to a number from 1 to [`Pool::max_buffers`].
    ///
    /// Additional buffers are available at once. If the pool shrinks, free buffers leave circulation now, buffers in use
    /// when they are freed, and those in a sender's cache at that sender's next call. A sender that makes no call keeps up
    /// to [`CACHE_SIZE`]. The region stays as it is.
    #[inline(never)]
    pub fn resize(&self, buffers: u32) -> Result<(), PoolError> {
        let (memory, max) = (&self.0.memory, self.max_buffers());
        if buffers == 0 || buffers > max {
            return Err(PoolError::Size {
                name: self.0.name.clone(),
                what: "buffers",
                value: buffers as usize,
                range: format!("1 to {max} (max_buffers)"),
            });
        }
        memory.store.resize(buffers, &memory.slots);
        if memory.store.size.is_shrinking() {
            memory.empty_inboxes();
        }
        memory.homes.iter().for_each(|h| h.tell_size());
        Ok(())
    }

    /// Returns the length of the longest packet, in bytes.
    #[inline(never)]
    pub fn room(&self) -> usize {
        self.0.room
    }

    /// Returns the number of free bytes in front of a packet that was just allocated.
    #[inline(never)]
    pub fn headroom(&self) -> usize {
        self.0.headroom.into()
    }

    /// Returns the [`tailroom`](PoolConfig::tailroom) that the pool was made with.
    pub fn tailroom(&self) -> usize {
        self.0.tailroom.into()
    }

    /// Returns the number of bytes of a buffer that a packet may have, with the free bytes around it: the headroom, the room
    /// and the tailroom, and in the pool's own memory the rest of the cache lines.
    pub fn space(&self) -> usize {
        self.0.memory.store.space
    }

    /// Returns the kind of memory that the buffers lie in: never [`Backing::Auto`].
    #[inline(never)]
    pub fn backing(&self) -> Backing {
        self.0.memory.slots.region.backing()
    }

    /// Returns the region's start and the distance between buffers in bytes, as a UMEM's registration needs them.
    #[inline(never)]
    pub fn region(&self) -> (NonNull<u8>, usize) {
        (self.0.memory.slots.region.base(), self.0.stride)
    }

    /// Returns the counters of failed exchanges on this pool's lock-free words.
    #[doc(hidden)]
    #[inline(never)]
    pub fn retries(&self) -> &Retries<A> {
        &self.0.memory.store.retries
    }

    /// Returns the number of buffers in use by the name of the sender that allocated them. Exact while no thread allocates
    /// or frees; empty in release builds.
    #[inline(never)]
    pub fn in_use(&self) -> BTreeMap<String, usize> {
        self.0.in_use()
    }

    /// Where a buffer goes when a thread other than the one that allocated it frees it.
    #[inline(never)]
    pub fn free_mode(&self) -> FreeMode {
        self.0.memory.store.mode()
    }

    /// Returns the current [`PoolConfig::defer_max`].
    #[inline(never)]
    pub fn defer_max(&self) -> u32 {
        self.0.memory.store.defer_max()
    }

    /// Changes [`PoolConfig::defer_max`] under traffic. A sender for which more than half of the new value waits empties its
    /// inbox at its next call.
    #[inline(never)]
    pub fn set_defer_max(&self, packets: u32) {
        let memory = &self.0.memory;
        memory.store.set_defer_max(packets);
        memory.homes.iter().filter(|h| h.account().read().backlog() > packets / 2).for_each(|h| h.kick());
    }

    /// Returns the number of buffers that other threads freed and that wait for their senders to take them.
    #[inline(never)]
    pub fn backlog(&self) -> u64 {
        self.0.memory.homes.iter().map(|h| u64::from(h.account().read().backlog())).sum()
    }
}

impl<A: Arch> Shared<A> {
    fn in_use(&self) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        let (slots, begun) = (&self.memory.slots, self.memory.store.size.begun() as usize);
        // SAFETY: these have begun.
        let begun = (0..begun).filter_map(|index| unsafe { slots.get(index) });
        for home in begun.filter_map(|slot| slot.check.holder()) {
            *names.entry(home.name()).or_default() += 1;
        }
        names
    }
}

impl<A: Arch> Drop for Shared<A> {
    fn drop(&mut self) {
        let begun = self.memory.store.size.begun();
        let missing = begun as usize - self.memory.count_home();
        if missing == 0 {
            // SAFETY: all begun buffers are home, so no packet points into the memory any more.
            unsafe { self.memory.slots.end(begun) };
            // SAFETY: as above; the memory is not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        } else if cfg!(debug_assertions) {
            eprintln!(
                "txq: pool \"{}\" ended with {missing} packets alive; allocated by: {:?}",
                self.name,
                self.in_use()
            );
        }
    }
}

#[cfg(test)]
mod tests;
