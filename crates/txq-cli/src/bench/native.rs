//! What the simulator is compared with on this machine: the time of a packet, for each enqueue discipline, with one sender
//! and with two.
//!
//! It is the suite `crowd` with senders pinned to a CPU each: single packets of 120 bytes through one txq with a `pfifo`, a
//! device without a wire that completes at once, 128 packets of a sender on their way at most. With one sender that is also
//! the suite `path` with a batch of 1. `pfifo` is the qdisc that works least, so that what is left is the discipline itself.

use std::time::Duration;

use super::case::{Key, Row};
use super::lab::Lab;
use super::measure;
use super::plan::case;
use super::rig::{Queue, Rig};

/// The qdisc that is sent through.
const QDISC: &str = "pfifo";

/// What one discipline costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Native {
    pub(crate) discipline: String,
    /// Senders, each on a CPU of its own.
    pub(crate) threads: u64,
    /// Wall time by packets, the median of all repetitions.
    pub(crate) ns_per_packet: f64,
    /// CPU time of all threads by packets.
    pub(crate) cpu_ns_per_packet: f64,
    /// The fastest and the slowest repetition, in wall time by packets.
    pub(crate) spread: (f64, f64),
}

impl Native {
    /// `None` where nothing was sent.
    fn of(row: &Row) -> Option<Self> {
        let ns = |mpps: f64| 1e3 / mpps;
        Some(Self {
            discipline: row.key.discipline.clone()?,
            threads: row.key.threads,
            ns_per_packet: row.sample.ns_per_packet?,
            cpu_ns_per_packet: row.sample.cpu_ns_per_packet?,
            spread: (ns(row.spread.1), ns(row.spread.0)),
        })
    }
}

/// Measures all disciplines, each for `time` and `repeat` times: with one sender, and with two if there are two CPUs. A
/// signal ends it; what was measured by then is what comes out.
pub(crate) fn native(time: Duration, repeat: usize, quiet: bool) -> anyhow::Result<Vec<Native>> {
    let lab = Lab::new(true)?;
    let threads = 1..=lab.cpus.len().min(2) as u64;
    let rigs = txq::enqueue::names().into_iter().flat_map(|discipline| {
        threads.clone().map(move |threads| Rig::new(discipline, Queue::Text(QDISC.into()), threads, 1))
    });
    let key = || Key { suite: "crowd", qdisc: Some(QDISC.into()), ..Key::default() };
    let cases: Vec<_> = rigs.map(|rig| case(key(), rig)).collect();
    let rows = measure(quiet, repeat, &lab, &cases, time)?;
    Ok(rows.iter().filter_map(Native::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_discipline_is_measured_with_one_sender_and_with_two() {
        let rows = native(Duration::from_millis(10), 2, true).unwrap();
        let cpus = std::thread::available_parallelism().unwrap().get().min(2);
        let known = txq::enqueue::names();
        assert_eq!(rows.len(), known.len() * cpus);
        for (index, row) in rows.iter().enumerate() {
            assert_eq!(
                (row.discipline.as_str(), row.threads),
                (known[index / cpus], (index % cpus + 1) as u64)
            );
            let (fastest, slowest) = row.spread;
            assert!(row.ns_per_packet > 1.0 && row.cpu_ns_per_packet > 1.0, "{row:?}");
            assert!(fastest <= row.ns_per_packet * 1.001 && fastest <= slowest, "{row:?}");
        }
    }
}
