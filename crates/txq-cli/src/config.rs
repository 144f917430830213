//! The configuration file of `txq run`: devices and senders, as TOML.
//!
//! Every key has a range or a set of words. A wrong value is an error that names its line, and so is an unknown key.
//! [`check`] finds keys that contradict each other.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use txq::Discipline;
use txq::driver::Link;
use txq::netdev::Sampling;
use txq::pool::{Backing, FreeMode};
use txq_cli_common::rate::Rate;
use txq_cli_common::span::Span;
use txq_cli_common::within::{SpinUs, Threads, Txqs, Within};

use crate::xps::Xps;

mod check;
mod lengths;
mod locate;
mod words;

pub(crate) use lengths::{Length, Lengths};

/// The built-in example, which runs if no file is given.
pub(crate) const EXAMPLE: &str = include_str!("../examples/default.toml");

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// How long senders send; `None` for until SIGINT or SIGTERM.
    pub(crate) duration: Option<Span>,
    pub(crate) device: Vec<Device>,
    pub(crate) sender: Vec<Sender>,
}

/// A `[[device]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Device {
    pub(crate) name: Option<String>,
    pub(crate) txqs: Option<Txqs>,
    /// The MTU of a device without an interface, in bytes; set only for devices that `txq dev` adds.
    #[serde(skip)]
    pub(crate) mtu: Option<u32>,
    /// What the packets of a device without an interface begin with; `None` for Ethernet headers.
    #[serde(deserialize_with = "words::link")]
    pub(crate) link: Option<Link>,
    pub(crate) null: Option<Null>,
    pub(crate) pcap: Option<Pcap>,
    pub(crate) af_packet: Option<AfPacket>,
    pub(crate) af_xdp: Option<AfXdp>,
    pub(crate) tap: Option<Tun>,
    pub(crate) tun: Option<Tun>,
    pub(crate) udp: Option<Udp>,
    pub(crate) xps: Xps,
    pub(crate) qdisc: Option<String>,
    pub(crate) default_qdisc: Option<String>,
    /// The qdiscs of single txqs under mq, by the number of the txq.
    pub(crate) txq_qdiscs: BTreeMap<words::TxqIndex, String>,
    /// Classes, filters and qdiscs below the root, as commands of tc, in order.
    pub(crate) tc: Vec<String>,
    #[serde(deserialize_with = "words::discipline")]
    pub(crate) discipline: Option<Discipline>,
    pub(crate) workers: Option<Within<1, 1024>>,
    /// The number of each txq's worker.
    pub(crate) affinity: Option<Vec<Within<0, 1023>>>,
    pub(crate) completions: words::Reapers,
    pub(crate) bql: words::Bql,
    pub(crate) tx_queue_len: Option<Within<0, { u32::MAX as u64 }>>,
    pub(crate) max_burst: Option<Within<0, { u32::MAX as u64 }>>,
    /// How long before a packet's time workers begin to poll the clock, in microseconds.
    pub(crate) spin_us: Option<SpinUs>,
    /// Milliseconds after which a thread may leave txqs that it never finds idle; 0 for never.
    pub(crate) txq_reselection_ms: Option<Within<0, { u32::MAX as u64 }>>,
    #[serde(deserialize_with = "words::sampling")]
    pub(crate) sampling: Option<Sampling>,
    pub(crate) pool: Pool,
    pub(crate) faults: Option<Faults>,
    /// Whether the device records waits for locks, for `txq contention`.
    #[serde(skip)]
    pub(crate) contention: bool,
    /// Whether the device times calls of xmit, for `txq hist`.
    #[serde(skip)]
    pub(crate) xmit_times: bool,
}

/// A device without a wire.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Null {
    pub(crate) ring: Option<Within<1, { 1 << 20 }>>,
    pub(crate) rate: Option<words::LinkRate>,
    pub(crate) delay: Option<Span>,
    pub(crate) coalesce: Option<Span>,
    pub(crate) inline: Option<bool>,
}

/// A file as a device.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pcap {
    pub(crate) file: PathBuf,
}

/// A network interface of the kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfPacket {
    pub(crate) interface: String,
    /// Whether frames pass through the kernel's qdisc of the interface.
    #[serde(default)]
    pub(crate) kernel_qdisc: bool,
}

/// A network interface of the kernel, by AF_XDP sockets on its first queues.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfXdp {
    pub(crate) interface: String,
    /// The interface's queue of txq 0.
    #[serde(default)]
    pub(crate) first_queue: u16,
}

/// An interface of the kernel whose wire is the program.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tun {
    pub(crate) interface: String,
    pub(crate) mtu: Option<Within<68, 65535>>,
    /// Whether the interface stays when the program ends.
    #[serde(default)]
    pub(crate) persistent: bool,
    /// The network namespace, by name or by path.
    pub(crate) namespace: Option<String>,
}

/// A UDP socket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Udp {
    /// Where all packets go.
    pub(crate) remote: SocketAddr,
    /// The socket's own address; `None` for any.
    pub(crate) local: Option<SocketAddr>,
}

/// Injected faults of a device. Each is a probability, except the seed and the times.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Faults {
    pub(crate) seed: u64,
    /// The device refuses a part of a batch.
    pub(crate) busy: words::Probability,
    /// The device refuses everything for `stall_time`.
    pub(crate) stall: words::Probability,
    pub(crate) stall_time: Option<Span>,
    /// The device drops a packet.
    pub(crate) drop: words::Probability,
    /// The device delays a completion by up to `delay_time`.
    pub(crate) delay: words::Probability,
    pub(crate) delay_time: Option<Span>,
    /// The device lets a completion overtake others.
    pub(crate) reorder: words::Probability,
}

/// The buffers of a device.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pool {
    pub(crate) buffers: Option<Within<1, { i32::MAX as u64 }>>,
    pub(crate) room: Option<Within<1, { 1 << 20 }>>,
    #[serde(deserialize_with = "words::backing")]
    pub(crate) backing: Backing,
    /// Where a buffer goes if its packet is freed on another thread than the allocating one.
    #[serde(deserialize_with = "words::free")]
    pub(crate) free: FreeMode,
    /// The most buffers, freed elsewhere, that wait in each sender's inbox; 0 for none.
    pub(crate) defer_max: Option<Within<0, { i32::MAX as u64 }>>,
}

/// A `[[sender]]`: one or several threads with the same traffic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sender {
    pub(crate) device: Option<String>,
    pub(crate) threads: Threads,
    /// The lengths of its packets.
    pub(crate) packet: Lengths,
    pub(crate) batch: Within<1, 1024>,
    /// The rate of all threads together.
    pub(crate) rate: Rate,
    /// The number of flows of each thread.
    pub(crate) flows: Within<1, 1_000_000>,
    pub(crate) priority: Within<0, { u32::MAX as u64 }>,
    /// The mark that `fw` filters match, as `SO_MARK`.
    pub(crate) mark: Within<0, { u32::MAX as u64 }>,
    /// The DSCP of the IP header.
    pub(crate) dscp: Within<0, 63>,
    /// The destination; `None` for one of the documentation, and for that of a UDP device.
    pub(crate) to: Option<SocketAddr>,
    /// The CPUs of the threads: the n-th thread runs on the n-th CPU, round robin. Empty for any CPU.
    pub(crate) cpus: Vec<Within<0, 65535>>,
    /// The limit of a thread's outstanding packets, like `SO_SNDBUF`.
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

/// Reads and checks a file, or the example; the error names the file, and the line where it is known.
pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = file else { return parse("the example", EXAMPLE) };
    let bytes =
        fs::read(path).with_context(|| format!("{} cannot be read: check the path", path.display()))?;
    let name = path.display().to_string();
    match str::from_utf8(&bytes) {
        Ok(text) => parse(&name, text),
        Err(_) => {
            bail!("{name}: not a text in UTF-8: write a TOML file, such as `txq run --print-example` shows")
        }
    }
}

fn parse(name: &str, text: &str) -> anyhow::Result<Config> {
    let mut config: Config = toml::from_str(text).map_err(|error| locate::describe(name, text, &error))?;
    check::check(&mut config).with_context(|| name.to_owned())?;
    Ok(config)
}

#[cfg(test)]
mod tests;
