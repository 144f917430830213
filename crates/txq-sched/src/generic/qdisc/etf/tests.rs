//! etf in virtual time.

use proptest::prelude::*;

use super::*;
use crate::generic::qdisc::timed::tests::{Bench, MS, conserves, ops, try_build};

const TAI: &str = "etf clockid CLOCK_TAI";

#[test]
fn each_packet_leaves_delta_before_its_time() {
    let mut bench = Bench::new(&format!("{TAI} delta 300000"));
    let start = bench.now;
    for after in [5, 3, 9, 3] {
        assert_eq!(bench.enqueue_at(start + after * MS), Verdict::Success);
    }
    let at = |after: Nanos| start + after * MS - 300_000;
    assert_eq!(bench.run(), [(at(3), 1), (at(3), 3), (at(5), 0), (at(9), 2)]);
    assert_eq!((bench.qdisc.stats().packets, bench.qdisc.stats().bytes), (4, 400));
}

#[test]
fn who_has_no_time_or_one_that_has_passed_is_dropped_at_once() {
    let mut bench = Bench::new(&format!("{TAI} delta 1000000 skip_sock_check"));
    let now = bench.now;
    for (time, verdict) in
        [(0, Verdict::Drop), (now - 1, Verdict::Drop), (now, Verdict::Success), (now + MS, Verdict::Success)]
    {
        assert_eq!(bench.enqueue_at(time), verdict, "{time}");
    }
    assert_eq!(bench.sent(), [2, 3]);
    // A packet with an earlier time than the last one sent is dropped.
    assert_eq!(bench.enqueue_at(now + MS - 1), Verdict::Drop);
    assert_eq!(bench.enqueue_at(now + MS), Verdict::Success);
    assert_eq!((bench.qdisc.stats().drops, bench.qdisc.stats().overlimits), (3, 0));
}

#[test]
fn who_is_too_late_is_dropped() {
    for mode in ["", "deadline_mode"] {
        let mut bench = Bench::new(&format!("{TAI} delta 1000 {mode}"));
        let start = bench.now;
        for after in [1, 2, 3] {
            let _ = bench.enqueue_at(start + after * MS);
        }
        bench.now = start + 3 * MS;
        assert_eq!(bench.sent(), [2]);
        assert_eq!((bench.qdisc.stats().drops, bench.qdisc.stats().overlimits), (2, 2));
        assert_eq!(bench.drops.get(DropReason::QdiscDrop), 2);
    }
}

#[test]
fn a_deadline_is_the_latest_time() {
    let mut bench = Bench::new(&format!("{TAI} deadline_mode"));
    let start = bench.now;
    for after in [5, 3, 9] {
        let _ = bench.enqueue_at(start + after * MS);
    }
    let out = bench.take(Budget::packets(2));
    assert_eq!(out.iter().map(|p| (p.cookie(), p.departure())).collect::<Vec<_>>(), [(1, start), (0, start)]);
    // A later packet with an earlier deadline is still sent.
    assert_eq!(bench.enqueue_at(start + 2 * MS), Verdict::Success);
    assert_eq!(bench.sent(), [3, 2]);
}

#[test]
fn shows_its_options_as_tc() {
    for (text, shown) in [
        ("", "clockid TAI delta 0 offload off deadline_mode off skip_sock_check off"),
        (
            "delta 100000 deadline_mode skip_sock_check",
            "clockid TAI delta 100000 offload off deadline_mode on skip_sock_check on",
        ),
    ] {
        let options = Bench::new(&format!("{TAI} {text}")).qdisc.options(Style::default());
        assert_eq!(options.text(), shown);
    }
    let options = Bench::new("etf clockid tai delta 5").qdisc.options(Style::default());
    assert_eq!(
        options.json().to_string(),
        r#"{"clockid":"TAI","delta":5,"offload":"off","deadline_mode":"off","skip_sock_check":"off"}"#
    );
}

#[test]
fn errors_are_tcs_and_the_kernels() {
    for (text, message) in [
        ("delta x", "etf: illegal value for \"delta\": \"x\""),
        (
            "clockid foo",
            "etf: illegal value for \"clockid\": \"foo\".\nIt must be a valid SYS-V id (i.e. CLOCK_TAI)",
        ),
        ("foo", "etf: unknown parameter \"foo\""),
        ("delta 5 delta 6", "etf: duplicate \"delta\" specification"),
        ("clockid TAI clockid TAI", "etf: duplicate \"clockid\" specification"),
        ("", "Error: Dynamic clockids are not supported."),
        ("clockid CLOCK_MONOTONIC", "Error: Invalid clockid. CLOCK_TAI must be used."),
        ("clockid CLOCK_TAI delta -5", "Error: Delta must be positive."),
        ("clockid CLOCK_TAI offload", "Error: Specified device does not support ETF offload."),
        ("clockid", "Command line is not complete. Try option \"help\""),
    ] {
        assert_eq!(try_build(&format!("etf {text}")).err().expect(text).message(), message);
    }
    assert!(Bench::new(TAI).change("delta 5").unwrap_err().message().contains("not supported"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 150 }))]

    #[test]
    fn conserves_packets(delta in 0u32..2_000_000, mode in 0usize..2, ops in ops(Just(String::new()).boxed())) {
        let mode = ["", "deadline_mode"][mode];
        conserves(&format!("{TAI} delta {delta} {mode}"), &ops);
    }
}
