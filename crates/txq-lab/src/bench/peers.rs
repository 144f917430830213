//! Suite `peers`: the same work by txq and by others, one right after the other, and the ratios of the results.
//!
//! | shape | txq | the peer |
//! |---|---|---|
//! | `queue` | N senders hand in batches; the owner of the queue sends them | DPDK: N threads enqueue bulks of pointers on an rte_ring (MP, RTS, HTS), one more thread drains it |
//! | `core` | one thread, from allocation to free | DPDK: one thread: get, MP enqueue, dequeue, put |
//! | `cross` | a sender on the first CPU, completions on the last | DPDK: get and enqueue on the first CPU, dequeue and put on the last |
//! | `free` | `Cache::free` of buffers that another CPU allocated | DPDK: the bulk put of objects that another lcore got |
//! | `kernel` | N senders through a qdisc | this kernel: N threads, sendmmsg on packet sockets into an ifb under the same qdisc |
//!
//! txq's rows do all that a packet needs: allocation, qdisc, driver, completion, free, and counters. A ring passes
//! pointers. The shapes in which DPDK allocates have two rows: raw objects of a mempool, whose memory is never touched,
//! and mbufs, which are initialised and freed like packets.

use std::io::Write;
use std::rc::Rc;

use txq_cli::common::table::{align, number};

use super::case::{Case, Key, Row};
use super::dpdk::{self, Dpdk, Shape};
use super::kernel::{self, Kernel};
use super::plan::{Plan, case};
use super::rig::{Queue, Rig};
use super::{free, pool};

/// Returns the description of a shape, in a line.
pub(super) fn about(shape: &str) -> &'static str {
    match shape {
        "queue" => "threads that hand batches to one queue",
        "core" => "one thread, from allocation to free",
        "cross" => "allocated on one CPU, freed on another",
        "free" => "allocated on one CPU, freed on another; ns are those of the free alone",
        _ => "threads through a qdisc",
    }
}

pub(super) fn cases(plan: &Plan<'_>) -> anyhow::Result<Vec<Case>> {
    let dpdk = or_skip("dpdk", Dpdk::prepare(plan.lab));
    let kernel = or_skip("kernel", Kernel::prepare(plan.lab)).map(Rc::new);
    let mut cases = Vec::new();
    queue(plan, dpdk.as_ref(), &mut cases);
    core(plan, dpdk.as_ref(), &mut cases);
    cross(plan, dpdk.as_ref(), &mut cases);
    frees(plan, dpdk.as_ref(), &mut cases);
    through_qdiscs(plan, kernel.as_ref(), &mut cases);
    Ok(cases)
}

/// Returns the peer if it is available; otherwise prints the reason on stderr.
pub(super) fn or_skip<T>(peer: &str, prepared: Result<T, String>) -> Option<T> {
    prepared.map_err(|why| skip(peer, &why)).ok()
}

/// Prints on stderr that DPDK has too few lcores.
pub(super) fn skip_threads(threads: u64) {
    skip("dpdk", &format!("{threads} threads are more than its {} lcores", dpdk::MAX_ENQUEUERS));
}

fn skip(peer: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {peer}: {why}");
}

fn key(shape: &'static str) -> Key {
    Key { suite: super::PEERS, shape: Some(shape), ..Key::default() }
}

fn dpdk_case(dpdk: &Dpdk, key: Key, name: &str, shape: Shape, threads: u64, batch: u64) -> Case {
    let dpdk = dpdk.clone();
    let key = Key { peer: Some(name.to_owned()), threads, batch, ..key };
    Case { key, run: Box::new(move |lab, time| dpdk.measure(lab, time, shape, batch)) }
}

fn queue(plan: &Plan<'_>, dpdk: Option<&Dpdk>, cases: &mut Vec<Case>) {
    let key = key("queue");
    for batch in plan.batches(&[8]) {
        for threads in plan.threads(&[1, 2, 8]) {
            for discipline in plan.disciplines() {
                let rig = Rig::new(discipline, Queue::text("pfifo"), threads, batch);
                cases.push(case(Key { qdisc: Some("pfifo".into()), ..key.clone() }, rig));
            }
            let Some(dpdk) = dpdk else { continue };
            if threads > dpdk::MAX_ENQUEUERS {
                skip_threads(threads);
                continue;
            }
            for (ring, name) in dpdk::RINGS {
                let (name, shape) = (format!("dpdk {name}"), Shape::Queue(ring, threads));
                cases.push(dpdk_case(dpdk, key.clone(), &name, shape, threads, batch));
            }
        }
    }
}

/// Adds the cases of an allocating shape, for each kind of object that DPDK can allocate.
fn with_objects(
    dpdk: Option<&Dpdk>,
    key: &Key,
    shape: fn(&'static str) -> Shape,
    batch: u64,
    cases: &mut Vec<Case>,
) {
    for (object, name) in dpdk::OBJECTS {
        let name = format!("dpdk {name}");
        cases.extend(dpdk.map(|dpdk| dpdk_case(dpdk, key.clone(), &name, shape(object), 1, batch)));
    }
}

fn core(plan: &Plan<'_>, dpdk: Option<&Dpdk>, cases: &mut Vec<Case>) {
    let key = key("core");
    for batch in plan.batches(&[8, 32]) {
        for discipline in plan.discipline() {
            let rig = Rig::new(discipline, Queue::text("pfifo"), 1, batch);
            cases.push(case(Key { qdisc: Some("pfifo".into()), ..key.clone() }, rig));
        }
        with_objects(dpdk, &key, Shape::Core, batch, cases);
    }
}

fn cross(plan: &Plan<'_>, dpdk: Option<&Dpdk>, cases: &mut Vec<Case>) {
    let key = key("cross");
    for batch in plan.batches(&[32]) {
        for mode in pool::modes() {
            for discipline in plan.discipline() {
                let rig = pool::rig(plan, discipline, "pfifo", 1, batch, mode);
                let key = Key { qdisc: Some("pfifo".into()), pool: Some(mode.0), ..key.clone() };
                cases.push(case(key, rig));
            }
        }
        with_objects(dpdk, &key, Shape::Cross, batch, cases);
    }
}

fn frees(plan: &Plan<'_>, dpdk: Option<&Dpdk>, cases: &mut Vec<Case>) {
    let key = key("free");
    for batch in plan.batches(&[32]) {
        for (name, pool) in pool::modes() {
            let key = Key { pool: Some(name), threads: 1, batch, ..key.clone() };
            let run = Box::new(move |lab: &_, time| free::measure(lab, time, batch as usize, pool));
            cases.push(Case { key, run });
        }
        with_objects(dpdk, &key, Shape::Free, batch, cases);
    }
}

fn through_qdiscs(plan: &Plan<'_>, kernel: Option<&Rc<Kernel>>, cases: &mut Vec<Case>) {
    for (index, (name, _)) in kernel::QDISCS.iter().enumerate() {
        let key = Key { qdisc: Some((*name).to_owned()), ..key("kernel") };
        for batch in plan.batches(&[32]) {
            for threads in plan.threads(&[1, 2]) {
                for discipline in plan.discipline() {
                    let rig =
                        own(name).map(|qdisc| Rig::new(discipline, Queue::text(&qdisc), threads, batch));
                    // A qdisc that txq does not have gets no row of txq's.
                    let rig = rig.filter(|rig| rig.check().is_ok());
                    cases.extend(rig.map(|rig| case(key.clone(), rig)));
                }
                let Some(kernel) = kernel.cloned() else { continue };
                let key = Key { peer: Some("kernel".into()), threads, batch, ..key.clone() };
                let run = Box::new(move |lab: &_, time| kernel.measure(lab, time, index, threads, batch));
                cases.push(Case { key, run });
            }
        }
    }
}

/// Returns txq's text for one of the kernel's qdiscs; `None` for a classful one, which needs more commands.
fn own(name: &str) -> Option<String> {
    match name {
        "pfifo_fast" => Some(name.to_owned()),
        "tbf" => Some("tbf rate 100gbit burst 10mb limit 100mb".to_owned()),
        _ => None,
    }
}

/// Returns the ratios of each of txq's rows to each peer's row with as many threads and the same batch.
pub(super) fn ratios(rows: &[&Row]) -> String {
    let free = rows.iter().any(|row| row.key.shape == Some("free"));
    let mut peers: Vec<&str> = rows.iter().filter_map(|row| row.key.peer.as_deref()).collect();
    peers.sort_unstable();
    peers.dedup();
    let mut heads = vec![format!("txq : peer, {}", if free { "ns of a free" } else { "Mpps" })];
    heads.extend(["threads", "batch"].into_iter().chain(peers.iter().copied()).map(str::to_owned));
    let value = |row: &Row| if free { row.sample.ns_per_packet } else { Some(row.sample.mpps) };
    let own = rows.iter().filter(|row| row.key.peer.is_none());
    let cells = own.map(|row| {
        let (threads, batch) = (row.key.threads, row.key.batch);
        let against = |peer: &&str| {
            let same = rows.iter().find(|other| {
                let key = &other.key;
                key.peer.as_deref() == Some(peer) && (key.threads, key.batch) == (threads, batch)
            });
            let peer = same.and_then(|other| value(other)).filter(|&value| value > 0.0);
            let ratio = value(row).zip(peer).map(|(own, peer)| own / peer);
            ratio.map_or_else(|| "-".into(), number)
        };
        let mut cells = vec![row.key.subject(), threads.to_string(), batch.to_string()];
        cells.extend(peers.iter().map(against));
        cells
    });
    let cells: Vec<_> = cells.collect();
    let mut text = String::new();
    if !peers.is_empty() && !cells.is_empty() {
        text.push('\n');
        align(&mut text, heads, cells);
    }
    text
}
