//! Native times to compare the simulator with: the time of a packet on this machine, for each enqueue discipline, with one
//! sender and with two.
//!
//! The work is the suite `crowd` with each sender pinned to a CPU: single packets of 120 bytes through one txq with a
//! `pfifo`, a device without a wire that completes at once, at most 128 outstanding packets of a sender. With one sender
//! that equals the suite `path` with a batch of 1. `pfifo` is the qdisc with the least work, so most of the time is the
//! discipline's.
//!
//! With two senders the time of a packet is mostly the transfer of cache lines. On a virtual machine whose CPUs the
//! hypervisor moves that time varies fourfold. So the transfer time of a line is measured before and after each
//! measurement and stored with it. A simulation uses it as its own.
//!
//! A link below the qdisc makes the work an overload: senders fill the qdisc, which drops what does not fit. A sender whose packet is
//! dropped goes on at once. Then times are of the packets handed in, and the part of them that is dropped is measured, too.
//!
//! Senders with work of their own between two packets are below what the queue can take. The work takes CPU time that varies with the machine,
//! too. So it is measured beside each measurement, by senders with a queue of their own, with the work and without, and taken off.
//!
//! How fast such a CPU runs code varies, too, by half from minute to minute: it may share its core with a guest that nothing
//! here shows. So the price of code is measured before and after as well, with two disciplines: as many senders, each with a
//! queue to itself. The one makes three times as many accesses for a packet as the other, so the two tell the price of an
//! access from that of a call.

use std::time::Duration;

use txq::Discipline;
use txq::cpumask::CpuMask;
use txq::xps::XpsMap;

use super::case::{Case, Key};
use super::cpu::{Taken, Taking};
use super::lab::Lab;
use super::overload::{Reapers, Root, Steering, Target};
use super::plan::case;
use super::rig::{self, Queue, Rig};
use super::turns::Turns;
use super::work::{Calibration, Work};

/// The qdisc that the senders use.
const NATIVE_QDISC: &str = "pfifo";

/// The parameters that a simulation of the same work needs.
#[derive(Clone, Copy, Debug)]
pub struct Same {
    /// The disciplines that the price of code is measured with. One sender of the first is also measured with batches.
    pub priced: [Discipline; 2],
    /// Packets of each of these batches.
    pub batch: u64,
    /// The qdisc that the senders use.
    pub qdisc: &'static str,
    /// Bytes of a packet.
    pub bytes: u32,
    /// Outstanding packets of a sender, at most.
    pub limit: u64,
    /// Packets that the device's ring holds.
    pub ring: u32,
    /// Packets that the device's ring holds where it has a link. A sender at its limit has more outstanding.
    pub link_ring: u32,
}

/// The native parameters.
pub const NATIVE: Same = Same {
    priced: [Discipline::Spinlock, Discipline::Combine],
    batch: 32,
    qdisc: NATIVE_QDISC,
    bytes: rig::LEN as u32,
    limit: rig::SNDBUF,
    ring: rig::RING,
    link_ring: 32,
};

/// Flows of all senders together, through a qdisc with flows: as in the suite `crowd`.
const FLOWS: u64 = 200;
/// The senders through each qdisc that is asked for, and their disciplines.
const SENDERS: [u64; 3] = [1, 2, 8];
const THROUGH: [Discipline; 2] = [Discipline::Combine, Discipline::Spinlock];

/// The times of one discipline with one number of senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Native {
    /// The qdisc, or the tree.
    pub qdisc: String,
    /// Flows of each sender.
    pub flows: u64,
    /// The enqueue discipline.
    pub discipline: Discipline,
    /// Senders, each on a CPU of its own.
    pub threads: u64,
    /// Packets that a sender hands in at a time.
    pub batch: u64,
    /// Bits per second of the link below the qdisc; `None` for a device on which no time passes.
    pub link: Option<u64>,
    /// The work of a sender for each packet before it sends it, in nanoseconds.
    pub work_ns: u64,
    /// The measurements, at least one, by CPU time per packet from the least to the most.
    pub points: Vec<Point>,
}

/// One measurement, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Wall time per packet handed in.
    pub ns_per_packet: f64,
    /// CPU time of all threads per packet handed in, without that of the senders' own work.
    pub cpu_ns_per_packet: f64,
    /// CPU time of a sender's own work for a packet, the mean of before and after.
    pub work_ns: f64,
    /// The part of the packets handed in that the qdisc dropped.
    pub dropped: f64,
    /// The part of the senders' CPUs' time that others had: other programs, or a hypervisor.
    pub taken: f64,
    /// Transfer time of a line between the senders' CPUs, the mean of before and after; `None` with one CPU.
    pub line_ns: Option<f64>,
    /// How far the time of a line before and the one after are from one another, as a part of the shorter one.
    pub line_moved: f64,
    /// CPU time per packet of as many senders through each of `NATIVE.priced`, each sender with a queue of its own: the mean of
    /// before and after.
    pub priced_ns: [f64; 2],
    /// How far the times before and after are from one another, as a part of the shorter one: of that discipline where it is
    /// more.
    pub price_moved: f64,
}

impl Native {
    /// Returns the middle one by CPU time.
    pub fn median(&self) -> &Point {
        &self.points[self.points.len() / 2]
    }
}

/// Each price is measured for this part of the time of a measurement.
const PRICE_PART: u32 = 8;

/// Returns the mean of two measurements, and how far they are from one another as a part of the smaller one.
fn mean(before: f64, after: f64) -> (f64, f64) {
    ((before + after) / 2.0, before.max(after) / before.min(after) - 1.0)
}

/// Returns senders through `discipline` that each have a CPU of these and a queue of its own.
fn apart(discipline: Discipline, cpus: &[u32], outside: Work) -> anyhow::Result<Rig> {
    let masks: Vec<_> = cpus.iter().map(|&cpu| CpuMask::from_iter([cpu as usize])).collect();
    let ids = cpus.iter().max().map_or(1, |&cpu| cpu as usize + 1);
    let rig = Rig::new(discipline, Queue::text(NATIVE_QDISC), cpus.len() as u64, 1);
    Ok(Rig {
        outside,
        txqs: cpus.len() as u16,
        xps: Some(XpsMap::from_masks(&masks, cpus.len(), ids)?),
        ..rig
    })
}

/// Returns the CPU time of a packet of one sender through each of `NATIVE.priced`, in nanoseconds: the shortest of several
/// measurements.
pub fn path_ns() -> anyhow::Result<[f64; 2]> {
    const TIME: Duration = Duration::from_millis(5);
    let lab = Lab::new(true)?;
    let mut ns = [f64::INFINITY; 2];
    for (discipline, best) in NATIVE.priced.into_iter().zip(&mut ns) {
        let rig = apart(discipline, &lab.cpus[..1], Work::default())?;
        for _ in 0..100 {
            *best = best.min(rig.measure(&lab, TIME)?.cpu_ns_per_packet.unwrap_or(f64::INFINITY));
        }
    }
    Ok(ns)
}

/// Returns the configurations with a `pfifo`: all disciplines with one sender, and with two if there are two CPUs; and one sender
/// of the first of `NATIVE.priced` with batches.
fn plain(threads: std::ops::RangeInclusive<u64>) -> Vec<Rig> {
    let rig = |discipline, threads, batch| Rig::new(discipline, Queue::text(NATIVE_QDISC), threads, batch);
    Discipline::ALL
        .iter()
        .flat_map(|&discipline| threads.clone().map(move |threads| rig(discipline, threads, 1)))
        .chain([rig(NATIVE.priced[0], 1, NATIVE.batch)])
        .collect()
}

/// Returns the configurations with a qdisc, whose senders have many flows, and work of their own.
fn through(qdisc: &str, link: Option<u64>, outside: Work) -> Vec<Rig> {
    let target = link.map(|rate| Target {
        rate: Some(rate),
        ring: NATIVE.link_ring,
        txqs: 1,
        root: Root::One,
        completions: Reapers::Inline,
        steering: Steering::Hash,
    });
    let rig = |discipline, threads: u64| {
        let rig = Rig::new(discipline, Queue::text(qdisc), threads, 1);
        Rig { flows: (FLOWS / threads) as u32, target, outside, ..rig }
    };
    THROUGH.into_iter().flat_map(|discipline| SENDERS.map(|threads| rig(discipline, threads))).collect()
}

/// The configurations to measure, and the time for each.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The qdiscs; without any, all disciplines with a `pfifo`.
    pub qdiscs: &'a [String],
    /// Bits per second of a link below the qdiscs.
    pub link: Option<u64>,
    /// The work of a sender through these qdiscs for each packet, in nanoseconds.
    pub work_ns: u64,
    /// How long a measurement takes.
    pub time: Duration,
    /// The number of measurements of each configuration.
    pub repeat: usize,
    /// Whether no progress is printed.
    pub quiet: bool,
}

/// Measures configurations. `counts` gets the number of senders and a measurement. A configuration of which less than half of the
/// measurements count is measured further, at most as often again. A signal ends the measurement early; the results until then are
/// returned. `way` measures the transfer time of a line between two CPUs, in nanoseconds.
pub fn native(
    asked: Asked<'_>,
    counts: fn(u64, &Point) -> bool,
    way: impl Fn(u32, u32) -> anyhow::Result<Option<f64>>,
) -> anyhow::Result<Vec<Native>> {
    let Asked { qdiscs, link, work_ns, time, repeat, quiet } = asked;
    let lab = Lab::new(true)?;
    let outside = if work_ns > 0 { Calibration::measure().work(work_ns) } else { Work::default() };
    let threads = 1..=lab.cpus.len().min(2) as u64;
    let of = |qdisc: &String| {
        through(qdisc, link, outside).into_iter().map(|rig| (qdisc.clone(), rig)).collect::<Vec<_>>()
    };
    let rigs: Vec<(String, Rig)> = match qdiscs {
        [] => plain(threads.clone()).into_iter().map(|rig| (NATIVE_QDISC.to_owned(), rig)).collect(),
        qdiscs => qdiscs.iter().flat_map(of).collect(),
    };
    rigs.iter().try_for_each(|(_, rig)| rig.check())?;
    // Between the CPUs of the first two senders.
    let way = || match lab.cpus[..] {
        [a, b, ..] => way(a, b),
        _ => Ok(None),
    };
    let priced = |discipline, outside| {
        let rigs = threads.clone().map(|threads| apart(discipline, &lab.cpus[..threads as usize], outside));
        rigs.collect::<anyhow::Result<Vec<_>>>()
    };
    let none = Work::default();
    let rigs_apart = [priced(NATIVE.priced[0], none)?, priced(NATIVE.priced[1], none)?];
    let at_work = priced(NATIVE.priced[1], outside)?;
    let price = |threads: u64| {
        let of = |rigs: &[Rig]| {
            let senders = (threads as usize).min(rigs.len());
            anyhow::Ok(rigs[senders - 1].measure(&lab, time / PRICE_PART)?.cpu_ns_per_packet)
        };
        let without = of(&rigs_apart[0])?.zip(of(&rigs_apart[1])?);
        let with = if work_ns > 0 { of(&at_work)? } else { without.map(|(_, second)| second) };
        anyhow::Ok(without.zip(with).map(|((first, second), with)| (first, second, with - second)))
    };
    let key = |qdisc, flows| Key { suite: "crowd", qdisc: Some(qdisc), flows: Some(flows), ..Key::default() };
    let cases: Vec<Case> =
        rigs.into_iter().map(|(qdisc, rig)| case(key(qdisc, rig.flows.into()), rig)).collect();
    let mut points: Vec<Vec<Point>> = vec![Vec::with_capacity(repeat); cases.len()];
    let mut turns = Turns::new(quiet, cases.len() * repeat);
    'all: for round in 0..2 * repeat {
        for (case, points) in cases.iter().zip(&mut points) {
            let count = points.iter().filter(|point| counts(case.key.threads, point)).count();
            if round >= repeat && 2 * count >= repeat {
                continue;
            }
            turns.next(&case.key);
            let before = (way()?, price(case.key.threads)?);
            let sample = measure(case, &lab, time)?;
            let after = (price(case.key.threads)?, way()?);
            if lab.signals.seen().is_some() {
                break 'all;
            }
            if let Some(Measured { ns_per_packet, cpu_ns_per_packet, dropped, taken }) = sample
                && let Some((price_before, price_after)) = before.1.zip(after.0)
            {
                let (line_ns, line_moved) = before.0.zip(after.1).map(|(a, b)| mean(a, b)).unzip();
                let line_moved = line_moved.unwrap_or(0.0);
                let prices = [mean(price_before.0, price_after.0), mean(price_before.1, price_after.1)];
                let work_ns = (price_before.2 + price_after.2) / 2.0;
                points.push(Point {
                    ns_per_packet,
                    cpu_ns_per_packet: cpu_ns_per_packet - work_ns,
                    work_ns,
                    dropped,
                    taken,
                    line_ns,
                    line_moved,
                    priced_ns: prices.map(|(ns, _)| ns),
                    price_moved: prices[0].1.max(prices[1].1),
                });
            }
        }
    }
    turns.end();
    let rows = cases.iter().zip(points).map(|(case, mut points)| {
        points.sort_by(|a, b| a.cpu_ns_per_packet.total_cmp(&b.cpu_ns_per_packet));
        let discipline = case.key.discipline.unwrap_or_default();
        Native {
            qdisc: case.key.qdisc.clone().unwrap_or_default(),
            flows: case.key.flows.unwrap_or(1),
            discipline,
            threads: case.key.threads,
            batch: case.key.batch,
            link,
            work_ns,
            points,
        }
    });
    Ok(rows.filter(|row| !row.points.is_empty()).collect())
}

/// One run of a case: as the fields of [`Point`].
struct Measured {
    ns_per_packet: f64,
    cpu_ns_per_packet: f64,
    dropped: f64,
    taken: f64,
}

/// Runs a case once; `None` if nothing was sent.
fn measure(case: &Case, lab: &Lab, time: Duration) -> anyhow::Result<Option<Measured>> {
    let cpus = &lab.cpus[..(case.key.threads as usize).min(lab.cpus.len())];
    let taking = Taking::begin(cpus);
    let sample = (case.run)(lab, time)?;
    let taken = taking.end();
    Ok(sample.ns_per_packet.zip(sample.cpu_ns_per_packet).map(|(wall, cpu)| {
        let dropped = sample.dropped.unwrap_or(0.0);
        let handed_in = 1.0 - dropped;
        let taken = taken_at_most(taken, cpu / (wall * cpus.len() as f64));
        Measured { ns_per_packet: wall * handed_in, cpu_ns_per_packet: cpu * handed_in, dropped, taken }
    }))
}

/// Returns the part of the senders' CPUs that others had, if the process used `used` of them. The kernel counts what all programs
/// use in ticks of 10 ms, and each kind of use by itself: in a measurement of 20 ms that alone may be half of the CPUs. The
/// process's own time is exact, and others had no more than it left.
fn taken_at_most(taken: Taken, used: f64) -> f64 {
    (taken.stolen + taken.others.min((1.0 - used).max(0.0))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortly(repeat: usize) -> Asked<'static> {
        Asked { qdiscs: &[], link: None, work_ns: 0, time: Duration::from_millis(10), repeat, quiet: true }
    }

    #[test]
    fn others_had_no_more_than_the_process_left() {
        let ticks = |stolen, others| Taken { stolen, others };
        // A tick of 10 ms in 20 ms of one CPU that the senders used all the time.
        assert_eq!(taken_at_most(ticks(0.0, 0.5), 1.0), 0.0);
        // The worker of the device may use other CPUs.
        assert_eq!(taken_at_most(ticks(0.0, 0.5), 1.2), 0.0);
        // The senders used half of their CPUs: others, or nobody, had the rest.
        assert_eq!(taken_at_most(ticks(0.0, 0.4), 0.5), 0.4);
        assert_eq!(taken_at_most(ticks(0.0, 0.75), 0.5), 0.5);
        assert_eq!(taken_at_most(ticks(0.25, 0.0), 1.0), 0.25);
    }

    /// Two senders through a qdisc of 64 packets: the link sends a small part of what they hand in.
    #[test]
    fn a_qdisc_above_a_link_drops() {
        let asked = Asked { qdiscs: &["fq limit 64".to_owned()], link: Some(10_000_000), ..shortly(3) };
        let rows = native(asked, |_, _| true, |_, _| Ok(Some(50.0))).unwrap();
        assert!(!rows.is_empty());
        for row in &rows {
            assert_eq!((row.link, row.flows * row.threads), (Some(10_000_000), 200), "{row:?}");
            for point in &row.points {
                assert!((0.5..1.0).contains(&point.dropped), "{row:?}");
                assert!(point.cpu_ns_per_packet > 1.0, "{row:?}");
            }
        }
    }

    #[test]
    fn the_work_of_a_sender_is_measured_and_taken_off() {
        let asked = Asked { qdiscs: &["fq".to_owned()], work_ns: 5000, ..shortly(3) };
        let rows = native(asked, |_, _| true, |_, _| Ok(Some(50.0))).unwrap();
        assert!(!rows.is_empty());
        for point in rows.iter().filter(|row| row.threads == 1).flat_map(|row| &row.points) {
            // A packet takes a fraction of a microsecond.
            assert!(point.work_ns > 1000.0 && point.cpu_ns_per_packet < point.work_ns, "{point:?}");
            assert!(point.ns_per_packet > 1000.0, "{point:?}");
        }
    }

    /// A busy machine may not let the senders send in so short a time; then a row or a point is missing.
    #[test]
    fn every_discipline_is_measured_with_one_sender_and_with_two() {
        let rows = native(shortly(3), |_, _| true, |_, _| Ok(Some(50.0))).unwrap();
        let cpus = std::thread::available_parallelism().unwrap().get().min(2);
        let each = |&discipline| (1..=cpus as u64).map(move |threads| (discipline, threads, 1));
        let mut all = Discipline::ALL.iter().flat_map(each).chain([(Discipline::Spinlock, 1, 32)]);
        for row in &rows {
            let of = (row.discipline, row.threads, row.batch);
            assert!(all.any(|expected| expected == of), "{of:?} is unknown or out of order: {rows:?}");
            assert!((1..=3).contains(&row.points.len()), "{row:?}");
            assert!(row.points.is_sorted_by_key(|point| point.cpu_ns_per_packet));
            assert_eq!(row.median(), &row.points[row.points.len() / 2]);
            for point in &row.points {
                assert!((0.0..=1.0).contains(&point.taken), "{row:?}");
                assert!(point.ns_per_packet > 1.0 && point.cpu_ns_per_packet > 1.0, "{row:?}");
                assert_eq!(point.line_ns, (cpus > 1).then_some(50.0), "{row:?}");
                assert!(point.priced_ns.iter().all(|&ns| ns > 1.0) && point.price_moved >= 0.0, "{row:?}");
            }
        }
    }

    /// As above: a point may be missing.
    #[test]
    fn what_does_not_count_is_measured_again_for_a_while() {
        let alone = |threads, _: &Point| threads == 1;
        // On a busy machine all points beyond the second may be missing, but not in each of many turns.
        let again = (0..20).any(|_| {
            let rows = native(shortly(2), alone, |_, _| Ok(Some(50.0))).unwrap();
            for Native { threads, points, .. } in &rows {
                assert!(points.len() <= if *threads == 1 { 2 } else { 4 }, "{threads}: {}", points.len());
            }
            let mut two = rows.iter().filter(|row| row.threads == 2).peekable();
            two.peek().is_none() || two.any(|row| row.points.len() > 2)
        });
        assert!(again, "no point that does not count was measured again");
    }
}
