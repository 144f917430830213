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

use std::time::Duration;

use txq::Discipline;

use super::case::{Case, Key};
use super::lab::Lab;
use super::plan::case;
use super::rig::{self, Queue, Rig};
use super::turns::Turns;

/// The qdisc that the senders use.
const QDISC: &str = "pfifo";

/// The parameters that a simulation of the same work needs.
#[derive(Clone, Copy, Debug)]
pub struct Same {
    /// The qdisc that the senders use.
    pub qdisc: &'static str,
    /// Bytes of a packet.
    pub bytes: u32,
    /// Outstanding packets of a sender, at most.
    pub limit: u64,
    /// Packets that the device's ring holds.
    pub ring: u32,
}

/// The native parameters.
pub const NATIVE: Same = Same { qdisc: QDISC, bytes: rig::LEN as u32, limit: rig::SNDBUF, ring: rig::RING };

/// The times of one discipline with one number of senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Native {
    /// The enqueue discipline.
    pub discipline: Discipline,
    /// Senders, each on a CPU of its own.
    pub threads: u64,
    /// The measurements, at least one, from the fastest to the slowest.
    pub points: Vec<Point>,
}

/// One measurement, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Wall time per packet.
    pub ns_per_packet: f64,
    /// CPU time of all threads per packet.
    pub cpu_ns_per_packet: f64,
    /// Transfer time of a line between the senders' CPUs, the mean of before and after; `None` with one CPU.
    pub line_ns: Option<f64>,
}

impl Native {
    /// Returns the middle one by wall time.
    pub fn median(&self) -> &Point {
        &self.points[self.points.len() / 2]
    }
}

/// Measures all disciplines, each for `time` and `repeat` times: with one sender, and with two if there are two CPUs. A
/// signal ends the measurement early; the results until then are returned. `way` measures the transfer time of a line between
/// two CPUs, in nanoseconds.
pub fn native(
    time: Duration,
    repeat: usize,
    quiet: bool,
    way: impl Fn(u32, u32) -> anyhow::Result<Option<f64>>,
) -> anyhow::Result<Vec<Native>> {
    let lab = Lab::new(true)?;
    let threads = 1..=lab.cpus.len().min(2) as u64;
    let rigs = Discipline::ALL.iter().copied().flat_map(|discipline| {
        threads.clone().map(move |threads| Rig::new(discipline, Queue::Text(QDISC.into()), threads, 1))
    });
    // Between the CPUs of the first two senders.
    let way = || match lab.cpus[..] {
        [a, b, ..] => way(a, b),
        _ => Ok(None),
    };
    let key = || Key { suite: "crowd", qdisc: Some(QDISC.into()), ..Key::default() };
    let cases: Vec<Case> = rigs.map(|rig| case(key(), rig)).collect();
    let mut points: Vec<Vec<Point>> = vec![Vec::with_capacity(repeat); cases.len()];
    let mut turns = Turns::new(quiet, cases.len() * repeat);
    'all: for _ in 0..repeat {
        for (case, points) in cases.iter().zip(&mut points) {
            turns.next(&case.key);
            let before = way()?;
            let sample = (case.run)(&lab, time)?;
            let after = way()?;
            if lab.signals.seen().is_some() {
                break 'all;
            }
            if let Some((ns_per_packet, cpu_ns_per_packet)) =
                sample.ns_per_packet.zip(sample.cpu_ns_per_packet)
            {
                let line_ns = before.zip(after).map(|(before, after)| (before + after) / 2.0);
                points.push(Point { ns_per_packet, cpu_ns_per_packet, line_ns });
            }
        }
    }
    turns.end();
    let rows = cases.iter().zip(points).map(|(case, mut points)| {
        points.sort_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
        let discipline = case.key.discipline.unwrap_or_default();
        Native { discipline, threads: case.key.threads, points }
    });
    Ok(rows.filter(|row| !row.points.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A busy machine may not let the senders send in so short a time; then a row or a point is missing.
    #[test]
    fn every_discipline_is_measured_with_one_sender_and_with_two() {
        let rows = native(Duration::from_millis(10), 3, true, |_, _| Ok(Some(50.0))).unwrap();
        let cpus = std::thread::available_parallelism().unwrap().get().min(2);
        let each = |&discipline| (1..=cpus as u64).map(move |threads| (discipline, threads));
        let mut all = Discipline::ALL.iter().flat_map(each);
        for row in &rows {
            let of = (row.discipline, row.threads);
            assert!(all.any(|expected| expected == of), "{of:?} is unknown or out of order: {rows:?}");
            assert!((1..=3).contains(&row.points.len()), "{row:?}");
            assert!(row.points.is_sorted_by_key(|point| point.ns_per_packet));
            assert_eq!(row.median(), &row.points[row.points.len() / 2]);
            for point in &row.points {
                assert!(point.ns_per_packet > 1.0 && point.cpu_ns_per_packet > 1.0, "{row:?}");
                assert_eq!(point.line_ns, (cpus > 1).then_some(50.0), "{row:?}");
            }
        }
    }
}
