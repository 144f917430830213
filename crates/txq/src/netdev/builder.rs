//! Device construction.

use std::fmt;
use std::time::Duration;

use txq_core::arch::Native;

use super::NetDev;
use crate::Discipline;
use crate::bql::BqlConfig;
use crate::driver::{Concrete, Driver};
use crate::generic::netdev as generic;
use crate::netdev::{BuildError, Completions, DriverBugEvent, Sampling, TxTimeout};
use crate::pool::{Pool, PoolConfig};
use crate::qdisc::{Custom, Qdisc};
use crate::xps::XpsMap;

/// The configuration of a device to build. Defaults: all txqs, `mq` over `pfifo_fast` (`pfifo_fast` alone with one txq), the
/// discipline `combine`, a map from CPUs to txqs if the device is started, a pool of at least 4096 packets, one worker.
pub struct Builder(generic::Builder<Native>);

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $value:expr;)+) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(self, $name: $type) -> Self {
            Self(self.0.$name($value))
        })+
    };
}

impl Builder {
    pub(super) fn new(driver: impl Driver + 'static) -> Self {
        Self(generic::Builder::new(Box::new(Concrete(driver))))
    }

    setters! {
        /// Number of the device's txqs to use.
        txqs: u16 => txqs;
        /// The root qdisc in tc's words: `"pfifo limit 1000"`, `"handle 1: mq"`.
        qdisc: &str => qdisc;
        /// The kind of qdisc that mq gives each txq (`net.core.default_qdisc`), optionally with options.
        default_qdisc: &str => default_qdisc;
        /// The enqueue discipline: how concurrent senders reach one qdisc.
        discipline: Discipline => discipline;
        /// The map from CPUs to txqs; `None` for none. Without a map, a packet's hash decides. [`Builder::start`] makes a map if
        /// this is not called: [`XpsMap::auto`] of the CPUs that the program may use. It makes none if a map from rx queues is
        /// given, if the CPUs cannot be read from `/sys`, or if a flow must keep its txq
        /// ([`DeviceInfo::by_flow`](crate::driver::DeviceInfo::by_flow)).
        ///
        /// A packet that its sender gave no hash gets the hash of its flow. Where strangers choose the flows, or both directions
        /// of a flow belong to one txq, give packets the hash of a [`FlowHasher`](crate::flow::FlowHasher) with a secret key or a
        /// symmetric one ([`Packet::set_hash`](crate::packet::Packet::set_hash)), and the device no map.
        xps: impl Into<Option<XpsMap>> => xps;
        /// The map from rx queues to txqs, for packets that carry their rx queue. It takes precedence over the map from
        /// CPUs.
        xps_rxqs: XpsMap => xps_rxqs;
        /// How old a choice of txqs must be before a [`Flow`](crate::Flow) or a sender that always has packets on their way makes
        /// another one because CPU or map have changed, which may reorder its packets once. [`Duration::ZERO`] means for ever, which
        /// keeps every flow in order. 1 s by default (`net.core.txq_reselection_ms`). A sender is checked once in 64 calls.
        txq_reselection: Duration => txq_reselection;
        /// A pool to share with other devices.
        pool: Pool => pool.0;
        /// A pool of the device's own. By default it has 4096 buffers of 1920 bytes, or more if the qdiscs that are named to
        /// the builder may queue more packets: up to 12288, and as memory allows ([`NetDev::pool_demand`]).
        pool_config: PoolConfig => pool_config;
        /// The default limit of qdiscs, in packets (`tx_queue_len`).
        tx_queue_len: u32 => tx_queue_len;
        /// The maximum number of packets that wait for a queue's owner (`net.core.qdisc_max_burst`).
        max_burst: u32 => max_burst;
        /// How long before a packet's time a worker wakes up, to poll the clock until that time. A thread that sleeps until
        /// the time itself runs late, by the time that the machine takes to wake it; polling costs CPU time instead.
        /// [`Duration::ZERO`], the default, polls never.
        spin: Duration => spin;
        /// Number of workers.
        workers: usize => workers;
        /// Limits of the bytes that each txq's device keeps; `None` for no limits. By default they apply if the driver keeps
        /// packets that wait for a wire ([`Complete::bql`](crate::driver::Complete::bql)), but never under noqueue.
        bql: Option<BqlConfig> => bql;
        /// Which threads reap completions; by default the sender that has sent ([`Completions::Inline`]).
        completions: Completions => completions;
        /// Whether a sender that is alone chooses when to reap; on by default. If its device completes at once, it reaps after 32
        /// packets instead of after each batch ([`Completions::Inline`]), and the worker reaps when it pauses for 1 to 2 ms. If it
        /// finds no buffer or has reached its limit, it reaps before it waits, whichever threads reap otherwise; so does a sender
        /// for which the others wait, and each sender under [`Completions::PerQueue`].
        defer_completions: bool => defer_completions;
        /// The worker of each txq (`/proc/irq/N/smp_affinity`): `affinity[txq]`. It runs the txq's queue when no sender
        /// does, and reaps the completions that are left to workers.
        affinity: &[usize] => affinity;
        /// Whether a txq's tx lock and completion lock are taken also if one queue alone feeds the txq, whose owner needs
        /// neither. Linux always takes its tx lock (`HARD_TX_LOCK`), and so does a simulation of Linux. Without these locks,
        /// there is no contention on them to record ([`Builder::contention`]).
        tx_lock: bool => tx_lock;
        /// How long a txq may be stopped and not move before that is reported (`watchdog_timeo`); `None` for ever. 5 s by
        /// default.
        watchdog_timeo: Option<Duration> => watchdog_timeo;
        /// Latency sampling policy.
        sampling: Sampling => sampling;
        /// Whether contention is recorded from the start ([`NetDev::set_contention`]).
        contention: bool => contention;
        /// Whether each sender records how long its calls of xmit take ([`NetDev::xmit_times`]), at the cost of two clock
        /// reads for each call.
        xmit_times: bool => xmit_times;
    }

    /// Sets a root qdisc of the program's own, in place of one in tc's words. It serves all txqs. If it panics while it is
    /// replaced, or while the device goes down, that call makes its change first, and raises the panic then.
    #[must_use]
    pub fn custom_qdisc(self, qdisc: impl Qdisc + 'static) -> Self {
        Self(self.0.custom_qdisc(Custom(Box::new(qdisc))))
    }

    /// Sets the qdisc of one txq under mq, in place of the default one.
    #[must_use]
    pub fn child(self, txq: u16, qdisc: &str) -> Self {
        Self(self.0.child(txq, qdisc))
    }

    /// Sets a function that is called when a txq has been stopped for too long (`ndo_tx_timeout`). The worker that reaps the
    /// txq calls it, once in each period of [`Builder::watchdog_timeo`] while nothing moves.
    #[must_use]
    pub fn on_tx_timeout(self, hook: impl Fn(&TxTimeout) + Send + Sync + 'static) -> Self {
        Self(self.0.on_tx_timeout(hook))
    }

    /// Sets a function that is called when the driver breaks a rule of [`crate::driver`]. The worker that reaps the txq
    /// calls it, once for each txq and rule. Every violation is counted
    /// ([`TxCounters::driver_bugs`](crate::TxCounters::driver_bugs)).
    #[must_use]
    pub fn on_driver_bug(self, hook: impl Fn(&DriverBugEvent) + Send + Sync + 'static) -> Self {
        Self(self.0.on_driver_bug(hook))
    }

    /// Builds the device. The caller drives its workers ([`NetDev::worker`]).
    pub fn build(self) -> Result<NetDev, BuildError> {
        self.0.build().map(NetDev)
    }

    /// Builds the device and starts its workers and completers, each on a thread of its own. If [`Builder::xps`] was not called,
    /// gives the device a map from CPUs to txqs.
    pub fn start(self) -> Result<NetDev, BuildError> {
        self.0.start().map(NetDev)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
