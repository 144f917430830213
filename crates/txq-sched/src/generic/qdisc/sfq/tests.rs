use super::*;
use crate::generic::qdisc::testing::{ENV, MS, Virtual, try_build};

const SECOND: Nanos = 1000 * MS;

/// Enqueues packets of a flow.
fn send(bench: &mut Virtual, flow: u32, bytes: usize, packets: usize) -> Vec<Verdict> {
    (0..packets)
        .map(|_| {
            let mut packet = bench.packet(bytes, 0);
            packet.set_hash(flow);
            packet.set_cookie(flow.into());
            bench.with(|qdisc, cx| qdisc.enqueue(packet, cx))
        })
        .collect()
}

fn flows(bench: &mut Virtual, packets: usize) -> Vec<u64> {
    bench.dequeue(packets).into_iter().map(|(flow, _)| flow).collect()
}

/// A flow with long packets and one with short packets get the same bytes: a turn ends when its quantum is used up.
#[test]
fn flows_take_turns_by_bytes() {
    let mut bench = Virtual::new("sfq quantum 1000 divisor 65536");
    send(&mut bench, 1, 1000, 6);
    send(&mut bench, 2, 250, 20);
    assert_eq!(flows(&mut bench, 12), [1, 2, 2, 2, 2, 1, 2, 2, 2, 2, 1, 2]);
    let mut bench = Virtual::new("sfq quantum 3 divisor 65536");
    send(&mut bench, 1, 1000, 6);
    send(&mut bench, 2, 1000, 6);
    let left = flows(&mut bench, 12);
    assert_eq!(left.iter().filter(|&&flow| flow == 1).count(), 6);
    assert!(left.windows(3).all(|three| three.iter().any(|flow| *flow != three[0])), "{left:?}");
}

/// Beyond the limit the longest queue pays, with its last packet or with its first.
#[test]
fn the_longest_queue_pays() {
    for (text, second) in [("sfq limit 6 divisor 65536", 4), ("sfq limit 6 divisor 65536 headdrop", 0)] {
        let mut bench = Virtual::new(text);
        for number in 0..5u64 {
            let mut packet = bench.packet(100, 0);
            packet.set_hash(1);
            packet.set_cookie(number);
            assert_eq!(bench.with(|q, cx| q.enqueue(packet, cx)), Verdict::Success);
        }
        assert_eq!(send(&mut bench, 20, 100, 2), [Verdict::Success; 2], "the other queue is longer: {text}");
        let mut left: Vec<_> = flows(&mut bench, 10);
        left.sort_unstable();
        let expected: Vec<_> = (0..5).filter(|&n| n != second).chain([20, 20]).collect();
        assert_eq!(left, expected, "{text}");
        assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 1);
    }
    // All have one packet: the one pays whose turn comes next.
    let mut bench = Virtual::new("sfq flows 200 divisor 65536");
    (1..=128).for_each(|flow| assert_eq!(send(&mut bench, flow, 100, 1), [Verdict::Success]));
    assert_eq!(flows(&mut bench, 200), (2..=128).collect::<Vec<_>>());
    let mut bench = Virtual::new("sfq limit 3 divisor 65536");
    assert_eq!(send(&mut bench, 1, 100, 4)[3], Verdict::Congested, "its own queue is the longest");
}

#[test]
fn depth_and_flows_are_bounded() {
    let mut bench = Virtual::new("sfq depth 2 flows 3 divisor 65536");
    assert_eq!(send(&mut bench, 1, 100, 3), [Verdict::Success, Verdict::Success, Verdict::Drop]);
    for flow in 2..6 {
        let expected = if flow < 4 { Verdict::Success } else { Verdict::Drop };
        assert_eq!(send(&mut bench, flow, 100, 1), [expected], "{flow}");
    }
    let mut bench = Virtual::new("sfq depth 2 headdrop divisor 65536");
    assert_eq!(send(&mut bench, 1, 100, 3), [Verdict::Success, Verdict::Success, Verdict::Congested]);
    let mut bench = Virtual::new("sfq depth 1 headdrop divisor 65536");
    assert_eq!(send(&mut bench, 1, 100, 2), [Verdict::Success, Verdict::Congested]);
    assert_eq!((bench.qdisc.qlen(), flows(&mut bench, 9).len()), (1, 1));
}

/// Flows that share a bucket part when the hash changes, and no packet is lost or overtaken in its flow.
#[test]
fn the_hash_changes_after_its_period() {
    let mut bench = Virtual::new("sfq limit 1000 divisor 2 perturb 10 flows 2");
    let mut split = 0;
    for _ in 0..64 {
        (1..5).for_each(|flow| assert_eq!(send(&mut bench, flow, 100, 10), [Verdict::Success; 10]));
        let before = bench.qdisc.qlen();
        bench.now += 10 * SECOND;
        let left = flows(&mut bench, 100);
        assert_eq!(left.len(), before);
        split += usize::from(left[..15].contains(&1) && left[..15].contains(&2));
    }
    assert!(split > 8 && split < 64, "{split}");
}

/// Filters choose the queue, which is a class then; packets without a filter are dropped.
#[test]
fn filters_choose_the_queue() {
    let mut bench = Virtual::new("sfq");
    assert!(bench.qdisc.classes().unwrap().minors().is_empty());
    bench.filter(0, 100, Handle::new(1, 7));
    bench.filter(0, 200, Handle::new(1, 1024));
    bench.filter(0, 300, Handle::new(1, 1025));
    for (bytes, priority, expected) in [(100, 0, 1), (200, 0, 2), (300, 0, 2), (50, 0, 2), (50, 0x1_0005, 3)]
    {
        assert_eq!(bench.enqueue(bytes, priority), Verdict::Success);
        assert_eq!(bench.qdisc.qlen(), expected, "{bytes}");
    }
    assert_eq!(bench.drops.get(DropReason::QdiscDrop), 2);
    let classes = bench.qdisc.classes().unwrap();
    assert_eq!(classes.minors(), [5, 7, 1024]);
    let info = classes.class(7, Style::default());
    let shown = " (dropped 0, overlimits 0 requeues 0) \n backlog 100b 1p requeues 0\n  allot 1514";
    assert_eq!(info.xstats.unwrap().text(), shown);
}

#[test]
fn red_drops_from_a_flow_and_not_from_another() {
    let mut bench =
        Virtual::new("sfq limit 1000 depth 127 divisor 65536 redflowlimit 100000 min 3000 max 9000 burst 6");
    let verdicts = send(&mut bench, 1, 1000, 60);
    assert!(verdicts[40..].iter().all(|&verdict| verdict == Verdict::Drop), "{verdicts:?}");
    assert_eq!(send(&mut bench, 2, 1000, 3), [Verdict::Success; 3]);
    let drops = verdicts.iter().filter(|&&verdict| verdict == Verdict::Drop).count() as u64;
    assert_eq!(bench.drops.get(DropReason::QdiscCongested), drops);
    assert_eq!(bench.qdisc.stats().overlimits, drops);
    let shown = bench.qdisc.options(Style::default());
    assert!(shown.text().contains("forced_mark 0 forced_mark_head 0 forced_drop "), "{}", shown.text());
}

#[test]
fn words_and_errors_are_tcs() {
    let details = Style { details: true, ..Style::default() };
    let shown = |text: &str, style| Virtual::new(text).qdisc.options(style).text().to_owned();
    for (text, plain) in [
        ("sfq", "limit 127p quantum 1514b depth 127 divisor 1024 "),
        ("sfq perturb 10", "limit 127p quantum 1514b depth 127 divisor 1024 perturb 10sec "),
    ] {
        assert_eq!(shown(text, Style::default()), plain);
    }
    for (text, long) in [
        ("sfq limit 2", "limit 2p quantum 1514b depth 127 flows 2 divisor 1024 "),
        ("sfq limit 200000", "limit 16256p quantum 1514b depth 127 flows 128 divisor 1024 "),
        ("sfq flows 70000 divisor 65536", "limit 127p quantum 1514b depth 127 flows 65408 divisor 65536 "),
        ("sfq depth 10 flows 5 limit 200", "limit 50p quantum 1514b depth 10 flows 5 divisor 1024 "),
        (
            "sfq redflowlimit 100000 min 8000 max 60000 probability 0.20 ecn headdrop",
            "limit 127p quantum 1514b depth 127 headdrop flows 128 divisor 1024 ewma 6 min 8000b max 60000b \
             probability 0.2 ecn \n  prob_mark 0 prob_mark_head 0 prob_drop 0\n  forced_mark 0 \
             forced_mark_head 0 forced_drop 0",
        ),
    ] {
        assert_eq!(shown(text, details), long, "{text}");
        let input = Style { input: true, ..Style::default() };
        let saved = shown(text, input);
        assert_eq!(shown(&format!("sfq {saved}"), input), saved);
    }
    let mut bench = Virtual::new("sfq");
    for (text, message) in [
        ("limit 1", "Illegal \"limit\", must be > 1"),
        ("limit x", "Illegal \"limit\""),
        ("depth x", "Illegal \"flows\""),
        ("quantum x", "Illegal \"limit\""),
        ("ecn", "Required parameter (redflowlimit) is missing"),
        ("redflowlimit 5", "SFQ: failed to calculate EWMA constant."),
        ("redflowlimit 1000 min 900", "\"min\" is not smaller than \"max\""),
        ("redflowlimit 1000 max 2000", "\"max\" is larger than \"limit\""),
        ("redflowlimit 100000 probability 0", "SFQ: failed to calculate probability."),
        ("foo", "What is \"foo\"?"),
        ("limit 50", "Error: Change operation not supported by specified qdisc."),
    ] {
        assert_eq!(bench.change(text).unwrap_err().message(), message, "{text}");
    }
    bench.change("").unwrap();
    for (text, message) in [
        ("sfq divisor 1000", "RTNETLINK answers: Invalid argument"),
        ("sfq divisor 131072", "RTNETLINK answers: Invalid argument"),
        ("sfq quantum 2147483648", "Error: sch_sfq: invalid quantum."),
        ("sfq perturb -1", "Error: sch_sfq: invalid perturb period."),
        ("sfq perturb 42949672", "Error: sch_sfq: invalid perturb period."),
        ("sfq redflowlimit 100000 burst 10000", "RTNETLINK answers: Invalid argument"),
    ] {
        assert_eq!(try_build(text, &ENV).err().unwrap().message(), message, "{text}");
    }
}
