//! CoDel: RFC 8289.

use std::time::Duration;

use super::bench::{Bench, Ms};
use super::report::{Case, Level, Report, Runner};
use super::{Ecn, Nanos, Queue, nanos};

/// The parameters of a queue with CoDel. Write `..Codel::default()` last: a later version may have more fields.
///
/// The queue holds 250 packets of `mtu` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Codel {
    /// TARGET.
    pub target: Duration,
    /// INTERVAL.
    pub interval: Duration,
    /// The longest packet, in bytes.
    pub mtu: u32,
    /// Whether the queue marks ECN-capable packets. Without it, no case sends such packets.
    pub ecn: bool,
}

impl Default for Codel {
    /// 5 ms, 100 ms, 1500 bytes, and marks.
    fn default() -> Self {
        let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
        Self { target, interval, mtu: 1500, ecn: true }
    }
}

const BELOW_TARGET: Case =
    ("below target", "RFC 8289, 3.2 and 5.6", Level::Text, "no drop while packets wait less than TARGET");
const FIRST_INTERVAL: Case = (
    "first interval",
    "RFC 8289, 3.1 and 5.6",
    Level::Text,
    "no drop until packets have waited TARGET or longer for INTERVAL",
);
const SCHEDULE: Case = (
    "schedule",
    "RFC 8289, 3.3 and 5.5",
    Level::Text,
    "the first drop after INTERVAL, drop n+1 INTERVAL/sqrt(n) after drop n, within a packet time",
);
const AT_DEQUEUE: Case = (
    "at dequeue",
    "RFC 8289, 3.1 and 5.5",
    Level::Text,
    "packets are dropped when they leave: a burst loses some although no other packet arrives",
);
const LEAVES: Case = (
    "leaves",
    "RFC 8289, 4.1 and 5.5",
    Level::Text,
    "a packet that waited less than TARGET ends the dropping state: no drop until another INTERVAL",
);
const LAST_MTU: Case = (
    "last mtu",
    "RFC 8289, 4.2",
    Level::Should,
    "no drop with less than an MTU behind the packet, however long it waited",
);
const RESUME: Case = (
    "resume",
    "RFC 8289, 5.5",
    Level::Text,
    "a dropping state soon after the last one, of n drops, resumes near its rate: INTERVAL/sqrt(n-1), within 25 %",
);
const RESTART: Case = (
    "restart",
    "RFC 8289, 5.5",
    Level::Text,
    "a dropping state more than 16 INTERVALs after the last one starts anew: INTERVAL between two drops",
);
const ECN: Case = (
    "ecn",
    "RFC 8290, 5.2.6",
    Level::Text,
    "ECN-capable packets are marked at the times of the schedule, and none is dropped",
);

/// Drops of the schedule that are compared.
const DROPS: usize = 24;

/// Runs the cases of RFC 8289. `build` returns a new queue for each.
///
/// # Panics
/// A `target` below 1 us, or above a quarter of the `interval`.
pub fn rfc8289<Q: Queue>(codel: &Codel, build: impl FnMut() -> Q) -> Report {
    let Codel { target, interval, mtu, ecn } = *codel;
    let (target, interval) = (nanos(target), nanos(interval));
    assert!(target >= 1000 && target <= interval / 4, "TARGET is from 1 us to a quarter of INTERVAL");
    let load = Load { gap: target / 25, mtu };
    let mut runner = Runner::new(build);
    runner.case(BELOW_TARGET, |bench| {
        load.hold(bench, BELOW, 10 * interval, Ecn::NotEct);
        (bench.lost.is_empty(), format!("{} of {} packets lost", bench.lost.len(), bench.left.len()))
    });

    let (first, drops, above) = runner.run(|bench| {
        load.hold(bench, ABOVE, 14 * interval, Ecn::NotEct);
        let drops: Vec<_> = bench.lost.iter().map(|lost| lost.at).collect();
        (drops.first().copied(), drops, first_above(bench, target, 0))
    });
    let (passed, measured) = match (first, above) {
        (Some(first), Some(above)) => {
            let early = first < above + interval;
            (!early, format!("the first drop after {}", Ms::between(above, first)))
        }
        _ => (true, "no drop".to_owned()),
    };
    runner.add(FIRST_INTERVAL, passed, measured);
    let (passed, measured) = load.compare(&drops, above, interval);
    runner.add(SCHEDULE, passed, measured);

    runner.case(AT_DEQUEUE, |bench| {
        bench.fill(1, 250, mtu, Ecn::NotEct);
        bench.serve(interval / 50, 5 * interval, |_| {});
        bench.drain();
        (bench.lost.len() >= 3, format!("{} of 250 packets lost", bench.lost.len()))
    });

    runner.case(LEAVES, |bench| {
        load.hold(bench, ABOVE, 5 * interval, Ecn::NotEct);
        let before = bench.lost.len();
        let below = load.relax(bench, interval / 2, target);
        let from = bench.left.len();
        load.hold(bench, ABOVE, 2 * interval, Ecn::NotEct);
        let (Some(below), Some(above)) = (below, first_above(bench, target, from)) else {
            return (false, "the queue is not FIFO".to_owned());
        };
        let early = |at: Nanos| at > below && at < above + interval;
        let early = bench.lost.iter().filter(|lost| early(lost.at)).count();
        (before > 0 && early == 0, format!("{before} drops before, {early} within the INTERVAL after"))
    });

    runner.case(LAST_MTU, |bench| {
        bench.serve(4 * target, 20 * interval, |bench| bench.fill(1, 2, mtu / 2, Ecn::NotEct));
        let (lost, left) = (bench.lost.len(), bench.left.len());
        (lost == 0, format!("{lost} of {left} packets lost"))
    });

    for (case, pause) in [(RESUME, interval / 2), (RESTART, 40 * interval)] {
        runner.case(case, |bench| {
            load.hold(bench, ABOVE, 12 * interval, Ecn::NotEct);
            let below = load.relax(bench, pause, target).unwrap_or(bench.now);
            load.hold(bench, ABOVE, 3 * interval, Ecn::NotEct);
            let (before, after): (Vec<_>, Vec<_>) =
                bench.lost.iter().map(|lost| lost.at).partition(|&at| at <= below);
            let [first, second, ..] = after[..] else {
                return (false, format!("{} drops before, {} after", before.len(), after.len()));
            };
            let measured = second - first;
            let expected = if pause > interval {
                interval
            } else {
                (interval as f64 / (before.len().saturating_sub(1) as f64).max(1.0).sqrt()) as Nanos
            };
            let passed = before.len() >= 3 && measured.abs_diff(expected) <= expected / 4 + load.gap;
            let (from, to) = (Ms::of(measured), Ms::of(expected));
            (passed, format!("{from} between two drops, {to} expected after {} drops", before.len()))
        });
    }

    if ecn {
        runner.case(ECN, |bench| {
            load.hold(bench, ABOVE, 14 * interval, Ecn::Ect0);
            let marks: Vec<_> = bench.left.iter().filter(|left| left.marked).map(|left| left.at).collect();
            let (passed, measured) = load.compare(&marks, first_above(bench, target, 0), interval);
            (passed && bench.lost.is_empty(), format!("{} packets lost; {measured}", bench.lost.len()))
        });
    }
    let (target, interval) = (Ms::of(target), Ms::of(interval));
    runner.finish(format!("RFC 8289, CoDel, target {target}, interval {interval}, MTU {mtu} bytes"))
}

/// Packets in the queue with which a packet waits 0.8 and 4 times TARGET.
const BELOW: usize = 20;
const ABOVE: usize = 100;

/// A standing load of one flow.
struct Load {
    /// A packet's time on the link: a 25th of TARGET.
    gap: Nanos,
    mtu: u32,
}

impl Load {
    /// Keeps `packets` packets in the queue for `time`.
    fn hold<Q: Queue>(&self, bench: &mut Bench<Q>, packets: usize, time: Nanos, ecn: Ecn) {
        bench.serve(self.gap, time, |bench| bench.fill(1, packets, self.mtu, ecn));
    }

    /// Shortens the queue until packets wait less than TARGET, and for `time` more. Returns when the first one left that did.
    fn relax<Q: Queue>(&self, bench: &mut Bench<Q>, time: Nanos, target: Nanos) -> Option<Nanos> {
        let from = bench.left.len();
        self.hold(bench, BELOW, 2 * ABOVE as Nanos * self.gap + time, Ecn::NotEct);
        bench.left[from..].iter().find(|left| left.waited < target).map(|left| left.at)
    }

    /// Compares times with CoDel's schedule. The first one is due an `interval` after `above`; each further one depends on the first.
    /// A time is right if it is the packet time in which the drop is due.
    fn compare(&self, times: &[Nanos], above: Option<Nanos>, interval: Nanos) -> (bool, String) {
        let (Some(above), Some(&first)) = (above, times.first()) else {
            return (false, "no drop".to_owned());
        };
        let latest = Ms::between(above + interval, first);
        if first > above + interval + self.gap {
            return (false, format!("the first one {latest} late"));
        }
        let mut due = first as f64;
        for (number, &time) in times.iter().enumerate().take(DROPS).skip(1) {
            due += interval as f64 / (number as f64).sqrt();
            let late = time as f64 - due;
            // A microsecond for a root in integers.
            if late < -1000.0 || late > self.gap as f64 + 1000.0 {
                return (false, format!("number {} is {} late", number + 1, Ms(late / 1e6)));
            }
        }
        let compared = times.len().min(DROPS);
        (compared == DROPS, format!("{compared} in time, to {}", Ms::of(self.gap)))
    }
}

/// Returns when the first packet left, from number `from` of those that left, that waited TARGET or longer.
fn first_above<Q>(bench: &Bench<Q>, target: Nanos, from: usize) -> Option<Nanos> {
    bench.left[from..].iter().find(|left| left.waited >= target).map(|left| left.at)
}
