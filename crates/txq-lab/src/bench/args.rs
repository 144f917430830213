//! The options of `txq bench`.

use std::path::PathBuf;

use txq::Discipline;
use txq_cli::common::span::Span;
use txq_cli::common::within::{SpinUs, Threads, Txqs, Within};

use crate::bench::overload::{LinkRate, Load, Reapers, Root, Steering};
use crate::bench::plan::Suite;

/// The suites and examples, which help shows after the options.
pub const EXAMPLES: &str = "\
Suites:
  crowd     what 2, 8 and 64 threads send through one real qdisc, as a share of one; and the CPU time of a packet
  pool      buffers freed on another CPU than they came from
  xps       a txq for each CPU, by CPU or by flow hash, against one txq
  work      1 and 2 threads that work outside the queue, too: as much as one shaper inside (also: shaper)
  path      one thread, from allocation to free
  overload  what is still sent when more is offered: disciplines x flows x threads x load; with --rate the share of
            finite links that is sent, and the worst cell marked; not among the usual ones
  qdisc     one thread, one qdisc, 64-byte packets out and in again, and DPDK's scheduler; not among the usual ones
  timing    how late packets leave that have a time, how exact a rate is; not among the usual ones
  bql       what byte queue limits leave of a link whose completions come together or late; not among the usual ones
  isolation what a probe of the best priority notices of senders that flood its qdisc; not among the usual ones
  rate      threads with a txq each below one rate: tbf_mq, htb_mq and cake_mq, a tbf and an htb at the root,
            the kernel's tbf and htb; and the error of rates that are reached; not among the usual ones
  peers     the same work done by DPDK and by this machine's kernel; not among the usual ones

Examples:
  txq bench                                      the usual ones, in about a minute
  txq bench crowd --quick                        many senders beside one, eleven qdiscs, in seconds
  txq bench crowd --qdisc fq --discipline combine,llist,lockless,busylock,spinlock --batch 1
  txq bench crowd --threads 1,2,4 --svg crowd.svg
  txq bench crowd --discipline llist,spinlock --qdisc pfifo --duration 1s --repeat 5
  txq bench work --work-ns 1000 --pin
  txq bench overload --discipline llist --flows 1024 --load 1,10
  txq bench overload --qdisc cake --flows 200 --load 2
  txq bench work --qdisc 'handle 1: htb default 1; class add parent 1: classid 1:1 htb rate 9gbit; qdisc add parent 1:1 fq'
  txq bench overload --rate 10gbit               links that senders at max fill, in about a minute
  txq bench overload --rate 10gbit --discipline llist --threads 8 --txqs 1,2 --root one,mq --qdisc pfifo
  txq bench isolation --repeat 5                 p50, p99 and the longest xmit of a probe, for each discipline
  txq bench bql --duration 2s                    share sent, limit and bytes in flight, with limits and without
  txq bench rate --repeat 5                      what a second thread adds below one rate
  txq bench qdisc --qdisc fq --flows 10,1000000  what one qdisc costs, beside DPDK's scheduler
  txq bench peers --json | jq -c 'select(.peer)'

Measurements take turns: with --repeat the whole list is measured again and again, so that noise hits all alike.
Mpps are packets that the device has sent, ns the wall time and CPU ns the CPU time by packets. p99 is of single calls of xmit.
A worst xmit is the longest that one sender was inside one call, a stall the longest time in which the device sent
nothing; both are sampled every millisecond, so they last at least as long as is said.";

/// The options of `txq bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// The suites to run [default: crowd, pool, xps, work and path]
    #[arg(value_name = "SUITE")]
    pub(crate) suites: Vec<Suite>,
    /// Numbers of sending threads; path always uses one, isolation adds a probe
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) threads: Vec<Threads>,
    /// Enqueue disciplines [default: combine and spinlock in crowd; all of them in work, overload, isolation and the queue of
    /// peers; the default one elsewhere]
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',')]
    pub(crate) discipline: Vec<Discipline>,
    /// A qdisc in tc's syntax, or a tree: a root and commands of tc, separated by ";". Names: htb-fq_codel, three classes with
    /// leaves; slow, which computes for --work-ns in enqueue and in dequeue; aqm, which also has a queue for each flow;
    /// shaper, which computes in dequeue. May be given several times; not for peers, which has its own
    #[arg(long, value_name = "QDISC")]
    pub(crate) qdisc: Vec<String>,
    /// Numbers of packets that a sender hands in at a time
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) batch: Vec<Within<1, 512>>,
    /// How long to measure each configuration, such as 1s or 300ms [default: so that all take a minute]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// Measure each configuration for a short time, so that all take some seconds
    #[arg(long, conflicts_with = "duration")]
    pub(crate) quick: bool,
    /// Number of flows: of all senders together in crowd [default: 200] and overload [default: 1,32,1024], or queued in
    /// qdisc
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) flows: Vec<Within<1, 1_000_000>>,
    /// Offered loads in overload, in multiples of the peak rate of one sender [default: 0.5,1,2,5,10,40]
    #[arg(long, value_name = "X[,X..]", value_delimiter = ',')]
    pub(crate) load: Vec<Load>,
    /// Rate of each txq's link, such as 10gbit; makes the devices of overload finite. Senders at max with a credit of
    /// packets fill the links, and the suite reports the share of the rate that is sent. "--qdisc tbf" shapes to four
    /// fifths of the rate here
    #[arg(long, value_name = "RATE[,RATE..]", value_delimiter = ',')]
    pub(crate) rate: Vec<LinkRate>,
    /// Numbers of txqs of a finite device [default: 1, 2 and 8; 1 if another option names a value]
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', requires = "rate")]
    pub(crate) txqs: Vec<Txqs>,
    /// Root qdisc of a finite device: one qdisc for all txqs, or mq with a qdisc for each [default: both; one if another
    /// option names a value]
    #[arg(long, value_name = "one|mq[,..]", value_delimiter = ',', requires = "rate")]
    pub(crate) root: Vec<Root>,
    /// Which threads reap the completions of a finite device: inline, worker, per-queue, or worker-only, where the driver
    /// allows no thread but the worker [default: all; inline if another option names a value]
    #[arg(long, value_name = "WHO[,WHO..]", value_delimiter = ',', requires = "rate")]
    pub(crate) completions: Vec<Reapers>,
    /// How a packet finds the txq of a finite device: by its flow's hash among all, or by the CPU that sends it, of which
    /// each has its part of the txqs [default: hash]
    #[arg(long, value_name = "hash|cpu[,..]", value_delimiter = ',', requires = "rate")]
    pub(crate) steering: Vec<Steering>,
    /// Also measure threads that share DPDK's tx queues by locks on the same links, without a qdisc
    #[arg(long, requires = "rate")]
    pub(crate) dpdk: bool,
    /// Size of each ring of a finite device, in packets [default: 256]
    #[arg(long, value_name = "N", requires = "rate")]
    pub(crate) ring: Option<Within<1, 65536>>,
    /// Limit of outstanding packets of each sender of a finite device [default: 400]
    #[arg(long, value_name = "N", requires = "rate")]
    pub(crate) limit: Option<Within<1, 65536>>,
    /// Let senders of a finite device wait for room in the queue before each call, instead of losing packets
    #[arg(long, requires = "rate")]
    pub(crate) wait_room: bool,
    /// How long before a packet's time workers begin to poll the clock in timing, in microseconds [default: 0,100]
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',')]
    pub(crate) spin_us: Vec<SpinUs>,
    /// Cost of a packet in slow and aqm, and inside and outside the shaper of work, in nanoseconds
    #[arg(long, value_name = "N", default_value = "200")]
    pub(crate) work_ns: Within<1, 1_000_000>,
    /// Pin each sender to a CPU, round robin
    #[arg(long)]
    pub(crate) pin: bool,
    /// How many times to measure everything; the tables show medians and their spread
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) repeat: Within<1, 1000>,
    /// Draw Mpps over threads, or over batch sizes, into an SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print each result as a JSON object on a line of its own, instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
