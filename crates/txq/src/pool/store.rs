//! The buffers that are in nobody's cache and in nobody's inbox, and the rule by which freed ones get anywhere.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi, CpuId};
use crate::cpumask::CpuMask;
use crate::pool::depot::Depot;
use crate::pool::retired::Run;
use crate::pool::size::Size;
use crate::pool::slot::Slot;
use crate::sync::contention::Retries;
use crate::sync::spinlock::SpinLock;

/// Where the memory of a packet goes that another thread frees than the one that allocated it. Its credit
/// ([`Sender::set_limit`](crate::Sender::set_limit)) returns at once in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FreeMode {
    /// Home: to the sender that allocated it, up to [`PoolConfig::defer_max`](super::PoolConfig::defer_max) of them,
    /// without a lock (Linux since e20dfbad8aab, `skb_attempt_defer_free`).
    #[default]
    Defer,
    /// To one list under one lock, as if there were nothing but an allocator's slow path. A thread takes the lock once
    /// for each list of packets that it frees, and once for each 32 buffers that it allocates.
    Shared,
    /// Into the cache of the thread that frees, as Linux did before that commit. A full cache gives 32 buffers at a
    /// time to the list of [`FreeMode::Shared`], and an empty one takes as many from there.
    Keep,
}

/// CPUs that share a depot: so few that they seldom meet there, and so many that it is seldom empty.
const CPUS: usize = 8;

/// All that a pool's threads share, but for the homes.
pub(crate) struct Store<A: Arch> {
    mode: FreeMode,
    defer_max: A::AtomicU32,
    /// How many buffers are in circulation.
    pub(super) size: Size<A>,
    /// The node of each CPU that is not on the first one.
    node_of: Box<[u16]>,
    nodes: usize,
    /// Exchanges that failed.
    pub(super) retries: Arc<Retries<A>>,
    /// The stock under [`FreeMode::Defer`]: a depot for each few neighbouring CPUs. Who finds its own empty takes from others.
    depots: Box<[Depot<A>]>,
    /// The stock under the others, of each node. Who finds its own empty takes from others.
    locked: Box<[CachePadded<SpinLock<A, Locked>>]>,
}

/// Batches, one below the other, as an allocator's list of slabs: under the lock no buffer is looked at but the first of each.
struct Locked {
    /// Index plus one of the first buffer of the top batch, 0 when there is none.
    top: u32,
    /// As [`Depot::close`] does.
    closed: bool,
}

impl Locked {
    const NEW: Self = Self { top: 0, closed: false };
}

impl<A: Arch> Store<A> {
    pub(super) fn new(mode: FreeMode, max: u32, defer_max: u32, nodes: &[CpuMask]) -> Self {
        let mut node_of = vec![0; nodes.iter().map(CpuMask::width).max().unwrap_or(0)];
        for (node, cpus) in nodes.iter().enumerate() {
            cpus.iter().for_each(|cpu| node_of[cpu] = node as u16);
        }
        let retries = Arc::new(Retries::new());
        let depots = node_of.len().div_ceil(CPUS).max(1);
        Self {
            mode,
            size: Size::new(max),
            defer_max: A::AtomicU32::new(defer_max),
            node_of: node_of.into(),
            nodes: nodes.len().max(1),
            depots: (0..depots).map(|_| Depot::new(retries.clone())).collect(),
            retries,
            locked: (0..nodes.len().max(1)).map(|_| CachePadded::new(SpinLock::new(Locked::NEW))).collect(),
        }
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

    /// The node of a CPU; the first for one that none names.
    pub(super) fn node_of(&self, cpu: CpuId) -> usize {
        self.node_of.get(cpu as usize).map_or(0, |&node| node.into())
    }

    /// The node of the CPU that runs the caller.
    pub(crate) fn node_here(&self) -> usize {
        self.node_of(A::cpu())
    }

    /// The depot of the CPU that runs the caller. Who is on another CPU meanwhile uses it all the same.
    #[inline]
    fn depot_here(&self) -> usize {
        match self.depots.len() {
            1 => 0,
            n => A::cpu() as usize / CPUS % n,
        }
    }

    /// Puts free buffers into the stock.
    pub(super) fn stock(&self, buffers: impl Iterator<Item = NonNull<Slot<A>>>) {
        let (mut run, bulk) = (Run::new(), self.size.bulk());
        let mut depot = 0;
        for slot in buffers {
            run.push(slot);
            if self.mode == FreeMode::Defer && run.len() as usize == bulk {
                self.put_at(depot, &mut run);
                depot = (depot + 1) % self.depots.len();
            }
        }
        if run.len() > 0 {
            self.put_at(depot, &mut run);
        }
    }

    /// Puts a run into the stock. Nothing of the pool is touched after its last buffer is there.
    pub(super) fn put(&self, run: &mut Run<A>) {
        self.put_at(self.depot_here(), run);
    }

    /// Puts a run into the stock, at one of the depots.
    fn put_at(&self, here: usize, run: &mut Run<A>) {
        if self.mode != FreeMode::Defer {
            return self.put_locked(run);
        }
        let mut batch = run.take();
        while !batch.is_null() {
            // SAFETY: a run's buffers are ours until they are pushed, and end in null.
            let rest = unsafe { self.cut(batch) };
            // SAFETY: as above; descriptors live as long as the pool.
            while !batch.is_null() && !self.depots[here].push(unsafe { &*batch }) {
                // SAFETY: as above.
                batch = unsafe { self.park(batch) };
            }
            batch = rest;
        }
    }

    fn put_locked(&self, run: &mut Run<A>) {
        while run.len() > 0
            && let Some(top) = NonNull::new(run.take())
        {
            // SAFETY: a run's buffers are ours until they are in the stock; descriptors live as long as the pool.
            let (top, bottom) = unsafe { (top.as_ref(), self.heap(top)) };
            let put = self.locked[self.locked_here()].with(|held| {
                let stock = held.data();
                if !stock.closed {
                    bottom.below.store(stock.top, Relaxed);
                    stock.top = top.index + 1;
                }
                !stock.closed
            });
            if put {
                return;
            }
            // SAFETY: as above; the run ends in null again.
            *run = unsafe { Run::of(self.park(self.join(top, bottom))) };
        }
    }

    /// Cuts a run into batches, each the one below of the one before, and returns the first buffer of the last.
    ///
    /// # Safety
    /// As for [`cut`](Self::cut).
    unsafe fn heap<'s>(&self, first: NonNull<Slot<A>>) -> &'s Slot<A> {
        let mut batch = first;
        // SAFETY: the caller's promise.
        while let Some(rest) = NonNull::new(unsafe { self.cut(batch.as_ptr()) }) {
            // SAFETY: as above.
            unsafe { batch.as_ref().below.store(rest.as_ref().index + 1, Relaxed) };
            batch = rest;
        }
        // SAFETY: as above.
        unsafe { batch.as_ref() }
    }

    /// Makes one run again of what [`heap`](Self::heap) has cut.
    ///
    /// # Safety
    /// As for [`cut`](Self::cut), of all batches.
    unsafe fn join(&self, top: &Slot<A>, bottom: &Slot<A>) -> *mut Slot<A> {
        let slots = ptr::from_ref(top).wrapping_sub(top.index as usize);
        let (mut whole, mut batch) = (Run::new(), ptr::from_ref(top));
        loop {
            // SAFETY: a batch's buffers are the caller's, and end in null.
            whole.append(unsafe { Run::of(batch.cast_mut()) });
            if ptr::eq(batch, bottom) {
                return whole.take();
            }
            // SAFETY: all but the last have one below, in the same row of descriptors.
            batch = unsafe { slots.add((*batch).below.load(Relaxed) as usize - 1) };
        }
    }

    /// Parks what has to be, and returns the rest.
    ///
    /// # Safety
    /// As for [`Size::park`].
    #[cold]
    unsafe fn park(&self, first: *mut Slot<A>) -> *mut Slot<A> {
        // SAFETY: the caller's promise.
        unsafe { self.size.park(first, || self.close(false)) }
    }

    fn close(&self, closed: bool) {
        match self.mode {
            FreeMode::Defer => self.depots.iter().for_each(|depot| depot.close(closed)),
            FreeMode::Shared | FreeMode::Keep => {
                self.locked.iter().for_each(|stock| stock.with(|held| held.data().closed = closed))
            }
        }
    }

    /// Has the pool have `size` buffers: at once if it grows, as they come by if it shrinks.
    pub(super) fn resize(&self, size: u32, slots: &[Slot<A>]) {
        let shrinks = self.size.set(size, |closed| self.close(closed));
        loop {
            let mut run = self.size.unpark();
            if run.len() == 0 {
                break;
            }
            self.put(&mut run);
        }
        if shrinks {
            self.park_stock(slots);
        }
    }

    /// Parks what was in the stock when it was closed, as far as it has to be.
    fn park_stock(&self, slots: &[Slot<A>]) {
        loop {
            let mut run = Run::new();
            self.take(slots, |slot| run.push(slot));
            if run.len() == 0 {
                return;
            }
            // SAFETY: what was taken is ours; a run that is taken ends in null.
            let mut rest = unsafe { Run::of(self.park(run.take())) };
            if rest.len() > 0 {
                return self.put(&mut rest);
            }
        }
    }

    /// Takes about as many buffers out of the stock as move at a time, fewer if there are no more, and hands each to
    /// `keep`.
    pub(super) fn take(&self, slots: &[Slot<A>], mut keep: impl FnMut(NonNull<Slot<A>>)) {
        let (mut taken, bulk) = (0, self.size.bulk());
        let here = self.depot_here();
        while taken < bulk {
            let mut slot = match self.mode {
                FreeMode::Defer => {
                    let (before, from_here) = self.depots.split_at(here);
                    let first = from_here.iter().chain(before).find_map(|depot| depot.pop(slots));
                    first.map_or(ptr::null_mut(), |s| ptr::from_ref(s).cast_mut())
                }
                FreeMode::Shared | FreeMode::Keep => self.take_locked(slots),
            };
            if slot.is_null() {
                return;
            }
            while let Some(s) = NonNull::new(slot) {
                // SAFETY: what was taken is ours and ends in null.
                slot = unsafe { s.as_ref().next.with(|n| *n) };
                keep(s);
                taken += 1;
            }
        }
    }

    /// The stock of the node that runs the caller.
    fn locked_here(&self) -> usize {
        match self.locked.len() {
            1 => 0,
            _ => self.node_here(),
        }
    }

    fn take_locked(&self, slots: &[Slot<A>]) -> *mut Slot<A> {
        let (before, from_here) = self.locked.split_at(self.locked_here());
        let mut stocks = from_here.iter().chain(before);
        let first = stocks.find_map(|stock| NonNull::new(Self::take_top(stock, slots)));
        first.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    fn take_top(stock: &SpinLock<A, Locked>, slots: &[Slot<A>]) -> *mut Slot<A> {
        stock.with(|held| {
            let stock = held.data();
            let Some(first) = (stock.top as usize).checked_sub(1).and_then(|index| slots.get(index)) else {
                return ptr::null_mut();
            };
            stock.top = first.below.load(Relaxed);
            ptr::from_ref(first).cast_mut()
        })
    }

    /// Cuts a list behind as many buffers as move at a time, and returns the rest.
    ///
    /// # Safety
    /// The buffers from `first` on are the caller's, and the last one's `next` is null.
    unsafe fn cut(&self, first: *mut Slot<A>) -> *mut Slot<A> {
        let mut last = first;
        for _ in 1..self.size.bulk() {
            // SAFETY: the caller's promise.
            let next = unsafe { (*last).next.with(|n| *n) };
            if next.is_null() {
                return next;
            }
            last = next;
        }
        // SAFETY: as above.
        unsafe { (*last).next.with_mut(|n| ptr::replace(n, ptr::null_mut())) }
    }
}
