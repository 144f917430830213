//! fq under random operations.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Send(u32, usize, u32, Option<Nanos>),
    Take(usize),
    Later(Nanos),
    Change(String),
    Reset,
}

fn options() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        (0u32..40).prop_map(|n| format!("limit {n}")),
        (0u32..20).prop_map(|n| format!("flow_limit {n}")),
        prop_oneof![1u32..3000, Just(1u32 << 20)].prop_map(|n| format!("quantum {n}")),
        prop_oneof![0u32..3000, Just(i32::MAX as u32)].prop_map(|n| format!("initial_quantum {n}")),
        prop_oneof![0u64..10_000_000, Just(34_359_738_360)].prop_map(|n| format!("maxrate {n}")),
        prop_oneof![Just("pacing"), Just("nopacing"), Just("horizon_cap"), Just("horizon_drop")]
            .prop_map(String::from),
        any::<u32>().prop_map(|n| format!("horizon {n}")),
        any::<u32>().prop_map(|n| format!("timer_slack {n} refill_delay {n} low_rate_threshold {n}")),
        (0u32..5000).prop_map(|n| format!("ce_threshold {n}")),
        Just("priomap 0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 0".to_owned()),
        (16384u32..1 << 31).prop_map(|n| format!("weights {n} 16384 {n}")),
    ];
    prop::collection::vec(word, 0..5).prop_map(|words| words.join(" "))
}

fn op() -> impl Strategy<Value = Op> {
    let after =
        prop_oneof![3 => Just(None), 3 => (0..20 * MS).prop_map(Some), 1 => (0..1u64 << 62).prop_map(Some)];
    prop_oneof![
        12 => (1u32..6, 1usize..9000, 0u32..16, after).prop_map(|(f, b, p, a)| Op::Send(f, b, p, a)),
        6 => (1usize..12).prop_map(Op::Take),
        3 => prop_oneof![0..MS, 0..3 * MS, 0..4000 * MS].prop_map(Op::Later),
        1 => options().prop_map(Op::Change),
        1 => Just(Op::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]

    /// No packet is lost, none leaves before its time or out of order, all counters add up, and waiting packets have an
    /// event pending.
    #[test]
    fn any_script_adds_up(text in options(), ops in prop::collection::vec(op(), 1..150)) {
        let mut bench = Bench::new(&text);
        // Bytes, departure time and flow of the queued packets. With `cap` the times may have become earlier.
        let mut inside: BTreeMap<u64, (u64, Nanos, u32)> = BTreeMap::new();
        let mut last: BTreeMap<u32, (Nanos, u64)> = BTreeMap::new();
        let (mut sent, mut purged) = (0, 0);
        for op in ops {
            match op {
                Op::Send(flow, bytes, priority, after) => {
                    let before = bench.numbers;
                    if bench.send(flow, bytes, priority, after) == Verdict::Success {
                        let now = bench.now;
                        inside.insert(before, (bytes as u64, now + after.unwrap_or(0), flow));
                    }
                }
                Op::Take(n) => {
                    let out = bench.take(n);
                    let now = bench.now;
                    sent += out.len() as u64;
                    for packet in out.iter() {
                        let (flow, number) = ((packet.cookie() >> 32) as u32, packet.cookie() & 0xffff_ffff);
                        inside.remove(&number).expect("what leaves was inside");
                        let at = packet.departure();
                        prop_assert!(at <= now);
                        let (before, earlier) = last.insert(flow, (at, number)).unwrap_or_default();
                        // A packet that arrived later with an earlier time may follow one that has left.
                        prop_assert!(at > before || number > earlier || at < before);
                        prop_assert!(!(at == before && number < earlier), "one time, in order of arrival");
                        prop_assert!(
                            inside.iter().all(|(_, &(_, t, f))| f != flow || t >= at || t > now),
                            "no packet of the flow was before it"
                        );
                    }
                    if out.len() < n && bench.qdisc.qlen() > 0 {
                        prop_assert!(bench.qdisc.next_event().is_some_and(|at| at > now));
                    }
                }
                Op::Later(by) => bench.later(by),
                Op::Change(text) => {
                    bench.change(&text).unwrap();
                    let freed: Vec<_> = bench.to_free.iter().map(|p| p.cookie() & 0xffff_ffff).collect();
                    inside.retain(|n, _| !freed.contains(n));
                }
                Op::Reset => {
                    purged += bench.qdisc.qlen() as u64;
                    bench.with(|q, cx| q.reset(cx));
                    inside.clear();
                }
            }
            let stats = bench.qdisc.stats();
            prop_assert_eq!(stats.qlen, inside.len() as u64);
            prop_assert_eq!(stats.backlog, inside.values().map(|p| p.0).sum::<u64>());
            prop_assert_eq!(stats.packets, sent);
            prop_assert_eq!(stats.drops + purged, bench.drops.total());
            prop_assert_eq!(stats.drops + purged + sent + stats.qlen, bench.numbers);
            prop_assert_eq!(bench.drops.get(DropReason::QueuePurge), purged);
            let bands: u64 = (0..3).map(|b| bench.stat(&format!("band{b}_pkts"))).sum();
            prop_assert_eq!(bands, stats.qlen);
            if stats.qlen == 0 {
                prop_assert_eq!(bench.stat("throttled"), 0);
            }
        }
        // All packets leave when their time has come.
        for _ in 0..2000 {
            sent += bench.take(64).len() as u64;
            match bench.qdisc.next_event() {
                Some(at) => bench.now = at.max(bench.now),
                None => break,
            }
        }
        prop_assert_eq!(bench.qdisc.qlen(), 0);
        prop_assert_eq!(bench.qdisc.stats().packets, sent);
        bench.to_free = PacketList::new();
    }
}
