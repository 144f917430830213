//! The coupled dual queue: RFC 9332.

use std::time::Duration;

use super::bench::{Bench, Left, Ms};
use super::report::{Case, Level, Report, Runner};
use super::{Ecn, Nanos, Queue, nanos};

/// The parameters of a coupled dual queue. Write `..DualQ::default()` last: a later version may have more fields.
///
/// The queue holds 5000 packets of `mtu` bytes on a link of a packet each 100 us (120 Mbit/s with 1500 bytes).
#[derive(Clone, Copy, Debug)]
pub struct DualQ {
    /// The coupling factor k.
    pub coupling: f64,
    /// The delay that the classic AQM aims at.
    pub target: Duration,
    /// The delay from which the L queue's own AQM marks all packets; at least 400 us.
    pub step: Duration,
    /// The least share of the C queue while both queues have packets, from 0 to 1.
    pub classic_share: f64,
    /// The length of the packets, in bytes.
    pub mtu: u32,
}

impl Default for DualQ {
    /// Factor 2, 15 ms, 1 ms, a sixteenth, and 1500 bytes.
    fn default() -> Self {
        let (target, step) = (Duration::from_millis(15), Duration::from_millis(1));
        Self { coupling: 2.0, target, step, classic_share: 1.0 / 16.0, mtu: 1500 }
    }
}

const CLASSIFIER: Case = (
    "classifier",
    "RFC 9332, 2.3; RFC 9331, 5.1",
    Level::Must,
    "ECT(1) and CE join the L queue and overtake the C queue; ECT(0) and Not-ECT do not",
);
const PRIORITY: Case =
    ("priority", "RFC 9332, 2.5.1", Level::Must, "an L packet is served before the packets of the C queue");
const STARVATION: Case = (
    "starvation",
    "RFC 9332, 2.5.1 and 4.2.2",
    Level::Must,
    "the priority is bounded: the C queue has its share under a backlog of the L queue",
);
const COUPLING: Case = (
    "coupling",
    "RFC 9332, 2.5.1",
    Level::Must,
    "the L queue is marked with no less than k times the root of the C queue's probability",
);
const SQUARE: Case = (
    "square",
    "RFC 9332, 2.4",
    Level::Text,
    "p_C is the square of p' where p_CL is k*p': both give the same p', within 15 %",
);
const CLASSIC_ECN: Case = (
    "classic ecn",
    "RFC 9332, 2.1 and 2.4",
    Level::Text,
    "ECT(0) packets are marked with p_C, and not dropped, below overload",
);
const STEP: Case = (
    "step",
    "RFC 9332, 2.5.1 and A.1",
    Level::Example,
    "the L queue marks by itself, all packets above its threshold, without a C queue",
);
const NO_STEP: Case = (
    "below step",
    "RFC 9332, A.1",
    Level::Example,
    "the L queue marks nothing below half its threshold while the C queue is empty",
);
const L_OVERLOAD: Case = (
    "overload of L",
    "RFC 9332, 4.2.3 and A.2",
    Level::Example,
    "ECT(1) at 1.5 times the rate is dropped, and waits no longer than twice the target",
);
const C_OVERLOAD: Case = (
    "overload of C",
    "RFC 9332, 4.2.3.1 and A.2",
    Level::Example,
    "ECT(0) at 1.5 times the rate is dropped, not only marked, and waits no longer than twice the target",
);
const L_LATENCY: Case = (
    "latency of L",
    "RFC 9332, 4.2",
    Level::Text,
    "an L packet waits at most the threshold while Not-ECT packets come at 1.5 times the rate",
);

const GAP: Nanos = 100_000;
const SECOND: Nanos = 1_000_000_000;
/// The flows of the C queue and of the L queue.
const C: u64 = 1;
const L: u64 = 2;

/// Runs the cases of RFC 9332. `build` returns a new queue for each.
///
/// The probabilities are measured over 80,000 packets; the ratio has a standard error of 2 %.
///
/// # Panics
/// A `step` below 400 us.
pub fn rfc9332<Q: Queue>(dualq: &DualQ, build: impl FnMut() -> Q) -> Report {
    let DualQ { coupling, target, step, classic_share, mtu } = *dualq;
    let (target, step) = (nanos(target), nanos(step));
    assert!(step >= 4 * GAP, "the step is at least 400 us");
    let mut runner = Runner::new(build);

    let places = [Ecn::Ect1, Ecn::Ce, Ecn::Ect0, Ecn::NotEct].map(|ecn| {
        runner.run(|bench| {
            bench.fill(C, 10, mtu, Ecn::NotEct);
            let number = bench.send(L, mtu, ecn);
            bench.drain();
            bench.left.iter().position(|left| left.packet.number == number)
        })
    });
    let passed = matches!(places, [Some(0..=1), Some(0..=1), Some(10), Some(10)]);
    let [ect1, ce, ect0, not_ect] = places.map(|place| place.map_or("never".into(), |n| n.to_string()));
    let measured = format!("packets before ECT(1) {ect1}, CE {ce}, ECT(0) {ect0}, Not-ECT {not_ect}, of 10");
    runner.add(CLASSIFIER, passed, measured);

    let (coupled, longest) = runner.run(|bench| {
        let coupled = coupled(bench, dualq, Ecn::NotEct);
        let waits = bench.left.iter().filter(|left| left.packet.flow == L).map(|left| left.waited);
        (coupled, waits.max().unwrap_or(Nanos::MAX))
    });
    let measured = format!("{} at most beside a backlog, {} for a packet", Ms::of(longest), Ms::of(GAP));
    runner.add(PRIORITY, longest <= 3 * GAP, measured);

    runner.case(STARVATION, |bench| {
        bench.serve(GAP, SECOND, |bench| {
            bench.fill(L, 20, mtu, Ecn::Ect1);
            bench.fill(C, 20, mtu, Ecn::NotEct);
        });
        let classic = bench.left.iter().filter(|left| left.packet.flow == C).count();
        let share = classic as f64 / bench.left.len().max(1) as f64;
        let passed = share >= 0.8 * classic_share && share <= 0.5;
        (passed, format!("{:.1} % for the C queue, {:.1} % expected", share * 100.0, classic_share * 100.0))
    });

    let Coupled { from_l, from_c, .. } = coupled;
    let ratio = (from_l / from_c).sqrt();
    let measured = format!(
        "p' is {:.4} by marks of L, {:.4} by drops of C: the ratio is {ratio:.3}",
        from_l.max(0.0).sqrt(),
        from_c.sqrt(),
    );
    runner.add(COUPLING, from_c > 0.005 && ratio >= 0.85, measured.clone());
    runner.add(SQUARE, from_c > 0.005 && (0.85..=1.15).contains(&ratio), measured);

    runner.case(CLASSIC_ECN, |bench| {
        let Coupled { from_l, from_c, lost } = self::coupled(bench, dualq, Ecn::Ect0);
        let ratio = (from_l / from_c).sqrt();
        let passed = lost == 0 && from_c > 0.005 && (0.85..=1.15).contains(&ratio);
        let [l, c] = [from_l.max(0.0), from_c].map(f64::sqrt);
        (passed, format!("p' is {l:.4} by marks of L, {c:.4} by marks of C; {lost} packets lost"))
    });

    for (case, packets) in [(STEP, 4 * step / GAP), (NO_STEP, 2 * step / GAP / 5)] {
        runner.case(case, |bench| {
            bench.serve(GAP, SECOND / 2, |bench| bench.fill(L, packets as usize, mtu, Ecn::Ect1));
            let is_above = packets * GAP > step;
            let counted = bench.left.iter().filter(|left| !is_above || left.waited > 2 * step);
            let (all, marked) =
                counted.fold((0, 0), |(all, marked), left| (all + 1, marked + i32::from(left.marked)));
            let passed = if is_above { all > 1000 && marked * 20 >= all * 19 } else { marked == 0 };
            let wait = Ms::of(packets * GAP);
            (passed, format!("{marked} of {all} packets marked that waited {wait}"))
        });
    }

    for (case, flow, ecn) in [(L_OVERLOAD, L, Ecn::Ect1), (C_OVERLOAD, C, Ecn::Ect0)] {
        runner.case(case, |bench| {
            overload(bench, flow, mtu, ecn, false);
            let late = late(bench);
            let wait = late.iter().map(|left| left.waited).sum::<Nanos>() / late.len().max(1) as Nanos;
            let from = bench.now / 2;
            let lost = bench.lost.iter().filter(|lost| lost.at > from).count();
            let passed = !late.is_empty() && lost * 10 > late.len() && wait <= 2 * target;
            let marked = late.iter().filter(|left| left.marked).count();
            let (wait, all) = (Ms::of(wait), lost + late.len());
            (passed, format!("{lost} of {all} packets lost, {marked} marked, a mean wait of {wait}"))
        });
    }

    runner.case(L_LATENCY, |bench| {
        overload(bench, C, mtu, Ecn::NotEct, true);
        let waits = late(bench).into_iter().filter(|left| left.packet.flow == L).map(|left| left.waited);
        let longest = waits.max();
        let measured = longest.map_or("no L packet left".into(), |wait| format!("{} at most", Ms::of(wait)));
        (longest.is_some_and(|wait| wait <= step), measured)
    });

    let (target, step) = (Ms::of(target), Ms::of(step));
    runner.finish(format!("RFC 9332, coupled dual queue, k {coupling}, target {target}, step {step}"))
}

/// Estimates of the square of the base probability p'.
struct Coupled {
    /// By the marks of the L queue.
    from_l: f64,
    /// By the drops or marks of the C queue.
    from_c: f64,
    /// Packets lost.
    lost: usize,
}

/// Windows of 100 ms in which probabilities are measured, and the packet times of a window.
const WINDOWS: u64 = 80;
const SLOTS: u64 = 1000;

/// Keeps a C queue whose AQM signals moderately, and sends an L packet at each second packet time.
///
/// The C queue is long while the L queue's marks are few, and short while they are many. The probability changes over time, and the
/// mean of a square is not the square of a mean: so squares are taken within each window, less the variance of a sample.
fn coupled<Q: Queue>(bench: &mut Bench<Q>, dualq: &DualQ, classic: Ecn) -> Coupled {
    let long = (2 * nanos(dualq.target) / (2 * GAP)) as usize;
    let (mut goal, mut packets, mut slot) = (long, 10, 0_u64);
    let (mut squares, mut signals, mut arrivals) = (0.0, 0, 0);
    for _ in 0..WINDOWS {
        let (left, lost) = (bench.left.len(), bench.lost.len());
        bench.serve(GAP, SLOTS * GAP, |bench| {
            bench.fill(C, packets, dualq.mtu, classic);
            slot += 1;
            if slot.is_multiple_of(2) {
                bench.fill(L, 1, dualq.mtu, Ecn::Ect1);
                // Slowly, so that a queue that decides at enqueue does not decide about many packets at one time.
                packets = goal.min(packets + 1);
            }
        });
        let count = |flow: u64, signalled: bool| {
            let of = bench.left[left..].iter().filter(|left| left.packet.flow == flow);
            of.filter(|left| !signalled || left.marked).count()
        };
        let drops = bench.lost[lost..].iter().filter(|lost| lost.packet.flow == C).count();
        signals += drops + count(C, true);
        arrivals += drops + count(C, false);
        let (all, marked) = (count(L, false).max(2) as f64, count(L, true) as f64);
        let rate = marked / all;
        squares += rate * rate - rate * (1.0 - rate) / (all - 1.0);
        if rate < 0.3 {
            goal = long;
        } else if rate > 0.45 {
            goal = 10;
        }
    }
    let from_l = squares / WINDOWS as f64 / dualq.coupling.powi(2);
    Coupled { from_l, from_c: signals as f64 / arrivals.max(1) as f64, lost: bench.lost.len() }
}

/// Sends packets that do not respond at 1.5 times the link's rate for 6 seconds, and with `sparse` an L packet each 2 ms.
fn overload<Q: Queue>(bench: &mut Bench<Q>, flow: u64, mtu: u32, ecn: Ecn, sparse: bool) {
    let mut slot = 0_u64;
    bench.serve(GAP, 6 * SECOND, |bench| {
        slot += 1;
        (0..1 + slot % 2).for_each(|_| _ = bench.send(flow, mtu, ecn));
        if sparse && slot.is_multiple_of(20) {
            bench.send(L, mtu, Ecn::Ect1);
        }
    });
}

/// Returns the packets that left in the second half of the time.
fn late<Q>(bench: &Bench<Q>) -> Vec<&Left> {
    bench.left.iter().filter(|left| left.at > bench.now / 2).collect()
}
