//! Suite `qdisc`: the cost of a qdisc by itself, and beside it DPDK's hierarchical scheduler.
//!
//! One thread dequeues a batch of 64-byte packets and enqueues the same packets again. So each flow keeps its queue of
//! [`QUEUED_PER_FLOW`] packets, and the cost is that of one dequeue and one enqueue. A flow is a hash, a priority, or a class where
//! the qdisc has classes. The memory of a flow is the growth of the process when the qdisc is created and filled, without
//! the packets themselves. It is reported only where there are many flows.

use std::fs;
use std::time::{Duration, Instant};

use txq::generic::PacketScheduler;
use txq::qdisc::{Budget, Env};
use txq::tc::{Handle, Words};
use txq_cli::common::failure::refused;
use txq_cli::common::table::{align, number};
use txq_core::clock::Clock;
use txq_core::packet::PacketList;
use txq_core::pool::{Cache, Pool, PoolConfig};

use super::case::{Case, Key, Row, Sample};
use super::cpu::Begun;
use super::dpdk::Sched;
use super::lab::{Lab, pin_to};
use super::plan::Plan;

/// Packets of each flow that stay queued.
const QUEUED_PER_FLOW: u64 = 2;
/// Bytes of a packet.
const LEN: usize = 64;
/// The fewest flows with which memory per flow is reported: with fewer, unrelated pages outweigh it.
const MEMORY_FLOWS: u64 = 1024;

/// The packet field that selects a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Hash,
    /// The priority modulo 16.
    Priority,
    /// The priority is the class: `1:1` and so on.
    Class,
}

/// A class: the minor number of its parent (0 for the qdisc), its own minor number, and its parameters.
type Class = (u16, u16, &'static str);

/// A qdisc, and the flows that it is measured with.
struct Subject {
    name: &'static str,
    text: fn(u64) -> String,
    classes: fn(u64) -> Vec<Class>,
    /// The qdisc of each class; the default one without a text.
    leaf: Option<&'static str>,
    by: By,
    flows: &'static [u64],
}

fn subjects() -> Vec<Subject> {
    fn none(_: u64) -> Vec<Class> {
        Vec::new()
    }
    let subject = |name, text, by, flows| Subject { name, text, classes: none, leaf: None, by, flows };
    let many = &[10, 64, 1024, 4096, 65_536, 1_000_000][..];
    vec![
        subject("pfifo", |_| "pfifo".into(), By::Priority, &[1]),
        subject("pfifo_fast", |_| "pfifo_fast".into(), By::Priority, &[1, 16]),
        subject("prio", |_| "handle 1: prio".into(), By::Priority, &[1, 16]),
        subject(
            "fq",
            |flows| format!("fq limit {} buckets 4096", flows * QUEUED_PER_FLOW + 1000),
            By::Hash,
            many,
        ),
        subject(
            "fq_codel",
            |flows| {
                format!(
                    "fq_codel limit {} flows {}",
                    flows * QUEUED_PER_FLOW + 1000,
                    flows.clamp(1024, 65_536)
                )
            },
            By::Hash,
            &[10, 64, 1024, 4096],
        ),
        subject("cake", |_| "cake unlimited memlimit 256mb".into(), By::Hash, &[10, 64, 1024]),
        Subject {
            classes: |flows| (1..=flows as u16).map(|class| (0, class, "")).collect(),
            ..subject("drr", |_| "handle 1: drr".into(), By::Class, &[10, 64, 1024, 4096])
        },
        Subject { classes: htb, ..subject("htb", |_| "handle 1: htb".into(), By::Class, &[10, 64, 1024]) },
        Subject {
            classes: htb,
            leaf: Some("fq_codel"),
            ..subject("htb, fq_codel", |_| "handle 1: htb".into(), By::Class, &[200])
        },
    ]
}

/// Returns the classes of htb: leaves above their own rate, below 32 classes that borrow from one. Of the three levels
/// none delays a packet.
fn htb(leaves: u64) -> Vec<Class> {
    const ROOT: u16 = 0xffff;
    const INNER: u16 = 0xf000;
    const BORROWS: &str = "rate 1mbit ceil 100gbit burst 1mb cburst 100mb";
    let root = (0, ROOT, "rate 100gbit ceil 100gbit burst 100mb cburst 100mb");
    let inner = (0..32).map(|n| (ROOT, INNER + n, BORROWS));
    let leaves = (1..=leaves as u16).map(|n| (INNER + n % 32, n, BORROWS));
    std::iter::once(root).chain(inner).chain(leaves).collect()
}

/// Returns all configurations; `--flows` replaces the numbers of flows for all qdiscs.
pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let dpdk = super::peers::or_skip("dpdk", Sched::prepare(plan.lab));
    let mut cases = Vec::new();
    let asked = &plan.args.qdisc;
    // "htb, fq_codel" is an htb, too.
    let is_asked =
        |subject: &Subject| asked.iter().any(|qdisc| subject.name.split(',').next() == Some(qdisc));
    for subject in subjects().into_iter().filter(|subject| asked.is_empty() || is_asked(subject)) {
        for flows in plan.flows(subject.flows) {
            for batch in plan.batches(&[32]) {
                let key = Key { qdisc: Some(subject.name.into()), ..key(flows, batch) };
                let (text, classes, leaf, by) = (subject.text, subject.classes, subject.leaf, subject.by);
                let run = Box::new(move |lab: &Lab, time| {
                    measure(
                        lab,
                        time,
                        &Filled { text: text(flows), classes: classes(flows), leaf, by, flows, batch },
                    )
                });
                cases.push(Case { key, run });
            }
        }
    }
    for pipes in plan.flows(&[64, 1024, 4096]).into_iter().filter(|pipes| pipes.is_power_of_two()) {
        for batch in plan.batches(&[32]) {
            let Some(dpdk) = dpdk.clone() else { continue };
            let key = Key { peer: Some("dpdk sched".into()), ..key(pipes, batch) };
            let run = Box::new(move |lab: &Lab, time| dpdk.measure(lab, time, pipes, batch));
            cases.push(Case { key, run });
        }
    }
    cases
}

fn key(flows: u64, batch: u64) -> Key {
    Key { suite: super::QDISC, flows: Some(flows), batch, threads: 1, ..Key::default() }
}

/// A qdisc, its classes, and the packets queued there.
struct Filled {
    text: String,
    classes: Vec<Class>,
    leaf: Option<&'static str>,
    by: By,
    flows: u64,
    batch: u64,
}

fn measure(lab: &Lab, time: Duration, filled: &Filled) -> anyhow::Result<Sample> {
    // A thread of its own, because the main thread must not stay pinned to a CPU.
    let seen = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            pin_to(lab.cpu(0))?;
            work(lab, time, filled)
        });
        super::rig::join(work)
    })?;
    Ok(seen)
}

fn work(lab: &Lab, time: Duration, filled: &Filled) -> anyhow::Result<Sample> {
    let &Filled { ref text, ref classes, leaf, by, flows, batch } = filled;
    let queued = (flows * QUEUED_PER_FLOW).max(batch * 4);
    let buffers = u32::try_from(queued)? + 64;
    let pool = Pool::new(&PoolConfig { buffers, room: LEN, headroom: 0, ..PoolConfig::default() })?;
    let mut cache = pool.cache("qdisc", lab.cpu(0));
    let mut packets = PacketList::new();
    for number in 0..queued {
        let mut packet = cache.alloc(LEN)?;
        let flow = number % flows;
        match by {
            By::Hash => packet.set_hash((flow as u32 + 1).wrapping_mul(0x9e37_79b1) | 1),
            By::Priority => packet.set_priority((flow % 16) as u32),
            By::Class => packet.set_priority(Handle::new(1, (flow + 1) as u16).0),
        }
        packets.push_back(packet);
    }
    let before = resident();
    // A device of the usual size, with room for all packets of the measurement.
    let env = Env { tx_queue_len: 1000 + buffers, ..Env::default() };
    let mut qdisc: PacketScheduler = PacketScheduler::new(text, env).map_err(refused(text))?;
    qdisc.with(&mut Clock::new(), &mut cache, |qdisc, cx| {
        let mut add = |&(parent, minor, words): &Class| match qdisc.classes() {
            Some(all) => all.add(parent, minor, &mut Words::split(words), &env, cx),
            None => Ok(()),
        };
        classes.iter().try_for_each(&mut add).map_err(refused(text))
    })?;
    for (leaf, flow) in leaf.iter().flat_map(|leaf| (1..=flows).map(move |flow| (leaf, flow))) {
        let command = format!("qdisc replace parent 1:{flow:x} {leaf}");
        qdisc.tc(&command, &mut Clock::new(), &mut cache).map_err(refused(&command))?;
    }
    qdisc.enqueue(&mut packets, &mut Clock::new(), &mut cache);
    let memory = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
    turn(&mut qdisc, &mut cache, batch, Instant::now() + time / 8);
    let (start, cpu) = (Instant::now(), Begun::now());
    let moved = turn(&mut qdisc, &mut cache, batch, start + time);
    let mut sample = Sample::of(moved, start.elapsed(), cpu.used());
    let drops = qdisc.drops().total();
    sample.dropped = Some(drops as f64 / (moved + queued) as f64);
    sample.bytes_per_flow = memory.filter(|_| flows >= MEMORY_FLOWS).map(|bytes| bytes as f64 / flows as f64);
    qdisc.with(&mut Clock::new(), &mut cache, |qdisc, cx| qdisc.reset(cx));
    Ok(sample)
}

/// Dequeues packets and enqueues them again until `end`, and at least once, should the thread have no CPU until then. Returns how
/// many packets that were.
fn turn(qdisc: &mut PacketScheduler, cache: &mut Cache, batch: u64, end: Instant) -> u64 {
    let (mut moved, mut packets) = (0, PacketList::new());
    loop {
        for _ in 0..64 {
            qdisc.dequeue(Budget::packets(batch as usize), &mut packets, &mut Clock::new(), cache);
            moved += packets.len() as u64;
            qdisc.enqueue(&mut packets, &mut Clock::new(), cache);
        }
        if Instant::now() >= end {
            return moved;
        }
    }
}

/// Returns the resident memory of the process, in bytes.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = kilobytes.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns the results of this suite. Each qdisc's cost is also given as a ratio to that of DPDK's scheduler with as many
/// pipes, or with its most pipes.
pub(super) fn table(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.key.suite == super::QDISC).collect();
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    text.push_str("\nqdisc: one thread, a standing backlog, 64 bytes, out and in again\n\n");
    let peers = || rows.iter().filter(|row| row.key.peer.is_some());
    let peer = |of: &Row| {
        let same = peers().find(|row| (row.key.flows, row.key.batch) == (of.key.flows, of.key.batch));
        let most = || peers().filter(|row| row.key.batch == of.key.batch).max_by_key(|row| row.key.flows);
        same.or_else(most).and_then(|row| row.sample.ns_per_packet)
    };
    let heads = ["", "flows", "batch", "ns", "from .. to", ": dpdk sched", "bytes a flow", "dropped"];
    let cells = rows.iter().map(|row| {
        let (key, s) = (&row.key, &row.sample);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let ratio = s.ns_per_packet.zip(peer(row)).map(|(own, peer)| own / peer);
        let name = key.peer.as_deref().or(key.qdisc.as_deref()).unwrap_or_default();
        vec![
            name.to_owned(),
            key.flows.unwrap_or_default().to_string(),
            key.batch.to_string(),
            or_dash(s.ns_per_packet.map(number)),
            format!("{} .. {}", number(1e3 / row.spread.1), number(1e3 / row.spread.0)),
            or_dash(ratio.map(number)),
            or_dash(s.bytes_per_flow.map(number)),
            or_dash(s.dropped.map(|share| format!("{:.1} %", share * 100.0))),
        ]
    });
    align(&mut text, heads.map(str::to_owned).to_vec(), cells.collect());
    text
}
