//! Suite `qdisc`: what a qdisc costs by itself, and beside it DPDK's hierarchical scheduler.
//!
//! One thread takes a batch of 64-byte packets out and puts the same packets in again, so that each flow keeps what it has
//! queued ([`EACH`] packets), and the cost is that of one dequeue and one enqueue. A flow is a hash where the qdisc goes by
//! hashes, and a class where it has classes. What a flow takes is the memory that the process has more after the qdisc has
//! been made and filled, the packets themselves apart, so it is told only where there are many flows.

use std::fs;
use std::time::{Duration, Instant};

use txq::packet::PacketList;
use txq::pool::{Cache, Pool, PoolConfig};
use txq::qdisc::{Alone, Budget, Env};
use txq::tc::{Handle, Words};

use super::case::{Case, Key, Row, Sample};
use super::dpdk::Sched;
use super::lab::{Lab, cpu_time, pin_to, refused};
use super::plan::Plan;
use super::report::{align, number};

/// Packets of each flow that are queued all the time.
const EACH: u64 = 2;
/// Bytes of a packet.
const LEN: usize = 64;
/// Flows from which on the memory of one is told: below, pages that have nothing to do with it are more.
const MANY: u64 = 1024;

/// How packets say which flow they are of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Hash,
    /// The priority modulo 16.
    Priority,
    /// The priority is the class: `1:1` and so on.
    Class,
}

/// A class: the minor number of the one above, 0 for the qdisc, its own, and its words.
type Class = (u16, u16, &'static str);

/// A qdisc, and the flows that it is measured with.
struct Subject {
    name: &'static str,
    text: fn(u64) -> String,
    classes: fn(u64) -> Vec<Class>,
    by: By,
    flows: &'static [u64],
}

fn subjects() -> Vec<Subject> {
    fn none(_: u64) -> Vec<Class> {
        Vec::new()
    }
    let subject = |name, text, by, flows| Subject { name, text, classes: none, by, flows };
    let many = &[10, 64, 1024, 4096, 65_536, 1_000_000][..];
    vec![
        subject("pfifo", |_| "pfifo".into(), By::Priority, &[1]),
        subject("pfifo_fast", |_| "pfifo_fast".into(), By::Priority, &[1, 16]),
        subject("prio", |_| "handle 1: prio".into(), By::Priority, &[1, 16]),
        subject("fq", |flows| format!("fq limit {} buckets 4096", flows * EACH + 1000), By::Hash, many),
        subject(
            "fq_codel",
            |flows| format!("fq_codel limit {} flows {}", flows * EACH + 1000, flows.clamp(1024, 65_536)),
            By::Hash,
            &[10, 64, 1024, 4096],
        ),
        subject("cake", |_| "cake unlimited memlimit 256mb".into(), By::Hash, &[10, 64, 1024]),
        Subject {
            classes: |flows| (1..=flows as u16).map(|class| (0, class, "")).collect(),
            ..subject("drr", |_| "handle 1: drr".into(), By::Class, &[10, 64, 1024, 4096])
        },
        Subject { classes: htb, ..subject("htb", |_| "handle 1: htb".into(), By::Class, &[10, 64, 1024]) },
    ]
}

/// Leaves that are over their own rate and borrow, from 32 classes that borrow from one: three levels, none of which holds
/// anything back.
fn htb(leaves: u64) -> Vec<Class> {
    const ROOT: u16 = 0xffff;
    const INNER: u16 = 0xf000;
    const BORROWS: &str = "rate 1mbit ceil 100gbit burst 1mb cburst 100mb";
    let root = (0, ROOT, "rate 100gbit ceil 100gbit burst 100mb cburst 100mb");
    let inner = (0..32).map(|n| (ROOT, INNER + n, BORROWS));
    let leaves = (1..=leaves as u16).map(|n| (INNER + n % 32, n, BORROWS));
    std::iter::once(root).chain(inner).chain(leaves).collect()
}

/// All configurations; with `--flows`, those numbers of flows for all.
pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let dpdk = super::peers::or_skip("dpdk", Sched::prepare(plan.lab));
    let mut cases = Vec::new();
    let asked = &plan.args.qdisc;
    for subject in subjects().into_iter().filter(|s| asked.is_empty() || asked.iter().any(|q| q == s.name)) {
        for flows in plan.flows(subject.flows) {
            for batch in plan.batches(&[32]) {
                let key = Key { qdisc: Some(subject.name.into()), ..key(flows, batch) };
                let (text, classes, by) = (subject.text, subject.classes, subject.by);
                let run = Box::new(move |lab: &Lab, time| {
                    measure(
                        lab,
                        time,
                        &Filled { text: text(flows), classes: classes(flows), by, flows, batch },
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

/// A qdisc, its classes, and what is queued there.
struct Filled {
    text: String,
    classes: Vec<Class>,
    by: By,
    flows: u64,
    batch: u64,
}

fn measure(lab: &Lab, time: Duration, filled: &Filled) -> anyhow::Result<Sample> {
    // A thread of its own, as the main one must not stay on a CPU.
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
    let &Filled { ref text, ref classes, by, flows, batch } = filled;
    let queued = (flows * EACH).max(batch * 4);
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
    // A device of the usual size, whose queues hold all that is to be queued.
    let env = Env { tx_queue_len: 1000 + buffers, mtu: 1514, txqs: 1, pacing_horizon: 0 };
    let mut qdisc: Alone = Alone::new(text, &env).map_err(refused(text))?;
    qdisc.with(&mut cache, |qdisc, cx| {
        let mut add = |&(parent, minor, words): &Class| match qdisc.classes() {
            Some(all) => all.add(parent, minor, &mut Words::split(words), &env, cx),
            None => Ok(()),
        };
        classes.iter().try_for_each(&mut add).map_err(refused(text))
    })?;
    qdisc.enqueue(&mut packets, &mut cache);
    let memory = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
    turn(&mut qdisc, &mut cache, batch, Instant::now() + time / 8);
    let (start, cpu) = (Instant::now(), cpu_time());
    let moved = turn(&mut qdisc, &mut cache, batch, start + time);
    let mut sample = Sample::of(moved, start.elapsed(), cpu_time() - cpu);
    let drops = qdisc.drops().total();
    sample.dropped = Some(drops as f64 / (moved + queued) as f64);
    sample.bytes_per_flow = memory.filter(|_| flows >= MANY).map(|bytes| bytes as f64 / flows as f64);
    qdisc.with(&mut cache, |qdisc, cx| qdisc.reset(cx));
    Ok(sample)
}

/// Takes packets out and puts them in again until `end`; how many that were.
fn turn(qdisc: &mut Alone, cache: &mut Cache, batch: u64, end: Instant) -> u64 {
    let (mut moved, mut packets) = (0, PacketList::new());
    while Instant::now() < end {
        for _ in 0..64 {
            qdisc.dequeue(Budget::packets(batch as usize), &mut packets, cache);
            moved += packets.len() as u64;
            qdisc.enqueue(&mut packets, cache);
        }
    }
    moved
}

/// Bytes of memory that the process has now.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = kilobytes.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The results of this suite, each qdisc's cost also as a part of what DPDK's scheduler costs with as many pipes, or with the
/// most that it has.
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
