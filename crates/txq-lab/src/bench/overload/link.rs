//! Finite devices: the share of its links that a device sends while senders at max fill it.
//!
//! Each txq has a link of `--rate` and a ring of `--ring` packets. A sender hands in packets of 1500 bytes while its
//! credit lasts, and goes on at once when they are dropped, like a program that ignores the verdict. With `--wait-room` it
//! waits for room in the queue before each call (`Sender::wait_room`). The device runs its own workers. Each sender's
//! flows are spread evenly over all txqs, so a link is idle only if the path leaves it idle.
//!
//! By default the cells form a star: all numbers of threads through one `pfifo`, then each other dimension in turn with 8
//! and 64 threads. Options that name values of a dimension select the product of the named values instead.

use std::fmt::Write as _;

use txq::Discipline;
use txq_cli::common::rate::metric;
use txq_cli::common::table::align;

use super::OVERLOAD;
use super::target::{Reapers, Root, Steering, TBF, Target, shaped};
use crate::bench::case::{Case, Key, Row, Sample};
use crate::bench::dpdk::{self, LOCKS, Links, Work};
use crate::bench::peers;
use crate::bench::plan::{OWN, Plan, case};
use crate::bench::rig::{Queue, Rig};

/// Bytes of a packet.
const LEN: usize = 1500;
/// Default of outstanding packets of a sender.
const CREDIT: u64 = 400;
/// Default size of a ring in packets.
const RING: u32 = 256;
/// Flows of a sender for each txq.
const FLOWS: u32 = 8;
/// The qdiscs of the star. A tbf without parameters sends four fifths of the links below it, and its bucket holds 4 ms of
/// its rate.
const PFIFO: &str = "pfifo limit 1000";
const FQ_CODEL: &str = "fq_codel";
const TBF_SHARE: f64 = 0.8;
const TBF_BURST: f64 = 0.004;
/// The share that every cell should reach.
const SHARE_GOAL: f64 = 0.95;

/// Returns the parameters of the star's qdiscs as text.
fn text(qdisc: &str, rate: u64, txqs: u16, root: Root) -> String {
    if qdisc != TBF {
        return qdisc.to_owned();
    }
    let links = if root == Root::One { u64::from(txqs) } else { 1 };
    let rate = rate as f64 * TBF_SHARE * links as f64;
    let burst = (rate / 8.0 * TBF_BURST).max(LEN as f64 * 16.0);
    format!("tbf rate {rate:.0}bit burst {burst:.0} limit {:.0}", burst + 1000.0 * LEN as f64)
}

/// A cell, without its discipline, batch and threads.
struct Cell {
    qdisc: String,
    target: Target,
}

/// Returns all configurations.
pub(super) fn cases(plan: &Plan<'_>) -> anyhow::Result<Vec<Case>> {
    let args = plan.args;
    if let Some(own) = args.qdisc.iter().find(|qdisc| OWN.contains(&qdisc.as_str())) {
        anyhow::bail!(
            "qdisc \"{own}\" has no device of a finite rate: name another one, or leave --rate out"
        );
    }
    let named = !(args.qdisc.is_empty()
        && args.txqs.is_empty()
        && args.root.is_empty()
        && args.steering.is_empty()
        && args.completions.is_empty());
    let mut cases = Vec::new();
    for rate in args.rate.iter().map(|rate| rate.bits()) {
        for discipline in plan.disciplines() {
            for batch in plan.batches(&[1]) {
                for (cell, threads) in if named { product(plan, rate) } else { star(plan, rate) } {
                    for threads in plan.threads(threads) {
                        cases.push(measured(plan, discipline, &cell, threads, batch)?);
                    }
                }
            }
        }
        if args.dpdk {
            dpdk(plan, rate, named, &mut cases);
        }
    }
    Ok(cases)
}

const THREADS: &[u64] = &[1, 2, 8, 64];
const CROWDS: &[u64] = &[8, 64];

/// Returns the cells of the star, one dimension after the other, with the numbers of threads for each.
fn star(plan: &Plan<'_>, rate: u64) -> Vec<(Cell, &'static [u64])> {
    let base = target(plan, rate, 1);
    let cell = |qdisc, target: Target| Cell { qdisc: text(qdisc, rate, target.txqs, target.root), target };
    let mut cells = vec![(cell(PFIFO, base), THREADS)];
    cells.extend([FQ_CODEL, TBF].map(|qdisc| (cell(qdisc, base), CROWDS)));
    for root in [Root::One, Root::Mq] {
        cells.extend([2, 8].map(|txqs| (cell(PFIFO, Target { txqs, root, ..base }), CROWDS)));
    }
    for completions in [Reapers::Worker, Reapers::PerQueue, Reapers::WorkerOnly] {
        cells.push((cell(PFIFO, Target { completions, ..base }), CROWDS));
    }
    cells
}

/// Returns the product of all values that the options name.
fn product(plan: &Plan<'_>, rate: u64) -> Vec<(Cell, &'static [u64])> {
    let args = plan.args;
    let txqs: Vec<u16> =
        if args.txqs.is_empty() { vec![1] } else { args.txqs.iter().map(|n| n.get() as u16).collect() };
    let roots = if args.root.is_empty() { vec![Root::One] } else { args.root.clone() };
    let completions = match args.completions.is_empty() {
        true => vec![Reapers::Inline],
        false => args.completions.clone(),
    };
    let steerings = if args.steering.is_empty() { vec![Steering::Hash] } else { args.steering.clone() };
    let mut cells = Vec::new();
    for qdisc in plan.qdiscs(&[PFIFO]) {
        for &txqs in &txqs {
            // With one txq these are all the same.
            let ways = |all: usize| if txqs == 1 { 1 } else { all };
            for &root in roots.iter().take(ways(roots.len())) {
                for &steering in steerings.iter().take(ways(steerings.len())) {
                    for &completions in &completions {
                        let target = Target { root, completions, steering, ..target(plan, rate, txqs) };
                        cells.push((Cell { qdisc: text(&qdisc, rate, txqs, root), target }, THREADS));
                    }
                }
            }
        }
    }
    cells
}

/// Adds the cells of DPDK: its txqs have no qdisc, and any thread reaps.
fn dpdk(plan: &Plan<'_>, rate: u64, named: bool, cases: &mut Vec<Case>) {
    let Some(links) = peers::or_skip("dpdk", Links::prepare(plan.lab)) else { return };
    let args = plan.args;
    let txqs: Vec<u64> = match (args.txqs.is_empty(), named) {
        (false, _) => args.txqs.iter().map(|n| n.get()).collect(),
        (true, true) => vec![1],
        (true, false) => vec![1, 2, 8],
    };
    let each = txqs.into_iter().flat_map(|txqs| LOCKS.map(|lock| (txqs as u16, lock)));
    for (txqs, (lock, name)) in each {
        for batch in plan.batches(&[1]) {
            for threads in plan.threads(THREADS) {
                if threads > dpdk::MAX_ENQUEUERS {
                    peers::skip_threads(threads);
                    continue;
                }
                let target = target(plan, rate, txqs);
                let work =
                    Work { lock, txqs, rate, ring: target.ring, credit: credit(plan, batch), threads, batch };
                let key = Key {
                    suite: OVERLOAD,
                    peer: Some(name.into()),
                    target: Some(target),
                    threads,
                    batch,
                    ..Key::default()
                };
                let (links, most) = (links.clone(), target.capacity("", LEN));
                let run = Box::new(move |lab: &_, time| {
                    let sample = links.measure(lab, time, &work)?;
                    Ok(Sample { share: most.map(|most| sample.mpps * 1e6 / most), ..sample })
                });
                cases.push(Case { key, run });
            }
        }
    }
}

/// Returns a device whose senders reap by themselves.
fn target(plan: &Plan<'_>, rate: u64, txqs: u16) -> Target {
    let (root, completions, steering) = (Root::One, Reapers::Inline, Steering::Hash);
    Target { rate: Some(rate), ring: ring(plan), txqs, root, completions, steering }
}

fn credit(plan: &Plan<'_>, batch: u64) -> u64 {
    plan.args.limit.map_or(CREDIT, |limit| limit.get()).max(batch)
}

fn ring(plan: &Plan<'_>) -> u32 {
    plan.args.ring.map_or(RING, |ring| ring.get() as u32)
}

fn measured(
    plan: &Plan<'_>,
    discipline: Discipline,
    cell: &Cell,
    threads: u64,
    batch: u64,
) -> anyhow::Result<Case> {
    let flows = FLOWS * u32::from(cell.target.txqs);
    let limit = credit(plan, batch);
    let xps = cell.target.steering.map(&plan.lab.cpus, cell.target.txqs)?;
    let rig = Rig::new(discipline, Queue::text(&cell.qdisc), threads, batch);
    let rig = Rig { limit, flows, xps, len: LEN, wait_room: plan.args.wait_room, ..rig.through(cell.target) };
    rig.check()?;
    let key = Key {
        suite: OVERLOAD,
        qdisc: Some(cell.qdisc.clone()),
        flows: Some(u64::from(flows) * threads),
        target: Some(cell.target),
        ..Key::default()
    };
    Ok(case(key, rig))
}

/// Returns the shares, a table for each rate, ring, batch and discipline, and the worst cell of all.
pub(super) fn tables(rows: &[Row]) -> String {
    let rows: Vec<&Row> =
        rows.iter().filter(|row| row.key.suite == OVERLOAD && row.sample.share.is_some()).collect();
    let mut text = String::new();
    let about = |row: &Row| {
        let target = row.key.target.map(|target| (target.rate, target.ring));
        (target, row.key.batch, row.key.subject())
    };
    let mut tables: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match tables.iter_mut().find(|table| about(table[0]) == about(row)) {
            Some(table) => table.push(row),
            None => tables.push(vec![row]),
        }
    }
    let Some(first) = tables.first() else { return text };
    let _ = writeln!(
        text,
        "\n{OVERLOAD}: share of the links, or of the shaper above them, that is sent by threads"
    );
    let worst = |table: &[&Row]| {
        table
            .iter()
            .copied()
            .min_by(|a, b| a.sample.share.partial_cmp(&b.sample.share).expect("a number"))
            .map(share)
    };
    let batches = tables.iter().any(|table| table[0].key.batch != first[0].key.batch);
    for table in &tables {
        let (key, worst) = (&table[0].key, worst(table).unwrap_or_default());
        let rate = key.target.and_then(|target| target.rate).unwrap_or_default() as f64;
        let ring = key.target.map_or(0, |target| target.ring);
        let batch = if batches { format!(", batch {}", key.batch) } else { String::new() };
        let _ = writeln!(text, "\n{}{batch}, {}bit/s, ring {ring}\n", key.subject(), metric(rate));
        shares(&mut text, table, worst);
    }
    let all: Vec<&Row> = tables.iter().flatten().copied().filter(|row| row.key.peer.is_none()).collect();
    summary(&mut text, &all);
    text
}

fn share(row: &Row) -> f64 {
    row.sample.share.unwrap_or_default()
}

/// Returns the name of a row's line.
fn line(key: &Key) -> String {
    let demand = key.target.map(|target| target.to_string()).unwrap_or_default();
    let qdisc = key.qdisc.as_deref().unwrap_or_default();
    // A shaper's parameters are long; its rate is already in the share.
    let qdisc = if shaped(qdisc).is_some() { TBF } else { qdisc };
    match key.peer {
        // There is no qdisc.
        Some(_) => demand.split(" under").next().unwrap_or_default().to_owned(),
        None => format!("{qdisc}, {demand}"),
    }
}

/// Writes a line for each cell and a column for each number of threads; `*` marks the worst.
fn shares(text: &mut String, rows: &[&Row], worst: f64) {
    let threads = crate::bench::report::distinct(rows.iter().map(|row| row.key.threads));
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        let name = line(&row.key);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut heads = vec![String::new()];
    heads.extend(threads.iter().map(u64::to_string));
    let cells = names.into_iter().map(|name| {
        let at = |threads: u64| rows.iter().find(|row| row.key.threads == threads && line(&row.key) == name);
        let cell = |&threads: &u64| {
            at(threads).map_or(String::new(), |row| {
                let share = share(row);
                format!("{share:.3}{}", if share == worst { "*" } else { " " })
            })
        };
        let cells = threads.iter().map(cell).collect::<Vec<_>>();
        [vec![name], cells].concat()
    });
    let cells = cells.collect();
    align(text, heads, cells);
}

/// Writes how many cells miss the goal, and the worst cell.
fn summary(text: &mut String, rows: &[&Row]) {
    let below = rows.iter().filter(|row| share(row) < SHARE_GOAL).count();
    let Some(worst) = rows.iter().min_by(|a, b| share(a).total_cmp(&share(b))) else { return };
    let _ = writeln!(
        text,
        "\n* the worst cell of a table. {below} of {} cells below {SHARE_GOAL}; worst of all {:.3}: {}, {}, {} threads.",
        rows.len(),
        share(worst),
        worst.key.subject(),
        line(&worst.key),
        worst.key.threads
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Target = Target {
        rate: Some(10_000_000_000),
        ring: RING,
        txqs: 1,
        root: Root::One,
        completions: Reapers::Inline,
        steering: Steering::Hash,
    };

    #[test]
    fn the_stars_shaper_is_slower_than_the_links() {
        for (root, txqs) in [(Root::One, 1), (Root::One, 8), (Root::Mq, 8)] {
            let target = Target { txqs, root, ..BASE };
            let most = target.capacity(&text(TBF, 10_000_000_000, txqs, root), LEN).expect("finite");
            assert!((most / (f64::from(txqs) * 666_667.0) - 1.0).abs() < 1e-3, "{target}: {most}");
        }
    }

    fn row(threads: u64, target: Target, share: f64) -> Row {
        let key = Key {
            suite: OVERLOAD,
            discipline: Some(Discipline::Llist),
            qdisc: Some(PFIFO.into()),
            threads,
            target: Some(target),
            ..Key::default()
        };
        Row::of(key, &[Sample { share: Some(share), ..Sample::default() }]).expect("one sample")
    }

    #[test]
    fn the_worst_cell_is_marked() {
        let mq = Target { txqs: 2, root: Root::Mq, ..BASE };
        let text = tables(&[row(1, BASE, 0.991), row(8, BASE, 0.25), row(8, mq, 0.613)]);
        for part in [
            "llist, 10Gbit/s, ring 256",
            "pfifo limit 1000, 2 txqs under mq",
            "0.250*",
            "0.991 ",
            "2 of 3 cells below 0.95; worst of all 0.250: llist, pfifo limit 1000, 1 txq, 8 threads.",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(text.matches('*').count(), 2, "{text}");
    }
}
