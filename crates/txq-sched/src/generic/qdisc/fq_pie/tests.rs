use proptest::prelude::*;

use super::*;
use crate::generic::qdisc::codel::tests::bench::{Bench, MS, conserves, ops};
use crate::generic::qdisc::testing::{ENV, try_build};

/// Returns a hash for the flow with this number, of 1024.
fn flow(number: u32) -> u32 {
    (number << 22) | 1
}

fn counter(bench: &Bench, key: &str) -> u64 {
    bench.qdisc.xstats(Style::default()).unwrap().json()[key].as_u64().unwrap()
}

/// Sends packets of 1000 bytes over a link of one packet a millisecond: of each flow so many in ten milliseconds. Returns for
/// each flow how many packets left in the second half, and their median delay in milliseconds.
fn run(bench: &mut Bench, offered: &[u32], ms: u64) -> Vec<(usize, u64)> {
    let (mut delays, began) = (vec![Vec::new(); offered.len()], bench.now);
    for at in 0..ms {
        bench.now = began + at * MS;
        for (number, &packets) in (0..).zip(offered) {
            // Spread over the ten milliseconds.
            let due = |at: u64| at * u64::from(packets) / 10;
            for _ in due(at)..due(at + 1) {
                let mut packet = bench.packet(1000, flow(number));
                packet.set_cookie(at);
                let _ = bench.push(packet);
            }
        }
        bench.to_free = PacketList::new();
        if let Some(packet) = bench.dequeue()
            && at > ms / 2
        {
            delays[(packet.hash() >> 22) as usize].push(at - packet.cookie());
        }
    }
    let median = |mut delays: Vec<u64>| {
        delays.sort_unstable();
        (delays.len(), delays.get(delays.len() / 2).copied().unwrap_or_default())
    };
    delays.into_iter().map(median).collect()
}

/// An idle one gives its memory back once no flow remembers anything.
#[test]
fn an_idle_one_gives_its_memory_back() {
    let mut bench = Bench::new("fq_pie tupdate 15ms");
    let shrinks = |bench: &mut Bench| {
        let now = bench.now;
        bench.qdisc.shrink(now)
    };
    assert!(shrinks(&mut bench), "it has none yet");
    let _ = bench.enqueue(1000, flow(1));
    bench.now += 1000 * MS;
    assert!(!shrinks(&mut bench), "a packet waits");
    assert!(bench.dequeue().is_some());
    assert!(!shrinks(&mut bench), "the packet has just left");
    bench.now += 45 * MS;
    assert!(shrinks(&mut bench));
    let _ = bench.enqueue(1000, flow(1));
    assert_eq!(
        (bench.dequeue().map(|packet| packet.len()), counter(&bench, "new_flow_count")),
        (Some(1000), 2)
    );
}

/// A flow within its share loses nothing and hardly waits; a flow that sends too much waits about the target.
#[test]
fn each_flow_has_its_own_law() {
    let ms = if cfg!(miri) { 100 } else { 20_000 };
    let mut bench = Bench::new("fq_pie target 20ms");
    let flows = run(&mut bench, &[2, 12], ms);
    if cfg!(miri) {
        return;
    }
    let sent: Vec<_> = flows.iter().map(|flow| flow.0 as u64 * 10 / (ms / 2)).collect();
    assert_eq!(sent, [2, 7], "{flows:?}");
    assert!(flows[0].1 <= 2 && (10..40).contains(&flows[1].1), "{flows:?}");
    assert_eq!(bench.drops.get(DropReason::QdiscCongested), bench.qdisc.stats().drops);
    assert_eq!(counter(&bench, "dropped"), bench.qdisc.stats().drops);
}

/// Up to `ecn_prob` packets are marked; above it, and without ECN, they are dropped.
#[test]
fn marks_up_to_a_probability() {
    let mut counts = Vec::new();
    for text in ["fq_pie ecn ecn_prob 100", "fq_pie ecn", "fq_pie"] {
        let mut bench = Bench::new(text);
        for at in 0..10_000 {
            for _ in 0..1 + u64::from(at % 50 == 0) {
                let mut packet = bench.packet(1000, 0);
                packet.data_mut().fill(0);
                packet.data_mut()[12..16].copy_from_slice(&[8, 0, 0x45, 2]);
                packet.set_hash(1);
                let _ = bench.push(packet);
            }
            let _ = bench.dequeue();
            bench.to_free = PacketList::new();
            bench.now += MS;
        }
        counts.push((counter(&bench, "ecn_mark"), counter(&bench, "dropped")));
    }
    let [all, some, none] = counts[..] else { panic!("{counts:?}") };
    assert!(all.0 > some.0 && some.0 > none.0, "{counts:?}");
    assert!(all.1 < some.1 && none == (0, none.1) && none.1 > 10, "{counts:?}");
}

#[test]
fn limits_hold_and_shrink() {
    let mut bench = Bench::new("fq_pie limit 6 flows 1024");
    (0..4).for_each(|_| assert_eq!(bench.enqueue(1000, flow(1)), Verdict::Success));
    (0..2).for_each(|_| assert_eq!(bench.enqueue(1000, flow(2)), Verdict::Success));
    assert_eq!(bench.enqueue(1000, flow(3)), Verdict::Congested);
    assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 1);
    bench.change("limit 3").unwrap();
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().drops), (3, 4));
    let mut left: Vec<_> = (0..3).filter_map(|_| bench.dequeue()).map(|packet| packet.cookie()).collect();
    left.sort_unstable();
    assert_eq!(left, [3, 4, 5], "the longest queues pay with their oldest packets");
    let mut bench = Bench::new("fq_pie memory_limit 3000");
    let verdicts: Vec<_> = (0..4).map(|n| bench.enqueue(1000, flow(n))).collect();
    assert_eq!(verdicts, [Verdict::Success, Verdict::Success, Verdict::Success, Verdict::Congested]);
    let shown = bench.qdisc.xstats(Style::default()).unwrap();
    assert_eq!(
        shown.text(),
        "  pkts_in 3 overlimit 0 overmemory 1 dropped 1 ecn_mark 0\n  new_flow_count 3 new_flows_len 3 \
         old_flows_len 0 memory_used 3384"
    );
}

/// Returns the words of a random change.
fn change() -> BoxedStrategy<String> {
    prop_oneof![
        (0u32..30).prop_map(|limit| format!("limit {limit}")),
        (1u64..40).prop_map(|ms| format!("target {ms}ms tupdate 1ms alpha 32 beta 32 ecn")),
        (0u32..9000).prop_map(|bytes| format!("quantum {bytes} memory_limit {bytes}")),
        Just("bytemode dq_rate_estimator ecn_prob 50".to_owned()),
    ]
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn conserves_packets(ops in ops(change())) {
        conserves("fq_pie limit 40 flows 8 target 2ms tupdate 1ms alpha 32 beta 32", &ops);
    }
}

#[test]
fn words_and_errors_are_tcs() {
    let shown = |text: &str, style| try_build(text, &ENV).unwrap().options(style).text().to_owned();
    for (text, expected) in [
        (
            "fq_pie",
            "limit 10240p flows 1024 target 15ms tupdate 15ms alpha 2 beta 20 quantum 1514b memory_limit 32Mb \
             ecn_prob 10 ",
        ),
        (
            "fq_pie limit 50 flows 7 target 20ms tupdate 30ms alpha 3 beta 25 quantum 300 memory_limit 2m ecn_prob \
             20 ecn bytemode dq_rate_estimator",
            "limit 50p flows 7 target 20ms tupdate 30ms alpha 3 beta 25 quantum 300b memory_limit 2Mb ecn_prob 20 \
             ecn bytemode dq_rate_estimator ",
        ),
    ] {
        assert_eq!(shown(text, Style::default()), expected);
        let saved = shown(text, Style { input: true, ..Style::default() });
        assert_eq!(shown(&format!("fq_pie {saved}"), Style::default()), expected, "{saved}");
    }
    assert_eq!(
        try_build("fq_pie ecn", &ENV).unwrap().options(Style::default()).json().to_string(),
        r#"{"limit":10240,"flows":1024,"target":15000,"tupdate":15000,"alpha":2,"beta":20,"quantum":1514,"memory_limit":33554432,"ecn_prob":10,"ecn":true}"#
    );
    for (text, message) in [
        ("flows 65537", "Error: sch_fq_pie: Number of flows must range in [1..65536]."),
        ("limit -1", "Illegal \"limit\""),
        ("flows x", "Illegal \"flows\""),
        ("target x", "Illegal \"target\""),
        ("alpha 33", "Illegal \"alpha\""),
        ("quantum x", "Illegal \"quantum\""),
        ("quantum 2000000", "Error: integer out of range."),
        ("memory_limit x", "Illegal \"memory_limit\""),
        ("ecn_prob 101", "Illegal \"ecn_prob\""),
        ("ecn_prob 10%", "Illegal \"ecn_prob\""),
        ("foo", "What is \"foo\"?"),
        ("limit", "Command line is not complete. Try option \"help\""),
    ] {
        assert_eq!(try_build(&format!("fq_pie {text}"), &ENV).err().unwrap().message(), message, "{text}");
    }
    let mut bench = Bench::new("fq_pie");
    let error = bench.change("flows 5").unwrap_err();
    assert_eq!(error.message(), "Error: sch_fq_pie: Number of flows cannot be changed.");
}
