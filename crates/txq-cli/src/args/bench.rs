//! The options of `txq bench`.

use std::path::PathBuf;

use crate::bench::{LinkRate, Load, Reapers, Root, Suite};
use crate::span::Span;
use crate::within::{SpinUs, Threads, Txqs, Within};

pub(super) const BENCH_EXAMPLES: &str = "\
Suites:
  crowd     threads through one queue: disciplines x qdiscs x threads
  pool      buffers freed on another CPU than they came from
  xps       a txq for each CPU, by CPU or by flow hash, against one txq
  work      1 and 2 threads through one shaper, as much work inside its lock as outside (also: shaper)
  path      one thread, from allocation to free
  overload  what is still sent when more is offered: disciplines x flows x threads x load; with --rate the share of
            finite links that is sent, and the worst cell marked; not among the usual ones
  qdisc     one thread, one qdisc, 64-byte packets out and in again, and DPDK's scheduler; not among the usual ones
  timing    how late packets leave that have a time, how exact a rate is; not among the usual ones
  bql       what byte queue limits leave of a link whose completions come together or late; not among the usual ones
  isolation what a probe of the best priority notices of senders that flood its qdisc; not among the usual ones
  peers     the same work done by DPDK and by this machine's kernel; not among the usual ones

Examples:
  txq bench                                      the usual ones, in about a minute
  txq bench crowd --threads 1,2,4 --svg crowd.svg
  txq bench crowd --discipline llist,spinlock --qdisc pfifo --duration 1s --repeat 5
  txq bench work --work-ns 1000 --pin
  txq bench overload --discipline llist --flows 1024 --load 1,10
  txq bench overload --rate 10gbit               links that senders at max fill, in about a minute
  txq bench overload --rate 10gbit --discipline llist --threads 8 --txqs 1,2 --root one,mq --qdisc pfifo
  txq bench isolation --repeat 5                 p50, p99 and the longest xmit of a probe, for each discipline
  txq bench bql --duration 2s                    share sent, limit and bytes in flight, with limits and without
  txq bench qdisc --qdisc fq --flows 10,1000000  what one qdisc costs, beside DPDK's scheduler
  txq bench peers --json | jq -c 'select(.peer)'

Measurements take turns: with --repeat the whole list is measured again and again, so that noise hits all alike.
Mpps are packets that the device has sent, ns the wall time and CPU ns the CPU time by packets. p99 is of single calls of xmit.
A worst xmit is the longest that one sender was inside one call, a stall the longest time in which the device sent
nothing; both are looked for every millisecond, so they last at least as long as is said.";

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// What to measure [default: crowd, pool, xps, work and path]
    #[arg(value_name = "SUITE")]
    pub(crate) suites: Vec<Suite>,
    /// Numbers of sending threads; path is always one, isolation has a probe beside them
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) threads: Vec<Threads>,
    /// Enqueue disciplines [default: all in crowd, work, overload, isolation and the queue of peers, the default one elsewhere]
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',')]
    pub(crate) discipline: Vec<String>,
    /// A qdisc in tc's words, or slow, which works for --work-ns at both ends, or aqm, which also has a queue for each
    /// flow; may be given several times; not for work and peers, which have their own
    #[arg(long, value_name = "QDISC")]
    pub(crate) qdisc: Vec<String>,
    /// Packets handed in at a time
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) batch: Vec<Within<1, 512>>,
    /// How long to measure each configuration: 1s, 300ms [default: so that all take a minute]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// Flows of all senders together in overload [default: 1,32,1024], or queued in qdisc
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) flows: Vec<Within<1, 1_000_000>>,
    /// What is offered in overload, in multiples of the peak of one sender [default: 0.5,1,2,5,10,40]
    #[arg(long, value_name = "X[,X..]", value_delimiter = ',')]
    pub(crate) load: Vec<Load>,
    /// Makes the devices of overload finite: the rate of each txq's link, such as 10gbit. Senders at max with a credit
    /// of packets fill it; tells the share of it that is sent. "--qdisc tbf" is a shaper of four fifths of it here
    #[arg(long, value_name = "RATE[,RATE..]", value_delimiter = ',')]
    pub(crate) rate: Vec<LinkRate>,
    /// Numbers of txqs of a finite device [default: 1, 2 and 8]
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', requires = "rate")]
    pub(crate) txqs: Vec<Txqs>,
    /// What is above the txqs of a finite device: one qdisc for all, or mq with a qdisc for each [default: both]
    #[arg(long, value_name = "one|mq[,..]", value_delimiter = ',', requires = "rate")]
    pub(crate) root: Vec<Root>,
    /// Who reaps the completions of a finite device: inline, worker, per-queue, or worker-only, by a driver that lets no
    /// other thread [default: all]
    #[arg(long, value_name = "WHO[,WHO..]", value_delimiter = ',', requires = "rate")]
    pub(crate) completions: Vec<Reapers>,
    /// Packets that each ring of a finite device holds [default: 256]
    #[arg(long, value_name = "N", requires = "rate")]
    pub(crate) ring: Option<Within<1, 65536>>,
    /// Packets that each sender of a finite device may have on their way [default: 400]
    #[arg(long, value_name = "N", requires = "rate")]
    pub(crate) limit: Option<Within<1, 65536>>,
    /// Senders of a finite device wait for room in the queue before each call, instead of losing packets
    #[arg(long, requires = "rate")]
    pub(crate) wait_room: bool,
    /// How long workers look at the clock in timing, in microseconds [default: 0,100]
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) spin_us: Vec<SpinUs>,
    /// What a packet costs in slow and aqm, and inside and outside the shaper of work, in nanoseconds
    #[arg(long, value_name = "N", default_value = "200")]
    pub(crate) work_ns: Within<1, 1_000_000>,
    /// Keep senders on a CPU each, round robin
    #[arg(long)]
    pub(crate) pin: bool,
    /// How many times to measure everything: medians are told, and how far they spread
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) repeat: Within<1, 1000>,
    /// Draw Mpps over threads, or batch sizes, into a file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// One JSON object for each result, a line each, instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
