//! A configuration, its key in the reports, and its results.

use std::time::Duration;

use serde_json::{Value, json};
use txq::Discipline;

use super::cpu::Used;
use super::lab::Lab;
use super::overload::{Load, Target};

/// Identifies a result. A field that does not apply is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Key {
    pub(super) suite: &'static str,
    /// Which of the works that are compared side by side; only in `peers`.
    pub(super) shape: Option<&'static str>,
    /// The enqueue discipline.
    pub(super) discipline: Option<Discipline>,
    pub(super) qdisc: Option<String>,
    /// How buffers freed elsewhere return to their home.
    pub(super) pool: Option<&'static str>,
    /// How packets find their txq.
    pub(super) steering: Option<&'static str>,
    /// The program that does the work, if not txq.
    pub(super) peer: Option<String>,
    pub(super) threads: u64,
    pub(super) batch: u64,
    /// The offered load; only in `overload`, and not where a peak is measured.
    pub(super) load: Option<Load>,
    /// Flows of all senders together; only in `crowd`, `overload` and `qdisc`.
    pub(super) flows: Option<u64>,
    /// How long a worker spins on the clock before a deadline, in microseconds; only in `timing`.
    pub(super) spin_us: Option<u64>,
    /// When completions come, bytes of a packet, and whether bytes in flight are limited; only in `bql`.
    pub(super) late: Option<Late>,
    pub(super) bytes: Option<u64>,
    pub(super) limited: Option<bool>,
    /// The device, where a suite varies it: only in `overload` with `--rate`, and in the crowded rows of `xps`.
    pub(super) target: Option<Target>,
}

/// When a device completes packets after the wire has sent them, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    /// Completes together at multiples of this time; 0: each packet by itself.
    pub(super) together: u64,
    /// Completes this long after the wire.
    pub(super) by: u64,
}

impl Key {
    /// Returns the text that tells this result from the others of its table.
    pub(super) fn subject(&self) -> String {
        if let Some(peer) = &self.peer {
            return peer.clone();
        }
        let discipline = self.discipline.map_or("", Discipline::name);
        match self.suite {
            "path" => format!("{} {discipline}", self.qdisc.as_deref().unwrap_or_default()),
            super::rate::RATE => format!("{} {discipline}", self.qdisc.as_deref().unwrap_or_default()),
            super::PEERS => format!("txq {}", self.pool.unwrap_or(discipline)),
            _ => match self.pool.or(self.steering) {
                Some(what) => format!("{what} {discipline}"),
                None => discipline.to_owned(),
            },
        }
    }

    /// Returns the table that the result belongs to.
    pub(super) fn table(&self) -> Table {
        // The qdisc does not tell tables apart where rows differ in it, or where peers have none.
        let by_qdisc = self.suite != "path"
            && self.suite != super::rate::RATE
            && (self.suite != super::PEERS || self.shape == Some("kernel"));
        let qdisc = self.qdisc.clone().filter(|_| by_qdisc);
        // Where links are finite, flows vary with the threads and tell no tables apart.
        let flows = self.flows.filter(|_| self.target.is_none());
        Table { suite: self.suite, shape: self.shape, qdisc, flows, load: self.load, target: self.target }
    }

    /// Returns the offered load or the device in words; empty where neither varies.
    pub(super) fn demand(&self) -> String {
        demand(self.suite, self.flows, self.load, self.target)
    }
}

/// The key of a table: results that are compared with each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub(super) suite: &'static str,
    pub(super) shape: Option<&'static str>,
    pub(super) qdisc: Option<String>,
    pub(super) flows: Option<u64>,
    pub(super) load: Option<Load>,
    pub(super) target: Option<Target>,
}

impl Table {
    /// As [`Key::demand`].
    pub(super) fn demand(&self) -> String {
        demand(self.suite, self.flows, self.load, self.target)
    }
}

fn demand(suite: &str, flows: Option<u64>, load: Option<Load>, target: Option<Target>) -> String {
    if let Some(target) = target {
        return format!(", {target}");
    }
    let Some(flows) = flows else { return String::new() };
    let unit = if flows == 1 { "flow" } else { "flows" };
    let load = match load {
        Some(load) => format!(", {load}"),
        None if suite == super::overload::OVERLOAD => ", the peak".into(),
        None => String::new(),
    };
    format!(", {flows} {unit}{load}")
}

/// The figures of one measurement. Times are `None` where nothing was sent, or where they are not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) mpps: f64,
    /// Wall time per packet; for `free`, the time of the call that frees, per packet.
    pub(super) ns_per_packet: Option<f64>,
    pub(super) cpu_ns_per_packet: Option<f64>,
    /// As [`Used::waited`].
    pub(super) waited: Option<f64>,
    pub(super) worst_stall_us: Option<f64>,
    pub(super) worst_xmit_us: Option<f64>,
    pub(super) p99_ns: Option<f64>,
    /// Share of the packets handed in that were dropped.
    pub(super) dropped: Option<f64>,
    /// Packets sent, as a share of the capacity of the links or of the shaper above them; only where links are finite. In
    /// `bql` the share of the offered packets.
    pub(super) share: Option<f64>,
    /// Packets handed in, in millions per second, where senders offer at a fixed rate.
    pub(super) offered_mpps: Option<f64>,
    /// The longest call of xmit of the flooding senders; only in `isolation`, where `worst_xmit_us` is the probe's.
    pub(super) worst_flood_us: Option<f64>,
    /// How late packets left: in `timing` those with a departure time, in `isolation` the probe's. `p99_ns` is of the same
    /// packets there.
    pub(super) p50_ns: Option<f64>,
    pub(super) max_ns: Option<f64>,
    /// How far the sent rate exceeds the configured one, as a fraction of it; only in `timing` and `rate`.
    pub(super) rate_error: Option<f64>,
    /// CPU time of all threads per wall time; only in `timing`.
    pub(super) cpu_share: Option<f64>,
    /// Most calls of xmit of a sender per fewest of a sender; infinite where one made none. `None` with one sender, and
    /// where senders offer at a fixed rate.
    pub(super) unequal: Option<f64>,
    /// Memory of the qdisc per flow; only in `qdisc`, where there are many flows.
    pub(super) bytes_per_flow: Option<f64>,
    /// Bytes in flight on average, their limit at the end, and the bytes that the link needs in flight; only in `bql`.
    pub(super) in_flight_bytes: Option<f64>,
    pub(super) limit_bytes: Option<f64>,
    pub(super) needed_bytes: Option<f64>,
}

impl Sample {
    /// Computes the figures of `packets` packets that left in `wall`, with the CPU time used meanwhile.
    pub(super) fn of(packets: u64, wall: Duration, used: Used) -> Self {
        let by_packet = |time: Duration| (packets > 0).then(|| time.as_secs_f64() * 1e9 / packets as f64);
        Self {
            mpps: packets as f64 / wall.as_secs_f64() / 1e6,
            ns_per_packet: by_packet(wall),
            cpu_ns_per_packet: by_packet(used.cpu),
            waited: used.waited,
            ..Self::default()
        }
    }
}

/// A function that measures for the given time.
type Run = dyn Fn(&Lab, Duration) -> anyhow::Result<Sample>;

/// One configuration.
pub(super) struct Case {
    pub(super) key: Key,
    pub(super) run: Box<Run>,
}

/// A configuration's result, over all repetitions.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    /// The medians; of stalls the longest.
    pub(super) sample: Sample,
    /// The slowest and the fastest repetition, in Mpps.
    pub(super) spread: (f64, f64),
    pub(super) repeats: usize,
}

impl Row {
    /// Computes the row of all repetitions; `None` without samples.
    pub(super) fn of(key: Key, samples: &[Sample]) -> Option<Self> {
        let all = |number: fn(&Sample) -> Option<f64>| {
            let mut numbers: Vec<f64> = samples.iter().filter_map(number).collect();
            numbers.sort_by(f64::total_cmp);
            numbers
        };
        let longest = |number| all(number).last().copied();
        let mpps = all(|s| Some(s.mpps));
        let sample = Sample {
            mpps: median(&mpps)?,
            ns_per_packet: median(&all(|s| s.ns_per_packet)),
            cpu_ns_per_packet: median(&all(|s| s.cpu_ns_per_packet)),
            waited: median(&all(|s| s.waited)),
            worst_stall_us: longest(|s| s.worst_stall_us),
            worst_xmit_us: longest(|s| s.worst_xmit_us),
            worst_flood_us: longest(|s| s.worst_flood_us),
            p99_ns: median(&all(|s| s.p99_ns)),
            dropped: median(&all(|s| s.dropped)),
            share: median(&all(|s| s.share)),
            offered_mpps: median(&all(|s| s.offered_mpps)),
            p50_ns: median(&all(|s| s.p50_ns)),
            max_ns: longest(|s| s.max_ns),
            rate_error: median(&all(|s| s.rate_error)),
            cpu_share: median(&all(|s| s.cpu_share)),
            unequal: longest(|s| s.unequal),
            // A repetition reuses memory that the one before freed, so the largest value counts.
            bytes_per_flow: longest(|s| s.bytes_per_flow),
            in_flight_bytes: median(&all(|s| s.in_flight_bytes)),
            limit_bytes: median(&all(|s| s.limit_bytes)),
            needed_bytes: median(&all(|s| s.needed_bytes)),
        };
        Some(Self { key, sample, spread: (mpps[0], mpps[mpps.len() - 1]), repeats: samples.len() })
    }

    /// Returns the row as one JSON object, with the same keys in every suite.
    pub(super) fn json(&self) -> Value {
        let (key, s) = (&self.key, &self.sample);
        let mut row = json!({
            "suite": key.suite,
            "shape": key.shape,
            "discipline": key.discipline.map(Discipline::name),
            "qdisc": key.qdisc,
            "pool": key.pool,
            "steering": key.steering.or(key.target.map(|target| target.steering.name())),
            "peer": key.peer,
            "threads": key.threads,
            "batch": key.batch,
            "load": key.load.map(|load| load.0),
            "flows": key.flows,
            "link_bps": key.target.and_then(|target| target.rate),
            "txqs": key.target.map(|target| target.txqs),
            "ring": key.target.map(|target| target.ring),
            "root": key.target.map(|target| target.root.name()),
            "completions": key.target.map(|target| target.completions.name()),
            "share": s.share,
            "offered_mpps": s.offered_mpps,
            "mpps": s.mpps,
            "mpps_min": self.spread.0,
            "mpps_max": self.spread.1,
            "repeats": self.repeats,
            "ns_per_packet": s.ns_per_packet,
            "cpu_ns_per_packet": s.cpu_ns_per_packet,
            "worst_stall_us": s.worst_stall_us,
            "worst_xmit_us": s.worst_xmit_us,
            "worst_flood_us": s.worst_flood_us,
            "p99_ns": s.p99_ns,
            "dropped": s.dropped,
            "bytes_per_flow": s.bytes_per_flow,
            "spin_us": key.spin_us,
            "p50_ns": s.p50_ns,
            "max_ns": s.max_ns,
            "rate_error": s.rate_error,
            "cpu_share": s.cpu_share,
        });
        // A second macro call: with all keys, `json!` would exceed the recursion limit.
        let bql = json!({
            "coalesce_ns": key.late.map(|late| late.together),
            "delay_ns": key.late.map(|late| late.by),
            "bytes": key.bytes,
            "limited": key.limited,
            "in_flight_bytes": s.in_flight_bytes,
            "limit_bytes": s.limit_bytes,
            "needed_bytes": s.needed_bytes,
            "unequal": s.unequal,
            "waited": s.waited,
        });
        if let (Value::Object(row), Value::Object(bql)) = (&mut row, bql) {
            row.extend(bql);
        }
        row
    }
}

/// Returns the middle one of sorted numbers, or the mean of the two.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let above = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { above } else { (sorted[middle - 1] + above) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_and_the_longest_stall() {
        let sample = |mpps, stall| Sample { mpps, worst_stall_us: Some(stall), ..Sample::default() };
        let samples = [sample(9.0, 5.0), sample(1.0, 70.0), sample(4.0, 6.0), sample(5.0, 1.0)];
        let row = Row::of(Key::default(), &samples).unwrap();
        assert_eq!((row.sample.mpps, row.spread, row.repeats), (4.5, (1.0, 9.0), 4));
        assert_eq!((row.sample.worst_stall_us, row.sample.p99_ns), (Some(70.0), None));
        assert!(Row::of(Key::default(), &[]).is_none());
    }

    #[test]
    fn nothing_sent_is_no_time_per_packet() {
        let second = Duration::from_secs(1);
        let sample = Sample::of(0, second, second.into());
        assert_eq!((sample.mpps, sample.ns_per_packet, sample.cpu_ns_per_packet), (0.0, None, None));
        let sample = Sample::of(2_000_000, second, (second * 2).into());
        assert_eq!((sample.ns_per_packet, sample.cpu_ns_per_packet), (Some(500.0), Some(1000.0)));
    }
}
