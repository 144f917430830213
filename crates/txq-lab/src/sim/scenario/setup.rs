//! One point: all inputs of a simulation.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use toml::Table;
use txq::Discipline;
use txq::tc::Handle;

use crate::sim::footprint::{Footprint, MAX_LINES};
use crate::sim::machine::Scale;
use crate::sim::moves::Known;
use crate::sim::prices::Prices;

/// One point of a scenario. Names of fields give the units of times; other times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The machine's name, or its file.
    pub machine: String,
    /// Fields that replace those of the machine's file: `tune.access.other_socket = 200`.
    #[serde(default)]
    pub tune: Table,
    /// Factors on the machine's guessed numbers, to see what depends on them.
    #[serde(default)]
    pub scale: Scale,
    /// The seed of every random choice.
    #[serde(default = "one")]
    pub seed: u64,
    /// Length of the measured time, in milliseconds of virtual time.
    pub milliseconds: f64,
    /// Length of the warm-up before it, in milliseconds.
    #[serde(default)]
    pub warmup: f64,
    /// Whether the kernel itself sends: then nothing takes the CPU from a task in the data plane, and locks are fair. Otherwise
    /// a program's threads send, and may pass a lock's queue whose first waiter has no CPU.
    #[serde(default)]
    pub kernel: bool,
    /// Whether loads overlap and crowds slow the transfers of a line, by the machine's `line.loads`, `core.window`,
    /// `access.hit_gap` and `line.crowd`, and cores fetch the lines of rings ahead, by `line.ahead`. Otherwise a core waits for
    /// each line that it loads.
    #[serde(default)]
    pub overlap: bool,
    /// Whether a task that waits for a lock sleeps, as in the real-time kernel.
    #[serde(default)]
    pub sleeping_locks: bool,
    /// Whether locks are ticket locks, as Linux' were before 4.2, instead of queued ones.
    #[serde(default)]
    pub ticket_locks: bool,
    /// The network card.
    pub device: Device,
    /// The path between the senders and the card.
    pub path: Way,
    /// Which CPU uses which txq.
    #[serde(default)]
    pub steering: Steering,
    /// The senders and their packets.
    pub workload: Workload,
    /// Costs of the plain work on a packet.
    #[serde(default)]
    pub prices: Prices,
    /// Number of lines of the data plane's plain state.
    #[serde(default)]
    pub lines: Footprint,
    /// The state of the qdisc, if it is known and neither `prices` nor `lines` say anything of the qdisc.
    #[serde(skip)]
    pub(crate) known: Option<Known>,
}

/// The fields of `prices` and `lines` that describe a qdisc.
const OF_QDISC: [(&str, &[&str]); 2] =
    [("prices", &["enqueue", "dequeue"]), ("lines", &["qdisc", "dequeue", "flow"])];

fn one() -> u64 {
    1
}

/// The network card.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// Rate of the link in Gbit/s, shared by all txqs; 0 for no limit.
    pub gbit: f64,
    /// Number of txqs.
    pub txqs: u16,
    /// Number of descriptors of each txq.
    pub ring: u32,
    /// Time that the card waits before it interrupts, in microseconds (`ethtool -C DEV tx-usecs`).
    pub coalesce_us: f64,
    /// Where completions are reaped.
    pub completions: Completions,
    /// Number of CPUs that take the interrupts and run no pinned sender: those of the last cores. 0: no such CPUs.
    pub irq_cpus: u32,
    /// Whether the bytes on a ring are limited ([`txq::bql`]).
    pub bql: bool,
    /// Whether the device is txq's null device, without interrupts: without a rate no wire and no limit of bytes, and with one each
    /// txq has a wire of that rate.
    pub null: bool,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            gbit: 0.0,
            txqs: 1,
            ring: 1024,
            coalesce_us: 20.0,
            completions: Completions::Spread,
            irq_cpus: 0,
            bql: true,
            null: false,
        }
    }
}

/// Where completions are reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completions {
    /// By the senders.
    Inline,
    /// By interrupts; that of txq `n` goes to CPU `n`: CPUs of the first socket, as drivers set them up.
    First,
    /// By interrupts, spread over all CPUs.
    Spread,
    /// By interrupts, all on CPU 0.
    One,
}

/// The path between the senders and the card.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Way {
    /// The root qdisc, in tc's words; or a tree: the root and commands of tc, separated by `;`.
    pub qdisc: String,
    /// The classes of the root qdisc, each as the words after `tc class add`.
    pub classes: Vec<String>,
    /// The qdisc of each txq under mq, in tc's words.
    pub default_qdisc: String,
    /// Whether the root qdisc is a fifo that dequeues one packet at a time, as all qdiscs did before Linux 3.18. If so,
    /// `qdisc` is ignored.
    pub one_by_one: bool,
    /// How concurrent senders reach a qdisc.
    #[serde(deserialize_with = "discipline")]
    pub discipline: Discipline,
    /// Where a buffer goes that another CPU frees: `defer`, `keep` or `shared`.
    pub pool: Pool,
    /// Number of buffers that may wait for each sender.
    pub defer_max: u32,
    /// Number of packets that may wait on a defer list (`net.core.qdisc_max_burst`).
    pub max_burst: u32,
    /// The default limit of qdiscs, in packets.
    pub txqueuelen: u32,
    /// Whether a lone sender leaves completions to its next calls, which it can only without byte queue limits, and reaps before it
    /// waits at its limit.
    pub defer_completions: bool,
}

impl Way {
    /// Returns the qdisc that holds packets: that of each txq, below mq.
    fn queue(&self) -> &str {
        match self.qdisc.split_whitespace().find(|word| *word == "mq") {
            Some(_) => &self.default_qdisc,
            None => &self.qdisc,
        }
    }
}

/// Parses the name of a discipline.
fn discipline<'de, D: Deserializer<'de>>(from: D) -> Result<Discipline, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// Parses handles of classes.
fn handles<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Handle>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    words.iter().map(|word| Handle::parse_parent(word).map_err(D::Error::custom)).collect()
}

impl Default for Way {
    fn default() -> Self {
        Self {
            qdisc: "mq".into(),
            classes: Vec::new(),
            default_qdisc: "pfifo_fast".into(),
            one_by_one: false,
            defer_completions: false,
            discipline: Discipline::Spinlock,
            pool: Pool::Defer,
            defer_max: txq_core::pool::DEFER_MAX,
            max_burst: 1000,
            txqueuelen: 1000,
        }
    }
}

/// Where a buffer goes that another CPU frees ([`txq_core::pool::FreeMode`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// To the CPU that allocated it.
    Defer,
    /// To the cache of the CPU that frees it.
    Keep,
    /// To one list for all.
    Shared,
}

/// Which CPU uses which txq.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steering {
    /// The flow's hash chooses, wherever the sender is.
    Hash,
    /// Neighbouring cores share a txq: `core * txqs / cores`.
    #[default]
    Near,
    /// CPU `n` uses txq `n % txqs`, so CPUs that share a txq are far from each other.
    Far,
}

/// The senders and their packets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// Senders of datagrams, each as fast as it can (`netperf -t UDP_STREAM`).
    UdpStream {
        /// Number of senders.
        senders: u32,
        /// Bytes of a frame.
        bytes: u32,
        /// Packets that a sender may have in flight (its send buffer). It sleeps when it has as many.
        credit: u64,
        /// Packets in one call of xmit.
        #[serde(default = "one_packet")]
        batch: u32,
        /// Work of the sender on each packet before the call of xmit: system call, socket, headers.
        private: f64,
        /// Whether each sender stays on a CPU of its own.
        pinned: bool,
        /// Millions of packets a second that all senders hand in together, at random times; 0: as many as they can.
        #[serde(default)]
        offered_mpps: f64,
        /// Flows of each sender, whose packets take turns.
        #[serde(default = "one_packet")]
        flows: u32,
        /// Whether a sender writes its packets' bytes. Otherwise it hands in each buffer as it was allocated.
        #[serde(default = "yes")]
        write: bool,
        /// The classes of the senders, as `1:10`: the priorities of their packets (`SO_PRIORITY`). The senders are divided into
        /// equal parts: the first part has the first class, and so on. Empty: the leaf classes of the tree in turn, or priority 0.
        #[serde(default, deserialize_with = "handles")]
        classes: Vec<Handle>,
    },
    /// Pairs that send a request and wait for its answer (`netperf -t TCP_RR`).
    TcpRr {
        /// Number of pairs.
        pairs: u32,
        /// Bytes of a frame.
        bytes: u32,
        /// Work on each transaction: both system calls, TCP, both ways through the stack.
        private: f64,
        /// Time from a request's end on the wire until its answer interrupts a CPU, in microseconds.
        round_trip_us: f64,
    },
    /// Packets into the queue layer from a thread that does nothing else (`pktgen`, `xmit_mode queue_xmit`).
    Pktgen {
        /// Number of threads, each on a CPU of its own.
        threads: u32,
        /// Bytes of a frame.
        bytes: u32,
        /// Work on each packet.
        private: f64,
    },
    /// Requests through a proxy, each of which passes the egress layer several times (`wrk`). Client, proxies and server have
    /// one thread each.
    Proxy {
        /// Number of requests in flight.
        connections: u32,
        /// Bytes of a frame.
        bytes: u32,
        /// Number of times that a request or its answer passes the egress layer: 2 without a proxy, and 2 more with each.
        passes: u32,
        /// Work of all programs on a request, spread evenly over its passes.
        private: f64,
    },
    /// The packets of a capture, repeated (`tcpreplay`): its sizes, its flows, its times.
    Trace {
        /// The capture, pcap or pcapng. A relative path is relative to the scenario's file.
        file: PathBuf,
        /// Speed as a factor on the capture's times; 0 for as fast as possible.
        #[serde(default = "as_captured")]
        speed: f64,
        /// Number of senders. Each flow has one sender, which keeps its order.
        senders: u32,
        /// Packets that a sender may have in flight. It sleeps when it has as many.
        #[serde(default = "credit")]
        credit: u64,
        /// Work of the sender on each packet before the call of xmit.
        #[serde(default)]
        private: f64,
        /// Whether each sender stays on a CPU of its own.
        #[serde(default)]
        pinned: bool,
    },
}

fn yes() -> bool {
    true
}

fn one_packet() -> u32 {
    1
}

fn as_captured() -> f64 {
    1.0
}

fn credit() -> u64 {
    128
}

impl Setup {
    /// Creates the point that a table describes.
    ///
    /// # Errors
    /// The error names the field and its valid values.
    pub fn of(table: Table) -> Result<Self, String> {
        let sets = |(part, fields): (&str, &[&str])| {
            let part = table.get(part).and_then(|part| part.as_table());
            part.is_some_and(|part| fields.iter().any(|field| part.contains_key(*field)))
        };
        let described = OF_QDISC.into_iter().any(sets);
        let mut setup: Self =
            table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
        setup.check()?;
        if !described && !setup.path.one_by_one {
            setup.known = Known::of(setup.path.queue());
        }
        Ok(setup)
    }

    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: f64, least: f64, most: f64| {
            let text = || format!("{name} is {value}: use {least} to {most}");
            (least..=most).contains(&value).then_some(()).ok_or_else(text)
        };
        within("milliseconds", self.milliseconds, 0.01, 10_000.0)?;
        within("warmup", self.warmup, 0.0, 10_000.0)?;
        within("scale.lines", self.scale.lines, 0.1, 10.0)?;
        within("scale.hold", self.scale.hold, 0.1, 10.0)?;
        within("device.gbit", self.device.gbit, 0.0, 100_000.0)?;
        within("device.txqs", self.device.txqs.into(), 1.0, 4096.0)?;
        within("device.ring", self.device.ring.into(), 16.0, 65_536.0)?;
        within("device.coalesce_us", self.device.coalesce_us, 0.0, 100_000.0)?;
        for (name, price) in self.prices.all() {
            within(&format!("prices.{name}"), price, 0.0, 1e6)?;
        }
        for (name, lines) in self.lines.all() {
            within(&format!("lines.{name}"), lines.into(), 0.0, MAX_LINES.into())?;
        }
        let of_qdisc = self.lines.qdisc + self.lines.dequeue;
        within("the sum of lines.qdisc and lines.dequeue", of_qdisc.into(), 0.0, MAX_LINES.into())?;
        let many = |name: &str, value: u32| within(&format!("workload.{name}"), value.into(), 1.0, 16_384.0);
        let bytes = |value: u32| within("workload.bytes", value.into(), 14.0, 1514.0);
        let work = |value: f64| within("workload.private", value, 0.0, 1e7);
        match &self.workload {
            Workload::UdpStream {
                senders,
                bytes: b,
                credit,
                batch,
                private,
                offered_mpps,
                classes,
                flows,
                ..
            } => {
                many("senders", *senders)?;
                many("flows", *flows)?;
                within("the number of workload.classes", classes.len() as f64, 0.0, (*senders).into())?;
                within("workload.offered_mpps", *offered_mpps, 0.0, 1e5)?;
                within("workload.credit", *credit as f64, 1.0, 1e6)?;
                within("workload.batch", (*batch).into(), 1.0, *credit as f64)?;
                bytes(*b).and(work(*private))
            }
            Workload::TcpRr { pairs, bytes: b, private, round_trip_us } => {
                many("pairs", *pairs)?;
                within("workload.round_trip_us", *round_trip_us, 0.0, 1e6)?;
                bytes(*b).and(work(*private))
            }
            Workload::Pktgen { threads, bytes: b, private } => {
                many("threads", *threads).and(bytes(*b)).and(work(*private))
            }
            Workload::Proxy { connections, bytes: b, passes, private } => {
                many("connections", *connections)?;
                if !(2..=64).contains(passes) || passes % 2 == 1 {
                    return Err(format!("workload.passes is {passes}: use an even number from 2 to 64"));
                }
                bytes(*b).and(work(*private))
            }
            Workload::Trace { speed, senders, credit, private, .. } => {
                many("senders", *senders)?;
                within("workload.speed", *speed, 0.0, 1e6)?;
                within("workload.credit", *credit as f64, 1.0, 1e6)?;
                work(*private)
            }
        }
    }
}
