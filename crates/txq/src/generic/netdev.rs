//! A device with its txqs, qdiscs and workers: the sending half of the kernel's `net_device`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use txq_core::arch::{Arch, Atomic, CpuId, Nanos, Native};
use txq_core::pool::Pool;
use txq_core::stats::contention::ContentionReport;
use txq_core::stats::latency::Latency;
use txq_core::stats::log2::Log2;
use txq_sched::generic::tree::{PORTION, Walk};
use txq_sched::tc::{Handle, QdiscInfo, Style};

use crate::generic::datapath::Ctx;
use crate::generic::datapath::{Root, Shape};
use crate::generic::driver::DeviceInfo;
use crate::generic::sender::Sender;
use crate::generic::shared::Shared;
use crate::generic::stats::device::{DeviceStats, QueueStats};
use crate::generic::txqueue::TxQueue;
use crate::generic::worker::Worker;

mod bands;
mod below;
mod bql;
mod builder;
mod class;
mod contention;
mod control;
mod demand;
mod error;
mod filter;
mod graft;
mod hook;
mod lifecycle;
mod rule;
mod steer;
mod tc;
mod totals;
mod trace;
mod tree;
mod weak;

pub use crate::generic::txqueue::{Completions, DriverBug, DriverBugEvent, TxTimeout};
pub use bands::BandStats;
pub use builder::Builder;
use control::Control;
pub use demand::PoolDemand;
pub use error::{AuditError, BuildError};
pub use trace::Trace;
use tree::Tree;
pub use weak::{NetDevRef, WeakNetDev};

pub use crate::generic::shared::Sampling;

/// A device that threads send through.
///
/// Made by [`NetDev::builder`]. Each thread gets its own [`Sender`]. Dropping the device shuts it down; packets that
/// remaining senders hand in are then dropped.
///
/// Its methods wait for the owners of queues. Code that runs for a queue (a driver, a qdisc, a filter, a completion) may
/// send through the device, and may drop it. Any other method that waits panics there, because it would wait for its own
/// caller ([`NetDev::shutdown`] returns an error instead). Hooks ([`Builder::on_tx_timeout`], [`Builder::on_driver_bug`])
/// may call every method.
///
/// After a `fork` the device belongs to the parent. In the child, dropping the `NetDev` does nothing, and senders and
/// workers should not be used.
pub struct NetDev<A: Arch = Native> {
    shared: Arc<Shared<A>>,
    control: Arc<Control<A>>,
    threads: Vec<JoinHandle<()>>,
    /// Id of the process that built the device.
    process: u32,
    /// Whether the end of this handle shuts the device down; false in a [`NetDevRef`].
    owner: bool,
}

impl<A: Arch> fmt::Debug for NetDev<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetDev")
            .field("name", &self.shared.info.name)
            .field("txqs", &self.shared.txqs.len())
            .finish_non_exhaustive()
    }
}

impl<A: Arch> NetDev<A> {
    /// Returns a new sender; `name` identifies it in counters and messages.
    #[inline(never)]
    pub fn sender(&self, name: &str) -> Sender<A> {
        Sender::new(self.shared.clone(), name, None)
    }

    /// Returns a new sender that is steered as if it ran on `cpu`, wherever it runs.
    #[inline(never)]
    pub fn sender_on(&self, name: &str, cpu: CpuId) -> Sender<A> {
        Sender::new(self.shared.clone(), name, Some(cpu))
    }

    /// Returns worker `index`.
    #[inline(never)]
    pub fn worker(&self, index: usize) -> Worker<A> {
        assert!(index < self.shared.workers, "worker {index} of {}", self.shared.workers);
        Worker::new(self.shared.clone(), index)
    }

    /// Returns all workers, followed by the completers if the device has some, for other threads to drive from now on.
    pub(crate) fn hand_out_workers(&self) -> impl Iterator<Item = Worker<A>> {
        self.shared.has_threads.store(1, Relaxed);
        (0..self.shared.sched.len()).map(|index| Worker::new(self.shared.clone(), index))
    }

    /// Returns the completer of a txq: a worker that only reaps the txq's completions, under [`Completions::PerQueue`].
    #[inline(never)]
    pub fn completer(&self, txq: u16) -> Worker<A> {
        let index = self.shared.workers + usize::from(txq);
        assert!(
            index < self.shared.sched.len(),
            "no completer for txq {txq}: Completions::PerQueue makes them"
        );
        Worker::new(self.shared.clone(), index)
    }

    /// Returns the name, the maximum number of txqs and the MTU of the device.
    #[inline(never)]
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// Returns the pool that senders allocate from.
    #[inline(never)]
    pub fn pool(&self) -> &Pool<A> {
        &self.shared.pool
    }

    /// Returns the counters. At any time `accepted + created = sent + dropped + queued`.
    #[inline(never)]
    pub fn stats(&self) -> DeviceStats {
        self.shared.assert_outside("NetDev::stats");
        // Before the totals: a packet that a row counts as pending and the totals do not was sent or dropped meanwhile.
        let rows = self.shared.senders.rows();
        self.shared.totals().with_senders(rows)
    }

    /// Returns the packets that the drivers of all txqs have taken and not dropped (`tx_packets`), as
    /// [`TxCounters::packets`](crate::TxCounters::packets) counts them.
    #[inline(never)]
    pub fn tx_packets(&self) -> u64 {
        self.shared.tx_packets()
    }

    /// Returns the counters, after checking that they add up: no packet is missing or counted twice, and on an idle device
    /// the queues have sent the same packets and bytes as the txqs.
    #[inline(never)]
    pub fn audit(&self) -> Result<DeviceStats, AuditError> {
        // A sender counts a packet shortly before a queue does, so for a moment the sums of a seemingly idle device may
        // differ. A real error stays through all tries.
        for _ in 0..1000 {
            let rows = self.shared.senders.rows();
            match self.audit_once() {
                Ok(stats) => return Ok(stats.with_senders(rows)),
                Err(_) => A::relax(),
            }
        }
        let rows = self.shared.senders.rows();
        self.audit_once().map(|stats| stats.with_senders(rows))
    }

    fn audit_once(&self) -> Result<DeviceStats, AuditError> {
        let idle = self.is_idle();
        let stats = self.shared.totals();
        let accounted = (stats.sent + stats.dropped.total()).wrapping_add(stats.queued);
        if stats.accepted + stats.created != accounted {
            return Err(AuditError::Packets { accounted, stats: Box::new(stats) });
        }
        if idle && self.is_idle() {
            if stats.queued != 0 {
                return Err(AuditError::Queued { stats: Box::new(stats) });
            }
            let by_txq = stats.queues.iter().map(|q| (q.counters.packets, q.counters.bytes));
            let (packets, bytes) = by_txq.fold((0, 0), |sum, q| (sum.0 + q.0, sum.1 + q.1));
            if (packets, bytes) != (stats.sent, stats.bytes_sent) {
                return Err(AuditError::Sent { packets, bytes, stats: Box::new(stats) });
            }
            let in_flight = |q: &QueueStats| Some((q.txq, q.bql?.inflight)).filter(|&(_, bytes)| bytes != 0);
            if let Some((txq, bytes)) = stats.queues.iter().find_map(in_flight) {
                return Err(AuditError::BytesInFlight { txq, bytes, stats: Box::new(stats) });
            }
        }
        Ok(stats)
    }

    /// Returns the latencies of the packets sampled so far: from xmit to the driver, and from xmit to completion.
    #[inline(never)]
    pub fn latency(&self) -> (Latency, Latency) {
        self.shared.assert_outside("NetDev::latency");
        let mut latencies = (Latency::new(), Latency::new());
        let mut cache = self.shared.cache("control", 0);
        let mut cx = Ctx::new(&self.shared, &mut cache);
        for txq in &self.shared.txqs {
            self.shared.with_driver(txq, &mut cx, |tx, done, _| {
                tx.add_latency(&mut latencies.0, &mut latencies.1);
                done.add_latency(&mut latencies.1);
            });
        }
        latencies
    }

    /// Returns how late batches have left that a qdisc had held back until a time, in nanoseconds: from that time, for which
    /// a worker's timer is set, to the dequeue.
    #[inline(never)]
    pub fn lateness(&self) -> Log2 {
        self.shared.assert_outside("NetDev::lateness");
        let mut all = Log2::new();
        for root in &self.shared.roots {
            root.with_core(&self.shared, |core| core.lateness.add_to(&mut all));
        }
        all
    }

    /// Switches the recording of contention in this device on or off: which threads wait for which lock or owner.
    #[inline(never)]
    pub fn set_contention(&self, on: bool) {
        self.shared.assert_outside("NetDev::set_contention");
        self.shared.set_contention(on);
    }

    /// Returns whether the recording of contention is on.
    #[inline(never)]
    pub fn is_recording_contention(&self) -> bool {
        self.shared.retries.is_on()
    }

    /// Returns the contention recorded so far; `None` if recording was never switched on.
    #[inline(never)]
    pub fn contention(&self) -> Option<ContentionReport> {
        self.shared.assert_outside("NetDev::contention");
        self.shared.contention()
    }

    /// Returns how long calls of [`Sender::xmit`] and [`Sender::xmit_batch`] took, in nanoseconds.
    #[inline(never)]
    pub fn xmit_times(&self) -> Log2 {
        self.shared.senders.xmit_times()
    }

    /// Returns the qdiscs as `tc qdisc show` lists them.
    #[inline(never)]
    pub fn qdiscs(&self, style: Style) -> Vec<QdiscInfo> {
        self.control(|tree, _| {
            let mut list = self.list(tree, style);
            list.extend(self.hook_info(tree, style));
            list
        })
    }

    fn list(&self, tree: &Tree, style: Style) -> Vec<QdiscInfo> {
        let shared = &self.shared;
        let of = |root: &Root<A>, handle, parent, refcnt| {
            let mut list = vec![QdiscInfo::new("noqueue", handle, parent, style)];
            list[0].refcnt = refcnt;
            root.with_core(shared, |core| {
                list[0].stats = core.stats();
                if let Some(qdisc) = &mut core.qdisc {
                    list[0].kind = qdisc.kind().to_owned();
                    list[0].options = qdisc.options(style);
                    list[0].stab = qdisc.stab();
                    list[0].rate = qdisc.rate();
                    list[0].xstats = qdisc.xstats(style);
                }
            });
            // The tree's lock is held, so no command changes the qdiscs between two portions.
            let (mut walk, mut over) = (Walk::new(handle), false);
            while !over {
                over = true;
                root.with_core_for_portion(shared, |core| {
                    if let Some(qdisc) = &mut core.qdisc {
                        over = walk.qdiscs(&mut **qdisc, PORTION, style, &mut list);
                    }
                });
            }
            list.iter_mut().for_each(|info| info.dev = Some(shared.info.name.clone()));
            list
        };
        let roots = shared.roots_in_force();
        let Some(children) = &tree.children else {
            let refcnt = match shared.rule().shape() {
                Shape::NoQueue => 2,
                _ => 1 + shared.txqs.len() as u32,
            };
            let mut listed = of(&roots[0], tree.root, Handle::ROOT, refcnt);
            if shared.rule().shape() == Shape::PerTxq {
                // The parts of one qdisc: their counters are summed, and what is below their classes is listed.
                for part in &roots[1..] {
                    let mut list = of(part, tree.root, Handle::ROOT, refcnt).into_iter();
                    let same = if tree.replicas { listed.len() } else { 1 };
                    for (sum, part) in listed.iter_mut().zip(list.by_ref().take(same)) {
                        sum.add_part(&part);
                    }
                    listed.extend(list);
                }
            }
            return listed;
        };
        // An mq's children are listed from the last txq to the first, as the kernel does.
        let places = (1..).map(|minor| Handle::new(tree.root.major(), minor));
        let mut lists: Vec<_> = (roots.iter().zip(places).zip(children))
            .map(|((root, parent), &handle)| of(root, handle, parent, 1))
            .collect();
        lists.reverse();
        let mut listed = Vec::new();
        if let Some(parent) = &tree.parent {
            let reader = shared.steering.reader();
            let mut root = parent.info(tree.root, style, &reader.get().classes, lists.iter().map(|l| &l[0]));
            root.dev = Some(shared.info.name.clone());
            // Default children of txqs that are not in use exist, but are not shown.
            let in_use = |child: &QdiscInfo| child.parent.minor() <= reader.get().real;
            lists.retain(|list| list[0].handle != Handle::UNSPEC || in_use(&list[0]));
            listed.push(root);
        }
        listed.extend(lists.into_iter().flatten());
        listed
    }

    /// Returns whether the device is idle: no packet is queued, and the driver keeps none.
    #[inline(never)]
    pub fn is_idle(&self) -> bool {
        self.shared.assert_outside("NetDev::is_idle");
        if self.shared.txqs.iter().any(TxQueue::is_watched) {
            let mut cache = self.shared.cache("control", 0);
            let mut cx = Ctx::new(&self.shared, &mut cache);
            self.shared.txqs.iter().for_each(|txq| self.shared.reap_deferred(txq.index, &mut cx));
        }
        (0..self.shared.txqs.len() as u16).all(|txq| self.shared.is_idle(txq))
    }

    /// Waits until the device is idle, for at most `timeout`; returns whether it is.
    #[inline(never)]
    pub fn drain(&self, timeout: Duration) -> bool {
        let end = A::now().saturating_add(nanos(timeout));
        while !self.is_idle() {
            if A::now() >= end {
                return false;
            }
            A::relax();
        }
        true
    }

    /// Returns the time since the device was built.
    #[inline(never)]
    pub fn age(&self) -> Duration {
        Duration::from_nanos(A::now().saturating_sub(self.shared.created))
    }
}

/// Converts a duration; one of more than 584 years becomes the longest one.
fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
