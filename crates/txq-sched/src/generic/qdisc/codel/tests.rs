//! codel against RFC 8289: its sentences as scenarios in virtual time, its pseudo code as a model.

pub(in crate::generic::qdisc) mod bench;

use std::collections::VecDeque;

use proptest::prelude::*;

use txq_core::arch::Native;

use super::law::gap;
use super::*;
use crate::generic::qdisc::build as build_kind;

use bench::{Bench, ENV, MS, conserves, ipv4, ops};

/// 5 ms and 100 ms, cut to the kernel's units.
const TARGET: Nanos = 4882 * 1024;
const INTERVAL: Nanos = 97656 * 1024;

/// RFC 8289, section 5.4 to 5.6: the pseudo code, line by line.
#[derive(Default)]
struct Rfc {
    queue: VecDeque<(u64, usize, Nanos)>,
    bytes: usize,
    dropped: Vec<u64>,
    first_above_time: Nanos,
    drop_next: Nanos,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Rfc {
    fn control_law(t: Nanos, count: u32) -> Nanos {
        t + (INTERVAL as f64 / f64::from(count).sqrt()) as Nanos
    }

    fn dodequeue(&mut self, now: Nanos) -> (Option<u64>, bool) {
        let Some((number, bytes, tstamp)) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        self.bytes -= bytes;
        let mut ok_to_drop = false;
        let sojourn_time = now - tstamp;
        if sojourn_time < TARGET || self.bytes <= 1514 {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + INTERVAL;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(number), ok_to_drop)
    }

    fn deque(&mut self, now: Nanos) -> Option<u64> {
        let mut r = self.dodequeue(now);
        if self.dropping {
            if !r.1 {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.dropped.extend(r.0);
                self.count += 1;
                r = self.dodequeue(now);
                if !r.1 {
                    self.dropping = false;
                } else {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                }
            }
        } else if r.1 {
            self.dropped.extend(r.0);
            r = self.dodequeue(now);
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && now.saturating_sub(self.drop_next) < 16 * INTERVAL {
                self.count = delta;
            }
            self.drop_next = Self::control_law(now, self.count);
            self.lastcount = self.count;
        }
        r.0
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    /// Loads that come and go, so that dropping state is entered, left and entered again.
    #[test]
    fn drops_what_the_rfcs_pseudo_code_drops(
        phases in prop::collection::vec((1usize..12, 0usize..4, 1u64..200, 200_000u64..4 * MS), 1..10),
    ) {
        let mut bench = Bench::new("codel limit 100000");
        let mut rfc = Rfc::default();
        for (burst, take, turns, step) in phases {
            for turn in 0..turns {
                for n in 0..burst {
                    if bench.qdisc.qlen() < 3000 {
                        let bytes = 60 + (turn as usize * 131 + n * 577) % 1454;
                        rfc.queue.push_back((bench.numbers, bytes, bench.now));
                        rfc.bytes += bytes;
                        let _ = bench.enqueue(bytes, 1);
                    }
                }
                bench.now += step;
                for _ in 0..=take * 3 {
                    let expected = rfc.deque(bench.now);
                    prop_assert_eq!(bench.dequeue().map(|p| p.cookie()), expected);
                }
                prop_assert_eq!(bench.to_free.len(), rfc.dropped.len());
            }
        }
        prop_assert_eq!(bench.to_free.iter().map(Packet::cookie).collect::<Vec<_>>(), rfc.dropped);
    }
}

/// The load of that model drops packets often, so the comparison covers the law.
#[test]
fn the_model_drops_and_comes_back() {
    let mut bench = Bench::new("codel");
    let first = bench.stand(20, 2000 * MS);
    let _ = bench.stand(1, 300 * MS);
    let second = bench.stand(20, 2000 * MS);
    assert!(first.len() > 30 && second.len() > first.len(), "{} {}", first.len(), second.len());
}

/// Section 3: the law uses the minimum delay over an interval, not at the length.
#[test]
fn a_queue_may_stand_below_target_for_ever_and_above_it_for_an_interval() {
    for (depth, time, dropped) in [
        // Each packet waits 4 ms.
        (4, 10_000 * MS, false),
        // The fifth packet is the first that waited for `target`. Its dequeue starts an interval, which ends at 105 ms.
        (20, 105 * MS, false),
        (20, 106 * MS, true),
    ] {
        let drops = Bench::new("codel").stand(depth, time);
        assert_eq!(!drops.is_empty(), dropped, "{depth} packets for {time} ns: {drops:?}");
    }
}

#[test]
fn one_packet_below_target_begins_another_interval() {
    let mut bench = Bench::new("codel");
    assert!(bench.stand(20, 100 * MS).is_empty());
    // The queue runs dry for a moment.
    while bench.dequeue().is_some() {}
    assert!(bench.stand(20, 105 * MS).is_empty());
    assert!(!bench.stand(20, MS).is_empty());
}

/// Section 3.2 and 5.3: the time between drops falls with the square root of their number.
#[test]
fn drops_follow_the_control_law() {
    let drops = Bench::new("codel").stand(40, 3000 * MS);
    assert!(drops.len() > 80, "{}", drops.len());
    let mut next = drops[0] as f64;
    for (n, &at) in drops.iter().enumerate().skip(1) {
        next += INTERVAL as f64 / (n as f64).sqrt();
        let late = at as f64 - next;
        assert!((0.0..1.01 * MS as f64).contains(&late), "drop {n} is {late} ns late");
    }
}

#[test]
fn the_gap_is_the_interval_by_the_root() {
    for count in (1..5000).chain([1 << 20, u32::MAX]) {
        for interval in [0, 1024, 10 * MS, INTERVAL, u64::from(u32::MAX) * 1000] {
            let exact = interval as f64 / f64::from(count).sqrt();
            let error = (gap(interval, count) as f64 - exact).abs();
            assert!(error <= 1.0, "{interval} / sqrt({count}): off by {error} ns");
        }
    }
    assert_eq!(gap(MS, 0), MS);
}

/// Section 5.5: "if the queue has been dropping recently, start from where it was".
#[test]
fn dropping_resumes_at_its_rate_within_16_intervals() {
    for (pause, fresh) in [(200 * MS, false), (1480 * MS, false), (1560 * MS, true)] {
        let mut bench = Bench::new("codel");
        let drops = bench.stand(20, 2000 * MS).len() as f64;
        let _ = bench.stand(1, pause);
        let again = bench.stand(20, 400 * MS);
        let gap = (again[1] - again[0]) as f64 / INTERVAL as f64;
        let expected = if fresh { 1.0 } else { 1.0 / (drops - 1.0).sqrt() };
        assert!((gap - expected).abs() < 0.02, "after {pause} ns: {gap} intervals, not {expected}");
    }
}

/// Section 5.3 and 3.2: never below one packet's worth of bytes.
#[test]
fn the_last_mtu_is_never_dropped() {
    for (bytes, drops) in [(757, false), (758, true)] {
        let mut bench = Bench::new("codel");
        for _ in 0..500 {
            // Two packets stay behind the one that is dequeued.
            while bench.qdisc.qlen() < 3 {
                let _ = bench.enqueue(bytes, 1);
            }
            bench.now += 10 * MS;
            let _ = bench.dequeue();
        }
        assert_eq!(bench.drops() > 0, drops, "{bytes} bytes");
    }
}

#[test]
fn the_limit_drops_what_comes() {
    let mut bench = Bench::new("codel limit 3");
    let verdicts: Vec<_> = (0..5).map(|_| bench.enqueue(100, 1)).collect();
    assert_eq!(verdicts, [[Verdict::Success; 3].as_slice(), &[Verdict::Drop; 2]].concat());
    assert_eq!((bench.drops.get(DropReason::QdiscOverlimit), bench.qdisc.stats().drops), (2, 2));
    bench.change("limit 1").unwrap();
    assert_eq!(bench.dequeue().map(|p| p.cookie()), Some(2), "the oldest are dropped");
    assert_eq!((bench.drops.get(DropReason::QdiscOverlimit), bench.qdisc.stats().drops), (4, 4));
    assert!(bench.shown().0.contains("drop_overlimit 2\n"), "only what came");
}

/// Section 4.4: for longer round trips the interval grows and the target stays.
#[test]
fn the_interval_changes_alone() {
    let mut bench = Bench::new("codel");
    bench.change("interval 300ms").unwrap();
    let shown = bench.qdisc.options(Style::default()).text().to_owned();
    assert_eq!(shown, "limit 1000p target 5ms interval 300ms ");
    assert!(bench.stand(20, 305 * MS).is_empty());
    assert!(!bench.stand(20, 2 * MS).is_empty());
}

#[test]
fn marks_instead_of_dropping_where_it_may() {
    for (text, tos, marked, dropped) in [
        ("codel ecn", 2, true, false),
        ("codel ecn", 0, false, true),
        ("codel", 2, false, true),
        ("codel ce_threshold 1ms target 1s", 1, true, false),
        ("codel ce_threshold 1ms target 1s", 0, false, false),
        ("codel ce_threshold 20ms target 1s", 1, false, false),
    ] {
        let mut bench = Bench::new(text);
        let mut ce = 0;
        for _ in 0..1000 {
            while bench.qdisc.qlen() < 10 {
                let packet = ipv4(&mut bench, tos);
                let _ = bench.with(|q, cx| q.enqueue(packet, cx));
            }
            bench.now += MS;
            ce += bench.dequeue().map_or(0, |p| u64::from(p.data()[15] & 3 == 3));
        }
        assert_eq!((ce > 0, bench.drops() > 0), (marked, dropped), "{text} tos {tos}");
        let key = if text.contains("ce_threshold") { "ce_mark" } else { "ecn_mark" };
        assert!(!marked || bench.shown().0.contains(&format!("{key} {ce}")), "{text}");
    }
}

/// The latency sample of a packet survives, and no other gets one.
#[test]
fn samples_keep_their_stamp() {
    let mut bench = Bench::new("codel");
    for stamp in [0, 777 * MS, 0] {
        let mut packet = bench.packet(100, 1);
        packet.set_stamp(stamp);
        let _ = bench.with(|q, cx| q.enqueue(packet, cx));
    }
    let stamps: Vec<_> = (0..3).map(|_| bench.dequeue().unwrap().stamp()).collect();
    assert_eq!(stamps, [0, (777 * MS) | 1, 0]);
    let _ = bench.enqueue(100, 1);
    bench.with(|q, cx| q.reset(cx));
    assert!(bench.to_free.iter().all(|p| p.stamp() == 0) && !bench.to_free.stamped());
}

/// The expected texts are tc 6.1's output for a kernel's qdisc with these values.
#[test]
fn shown_as_tc_shows_it() {
    for (text, shown) in [
        ("codel", "limit 1000p target 5ms interval 100ms "),
        ("codel limit 0 target 0 interval 0", "limit 1000p target 5ms interval 100ms "),
        ("codel ecn noecn ce_threshold 0", "limit 1000p target 5ms ce_threshold 0us interval 100ms "),
        (
            "codel limit 0x10 target 10ms interval 1s ecn ce_threshold 1ms",
            "limit 16p target 10ms ce_threshold 999us interval 1e+03ms ecn ",
        ),
    ] {
        assert_eq!(Bench::new(text).qdisc.options(Style::default()).text(), shown);
    }
    let (text, json) = Bench::new("codel").shown();
    assert_eq!(
        text,
        "qdisc codel 8001: root refcnt 2 limit 1000p target 5ms interval 100ms \n \
         Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n  \
         count 0 lastcount 0 ldelay 0us drop_next 0us\n  maxpacket 0 ecn_mark 0 drop_overlimit 0\n"
    );
    assert_eq!(
        json,
        r#"[{"kind":"codel","handle":"8001:","root":true,"refcnt":2,"#.to_owned()
            + r#""options":{"limit":1000,"target":4999,"interval":99999},"bytes":0,"packets":0,"drops":0,"#
            + r#""overlimits":0,"requeues":0,"backlog":0,"qlen":0,"count":0,"lastcount":0,"ldelay":0,"#
            + r#""drop_next":0,"maxpacket":0,"ecn_mark":0,"drop_overlimit":0}]"#
    );
}

#[test]
fn dropping_state_is_shown_as_tc_shows_it() {
    let law = Law { count: 7, lastcount: 3, dropping: true, ldelay: 12_346_000, ..Law::default() };
    let mut codel: Codel<Native> = Codel {
        queue: PacketList::new(),
        law: Law { drop_next: 100 * MS, ..law },
        goal: Goal::new(&ENV, true),
        limit: 1,
        stats: QdiscStats::default(),
        counts: Counts { maxpacket: 1514, ecn_mark: 5, ce_mark: 9 },
        drop_overlimit: 2,
    };
    let rest = "\n  maxpacket 1514 ecn_mark 5 drop_overlimit 2 ce_mark 9";
    let begin = "  count 7 lastcount 3 ldelay 12.3ms";
    for (now, next, json) in [(104 * MS, "-4ms", -3999), (96 * MS, "4ms", 3999)] {
        let shown = codel.xstats_at(now, Style::default());
        assert_eq!(shown.text(), format!("{begin} dropping drop_next {next}{rest}"));
        assert_eq!((&shown.json()["drop_next"], &shown.json()["dropping"]), (&json.into(), &true.into()));
    }
    codel.law.dropping = false;
    assert_eq!(codel.xstats_at(0, Style::default()).text(), format!("{begin} drop_next 0us{rest}"));
}

#[test]
fn errors_are_tcs() {
    for (text, expected) in [
        ("codel foo", "What is \"foo\"?"),
        ("codel limit", "Command line is not complete. Try option \"help\""),
        ("codel limit abc", "Illegal \"limit\""),
        ("codel limit 10k", "Illegal \"limit\""),
        ("codel target x", "Illegal \"target\""),
        ("codel interval x", "Illegal \"interval\""),
        ("codel ce_threshold x", "Illegal \"ce_threshold\""),
        ("codel help", "Usage: ... codel [ limit PACKETS ] [ target TIME ]\n\t\t [ interval TIME ]"),
    ] {
        let error = build_kind::<Native>(text, &ENV).err().expect(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let mut bench = Bench::new("codel");
    assert!(bench.change("limit 7 target x").is_err());
    assert!(bench.shown().0.contains("limit 1000p"), "nothing has changed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn nothing_is_lost(
        ops in ops((0u32..60, 0u32..9).prop_map(|(l, t)| format!("limit {l} target {t}ms interval {t}")).boxed()),
        text in prop::sample::select(vec![
            "codel limit 30",
            "codel target 1 interval 1 ecn",
            "codel target 4294s interval 4294s ce_threshold 0",
            "codel limit 4294967295 interval 1ms",
        ]),
    ) {
        conserves(text, &ops);
    }
}
