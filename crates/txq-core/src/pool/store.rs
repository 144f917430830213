//! The stock: free buffers that are in no cache and in no inbox; and the mode by which freed buffers travel.

use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi, CpuId};
use crate::cpumask::CpuMask;
use crate::pool::depot::Depot;
use crate::pool::home::Home;
use crate::pool::line::Line;
use crate::pool::reserve::Reserve;
use crate::pool::retired::Run;
use crate::pool::size::Size;
use crate::pool::slot::Slot;
use crate::pool::slots::Slots;
use crate::sync::contention::Retries;
use crate::sync::spinlock::SpinLock;
use crate::sync::waiter;

/// Where a packet's buffer goes when a thread other than the one that allocated it frees it. The packet's credit
/// (`Sender::set_limit`) returns at once in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FreeMode {
    /// Home to the sender that allocated it, without a lock, while at most
    /// [`PoolConfig::defer_max`](super::PoolConfig::defer_max) buffers wait for that sender (Linux since e20dfbad8aab,
    /// `skb_attempt_defer_free`).
    #[default]
    Defer,
    /// To one list under one lock, as if an allocator had only its slow path. A thread takes the lock once per 32 buffers
    /// that it frees at a time, and once per 32 that it allocates.
    Shared,
    /// Into the cache of the thread that frees, as Linux did before that commit. A full cache gives 32 buffers at a time to
    /// the list of [`FreeMode::Shared`], and an empty one takes as many from it.
    Keep,
}

/// CPUs that share a depot: few enough that they seldom contend, and enough that the depot is seldom empty.
const CPUS_PER_DEPOT: usize = 8;

/// The part of a pool that all its threads share, except for the homes.
pub(crate) struct Store<A: Arch> {
    mode: FreeMode,
    /// The address of the first descriptor; the others' indices follow from it.
    base: usize,
    /// The bytes of each buffer that a packet may have. Never changes, and no more than the distance between two buffers.
    pub(super) space: usize,
    /// [`PoolConfig::defer_max`](super::PoolConfig::defer_max). Read by every remote free, written by
    /// [`Pool::set_defer_max`](super::Pool::set_defer_max). Relaxed: a stale bound only defers a few buffers more or fewer.
    defer_max: A::AtomicU32,
    /// The number of buffers in circulation.
    pub(super) size: Size<A>,
    /// The node of each CPU; CPUs beyond its end are on the first node.
    node_of: Box<[u16]>,
    nodes: usize,
    /// The part of the stock that is kept for senders with few buffers.
    pub(super) reserve: Reserve<A>,
    /// Counters of failed exchanges.
    pub(super) retries: Arc<Retries<A>>,
    /// The stock under [`FreeMode::Defer`]: a depot for every eight neighbouring CPUs. A thread that finds its own depot
    /// empty takes from the others.
    depots: Box<[Depot<A>]>,
    /// The stock under the other modes: a part for each node. A thread that finds its own part empty takes from the others.
    locked: Box<[Stock<A>]>,
}

/// A node's part of the stock.
type Stock<A> = CachePadded<SpinLock<A, Locked<A>>>;

/// A stack of batches, like an allocator's list of slabs: the lock holder touches only the first and the last buffer of
/// each.
struct Locked<A: Arch> {
    /// Index plus one of the first buffer of the top batch, 0 when there is none.
    top: u32,
    /// Buffers of runs shorter than a batch, until they make one.
    rest: Run<A>,
    /// Whether the stock is closed, as by [`Depot::close`].
    closed: bool,
}

// SAFETY: `rest` owns its buffers, and so do the batches below `top`.
unsafe impl<A: Arch> Send for Locked<A> {}

impl<A: Arch> Locked<A> {
    const fn new() -> Self {
        Self { top: 0, rest: Run::new(), closed: false }
    }

    /// Adds a run of at most `bulk` buffers; returns false and leaves the run if the stock is closed.
    fn put(&mut self, run: &mut Run<A>, bulk: u32, index_of: impl FnOnce(&Slot<A>) -> u32) -> bool {
        if !self.closed {
            let short = run.len() < bulk;
            if short {
                self.rest.append(mem::replace(run, Run::new()));
            }
            let batch = if short { &mut self.rest } else { run };
            if batch.len() >= bulk {
                // SAFETY: a run that is not empty begins with a buffer of its own; descriptors live as long as the pool.
                let first = unsafe { &*batch.take() };
                first.below.store(self.top, Relaxed);
                self.top = index_of(first) + 1;
            }
        }
        !self.closed
    }

    /// Takes a batch, or a part of one if there is no whole batch. Returns the first buffer, which links the others by
    /// `next` up to a null; null if there is none.
    fn take(&mut self, slots: &Slots<A>) -> *mut Slot<A> {
        // SAFETY: a put under this lock has stored the index of a descriptor that it had.
        match (self.top as usize).checked_sub(1).and_then(|index| unsafe { slots.get(index) }) {
            Some(first) => {
                self.top = first.below.load(Relaxed);
                ptr::from_ref(first).cast_mut()
            }
            None if self.rest.len() > 0 => self.rest.take(),
            None => ptr::null_mut(),
        }
    }
}

impl<A: Arch> Store<A> {
    /// Returns the stock of a pool with these descriptors and `size` buffers in circulation, all of them fresh.
    pub(super) fn new(
        mode: FreeMode,
        slots: &Slots<A>,
        size: u32,
        (defer_max, reserve): (u32, u32),
        space: usize,
        nodes: &[CpuMask],
    ) -> Self {
        let mut node_of = vec![0; nodes.iter().map(CpuMask::width).max().unwrap_or(0)];
        for (node, cpus) in nodes.iter().enumerate() {
            cpus.iter().for_each(|cpu| node_of[cpu] = node as u16);
        }
        let retries = Arc::new(Retries::new());
        let depots = node_of.len().div_ceil(CPUS_PER_DEPOT).max(1);
        Self {
            mode,
            base: slots.base(),
            space,
            size: Size::new(size, slots.len() as u32),
            defer_max: A::AtomicU32::new(defer_max),
            node_of: node_of.into(),
            nodes: nodes.len().max(1),
            depots: (0..depots).map(|_| Depot::new(retries.clone())).collect(),
            retries,
            reserve: Reserve::new(reserve, size),
            locked: (0..nodes.len().max(1)).map(|_| CachePadded::new(SpinLock::new(Locked::new()))).collect(),
        }
    }

    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(self, "pool: setup");
        self.size.name_lines();
        self.reserve.name_lines();
        self.retries.name_lines("pool: failed attempts");
        self.depots.iter().for_each(|depot| A::name(depot, "pool: a depot's head"));
        self.locked.iter().for_each(|stock| stock.name_lines("pool: the stock's lock", "pool: the stock"));
    }

    #[inline]
    pub(super) fn mode(&self) -> FreeMode {
        self.mode
    }

    #[inline]
    pub(super) fn defer_max(&self) -> u32 {
        self.defer_max.load(Relaxed)
    }

    pub(super) fn set_defer_max(&self, packets: u32) {
        self.defer_max.store(packets, Relaxed);
    }

    #[inline]
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the node of a CPU; 0 for a CPU that no node lists.
    pub(super) fn node_of(&self, cpu: CpuId) -> usize {
        self.node_of.get(cpu as usize).map_or(0, |&node| node.into())
    }

    /// Returns the node of the CPU that runs the caller.
    pub(crate) fn node_here(&self) -> usize {
        self.node_of(A::cpu())
    }

    /// Returns the index of the part of the stock for the CPU that runs the caller. Any thread may use any part, so a
    /// migration after this is harmless.
    #[inline]
    fn here(&self) -> usize {
        match (self.mode, self.depots.len(), self.locked.len()) {
            (FreeMode::Defer, 1, _) | (FreeMode::Shared | FreeMode::Keep, _, 1) => 0,
            (FreeMode::Defer, n, _) => A::cpu() as usize / CPUS_PER_DEPOT % n,
            (FreeMode::Shared | FreeMode::Keep, ..) => self.node_here(),
        }
    }

    /// Puts free buffers into the stock, spread evenly over its depots.
    pub(super) fn stock(&self, buffers: impl Iterator<Item = NonNull<Slot<A>>>) {
        let (mut run, bulk) = (Run::new(), self.size.bulk());
        let mut here = self.here();
        for slot in buffers {
            run.push(slot);
            if self.mode == FreeMode::Defer && run.len() as usize == bulk {
                self.put_at(here, &mut run);
                here = (here + 1) % self.depots.len();
            }
        }
        self.put_at(here, &mut run);
    }

    /// Puts a run into the stock. Touches no memory of the pool after the last buffer is there.
    pub(super) fn put(&self, run: &mut Run<A>) {
        self.put_at(self.here(), run);
    }

    /// Puts a run into part `here` of the stock, and parks what a closed stock refuses.
    fn put_at(&self, here: usize, run: &mut Run<A>) {
        let bulk = self.size.bulk() as u32;
        while run.len() > 0 {
            let mut batch = run.split(bulk);
            while batch.len() > 0 && !self.push(here, &mut batch, bulk) {
                // SAFETY: a run's buffers are ours until they are in the stock; those taken of it are linked up to a null.
                batch = unsafe { Run::of(self.park(batch.take())) };
            }
        }
    }

    /// Returns the index of a descriptor of this pool.
    #[inline]
    fn index_of(&self, slot: &Slot<A>) -> u32 {
        ((ptr::from_ref(slot).addr() - self.base) / size_of::<Slot<A>>()) as u32
    }

    /// Puts a batch into part `here` of the stock, and counts it; returns false and leaves the batch if the stock is closed.
    #[inline]
    fn push(&self, here: usize, batch: &mut Run<A>, bulk: u32) -> bool {
        let n = batch.len();
        // Before: the push is the last access to the pool.
        self.reserve.add(n);
        let pushed = self.push_uncounted(here, batch, bulk);
        if !pushed {
            self.reserve.subtract(n);
        }
        pushed
    }

    #[inline]
    fn push_uncounted(&self, here: usize, batch: &mut Run<A>, bulk: u32) -> bool {
        if self.mode != FreeMode::Defer {
            return self.locked[here].with(|held| held.data().put(batch, bulk, |first| self.index_of(first)));
        }
        batch.link_to(ptr::null_mut());
        // SAFETY: the first buffer of a run that is not empty; descriptors live as long as the pool.
        let first = unsafe { &*batch.head() };
        let pushed = self.depots[here].push(first, self.index_of(first));
        if pushed {
            batch.forget();
        }
        pushed
    }

    /// Parks the surplus from the buffers linked from `first`, gives others to the senders that wait for one, and returns
    /// the rest. Touches no memory of the pool after it has given the last one away.
    ///
    /// # Safety
    /// As for [`Size::park`].
    #[cold]
    unsafe fn park(&self, first: *mut Slot<A>) -> *mut Slot<A> {
        // SAFETY: the caller's promise.
        let (rest, woken) = unsafe { self.size.park(first, || self.close(false)) };
        woken.into_iter().for_each(waiter::wake);
        rest
    }

    /// Puts the sender of `home` at the end of the line; returns whether it is the first. The caller then gathers the
    /// free buffers of all senders for the first one.
    pub(super) fn wait(&self, home: &Home<A>, waker: &Waker) -> bool {
        self.size.wait(home, waker, || self.close(true))
    }

    /// Calls `f` with the line under its lock, and opens the stock if nothing needs it closed. Returns the result of `f`.
    pub(super) fn with_line<R>(&self, f: impl FnOnce(&mut Line<A>) -> R) -> R {
        self.size.with_line(|| self.close(false), f)
    }

    /// Closes or opens all parts of the stock. The caller holds the parking lock.
    fn close(&self, closed: bool) {
        match self.mode {
            FreeMode::Defer => self.depots.iter().for_each(|depot| depot.close(closed)),
            FreeMode::Shared | FreeMode::Keep => {
                self.locked.iter().for_each(|stock| stock.with(|held| held.data().closed = closed))
            }
        }
    }

    /// Changes the pool's size to `size` buffers: at once if it grows; if it shrinks, buffers in use follow as they are
    /// freed.
    pub(super) fn resize(&self, size: u32, slots: &Slots<A>) {
        // Fresh buffers count as buffers of the stock.
        let count = |fresh: i64| match u32::try_from(fresh) {
            Ok(more) => self.reserve.add(more),
            Err(_) => self.reserve.subtract(fresh.unsigned_abs() as u32),
        };
        let short = self.size.set(size, count, |closed| self.close(closed));
        loop {
            let mut run = self.size.unpark();
            if run.len() == 0 {
                break;
            }
            self.put(&mut run);
        }
        // Of a pool that has grown, fresh buffers go to the senders that wait.
        if short {
            self.park_stock(slots);
        }
    }

    /// Parks buffers that were in the stock when it was closed, or gives them to the senders that wait, until neither needs
    /// more.
    pub(super) fn park_stock(&self, slots: &Slots<A>) {
        loop {
            let mut run = Run::new();
            self.take(slots, |slot| run.push(slot));
            if run.len() == 0 {
                return;
            }
            // SAFETY: buffers taken are ours; a run that is taken is linked up to a null.
            let mut rest = unsafe { Run::of(self.park(run.take())) };
            if rest.len() > 0 {
                return self.put(&mut rest);
            }
        }
    }

    /// Takes batches out of the stock until it has at least [`Size::bulk`] buffers or the stock is empty, then begins fresh
    /// buffers for the rest. Hands each buffer to `keep`.
    pub(super) fn take(&self, slots: &Slots<A>, mut keep: impl FnMut(NonNull<Slot<A>>)) {
        let bulk = self.size.bulk();
        let mut taken = self.take_used(slots, bulk, &mut keep);
        if taken < bulk {
            let mut run = Run::new();
            let begun = self.size.begin((bulk - taken) as u32, slots, |slot| run.push(slot));
            if run.len() > 0 {
                taken += run.len() as usize;
                slots.populate(begun);
                run.for_each(keep);
            }
        }
        if taken > 0 {
            self.reserve.subtract(taken as u32);
        }
    }

    /// Takes batches out of the stock until it has at least `bulk` buffers or the stock is empty, and hands each buffer to
    /// `keep`. Returns how many buffers it has taken, and does not count them.
    pub(super) fn take_used(
        &self,
        slots: &Slots<A>,
        bulk: usize,
        mut keep: impl FnMut(NonNull<Slot<A>>),
    ) -> usize {
        let mut taken = 0;
        let here = self.here();
        while taken < bulk {
            let mut slot = match self.mode {
                FreeMode::Defer => nearest(&self.depots, here, |depot| depot.pop(slots).map(NonNull::from)),
                FreeMode::Shared | FreeMode::Keep => nearest(&self.locked, here, |stock| {
                    NonNull::new(stock.with(|held| held.data().take(slots)))
                }),
            };
            if slot.is_none() {
                break;
            }
            while let Some(s) = slot {
                // SAFETY: buffers taken are ours, linked up to a null.
                slot = NonNull::new(unsafe { s.as_ref().next.with(|n| *n) });
                keep(s);
                taken += 1;
            }
        }
        taken
    }
}

/// Takes a batch of part `here`, or of the next part after it that has one.
fn nearest<P, B>(parts: &[P], here: usize, take: impl FnMut(&P) -> Option<B>) -> Option<B> {
    let (before, from_here) = parts.split_at(here);
    from_here.iter().chain(before).find_map(take)
}
