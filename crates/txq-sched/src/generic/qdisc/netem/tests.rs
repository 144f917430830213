//! netem in virtual time. Random results have fixed seeds, and bounds of 5 standard deviations.

use proptest::prelude::*;

use super::*;
use crate::generic::qdisc::timed::tests::{Bench, MS, conserves, ops, try_build};

mod copies;
mod text;

/// Sends packets of 100 bytes, one after the other, through a netem that loses some; returns which ones are lost.
fn losses(text: &str, n: usize) -> Vec<bool> {
    let mut bench = Bench::new(&format!("netem seed 7 {text}"));
    (0..n)
        .map(|_| {
            assert_eq!(bench.enqueue(100), Verdict::Success);
            bench.to_free = PacketList::new();
            bench.sent().is_empty()
        })
        .collect()
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (n, sum) = values.into_iter().fold((0.0, 0.0), |(n, sum), v| (n + 1.0, sum + v));
    sum / n
}

fn rate(lost: &[bool]) -> f64 {
    mean(lost.iter().map(|&lost| f64::from(u8::from(lost))))
}

/// Returns the share of losses that another loss follows.
fn again(lost: &[bool]) -> f64 {
    mean(lost.windows(2).filter(|w| w[0]).map(|w| f64::from(u8::from(w[1]))))
}

fn near(value: f64, expected: f64, within: f64) {
    assert!((value - expected).abs() <= within, "{value} is not {expected} +- {within}");
}

/// Returns the delays of packets that come one after the other, in milliseconds.
fn delays(text: &str, n: usize) -> Vec<f64> {
    let mut bench = Bench::new(&format!("netem seed 7 limit 100000 {text}"));
    (0..n)
        .map(|_| {
            let start = bench.now;
            let _ = bench.enqueue(100);
            let at = bench.run()[0].0;
            // The slot of the packet that has just left is over.
            bench.now += 1;
            (at - start) as f64 / MS as f64
        })
        .collect()
}

fn deviation(values: &[f64]) -> f64 {
    let m = mean(values.iter().copied());
    mean(values.iter().map(|v| (v - m).powi(2))).sqrt()
}

fn correlation(values: &[f64]) -> f64 {
    let m = mean(values.iter().copied());
    mean(values.windows(2).map(|w| (w[0] - m) * (w[1] - m))) / deviation(values).powi(2)
}

#[test]
fn without_parameters_it_is_a_fifo_with_a_limit() {
    let mut bench = Bench::new("netem limit 2");
    let verdicts = [bench.enqueue(100), bench.enqueue(100), bench.enqueue(100)];
    assert_eq!(verdicts, [Verdict::Success, Verdict::Success, Verdict::Drop]);
    assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 1);
    assert_eq!(bench.sent(), [0, 1]);
}

#[test]
fn a_delay_of_nanoseconds_is_exact() {
    let mut bench = Bench::new("netem delay 1234567ns");
    let start = bench.now;
    let _ = bench.enqueue(100);
    assert_eq!(bench.run(), [(start + 1_234_567, 0)]);
}

#[test]
fn a_delay_is_exact() {
    let mut bench = Bench::new("netem delay 10ms");
    let start = bench.now;
    let _ = bench.enqueue(100);
    bench.now += MS;
    let _ = bench.enqueue(100);
    bench.now = start + 10 * MS - 1;
    assert!(bench.sent().is_empty());
    assert_eq!(bench.qdisc.next_event(), Some(start + 10 * MS));
    assert_eq!(bench.run(), [(start + 10 * MS, 0), (start + 11 * MS, 1)]);
    assert_eq!(bench.counter("delayed"), 2);
}

/// The owner of a queue has read the clock before the owner that came first.
#[test]
fn a_packet_with_an_earlier_reading_of_the_clock_overtakes_none() {
    let mut bench = Bench::new("netem delay 10ms");
    for before in [0, MS, 2 * MS] {
        bench.now -= before;
        assert_eq!(bench.enqueue(100), Verdict::Success);
    }
    let numbers: Vec<u64> = bench.run().into_iter().map(|(_, number)| number).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn jitter_has_its_distribution() {
    const N: usize = 20_000;
    // The mean of N values deviates by 1/141 of their deviation.
    for (name, deviates) in [("uniform", 2.0 / 3.0_f64.sqrt()), ("normal", 2.0)] {
        let delays = delays(&format!("delay 20ms 2ms distribution {name}"), N);
        near(mean(delays.iter().copied()), 20.0, 5.0 * deviates / 141.0);
        near(deviation(&delays), deviates, 0.03 * deviates);
        near(correlation(&delays), 0.0, 5.0 / 141.0);
        let beyond = mean(delays.iter().map(|d| f64::from(u8::from((d - 20.0).abs() > 4.0))));
        near(beyond, if name == "normal" { 0.0455 } else { 0.0 }, 0.0075);
    }
    // Values beyond 4 deviations are cut, which lowers the mean a little.
    let pareto = delays("delay 20ms 2ms distribution pareto", N);
    near(mean(pareto.iter().copied()), 20.0, 0.15);
    let shortest = pareto.iter().copied().fold(f64::MAX, f64::min);
    near(shortest, 20.0 - 2.0 * 0.5 * 4.0 / 3.0, 0.01);
    let mut sorted = pareto;
    sorted.sort_by(f64::total_cmp);
    near(sorted[N / 2], 20.0 + 2.0 * (2.0_f64.cbrt() - 1.5) * 4.0 / 3.0, 0.03);
    // The cut at 4 comes before the 99th percentile; iproute2's table has a deviation of 0.82.
    near(sorted[N * 99 / 100], 28.0, 0.01);
    near(deviation(&sorted), 2.0 * 0.82, 0.06);
    let both = delays("delay 20ms 2ms distribution paretonormal", N);
    near(mean(both.iter().copied()), 20.0, 0.15);
    // That of iproute2's table.
    near(deviation(&both), 2.0 * 0.834, 0.06);
}

#[test]
fn correlation_reaches_the_delay_and_leaves_its_spread() {
    let delays = delays("delay 20ms 2ms 50% distribution normal", 20_000);
    near(correlation(&delays), 0.5, 0.04);
    near(mean(delays.iter().copied()), 20.0, 0.15);
    near(deviation(&delays), 2.0, 0.1);
}

#[test]
fn no_delay_is_below_0() {
    let delays = delays("delay 1ms 50ms distribution normal", 2000);
    let at_once = delays.iter().filter(|&&d| d == 0.0).count();
    near(at_once as f64 / 2000.0, 0.49, 0.06);
}

#[test]
fn losses_are_as_often_as_said() {
    const N: usize = 100_000;
    for (text, lost, follows) in [
        ("loss 10%", 0.1, 0.1),
        // With correlation c a loss follows a loss with the chance c + (1 - c) p. The share of losses stays the same.
        ("loss random 10% 25%", 0.1, 0.325),
        ("loss state 10%", 0.1, 0.1),
        ("loss state 5% 45%", 0.1, 0.55),
        // Losses alone: p14 / (1 + p14), and never two in a row.
        ("loss state 0% 100% 0% 100% 10%", 0.1 / 1.1, 0.0),
        // Of the four states, Pi 3 = p13 / (p13 + p31 + p13 p32 / p23).
        ("loss state 10% 30% 20% 40%", 0.1 / (0.1 + 0.3 + 0.1 * 0.2 / 0.4), 0.5),
        ("loss gemodel 10%", 0.1, 0.1),
        ("loss gemodel 5% 45%", 0.1, 0.55),
        // A tenth of the time it is bad: 0.1 * 0.7 + 0.9 * 0.01.
        (
            "loss gemodel 5% 45% 70% 1%",
            0.079,
            (0.07 * (0.55 * 0.7 + 0.45 * 0.01) + 0.009 * (0.05 * 0.7 + 0.95 * 0.01)) / 0.079,
        ),
    ] {
        let losses = losses(text, N);
        near(rate(&losses), lost, 0.01);
        near(again(&losses), follows, 0.025);
    }
    assert_eq!(rate(&losses("loss 100%", 1000)), 1.0);
    assert_eq!(rate(&losses("loss 0%", 1000)), 0.0);
}

#[test]
fn a_lost_packet_is_dropped_and_counted() {
    let mut bench = Bench::new("netem loss 100%");
    assert_eq!(bench.enqueue(100), Verdict::Success);
    assert_eq!((bench.qdisc.stats().drops, bench.counter("dropped"), bench.qdisc.qlen()), (1, 1, 0));
    assert_eq!(bench.drops.get(DropReason::QdiscDrop), 1);
}

#[test]
fn ecn_marks_instead_of_dropping() {
    let mut bench = Bench::new("netem loss 100% ecn");
    for ect in [0, 2] {
        let mut packet = bench.packet(60);
        packet.data_mut().fill(0);
        packet.data_mut()[12..16].copy_from_slice(&[8, 0, 0x45, ect]);
        packet.data_mut()[17] = 46;
        assert_eq!(bench.push(packet), Verdict::Success);
    }
    let out = bench.take(Budget::packets(9));
    assert_eq!(out.iter().map(|p| (p.cookie(), p.data()[15])).collect::<Vec<_>>(), [(1, 3)]);
    assert_eq!((bench.counter("ecn_marked"), bench.counter("dropped"), bench.qdisc.stats().drops), (1, 1, 1));
}

#[test]
fn corruption_changes_one_bit() {
    let mut bench = Bench::new("netem seed 1 corrupt 50%");
    let (mut damaged, mut bytes) = (0, [0; 50]);
    for _ in 0..4000 {
        let mut packet = bench.packet(50);
        packet.data_mut().fill(0);
        let _ = bench.push(packet);
        let out = bench.take(Budget::packets(1));
        let data = out.front().unwrap().data();
        let bits: u32 = data.iter().map(|b| b.count_ones()).sum();
        assert!(bits <= 1);
        damaged += u64::from(bits);
        if let Some(at) = data.iter().position(|&b| b != 0) {
            bytes[at] += 1;
        }
    }
    near(damaged as f64 / 4000.0, 0.5, 0.04);
    assert_eq!(bench.counter("corrupted"), damaged);
    assert!(bytes.iter().all(|&n| n > 10), "each byte has its turn: {bytes:?}");
    let _ = bench.enqueue(0);
}

#[test]
fn one_of_gap_packets_overtakes() {
    let mut bench = Bench::new("netem delay 10ms reorder 100% gap 3");
    for _ in 0..7 {
        let _ = bench.enqueue(100);
    }
    // The last packet to overtake is the first to leave.
    assert_eq!(bench.sent(), [5, 2]);
    bench.now += 10 * MS;
    assert_eq!(bench.sent(), [0, 1, 3, 4, 6]);
    assert_eq!(bench.counter("reordered"), 2);
    let mut bench = Bench::new("netem seed 3 limit 8000 delay 10ms reorder 25% 50%");
    let ahead: Vec<bool> = (0..8000)
        .map(|_| {
            let _ = bench.enqueue(100);
            !bench.sent().is_empty()
        })
        .collect();
    near(rate(&ahead), 0.25, 0.04);
    near(again(&ahead), 0.625, 0.06);
}

#[test]
fn a_rate_is_exact() {
    for (text, bytes, nanos) in [
        ("rate 8mbit", 1000, MS),
        ("rate 8mbit 20", 1000, 1_020_000),
        ("rate 8mbit -20", 1000, 980_000),
        // 21 cells of 48 bytes, each with 5 more.
        ("rate 8mbit 0 48 5", 1000, 21 * 53_000),
        ("rate 8mbit 0 50", 1000, MS),
        ("rate 8mbit -2000", 1000, 0),
    ] {
        let mut bench = Bench::new(&format!("netem {text}"));
        let start = bench.now;
        for _ in 0..100 {
            let _ = bench.enqueue(bytes);
        }
        let expected: Vec<_> = (0..100).map(|n| (start + (n + 1) * nanos, n)).collect();
        assert_eq!(bench.run(), expected, "{text}");
        // A link that was idle sends no burst.
        bench.now += 50 * MS;
        let now = bench.now;
        let _ = bench.enqueue(bytes);
        assert_eq!(bench.run(), [(now + nanos, 100)], "{text}");
    }
}

/// The delay comes first, then the link, which sends one packet at a time.
#[test]
fn a_rate_comes_after_the_delay() {
    let mut bench = Bench::new("netem delay 5ms rate 8mbit");
    let start = bench.now;
    let _ = bench.enqueue(1000);
    let _ = bench.enqueue(1000);
    assert_eq!(bench.run(), [(start + 6 * MS, 0), (start + 7 * MS, 1)]);
}

#[test]
fn slots_let_packets_out_together() {
    let mut bench = Bench::new("netem slot 10ms packets 2");
    let start = bench.now;
    for _ in 0..5 {
        let _ = bench.enqueue(100);
    }
    let at = |n: u64| start + n * 10 * MS;
    assert_eq!(bench.run(), [(at(1), 0), (at(1), 1), (at(2), 2), (at(2), 3), (at(3), 4)]);

    let mut bench = Bench::new("netem slot 10ms bytes 150");
    let start = bench.now;
    for _ in 0..3 {
        let _ = bench.enqueue(100);
    }
    let at = |n: u64| start + n * 10 * MS;
    assert_eq!(bench.run(), [(at(1), 0), (at(1), 1), (at(2), 2)]);

    for text in ["slot 5ms 15ms", "slot distribution normal 10ms 2ms"] {
        let delays = delays(text, 4000);
        near(mean(delays.iter().copied()), 10.0, 0.25);
        near(deviation(&delays), if text.contains("normal") { 2.0 } else { 10.0 / 12.0_f64.sqrt() }, 0.15);
    }
}

#[test]
fn a_seed_decides_everything() {
    let run = |seed: u64| {
        let text = "delay 10ms 5ms 20% distribution pareto loss 5% 10% corrupt 10% reorder 10%";
        let mut bench = Bench::new(&format!("netem seed {seed} {text}"));
        for _ in 0..500 {
            let _ = bench.enqueue(100);
        }
        bench.run()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn without_a_seed_each_decides_otherwise() {
    let lost = || {
        let mut bench = Bench::without_seed("netem loss 50%");
        for _ in 0..200 {
            let _ = bench.enqueue(1);
        }
        bench.sent()
    };
    assert_ne!(lost(), lost());
}

#[test]
fn a_change_keeps_what_the_kernel_keeps() {
    let mut bench = Bench::new("netem limit 5 delay 10ms corrupt 1% rate 1mbit loss 1% ecn");
    bench.change("loss 3%").unwrap();
    let options = bench.qdisc.options(Style::default());
    assert_eq!(options.text(), "limit 1000 loss 3% corrupt 1% rate 1Mbit ecn ");
    let mut other = Bench::new("netem delay 10ms 1ms 25% loss 1% 30% reorder 5% 50% gap 4");
    other.change("delay 100us 20us loss 2%").unwrap();
    let text = "limit 1000 delay 99us  19us 25% loss 2% 30% reorder 5% 50%";
    assert_eq!(other.qdisc.options(Style::default()).text(), text);
    other.change("delay 1ms 1ms 0% loss 2%").unwrap();
    assert_eq!(
        other.qdisc.options(Style::default()).text(),
        "limit 1000 delay 1ms  1ms loss 2% reorder 5% 50%"
    );
    assert!(bench.change("loss 200%").is_err());
    assert_eq!(bench.qdisc.options(Style::default()).text(), options.text());
}

fn texts() -> BoxedStrategy<String> {
    let part = prop_oneof![
        (0u64..5_000_000, 0u64..5_000_000).prop_map(|(d, j)| format!("delay {d} {j} 25%")),
        Just("delay 4294s 4294s distribution pareto".to_owned()),
        (0u32..101, 0u32..101).prop_map(|(p, c)| format!("loss {p}% {c}%")),
        (0u32..101, 0u32..101, 0u32..101).prop_map(|(a, b, c)| format!("loss state {a}% {b}% {c}% 50% 50%")),
        (0u32..101, 0u32..101).prop_map(|(a, b)| format!("loss gemodel {a}% {b}%")),
        (0u32..101).prop_map(|p| format!("corrupt {p}%")),
        (0u32..101, 0u32..101).prop_map(|(p, c)| format!("duplicate {p}% {c}% loss 0% 0%")),
        (1u32..101, 0u32..5).prop_map(|(p, g)| format!("delay 1ms reorder {p}% gap {g}")),
        (0u64..u64::MAX / 8).prop_map(|r| format!("rate {r}")),
        (any::<i32>(), any::<u32>(), any::<i32>()).prop_map(|(p, c, o)| format!("rate 1mbit {p} {c} {o}")),
        (0u64..5_000_000, 0u64..5_000_000, 0u32..9)
            .prop_map(|(a, b, p)| format!("slot {a} {} packets {p}", a + b)),
        Just("slot 0 9223372036s bytes 1".to_owned()),
        Just("slot distribution normal 0 9223372036s".to_owned()),
        (0u32..40).prop_map(|limit| format!("limit {limit}")),
        any::<u64>().prop_map(|seed| format!("seed {seed}")),
    ];
    prop::collection::vec(part, 0..5).prop_map(|parts| parts.join(" ")).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn conserves_packets(text in texts(), ops in ops(texts())) {
        let text = if try_build(&format!("netem {text}")).is_ok() { text } else { String::new() };
        conserves(&format!("netem {text}"), &ops);
    }

    #[test]
    fn keeps_the_order_without_jitter(delay in 0u32..5000, sizes in prop::collection::vec(1usize..1500, 1..50)) {
        let mut bench = Bench::new(&format!("netem delay {delay} rate 10mbit 14 48 5"));
        for bytes in &sizes {
            let _ = bench.enqueue(*bytes);
            bench.now += 100_000;
        }
        let sent = bench.run();
        prop_assert!(sent.is_sorted());
        prop_assert_eq!(sent.len(), sizes.len());
    }
}
