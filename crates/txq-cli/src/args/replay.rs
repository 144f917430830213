//! The options of `txq replay`.

use std::path::PathBuf;

use crate::common::rate::Rate;
use crate::common::span::Span;
use crate::common::within::{Threads, Txqs, Within};
use txq::Discipline;

use super::Output;
use crate::config::Speed;
use crate::xps::Xps;

pub(super) const REPLAY_EXAMPLES: &str = "\
Examples:
  txq replay traffic.pcap                        to nowhere, as fast as possible: what the path costs
  txq replay traffic.pcapng --dev eth0 --rate recorded
  txq replay traffic.pcapng --dev eth0 --rate recorded --speed 10 --max-gap 1s
  txq replay traffic.pcap --dev eth0 --threads 4 --txqs 2 --xps 1:2 --rate 20kpps --loop 0 --duration 60s
  txq replay traffic.pcap --dev pcap:out.pcap --qdisc 'pfifo limit 100' --rate 1gbit
  txq replay traffic.pcap --dev pcap:out.pcap --up 'tbf rate 1mbit burst 10k latency 50ms | netem delay 20ms'
  txq replay traffic.pcap --dev af_xdp:eth0 --txqs 4 --qdisc mq --default-qdisc fq
  txq replay tunnel.pcap --dev tun:vpn0          packets that begin with IP, into a tunnel that the kernel receives from
  txq replay traffic.pcap --dev udp:192.0.2.1:4789 --qdisc 'cake bandwidth 20mbit'

Frames of an Ethernet capture need an Ethernet device, IP packets one of IP; null, pcap and udp take both. Over udp each
frame is the payload of a datagram. Of a capture on \"any\" (Linux cooked) the IP packets are sent, as IP packets.

A rated replay offers each frame at its time, whatever the device does: what is too much, the qdisc drops, and a frame that
finds no buffer (--buffers) is refused. The report has offered, refused and sent, each with its count and rate. A replay at
max waits for buffers instead, and refuses nothing. What is not known is - in the report, and null in JSON, as `txq run --help` explains.";

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The capture: a pcap or pcapng file of Ethernet frames or IP packets
    pub(crate) file: PathBuf,
    /// null, pcap:FILE, IFACE, af_packet:IFACE, af_xdp:IFACE, tap:NAME, tun:NAME, or udp:ADDRESS:PORT
    #[arg(long, default_value = "null")]
    pub(crate) dev: String,
    /// Number of sending threads; each flow stays on one of them
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: Threads,
    /// Number of the device's transmit queues
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) txqs: Txqs,
    /// How a packet's txq is chosen; auto: by CPU, txqs dealt to CPUs by their caches; none: by flow hash; or a CPU mask for
    /// each txq as in sysfs, separated by colons
    #[arg(long, value_name = "auto|none|MASK[:MASK..]", default_value = "auto")]
    pub(crate) xps: Xps,
    /// The root qdisc in tc's syntax, or several: 'tbf .. | netem ..' [default: the default qdisc; with several txqs, mq over it]
    #[arg(long, visible_alias = "up", value_name = "QDISC")]
    pub(crate) qdisc: Option<String>,
    /// A preset or file of `txq shell --preset`, whose line "up QDISC" is the root qdisc
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// The default qdisc, which mq attaches to each txq [default: pfifo_fast]
    #[arg(long, value_name = "QDISC")]
    pub(crate) default_qdisc: Option<String>,
    /// The enqueue discipline: combine, llist, lockless, busylock or spinlock
    #[arg(long, value_name = "NAME")]
    pub(crate) discipline: Option<Discipline>,
    /// The rate of all threads together: 10kpps, 1mpps, 100mbit, 1gbit, recorded or max. A [[replay]] of a daemon's file is recorded by
    /// default, since it shares its device
    #[arg(long, default_value = "max")]
    pub(crate) rate: Rate,
    /// With --rate recorded: how many times as fast, 0.001 to 1000
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<Speed>,
    /// With --rate recorded: the longest gap between two frames; a longer one, as of a clock that was set, is cut to it [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) max_gap: Option<Span>,
    /// How many times to send the file; 0 repeats it without end
    #[arg(long = "loop", value_name = "N", default_value = "1")]
    pub(crate) passes: Within<0, { u64::MAX }>,
    /// How long to send at most, such as 5s or 300ms
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// Send through the interface's own qdisc in the kernel too
    #[arg(long)]
    pub(crate) kernel_qdisc: bool,
    /// Size of the pool, in packets [default: as many as the queues hold]
    #[arg(long, value_name = "N")]
    pub(crate) buffers: Option<Within<1, { i32::MAX as u64 }>>,
    #[command(flatten)]
    pub(crate) output: Output,
}
