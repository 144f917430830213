//! The configuration file of `txq run` and `txq daemon`: devices, bridges, replays and senders, as TOML.
//!
//! Every key has a range or a set of words. A wrong value is an error that names its line and column, and so is an unknown
//! key. [`check`] finds keys that contradict each other, and [`rehearse`] qdiscs that no device takes.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::common::rate::Rate;
use crate::common::span::Span;
use crate::common::within::{SpinUs, Threads, Txqs, Within};
use anyhow::{Context, anyhow};
use serde::Deserialize;
use txq::Discipline;
use txq::driver::Link;
use txq::netdev::Sampling;
use txq::pool::{Backing, FreeMode};

use crate::xps::Xps;

mod added;
mod bridge;
mod check;
mod keys;
mod lengths;
mod locate;
mod rehearse;
mod replay;
mod way;
mod words;

pub(crate) use added::of_words;
pub(crate) use bridge::{of_bridge, of_link};
pub(crate) use check::{Depth, Purpose};
pub(crate) use keys::{SCHEMA, keys};
pub(crate) use lengths::{Length, Lengths};
pub(crate) use rehearse::{queued, stand_in};
pub(crate) use replay::{Replay, Speed};
pub(crate) use way::{Ways, apply as apply_way};
pub(crate) use words::{Priority, Segments};

/// The built-in example of `txq run`, which runs if no file is given.
pub(crate) const EXAMPLE: &str = include_str!("../examples/default.toml");

/// The built-in example of `txq daemon`, with all keys.
pub(crate) const DAEMON_EXAMPLE: &str = include_str!("../examples/daemon/every-key.toml");

/// A file of `txq run` or `txq daemon`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// How long senders send, in `txq run`. Default: until SIGINT or SIGTERM.
    pub(crate) duration: Option<Span>,
    /// The devices: at least one, except in `txq daemon`, which waits for `txq dev add`.
    #[serde(default)]
    pub(crate) device: Vec<Device>,
    /// What forwards between them, in `txq daemon`.
    #[serde(default)]
    pub(crate) bridge: Vec<Bridge>,
    /// Sockets at which local programs hand in packets, in `txq daemon`.
    #[serde(default)]
    pub(crate) socket: Vec<Socket>,
    /// Captures that are sent, in `txq daemon`.
    #[serde(default)]
    pub(crate) replay: Vec<Replay>,
    /// What sends through them; `txq run` needs at least one.
    #[serde(default)]
    pub(crate) sender: Vec<Sender>,
}

/// A bridge: what one device receives, the other sends, in both directions.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Bridge {
    /// The names of its two devices, each of another interface: two of af_packet, af_xdp and tap, or two of tun.
    #[cfg_attr(test, schemars(schema_with = "words::schema::two_devices"))]
    pub(crate) devices: [String; 2],
    /// What happens to packets of several segments (GSO, GRO): "cut" cuts them before the qdisc, which is exact at any rate. "keep"
    /// passes them whole, up to 64 KiB, and costs less at rates of gigabits; then tbf and cake cut where it matters, as in
    /// the kernel. Default: cut.
    #[serde(default, deserialize_with = "words::segments")]
    #[cfg_attr(test, schemars(schema_with = "words::schema::segment_words"))]
    pub(crate) segments: Segments,
    /// The priority of packets, which pfifo_fast, prio and mqprio read: "tos" derives it from the IP header, as the kernel does
    /// for packets that it routes; "none" is 0. Default: tos.
    #[serde(default, deserialize_with = "words::priority")]
    #[cfg_attr(test, schemars(schema_with = "words::schema::priorities"))]
    pub(crate) priority: Priority,
    /// The CPUs of the receiving threads: the n-th thread runs on the n-th CPU, round robin. Each device has a thread for each
    /// txq. Default: any CPU.
    #[serde(default)]
    pub(crate) cpus: Vec<Within<0, 65535>>,
}

/// A Unix socket at which local programs hand packets to a device, by a ring in shared memory; `docs/socket.md` is the protocol.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Socket {
    /// The socket's path.
    pub(crate) path: PathBuf,
    /// The name in counters. Default: the name of the file, up to the last dot.
    pub(crate) name: Option<String>,
    /// The name of its device. Needed if there are several.
    pub(crate) device: Option<String>,
    /// A group whose members may connect, too. Default: the daemon's user and root alone.
    pub(crate) group: Option<String>,
    /// The most clients at a time. Default: 16.
    pub(crate) clients: Option<Within<1, 1024>>,
    /// The frames that a client's ring holds, rounded up to a power of two. Default: 256.
    pub(crate) slots: Option<Within<1, 32768>>,
    /// The most packets of each client on their way through the device. Default: 128.
    pub(crate) credit: Option<Within<1, { u32::MAX as u64 }>>,
    /// The highest priority that a client may give its packets; descriptors with a higher one are skipped. Default: 6.
    pub(crate) priority_max: Option<Within<0, { u32::MAX as u64 }>>,
    /// How long a client may neither hand in a frame nor ring, before the daemon ends its connection. Default: without end, since the
    /// connection of a client that dies ends at once.
    pub(crate) idle_timeout: Option<Span>,
}

/// A device, with one of the tables null, pcap, af_packet, af_xdp, tap, tun and udp. Default: null.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Device {
    /// The name that `txq tc` and senders use. Default: dev0, dev1 and so on.
    pub(crate) name: Option<String>,
    /// The number of txqs. Default: 1.
    pub(crate) txqs: Option<Txqs>,
    /// The MTU of a device without an interface, in bytes; set only for devices that `txq dev` adds.
    #[serde(skip)]
    pub(crate) mtu: Option<u32>,
    /// What packets begin with, of null and pcap. Default: ethernet.
    #[serde(deserialize_with = "words::link")]
    #[cfg_attr(test, schemars(schema_with = "words::schema::links"))]
    pub(crate) link: Option<Link>,
    /// A device without a wire.
    pub(crate) null: Option<Null>,
    /// A file as a device.
    pub(crate) pcap: Option<Pcap>,
    /// A network interface of the kernel, by raw sockets.
    pub(crate) af_packet: Option<AfPacket>,
    /// A network interface of the kernel, by AF_XDP sockets on its first queues.
    pub(crate) af_xdp: Option<AfXdp>,
    /// An interface that carries Ethernet frames, and whose wire is the program.
    pub(crate) tap: Option<Tun>,
    /// An interface that carries IP packets, and whose wire is the program.
    pub(crate) tun: Option<Tun>,
    /// A UDP socket.
    pub(crate) udp: Option<Udp>,
    /// How a sender's CPU chooses among the txqs. Default: auto.
    pub(crate) xps: Xps,
    /// The root qdisc, in tc's words. Default: mq of several txqs, else the default qdisc.
    pub(crate) qdisc: Option<String>,
    /// The qdisc that mq gives each txq, in tc's words. Default: pfifo_fast.
    pub(crate) default_qdisc: Option<String>,
    /// The qdiscs of single txqs under mq, by the number of the txq.
    pub(crate) txq_qdiscs: BTreeMap<words::TxqIndex, String>,
    /// Classes, filters and qdiscs below the root, as commands of tc without `dev`, in order.
    pub(crate) tc: Vec<String>,
    /// How several senders enqueue to one qdisc. Default: combine.
    #[serde(deserialize_with = "words::discipline")]
    #[cfg_attr(test, schemars(schema_with = "words::schema::disciplines"))]
    pub(crate) discipline: Option<Discipline>,
    /// The number of workers: threads that do what senders leave. Default: 1.
    pub(crate) workers: Option<Within<1, 1024>>,
    /// The number of each txq's worker. Default: in turn.
    pub(crate) affinity: Option<Vec<Within<0, 1023>>>,
    /// Which threads reap completions. Default: inline.
    #[cfg_attr(test, schemars(schema_with = "words::schema::reapers"))]
    pub(crate) completions: words::Reapers,
    /// Byte queue limits. Default: on where packets wait for a wire.
    pub(crate) bql: words::Bql,
    /// The limit of a pfifo without one, in packets. Default: 1000.
    pub(crate) tx_queue_len: Option<Within<0, { u32::MAX as u64 }>>,
    /// Packets that may wait for the owner of a qdisc; more are dropped (QDISC_BURST_DROP). Default:
    /// 1000.
    pub(crate) max_burst: Option<Within<0, { u32::MAX as u64 }>>,
    /// How long before a packet's time workers begin to poll the clock, in microseconds. Default: 0, which is never.
    pub(crate) spin_us: Option<SpinUs>,
    /// Milliseconds after which a thread may leave txqs that it never finds idle; 0 for never. Default: 1000.
    pub(crate) txq_reselection_ms: Option<Within<0, { u32::MAX as u64 }>>,
    /// Which calls of a sender are timed: all, none, or each n-th. Default: all at a rate, each 64th at max.
    #[serde(deserialize_with = "words::sampling")]
    #[cfg_attr(test, schemars(schema_with = "words::schema::samplings"))]
    pub(crate) sampling: Option<Sampling>,
    /// The buffers.
    pub(crate) pool: Pool,
    /// Injected faults. Each is a probability, except the seed and the times.
    pub(crate) faults: Option<Faults>,
    /// Whether the device records waits for locks all the time, for `txq stat` and metrics. Each lock taken then
    /// costs two or three readings of the clock. Default: false.
    pub(crate) contention: bool,
    /// Whether the device times calls of xmit, for `txq hist`.
    #[serde(skip)]
    pub(crate) xmit_times: bool,
}

/// A device without a wire.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Null {
    /// Packets that a txq's ring holds. Default: 1024.
    pub(crate) ring: Option<Within<1, { 1 << 20 }>>,
    /// The rate of each txq's link. Default: without limit.
    pub(crate) rate: Option<words::LinkRate>,
    /// The time from the wire to the completion. Default: none.
    pub(crate) delay: Option<Span>,
    /// Completions are reported together, at multiples of this time. Default: at once.
    pub(crate) coalesce: Option<Span>,
    /// Whether senders may reap completions. Default: true.
    pub(crate) inline: Option<bool>,
}

/// A file as a device.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Pcap {
    /// The file to write; one that exists is replaced.
    pub(crate) file: PathBuf,
}

/// A network interface of the kernel, by raw sockets.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct AfPacket {
    /// The interface's name.
    pub(crate) interface: String,
    /// Whether frames pass through the kernel's qdisc of the interface. Default: false.
    #[serde(default)]
    pub(crate) kernel_qdisc: bool,
}

/// A network interface of the kernel, by AF_XDP sockets on its first queues.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct AfXdp {
    /// The interface's name.
    pub(crate) interface: String,
    /// The interface's queue of txq 0. Default: 0.
    #[serde(default)]
    pub(crate) first_queue: u16,
    /// The packets that each ring of a queue holds, rounded up to a power of two. Default: 2048.
    pub(crate) ring: Option<Within<64, 65536>>,
}

/// An interface of the kernel whose wire is the program.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Tun {
    /// The interface's name. It is created if there is none; `%d` in it stands for a free number.
    pub(crate) interface: String,
    /// The interface's MTU, in bytes. Default: the interface's own.
    pub(crate) mtu: Option<Within<68, 65535>>,
    /// Whether the interface stays when the program ends. Default: false.
    #[serde(default)]
    pub(crate) persistent: bool,
    /// The network namespace, by name or by path. Default: the program's.
    pub(crate) namespace: Option<String>,
}

/// A UDP socket.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Udp {
    /// The address that all packets go to, with its port.
    #[cfg_attr(test, schemars(with = "words::schema::Address"))]
    pub(crate) remote: SocketAddr,
    /// The socket's own address, with its port. Default: any.
    #[cfg_attr(test, schemars(with = "words::schema::Address"))]
    pub(crate) local: Option<SocketAddr>,
}

/// Injected faults of a device. Each is a probability, except the seed and the times.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Faults {
    /// The start of the random numbers: the same seed, the same faults. Default: 0.
    pub(crate) seed: u64,
    /// The device refuses a part of a batch.
    pub(crate) busy: words::Probability,
    /// The device refuses everything for `stall_time`.
    pub(crate) stall: words::Probability,
    /// How long a stall takes. Default: 1ms.
    pub(crate) stall_time: Option<Span>,
    /// The device drops a packet.
    pub(crate) drop: words::Probability,
    /// The device delays a completion by up to `delay_time`.
    pub(crate) delay: words::Probability,
    /// The longest delay of a completion. Default: 100us.
    pub(crate) delay_time: Option<Span>,
    /// The device lets a completion overtake others.
    pub(crate) reorder: words::Probability,
}

/// The buffers of a device.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pool {
    /// The number of buffers. Default: by the senders' limits.
    pub(crate) buffers: Option<Within<1, { i32::MAX as u64 }>>,
    /// The length of the longest packet, in bytes. Default: 1920, or that of the longest packet of a sender.
    pub(crate) room: Option<Within<1, { 1 << 20 }>>,
    /// Where the memory comes from. Default: auto, which is huge pages if the system has enough reserved.
    #[serde(deserialize_with = "words::backing")]
    #[cfg_attr(test, schemars(schema_with = "words::schema::backings"))]
    pub(crate) backing: Backing,
    /// Where a buffer goes that another thread than the allocating one frees. Default: defer.
    #[serde(deserialize_with = "words::free")]
    #[cfg_attr(test, schemars(schema_with = "words::schema::frees"))]
    pub(crate) free: FreeMode,
    /// The most buffers, freed elsewhere, that wait in each sender's inbox; 0 for none. Default: 128.
    pub(crate) defer_max: Option<Within<0, { i32::MAX as u64 }>>,
}

/// A sender: one or several threads with the same traffic.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sender {
    /// The name of its device. Needed if there are several.
    pub(crate) device: Option<String>,
    /// The number of threads. Default: 1.
    pub(crate) threads: Threads,
    /// The lengths of packets in bytes, with the link-layer header; imix is the simple Internet mix, 7 : 4 : 1 of IP packets of
    /// 40, 576 and 1500 bytes. Default: 60.
    pub(crate) packet: Lengths,
    /// Packets in a call of xmit; at a rate no more than are due within a millisecond. Default: 32.
    pub(crate) batch: Within<1, 1024>,
    /// The rate of all threads together. Default: max.
    pub(crate) rate: Rate,
    /// The number of flows of each thread. Default: 1.
    pub(crate) flows: Within<1, 1_000_000>,
    /// The priority of packets, as SO_PRIORITY. Default: 0.
    pub(crate) priority: Within<0, { u32::MAX as u64 }>,
    /// The mark of packets that `fw` filters match, as SO_MARK. Default: 0.
    pub(crate) mark: Within<0, { u32::MAX as u64 }>,
    /// The DSCP in the IP header. Default: 0.
    pub(crate) dscp: Within<0, 63>,
    /// The destination, with its port. Default: 192.0.2.1:9, or that of a UDP device.
    #[cfg_attr(test, schemars(with = "words::schema::Address"))]
    pub(crate) to: Option<SocketAddr>,
    /// The CPUs of the threads: the n-th thread runs on the n-th CPU, round robin. Default: any CPU.
    pub(crate) cpus: Vec<Within<0, 65535>>,
    /// The limit of a thread's outstanding packets, like SO_SNDBUF. Default: 128 at max, none at a rate.
    pub(crate) limit: Option<Within<1, { u32::MAX as u64 }>>,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            device: None,
            threads: Within::of(1),
            packet: Lengths::one(Length::of(60)),
            batch: Within::of(32),
            rate: Rate::Max,
            flows: Within::of(1),
            priority: Within::of(0),
            mark: Within::of(0),
            dscp: Within::of(0),
            to: None,
            cpus: Vec::new(),
            limit: None,
        }
    }
}

/// A file that was read and checked.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The same as plain values, to compare with another file.
    pub(crate) raw: toml::Table,
}

/// Reads and checks a file of `txq run`, or the example; the error names the file, and the line where it is known.
pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Config> {
    match file {
        Some(path) => load(path, Purpose::Run).map(|loaded| loaded.config),
        None => parse("the example", EXAMPLE, Purpose::Run).map(|loaded| loaded.config),
    }
}

/// Reads and checks a file for a purpose.
pub(crate) fn load(path: &Path, purpose: Purpose) -> anyhow::Result<Loaded> {
    let name = path.display().to_string();
    let text = text_of(path)?;
    parse(&name, &text, purpose)
}

/// Reads and checks a file for a purpose, reads its captures to a depth, and tries its qdiscs on devices without a wire. Opens no
/// device.
pub(crate) fn load_and_rehearse(path: &Path, purpose: Purpose, depth: Depth) -> anyhow::Result<Loaded> {
    let name = path.display().to_string();
    let text = text_of(path)?;
    let mut loaded = parse(&name, &text, purpose)?;
    check::open_captures(&mut loaded.config, depth).map_err(|fault| fault.at(&name, &text))?;
    rehearse::rehearse(&loaded.config).map_err(|fault| fault.at(&name, &text))?;
    Ok(loaded)
}

/// Checks a text for each purpose, and tries its qdiscs as [`load_and_rehearse`] does. Reads no captures.
pub(crate) fn check_text(name: &str, text: &str) -> anyhow::Result<()> {
    let run = parse(name, text, Purpose::Run);
    let loaded = parse(name, text, Purpose::Daemon).or(run)?;
    rehearse::rehearse(&loaded.config).map_err(|fault| fault.at(name, text))
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let bytes =
        fs::read(path).with_context(|| format!("{} cannot be read: check the path", path.display()))?;
    String::from_utf8(bytes).map_err(|_| {
        let remedy = "write a TOML file, such as `txq run --print-example` shows";
        anyhow!("{}: not a text in UTF-8: {remedy}", path.display())
    })
}

fn parse(name: &str, text: &str, purpose: Purpose) -> anyhow::Result<Loaded> {
    let wrong = |error: toml::de::Error| locate::describe(name, text, &error);
    let mut config: Config = toml::from_str(text).map_err(wrong)?;
    let raw = toml::from_str(text).map_err(wrong)?;
    check::check(&mut config, purpose).map_err(|fault| fault.at(name, text))?;
    Ok(Loaded { config, raw })
}

#[cfg(test)]
mod tests;
