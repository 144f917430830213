//! The buffers that are in nobody's cache and in nobody's inbox, and the rule by which freed ones get anywhere.

use std::mem;
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
    /// for each 32 buffers that it frees at a time, and for each 32 that it allocates.
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
    /// The address of the first descriptor, to know the others' indices by.
    base: usize,
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
    locked: Box<[Stock<A>]>,
}

/// A node's part of the stock.
type Stock<A> = CachePadded<SpinLock<A, Locked<A>>>;

/// Batches, one below the other, as an allocator's list of slabs: under the lock no buffer is looked at but the first and
/// the last of each.
struct Locked<A: Arch> {
    /// Index plus one of the first buffer of the top batch, 0 when there is none.
    top: u32,
    /// What came in runs that are shorter than a batch, until it is one.
    rest: Run<A>,
    /// As [`Depot::close`] does.
    closed: bool,
}

// SAFETY: `rest` owns its buffers, and so do the batches below `top`.
unsafe impl<A: Arch> Send for Locked<A> {}

impl<A: Arch> Locked<A> {
    const fn new() -> Self {
        Self { top: 0, rest: Run::new(), closed: false }
    }

    /// Takes a run of a batch's length at most, unless the stock is closed.
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

    /// A batch, or what there is of one: the first buffer, from which the others hang, up to a null.
    fn take(&mut self, slots: &[Slot<A>]) -> *mut Slot<A> {
        match (self.top as usize).checked_sub(1).and_then(|index| slots.get(index)) {
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
    /// The stock of a pool with these descriptors, of which it has none yet.
    pub(super) fn new(mode: FreeMode, slots: &[Slot<A>], defer_max: u32, nodes: &[CpuMask]) -> Self {
        let mut node_of = vec![0; nodes.iter().map(CpuMask::width).max().unwrap_or(0)];
        for (node, cpus) in nodes.iter().enumerate() {
            cpus.iter().for_each(|cpu| node_of[cpu] = node as u16);
        }
        let retries = Arc::new(Retries::new());
        let depots = node_of.len().div_ceil(CPUS).max(1);
        Self {
            mode,
            base: slots.as_ptr().addr(),
            size: Size::new(slots.len() as u32),
            defer_max: A::AtomicU32::new(defer_max),
            node_of: node_of.into(),
            nodes: nodes.len().max(1),
            depots: (0..depots).map(|_| Depot::new(retries.clone())).collect(),
            retries,
            locked: (0..nodes.len().max(1)).map(|_| CachePadded::new(SpinLock::new(Locked::new()))).collect(),
        }
    }

    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(self, "pool: setup");
        self.size.name_lines();
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

    /// The node of a CPU; the first for one that none names.
    pub(super) fn node_of(&self, cpu: CpuId) -> usize {
        self.node_of.get(cpu as usize).map_or(0, |&node| node.into())
    }

    /// The node of the CPU that runs the caller.
    pub(crate) fn node_here(&self) -> usize {
        self.node_of(A::cpu())
    }

    /// The part of the stock for the CPU that runs the caller. Who is on another CPU meanwhile uses it all the same.
    #[inline]
    fn here(&self) -> usize {
        match (self.mode, self.depots.len(), self.locked.len()) {
            (FreeMode::Defer, 1, _) | (FreeMode::Shared | FreeMode::Keep, _, 1) => 0,
            (FreeMode::Defer, n, _) => A::cpu() as usize / CPUS % n,
            (FreeMode::Shared | FreeMode::Keep, ..) => self.node_here(),
        }
    }

    /// Puts free buffers into the stock, into all of its depots alike.
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

    /// Puts a run into the stock. Nothing of the pool is touched after its last buffer is there.
    pub(super) fn put(&self, run: &mut Run<A>) {
        self.put_at(self.here(), run);
    }

    /// Puts a run into a part of the stock.
    fn put_at(&self, here: usize, run: &mut Run<A>) {
        let bulk = self.size.bulk() as u32;
        while run.len() > 0 {
            let mut batch = run.split(bulk);
            while batch.len() > 0 && !self.push(here, &mut batch, bulk) {
                // SAFETY: a run's buffers are ours until they are in the stock; what is taken of it ends in null.
                batch = unsafe { Run::of(self.park(batch.take())) };
            }
        }
    }

    /// The index of a descriptor of this pool.
    #[inline]
    fn index_of(&self, slot: &Slot<A>) -> u32 {
        ((ptr::from_ref(slot).addr() - self.base) / size_of::<Slot<A>>()) as u32
    }

    /// Puts a batch into a part of the stock, unless it is closed.
    #[inline]
    fn push(&self, here: usize, batch: &mut Run<A>, bulk: u32) -> bool {
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
        let here = self.here();
        while taken < bulk {
            let mut slot = match self.mode {
                FreeMode::Defer => nearest(&self.depots, here, |depot| depot.pop(slots).map(NonNull::from)),
                FreeMode::Shared | FreeMode::Keep => nearest(&self.locked, here, |stock| {
                    NonNull::new(stock.with(|held| held.data().take(slots)))
                }),
            };
            if slot.is_none() {
                return;
            }
            while let Some(s) = slot {
                // SAFETY: what was taken is ours and ends in null.
                slot = NonNull::new(unsafe { s.as_ref().next.with(|n| *n) });
                keep(s);
                taken += 1;
            }
        }
    }
}

/// A batch of this part of the stock, or else of the nearest after it that has one.
fn nearest<P, B>(parts: &[P], here: usize, take: impl FnMut(&P) -> Option<B>) -> Option<B> {
    let (before, from_here) = parts.split_at(here);
    from_here.iter().chain(before).find_map(take)
}
