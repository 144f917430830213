//! A device with its txqs, its qdiscs and its workers: the kernel's `net_device`, as far as it sends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use crate::arch::{Arch, Atomic, CpuId, Nanos, Native};
use crate::ctx::Ctx;
use crate::driver::DeviceInfo;
use crate::pool::Pool;
use crate::sender::Sender;
use crate::stats::contention::ContentionReport;
use crate::stats::device::DeviceStats;
use crate::stats::latency::Latency;
use crate::stats::log2::Log2;
use crate::tc::{Handle, Options, QdiscInfo, Style};
use crate::txqueue::TxQueue;
use crate::worker::Worker;

mod bands;
mod below;
mod bql;
mod builder;
mod class;
mod error;
mod filter;
mod graft;
mod lifecycle;
mod rule;
mod seat;
mod senders;
mod shared;
mod steer;
mod tree;

pub use crate::txqueue::{Completions, DriverBug, DriverBugEvent, TxTimeout};
pub use bands::BandStats;
pub use builder::Builder;
pub use error::BuildError;
pub(crate) use rule::Rule;
use rule::Shape;
pub(crate) use shared::{Root, Shared};
use tree::Tree;

/// Whose latency is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Nobody's; nothing is paid for it.
    Off,
    /// The first packet of each sender's first, n+1st, 2n+1st.. call. `n` is at least 1.
    Every(u32),
    /// Every packet's.
    All,
}

/// A device that threads send through.
///
/// Made by [`NetDev::builder`]. Threads get a [`Sender`] each. Dropping it shuts the device down; senders that are left
/// find their packets dropped.
///
/// Its methods wait for the owners of queues. Code that works for a queue (a driver, a qdisc, a filter, a completion) may send
/// through the device and drop it, and calls nothing else of it: such a call panics, for it would wait for its caller. Hooks
/// ([`Builder::on_tx_timeout`], [`Builder::on_driver_bug`]) may call everything.
///
/// After a `fork` the device is the parent's. The child may drop the `NetDev`, which does nothing there, and should leave
/// senders and workers alone.
pub struct NetDev<A: Arch = Native> {
    shared: Arc<Shared<A>>,
    threads: Vec<JoinHandle<()>>,
    /// The process that made it.
    process: u32,
}

impl<A: Arch> NetDev<A> {
    /// A sender for the calling thread; `name` is for messages. It looks now and then which CPU it runs on.
    pub fn sender(&self, name: &str) -> Sender<A> {
        Sender::new(self.shared.clone(), name, None)
    }

    /// A sender that is steered as if it ran on `cpu`, wherever it runs.
    pub fn sender_on(&self, name: &str, cpu: CpuId) -> Sender<A> {
        Sender::new(self.shared.clone(), name, Some(cpu))
    }

    /// The worker of the txqs that [`Builder::affinity`] gives to it, `index`, `index + workers`, .. if nothing was said.
    /// There must be one of each; a device that was started has them already.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn worker(&self, index: usize) -> Worker<A> {
        assert!(index < self.shared.workers, "worker {index} of {}", self.shared.workers);
        Worker::new(self.shared.clone(), index)
    }

    /// All workers and what reaps completions for a txq each, for other threads to drive from now on.
    pub(crate) fn hand_out_workers(&self) -> impl Iterator<Item = Worker<A>> {
        self.shared.has_threads.store(1, Relaxed);
        (0..self.shared.sched.len()).map(|index| Worker::new(self.shared.clone(), index))
    }

    /// What reaps a txq's completions under [`Completions::PerQueue`], and nothing else: to be driven like a worker, one
    /// for each txq. A device that was started has them already.
    ///
    /// # Panics
    /// When there is none for this txq.
    pub fn completer(&self, txq: u16) -> Worker<A> {
        let index = self.shared.workers + usize::from(txq);
        assert!(
            index < self.shared.sched.len(),
            "no completer for txq {txq}: Completions::PerQueue makes them"
        );
        Worker::new(self.shared.clone(), index)
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// The pool that its senders allocate from.
    pub fn pool(&self) -> &Pool<A> {
        &self.shared.pool
    }

    /// The counters. At any time `accepted + created = sent + dropped + queued`.
    pub fn stats(&self) -> DeviceStats {
        self.shared.assert_outside("NetDev::stats");
        DeviceStats { senders: self.shared.sender_rows(), ..self.shared.totals() }
    }

    /// The counters, after checking that they add up: no packet is missing or counted twice, and what the queues have
    /// sent is what the txqs have sent. Tests call it at their end; a program may at any time.
    ///
    /// # Errors
    /// Which sum is wrong, with the counters.
    pub fn audit(&self) -> Result<DeviceStats, String> {
        // A sender counts a packet a moment before it can be found in a queue, so at that moment the sums of an idle
        // device differ. What is wrong stays wrong.
        for _ in 0..1000 {
            match self.audit_once() {
                Ok(stats) => return Ok(DeviceStats { senders: self.shared.sender_rows(), ..stats }),
                Err(_) => A::relax(),
            }
        }
        let stats = self.audit_once()?;
        Ok(DeviceStats { senders: self.shared.sender_rows(), ..stats })
    }

    fn audit_once(&self) -> Result<DeviceStats, String> {
        let idle = self.is_idle();
        let stats = self.shared.totals();
        let accounted = (stats.sent + stats.dropped.total()).wrapping_add(stats.queued);
        if stats.accepted + stats.created != accounted {
            return Err(format!(
                "accepted {} + created {} is not sent + dropped + queued {accounted}: {stats:?}",
                stats.accepted, stats.created
            ));
        }
        if idle && self.is_idle() {
            if stats.queued != 0 {
                return Err(format!(
                    "{} packets are queued and yet none is on its way: {stats:?}",
                    stats.queued
                ));
            }
            let by_txq = stats.queues.iter().map(|q| (q.counters.packets, q.counters.bytes));
            let by_txq = by_txq.fold((0, 0), |sum, q| (sum.0 + q.0, sum.1 + q.1));
            if by_txq != (stats.sent, stats.bytes_sent) {
                return Err(format!("the txqs have sent {by_txq:?} packets and bytes: {stats:?}"));
            }
            if let Some(q) = stats.queues.iter().find(|q| q.bql.is_some_and(|bql| bql.inflight != 0)) {
                return Err(format!("nothing is in flight on txq {} but bytes: {stats:?}", q.txq));
            }
        }
        Ok(stats)
    }

    /// Latencies of the packets sampled so far: from xmit to the driver, and from xmit to completion.
    pub fn latency(&self) -> (Latency, Latency) {
        self.shared.assert_outside("NetDev::latency");
        let mut latencies = (Latency::new(), Latency::new());
        let mut cache = self.shared.pool.cache("control", 0);
        let mut cx = Ctx::new(&self.shared, &mut cache);
        for txq in &self.shared.txqs {
            self.shared.with_driver(txq, &mut cx, |tx, done, _| {
                tx.add_latency(&mut latencies.0, &mut latencies.1);
                done.add_latency(&mut latencies.1);
            });
        }
        latencies
    }

    /// Records from now on who waits for whom in this device, from zero, or stops doing so; what was recorded can be read
    /// until it is switched on again. It works on a device in use, as `perf lock contention` does on a kernel. While it is on,
    /// taking a lock costs two or three readings of the clock; while it is off, nothing.
    pub fn set_contention(&self, on: bool) {
        self.shared.assert_outside("NetDev::set_contention");
        self.shared.set_contention(on);
    }

    /// Who has waited for whom. `None` when recording was never switched on. Asking takes each lock once, as
    /// [`Site::Control`](crate::sync::contention::Site::Control).
    pub fn contention(&self) -> Option<ContentionReport> {
        self.shared.assert_outside("NetDev::contention");
        self.shared.contention()
    }

    /// How long calls of [`Sender::xmit`] and [`Sender::xmit_batch`] took, in nanoseconds; empty unless the device was built
    /// with [`Builder::xmit_times`].
    pub fn xmit_times(&self) -> Log2 {
        self.shared.xmit_times()
    }

    /// The qdiscs as `tc qdisc show` lists them.
    pub fn qdiscs(&self, style: Style) -> Vec<QdiscInfo> {
        self.control(|tree, _| self.list(tree, style))
    }

    fn list(&self, tree: &Tree, style: Style) -> Vec<QdiscInfo> {
        let shared = &self.shared;
        let info = |kind: &str, handle, parent, refcnt| QdiscInfo {
            kind: kind.to_owned(),
            handle,
            dev: Some(shared.info.name.clone()),
            parent,
            refcnt,
            options: Options::new(style),
            stats: Default::default(),
            xstats: None,
        };
        let of = |root: &Root<A>, handle, parent, refcnt| {
            let mut list = vec![info("noqueue", handle, parent, refcnt)];
            root.with_core(shared, |core| {
                list.truncate(1);
                list[0].stats = core.stats();
                if let Some(qdisc) = &mut core.qdisc {
                    list[0].kind = qdisc.kind().to_owned();
                    list[0].options = qdisc.options(style);
                    list[0].xstats = qdisc.xstats(style);
                    below::list(&mut **qdisc, handle, style, &mut list);
                }
            });
            list.iter_mut().for_each(|info| info.dev = Some(shared.info.name.clone()));
            list
        };
        let roots = shared.roots_in_force();
        let Some(children) = &tree.children else {
            let root = &roots[0];
            let refcnt = match shared.rule().shape() {
                Shape::NoQueue => 2,
                _ => 1 + shared.txqs.len() as u32,
            };
            return of(root, tree.root, Handle::ROOT, refcnt);
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
            // Default children of txqs that are not in use are there and not shown.
            let in_use = |child: &QdiscInfo| child.parent.minor() <= reader.get().real;
            lists.retain(|list| list[0].handle != Handle::UNSPEC || in_use(&list[0]));
            listed.push(root);
        }
        listed.extend(lists.into_iter().flatten());
        listed
    }

    /// Whether no packet is on its way.
    pub fn is_idle(&self) -> bool {
        self.shared.assert_outside("NetDev::is_idle");
        if self.shared.txqs.iter().any(TxQueue::is_watched) {
            let mut cache = self.shared.pool.cache("control", 0);
            let mut cx = Ctx::new(&self.shared, &mut cache);
            self.shared.txqs.iter().for_each(|txq| self.shared.reap_deferred(txq.index, &mut cx));
        }
        (0..self.shared.txqs.len() as u16).all(|txq| self.shared.is_idle(txq))
    }

    /// Waits until no packet is on its way, for at most `timeout` nanoseconds, and tells whether there is none. With a
    /// worker driven by the caller's own loop, that loop must go on meanwhile.
    pub fn drain(&self, timeout: Nanos) -> bool {
        let end = A::now().saturating_add(timeout);
        while !self.is_idle() {
            if A::now() >= end {
                return false;
            }
            A::relax();
        }
        true
    }

    /// Nanoseconds since the device was made.
    pub fn age(&self) -> Nanos {
        A::now().saturating_sub(self.shared.created)
    }
}
