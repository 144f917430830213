//! The state that the data path of a device needs: its txqs, its queues, and the workers' inboxes.
//!
//! Senders, workers and control operations all work on it, each with a [`Ctx`]. The modules above add what they do:
//! `transfer` moves packets to a driver and back, `run` is an owner's turn, `enqueue` has the disciplines.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crossbeam_utils::CachePadded;

use txq_core::arch::inside::Entered;
use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::pool::Pool;
use txq_core::stats::contention::Lock;
use txq_core::sync::contention::{Recorded, Retries};
use txq_sched::generic::qdisc::Txqs;

use crate::generic::driver::DeviceInfo;
use crate::generic::schedule::Schedule;
use crate::generic::trace::Tracer;
use crate::generic::txqueue::{DriverBugHook, TxQueue, Watchdog};

mod access;
mod core;
mod ctx;
mod gate;
mod in_hand;
mod lateness;
mod lease;
mod marks;
mod owners;
mod permit;
mod room;
mod root;
mod selector;
mod traced;

pub(crate) use self::core::{Core, CoreCounters};
pub(crate) use access::CoreAccess;
pub(crate) use ctx::{Ctx, Errand};
pub(crate) use gate::Gate;
pub(crate) use in_hand::InHand;
pub(crate) use lease::{Lease, SendWindows, Usage};
pub(crate) use owners::OwnerRecord;
pub(crate) use room::Asked;
pub(crate) use root::Root;
pub(crate) use selector::{RootSelector, Shape};

/// Bound on the packets of one turn of an owner, and of one batch (`dev_tx_weight`).
pub(crate) const QUOTA: usize = 64;

/// The state of a device's data path.
pub(crate) struct Datapath<A: Arch> {
    pub(crate) info: DeviceInfo,
    pub(crate) txqs: Box<[TxQueue<A>]>,
    /// The queues of all rules (`selector.rs`).
    pub(crate) roots: Box<[Root<A>]>,
    /// The rule in force, and whether the device is traced ([`RootSelector`]). Read at each call of xmit (Acquire). A control
    /// operation stores the rule after it has opened the queues of the new one, and a trace sets the bit after the trace is
    /// on the list (both Release).
    pub(crate) rule: CachePadded<A::AtomicU32>,
    /// The lease of all queues; `None` if the senders take no turns.
    pub(crate) lease: Option<CachePadded<Lease<A>>>,
    /// Packets dropped on their way to a queue: `lost` by a panic, `looped` because drivers sent them in a circle.
    pub(crate) lost: CachePadded<A::AtomicU64>,
    pub(crate) looped: A::AtomicU64,
    pub(crate) worker_deaths: A::AtomicU64,
    /// The inboxes of the workers, followed by those of the completers, if there are some. A completer serves the txqs that have its number, modulo the
    /// number of completers.
    pub(crate) sched: Box<[Schedule<A>]>,
    /// The worker of each txq.
    pub(crate) affinity: Box<[usize]>,
    /// Whether the locks of a txq are taken also if one queue alone feeds it.
    pub(crate) tx_lock: bool,
    /// Whether a sender that lacks a buffer or credit reaps before it waits.
    pub(crate) senders_help: bool,
    pub(crate) workers: usize,
    /// 1 when the workers have threads of their own; 0 while the program drives them.
    pub(crate) has_threads: A::AtomicU32,
    /// How long before a packet's time a worker begins to poll the clock.
    pub(crate) spin: Nanos,
    pub(crate) watchdog: Option<Watchdog>,
    pub(crate) driver_bug_hook: Option<DriverBugHook>,
    pub(crate) retries: Retries<A>,
    pub(crate) tracer: Arc<Tracer<A>>,
    pub(crate) stopping: A::AtomicU32,
    /// The last field, so that it is dropped after all fields that may still hold its packets.
    pub(crate) pool: Pool<A>,
}

impl<A: Arch> Txqs for Datapath<A> {
    fn is_stopped(&self, txq: u16) -> bool {
        self.txqs.get(usize::from(txq)).is_some_and(TxQueue::stopped)
    }
}

impl<A: Arch> Datapath<A> {
    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self) {
        A::name(self, "device: setup");
        A::name(&self.rule, "device: which queues are in force");
        self.lease.iter().for_each(|lease| A::name(&**lease, "device: lease"));
        A::name(&self.lost, "device: counters");
        self.retries.name_lines("device: failed attempts");
        for root in &self.roots {
            A::name(root, "queue: setup");
            A::name(&root.usage, "queue: busy user");
            root.discipline.name_lines();
        }
        self.txqs.iter().for_each(TxQueue::name_lines);
        let who = (0..).map(|index| if index < self.workers { "softirq" } else { "interrupt" });
        self.sched.iter().zip(who).for_each(|(sched, who)| sched.name_lines(who));
    }

    /// Returns the schedule of the worker of a queue: the worker of its txq, or of txq 0 if it serves all txqs.
    fn sched_of_root(&self, root: usize) -> &Schedule<A> {
        &self.sched[self.affinity[usize::from(self.roots[root].txq.unwrap_or(0))]]
    }

    /// Checks that the caller is outside the data path of this device. Inside it, `call` would wait for its own caller.
    ///
    /// # Panics
    /// When the caller is inside.
    pub(crate) fn assert_outside(&self, call: &str) {
        if self.is_inside() {
            panic!(
                "{call} of device \"{}\" would wait for its own caller: it is called from a driver, qdisc, filter or completion \
                 that works for the device; call it from another thread",
                self.info.name
            );
        }
    }

    /// Returns whether the calling thread is inside the data path of this device.
    pub(crate) fn is_inside(&self) -> bool {
        A::inside(|inside| inside.is_in(self))
    }

    /// Calls `f` inside the data path of this device.
    pub(crate) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        let _inside = Entered::<A>::new(self);
        f()
    }

    /// Makes the owner of a queue check it again, or the thread that is about to own it; without either, a worker runs it
    /// (`__netif_schedule`).
    pub(crate) fn schedule(&self, root: usize) {
        if !self.roots[root].discipline.try_notify_owner() {
            self.hand_over(root);
        }
    }

    /// Makes a worker run a queue.
    pub(crate) fn hand_over(&self, root: usize) {
        self.sched_of_root(root).run(root);
    }

    /// Makes a worker run a queue after some time.
    pub(crate) fn retry(&self, root: usize, after: Nanos) {
        self.run_at(root, A::now().saturating_add(after));
    }

    /// Makes a worker run a queue at a time (`qdisc_watchdog_schedule_ns`).
    pub(crate) fn run_at(&self, root: usize, at: Nanos) {
        self.sched_of_root(root).run_at(root, at);
    }

    /// Wakes the senders that wait for room, because their queue was replaced or emptied: they check again.
    pub(crate) fn reset_fill(&self, down: bool) {
        self.roots.iter().for_each(|root| root.fill.reset(down));
    }

    /// Returns whether the device's workers have threads of their own.
    pub(crate) fn has_threads(&self) -> bool {
        self.has_threads.load(Relaxed) != 0
    }

    /// Returns whether no packet is on its way through a txq.
    pub(crate) fn is_idle(&self, txq: u16) -> bool {
        let rule = self.rule();
        let serves = |root: &&Root<A>| root.txq.is_none_or(|t| t == txq);
        let closed = |root: &&Root<A>| !self.has(rule, root.index);
        // In the order of a packet's way: closed queues hand packets on to the one in force, and that to the driver.
        self.roots_used().iter().filter(serves).filter(closed).all(|root| root.is_idle(self))
            && self.roots[self.root_at(rule, txq)].is_idle(self)
            && self.txqs[usize::from(txq)].in_flight() == 0
            && self.rule() == rule
    }

    /// Returns the packets that the drivers of all txqs have taken and not dropped.
    pub(crate) fn tx_packets(&self) -> u64 {
        self.txqs.iter().map(TxQueue::tx_packets).sum()
    }

    /// Counts packets that a panic lost on their way to a queue.
    pub(crate) fn count_lost(&self, packets: u64) {
        if packets > 0 {
            self.lost.fetch_add(packets, Relaxed);
        }
    }

    /// Counts a panic that a worker's thread, or a control call in its place, has survived.
    pub(crate) fn count_worker_death(&self) {
        self.worker_deaths.fetch_add(1, Relaxed);
    }

    /// Counts packets that drivers sent in a circle.
    pub(crate) fn count_looped(&self, packets: u64) {
        self.looped.fetch_add(packets, Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire) != 0
    }

    /// Calls `f` with each lock of the data path.
    pub(crate) fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        self.roots.iter().for_each(|root| root.discipline.locks(f));
        self.txqs.iter().for_each(|txq| txq.locks(f));
    }
}
