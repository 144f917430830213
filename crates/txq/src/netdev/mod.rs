//! A device with its txqs, qdiscs and workers: the sending half of the kernel's `net_device`.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::time::Duration;

use txq_core::arch::CpuId;
use txq_core::pool::PoolError;
use txq_core::stats::contention::ContentionReport;
use txq_core::stats::latency::Latency;
use txq_core::stats::log2::Log2;

use crate::bql::{Attr, BqlError};
use crate::driver::{Concrete, DeviceInfo, Driver};
use crate::generic::netdev as generic;
use crate::pool::Pool;
use crate::sender::{Ingress, Sender};
use crate::stats::device::DeviceStats;
use crate::tc::ParseError;
use crate::trace::{Filter, Trace};
use crate::worker::Worker;

mod builder;
mod steering;
mod tc;

pub use crate::generic::netdev::{
    AuditError, BandStats, BuildError, Completions, DriverBug, DriverBugEvent, PoolDemand, Sampling,
    TxTimeout,
};
pub use builder::Builder;
pub use steering::Steering;

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
pub struct NetDev(#[doc(hidden)] pub generic::NetDev);

/// The latencies of a device's sampled packets.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Latencies {
    /// From xmit to the driver.
    pub to_driver: Latency,
    /// From xmit to completion.
    pub to_completion: Latency,
}

impl NetDev {
    /// Begins a device on `driver`.
    pub fn builder(driver: impl Driver + 'static) -> Builder {
        Builder::new(driver)
    }

    /// Returns a new sender; `name` identifies it in counters and messages. The sender checks at its first call of xmit, and once
    /// in 64, which CPU it runs on.
    pub fn sender(&self, name: &str) -> Sender {
        Sender(self.0.sender(name))
    }

    /// Returns a new sender that is steered as if it ran on `cpu`, wherever it runs.
    pub fn sender_on(&self, name: &str, cpu: CpuId) -> Sender {
        Sender(self.0.sender_on(name, cpu))
    }

    /// Returns worker `index`. It serves the txqs that [`Builder::affinity`] assigns to it; by default these are `index`,
    /// `index + workers` and so on. Each worker must exist exactly once; a started device already has all of them.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn worker(&self, index: usize) -> Worker {
        Worker(self.0.worker(index))
    }

    /// Returns the completer of a txq: a worker that only reaps the txq's completions, under [`Completions::PerQueue`]. It
    /// is driven like any worker, and must exist exactly once for each txq. A started device already has
    /// its completers, no more than there are CPUs; each reaps several txqs.
    ///
    /// # Panics
    /// When the device has no completer for this txq.
    pub fn completer(&self, txq: u16) -> Worker {
        Worker(self.0.completer(txq))
    }

    /// Returns the name, the maximum number of txqs and the first MTU of the device; [`mtu`](Self::mtu) is the present one.
    pub fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    /// Returns the pool that senders allocate from.
    pub fn pool(&self) -> &Pool {
        Pool::from_ref(self.0.pool())
    }

    /// Returns the counters. At any time `accepted + created = sent + dropped + queued`.
    pub fn stats(&self) -> DeviceStats {
        self.0.stats()
    }

    /// Returns the packets that the drivers of all txqs have taken and not dropped (`tx_packets`), as
    /// [`TxCounters::packets`](crate::TxCounters::packets) counts them. Unlike [`stats`](NetDev::stats) it waits for no other
    /// thread: a program may call it as often as it likes beside senders.
    pub fn tx_packets(&self) -> u64 {
        self.0.tx_packets()
    }

    /// Returns the counters, after checking that they add up: no packet is missing or counted twice, and on an idle device
    /// the queues have sent the same packets and bytes as the txqs. Tests call it at their end; a program may call it at any
    /// time.
    ///
    /// # Errors
    /// The wrong sum, with the counters.
    pub fn audit(&self) -> Result<DeviceStats, AuditError> {
        self.0.audit()
    }

    /// Returns whether the device is idle: no packet is queued, and the driver keeps none.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// Waits until the device is idle, for at most `timeout`; returns whether it is. If the caller's own loop drives a worker,
    /// that loop must keep running meanwhile.
    pub fn drain(&self, timeout: Duration) -> bool {
        self.0.drain(timeout)
    }

    /// Returns the time since the device was built.
    pub fn age(&self) -> Duration {
        self.0.age()
    }

    /// Returns the latencies of the packets sampled so far.
    pub fn latency(&self) -> Latencies {
        let (to_driver, to_completion) = self.0.latency();
        Latencies { to_driver, to_completion }
    }

    /// Returns how late batches have left that a qdisc had held back until a time, in nanoseconds: from that time, for which a
    /// worker's timer is set, to the dequeue. It is recorded always, once for each such batch.
    pub fn lateness(&self) -> Log2 {
        self.0.lateness()
    }

    /// Returns how long calls of [`Sender::xmit`] and [`Sender::xmit_batch`] took, in nanoseconds. Empty unless the device
    /// was built with [`Builder::xmit_times`].
    pub fn xmit_times(&self) -> Log2 {
        self.0.xmit_times()
    }

    /// Switches the recording of contention in this device on or off: which threads wait for which lock or owner. Switching
    /// it on starts from zero. After it is switched off, the records can be read until it is switched on again. It works on
    /// a device in use, as `perf lock contention` does on a kernel. While it is on, taking a lock costs two or three clock
    /// reads; while it is off, nothing.
    pub fn set_contention(&self, on: bool) {
        self.0.set_contention(on);
    }

    /// Returns whether the recording of contention is on.
    pub fn is_recording_contention(&self) -> bool {
        self.0.is_recording_contention()
    }

    /// Returns the contention recorded so far; `None` if recording was never switched on. The call takes each lock once, as
    /// [`Site::Control`](txq_core::stats::contention::Site::Control).
    pub fn contention(&self) -> Option<ContentionReport> {
        self.0.contention()
    }

    /// Returns how many packets the qdiscs may queue, and how many buffers the pool has. A pool that several devices share
    /// must have enough for all of them.
    ///
    /// ```
    /// # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
    /// # use txq::packet::PacketList;
    /// # use txq::{NetDev, pool::PoolConfig};
    /// # struct Sink;
    /// # impl Driver for Sink {
    /// #     fn info(&self) -> DeviceInfo { DeviceInfo::new("sink") }
    /// #     fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
    /// #         Ok(DriverQueue::new(Sink, NoCompletions))
    /// #     }
    /// # }
    /// # impl Transmit for Sink {
    /// #     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
    /// #         cx.sent_all(batch);
    /// #         Status::Ok
    /// #     }
    /// # }
    /// # let driver = Sink;
    /// let pool = PoolConfig { buffers: 4096, ..PoolConfig::default() };
    /// let dev = NetDev::builder(driver).qdisc("fq_codel").pool_config(pool).build()?;
    /// let demand = dev.pool_demand();
    /// assert!(demand.is_short());
    /// assert_eq!(
    ///     demand.to_string(),
    ///     "device \"sink\": the qdiscs may queue 10240 packets; the pool has 4096 buffers: give the pool more buffers, or the \
    ///      qdiscs lower limits"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When called inside the data path of the device.
    pub fn pool_demand(&self) -> PoolDemand {
        self.0.pool_demand()
    }

    /// Grows the pool to what the qdiscs may queue, as far as
    /// [`PoolConfig::max_buffers`](crate::pool::PoolConfig::max_buffers) allows: for a program that has changed qdiscs or
    /// classes. Never shrinks it. Returns the demand after that.
    ///
    /// # Errors
    /// As those of [`Pool::resize`](crate::pool::Pool::resize).
    ///
    /// # Panics
    /// When called inside the data path of the device.
    pub fn fit_pool(&self) -> Result<PoolDemand, PoolError> {
        self.0.fit_pool()
    }

    /// Returns the text of the file `/sys/class/net/DEV/queues/tx-N/byte_queue_limits/ATTR` for a txq, including its
    /// newline. [`QueueStats`](crate::stats::device::QueueStats) has all files at once.
    ///
    /// # Errors
    /// [`BqlError::Absent`] if the txq has no such limits.
    pub fn show_bql(&self, txq: u16, attr: Attr) -> Result<String, BqlError> {
        self.0.show_bql(txq, attr)
    }

    /// Writes such a file, also under traffic. A limit takes effect at the txq's next completion; until then `limit` may be
    /// above `limit_max`.
    ///
    /// # Errors
    /// The kernel's error for a text that the kernel refuses, and [`BqlError::Absent`]. Nothing has changed then.
    pub fn set_bql(&self, txq: u16, attr: Attr, text: &str) -> Result<(), BqlError> {
        self.0.set_bql(txq, attr, text)
    }

    /// Begins a trace: from now on, each step of a packet that passes `filter` is an event for the reader. The trace ends when
    /// it is dropped. Several traces may run at the same time.
    ///
    /// While a device is traced its packets take no short cut past the qdisc, and each step costs about as much as a copy of
    /// the packet's header. While it is not, tracing costs nothing.
    ///
    /// ```
    /// use txq::trace::{EventKind, Filter};
    /// # #[derive(Debug)] struct Null;
    /// # impl txq::driver::Driver for Null {
    /// #     fn info(&self) -> txq::driver::DeviceInfo { txq::driver::DeviceInfo::new("null0") }
    /// #     fn open(&mut self, _: u16) -> std::io::Result<txq::driver::DriverQueue> {
    /// #         Ok(txq::driver::DriverQueue::new(Null, txq::driver::NoCompletions))
    /// #     }
    /// # }
    /// # impl txq::driver::Transmit for Null {
    /// #     fn start_xmit(&mut self, batch: &mut txq::packet::PacketList, cx: &mut txq::driver::TxCx<'_>) -> txq::driver::Status {
    /// #         while let Some(packet) = batch.pop_front() { cx.sent(packet); }
    /// #         txq::driver::Status::Ok
    /// #     }
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let dev = txq::NetDev::builder(Null).start()?;
    /// let mut trace = dev.trace(Filter::new());
    /// let mut sender = dev.sender("main");
    /// let packet = sender.packet(&[0; 60])?;
    /// let _ = sender.xmit(packet);
    ///
    /// let steps: Vec<_> = std::iter::from_fn(|| trace.try_next()).map(|event| event.kind).collect();
    /// assert_eq!(steps, [EventKind::QdiscEnqueue, EventKind::QdiscDequeue, EventKind::NetDevStartXmit]);
    /// assert_eq!(trace.lost(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trace(&self, filter: Filter) -> Trace {
        Trace(self.0.trace(filter))
    }

    /// As [`trace`](NetDev::trace), with a ring of at least `capacity` events instead of 16,384. An event takes about 250 bytes.
    pub fn trace_with(&self, filter: Filter, capacity: usize) -> Trace {
        Trace(self.0.trace_with(filter, capacity))
    }

    /// Lets filters of this device send packets through another one, by its name (`mirred egress redirect dev NAME`).
    ///
    /// # Errors
    /// The devices' packets begin with different headers.
    pub fn connect(&self, to: &NetDev) -> Result<(), ParseError> {
        self.0.connect(&to.0)
    }

    /// Returns the filters of packets that the device has received (`tc qdisc add dev X ingress`), for the threads that receive
    /// them: a receiver of the same interface is no part of the device.
    pub fn ingress(&self) -> Ingress {
        Ingress(self.0.ingress())
    }

    /// Returns a handle on the device that does not keep the device alive.
    pub fn downgrade(&self) -> WeakNetDev {
        WeakNetDev(self.0.downgrade())
    }

    /// Takes the device up again (`ip link set DEV up`, `dev_activate`).
    pub fn activate(&self) {
        self.0.activate();
    }

    /// Takes the device down, under traffic (`ip link set DEV down`, `dev_deactivate`). Queued packets are dropped
    /// (`QUEUE_PURGE`), and so are packets handed in until [`activate`](NetDev::activate) (`QDISC_DROP`; the sender gets the
    /// verdict of `noop_qdisc`, [`Verdict::Congested`](txq_sched::generic::qdisc::Verdict::Congested)). Packets that the device keeps
    /// complete. When this returns, no thread is in the driver for a packet that was queued before.
    pub fn deactivate(&self) {
        self.0.deactivate();
    }

    /// Returns whether the device is up.
    pub fn is_active(&self) -> bool {
        self.0.is_active()
    }

    /// Returns `tx_queue_len`, in packets.
    pub fn tx_queue_len(&self) -> u32 {
        self.0.tx_queue_len()
    }

    /// Sets `tx_queue_len`, in packets, under traffic (`ip link set DEV txqueuelen N`, `dev_change_tx_queue_len`). It
    /// becomes the limit of each band of a pfifo_fast; packets beyond it are dropped, the newest first. Other qdiscs keep
    /// the limit that they began with, as in the kernel.
    pub fn set_tx_queue_len(&self, packets: u32) {
        self.0.set_tx_queue_len(packets);
    }

    /// Returns the MTU: the longest packet without its link-layer header, in bytes.
    pub fn mtu(&self) -> u32 {
        self.0.mtu()
    }

    /// Sets the MTU, in bytes, under traffic (`dev_set_mtu`): after that of the driver's interface has changed. Qdiscs and
    /// classes that are made later derive their defaults from it; others keep theirs, as in the kernel.
    pub fn set_mtu(&self, mtu: u32) {
        self.0.set_mtu(mtu);
    }

    /// Replaces the driver, under traffic: by one for another device, or by one whose rings are of another size. Each txq
    /// that the device was built with, in use or not, changes over when no thread is in its driver. Packets that the old driver has completed are freed, packets that
    /// it still keeps go with it, and a stopped txq continues. The device keeps its name.
    ///
    /// # Errors
    /// When the new driver has fewer txqs than the device was built with, another link, a smaller MTU, a shorter pacing horizon than is needed or a ring
    /// of no packets, or does not open; nothing has changed then. Also the error with which the old driver finished, if it
    /// did.
    pub fn replace_driver(&self, driver: impl Driver + 'static) -> io::Result<()> {
        self.0.replace_driver(Concrete(driver))
    }

    /// Returns how often a worker's thread, or a control call that runs a queue in its place, has continued after a panic of a
    /// driver or a qdisc. Packets lost by a panic are counted as dropped (`NOT_SPECIFIED`).
    pub fn worker_restarts(&self) -> u64 {
        self.0.worker_restarts()
    }

    /// Ends all sending. Queued packets are dropped (`QUEUE_PURGE`), and so are all packets handed in afterwards. Drivers
    /// write out the packets that they hold. Returns the first error of a driver.
    ///
    /// A hook may call it on a worker's thread; that thread then ends by itself.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] inside the device's data path (a driver, qdisc, filter or completion): the call would
    /// wait for its caller. Nothing has changed then. [`io::ErrorKind::NotConnected`] in a forked child: the device's
    /// threads, and the holders of its locks, exist only in the parent.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.0.shutdown()
    }
}

impl fmt::Debug for NetDev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A handle on a device that does not keep the device alive, as [`std::sync::Weak`] does not keep an `Arc`'s value alive.
///
/// Made by [`NetDev::downgrade`]. A thread that serves other processes, as a control socket does, holds one and upgrades it
/// for the time of one operation. The program drops or shuts down the [`NetDev`] whenever it likes.
#[derive(Clone)]
pub struct WeakNetDev(generic::WeakNetDev);

impl fmt::Debug for WeakNetDev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl WeakNetDev {
    /// Returns access to the device; `None` after it was shut down or dropped.
    pub fn upgrade(&self) -> Option<NetDevRef> {
        self.0.upgrade().map(|dev| NetDevRef(NetDev(dev.into_inner())))
    }

    /// Returns whether both are handles on the same device.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }
}

/// Access to a device through a [`WeakNetDev`]. Its end does not shut the device down.
///
/// While it exists, the device's memory and driver exist, too. So hold it for one operation only.
#[derive(Debug)]
pub struct NetDevRef(NetDev);

impl Deref for NetDevRef {
    type Target = NetDev;

    fn deref(&self) -> &NetDev {
        &self.0
    }
}
