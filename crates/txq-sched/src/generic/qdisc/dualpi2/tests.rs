use proptest::prelude::*;
use txq_core::arch::Native;

use super::*;
use crate::generic::qdisc::codel::tests::bench::{Bench, MS, conserves, ipv4, ops};
use crate::generic::qdisc::testing::{ENV, Virtual, try_build};

const CE: u8 = 3;

fn number(bench: &Bench, key: &str) -> u64 {
    bench.qdisc.xstats(Style::default()).unwrap().json()[key].as_u64().unwrap()
}

/// Enqueues a packet of 1000 bytes with this ECN field, whose cookie is the time.
fn send(bench: &mut Bench, ecn: u8) -> Verdict {
    let mut packet = ipv4(bench, ecn);
    packet.set_cookie(bench.now);
    bench.push(packet)
}

/// Enqueues packets with these ECN fields.
fn send_all(bench: &mut Bench, fields: &[u8]) {
    fields.iter().for_each(|&ecn| assert_eq!(send(bench, ecn), Verdict::Success));
}

/// Dequeues so many packets; returns their ECN fields.
fn fields(bench: &mut Bench, packets: usize) -> Vec<u8> {
    bench.take(Budget::packets(packets)).iter().map(|packet| packet.data()[15] & 3).collect()
}

/// ECT(1) and CE go first; with `any_ect` ECT(0) does as well.
#[test]
fn the_ecn_field_chooses_the_queue() {
    for (text, first, second) in
        [("dualpi2", [1, 3], [0, 2]), ("dualpi2 any_ect classic_protection 0", [1, 2], [3, 0])]
    {
        let mut bench = Bench::new(text);
        let order = if first[1] == 2 { [0, 1, 2, 3] } else { [0, 2, 1, 3] };
        send_all(&mut bench, &order);
        let left = fields(&mut bench, 9);
        assert_eq!((&left[..2], left.len()), (&first[..], 4), "{text} {left:?} {second:?}");
    }
}

/// The priority of a class, and a filter's choice, go before the ECN field.
#[test]
fn classes_choose_the_queue() {
    let mut bench = Virtual::new("dualpi2");
    bench.filter(0, 200, Handle::new(1, 2));
    bench.filter(0, 300, Handle::new(1, 7));
    for (bytes, priority) in [(300, 0), (100, 0), (200, 0), (100, 0x1_0001), (100, 0x2_0001)] {
        assert_eq!(bench.enqueue(bytes, priority), Verdict::Success);
    }
    assert_eq!(bench.dequeue(9).iter().map(|&(number, _)| number).collect::<Vec<_>>(), [2, 3, 0, 1, 4]);
}

/// While both queues have packets, the C queue gets its percentage of the bytes.
#[test]
fn the_classic_queue_is_protected() {
    for percent in [0, 10, 40, 100] {
        let text = format!("dualpi2 classic_protection {percent} step_thresh 10s limit 30000");
        let mut bench = Bench::new(&format!("{text} memlimit 4000000000"));
        for _ in 0..2000 {
            send_all(&mut bench, &[0]);
            send_all(&mut bench, &[1]);
        }
        let left = fields(&mut bench, 1000);
        let classic = left.iter().filter(|&&ecn| ecn == 0).count();
        assert!(classic.abs_diff(percent * 10) <= 3, "{percent} %: {classic}");
        assert_eq!(left[0], u8::from(percent < 100));
    }
}

/// Returns how often the law of a qdisc with a base probability drops packets of an ECN field, and how often it marks them.
fn law(text: &str, prob: f64, ecn: u8, class: Class) -> (f64, f64) {
    const N: usize = 20_000;
    let params = Params::new(&ENV).changed(&mut Words::split(text)).unwrap();
    let mut qdisc = DualPi2::<Native>::new(params, &ENV);
    (qdisc.law.prob, qdisc.bytes) = (prob, 10_000);
    let mut bench = Bench::new("pfifo");
    let mut dropped = 0;
    for _ in 0..N {
        let mut packet = ipv4(&mut bench, ecn);
        dropped += usize::from(qdisc.drops(&mut packet, class));
    }
    (dropped as f64 / N as f64, f64::from(qdisc.counts.ecn_mark) / N as f64)
}

/// The C queue has the square of the base probability, the L queue twice it; the numbers are 5 standard deviations exact.
#[test]
fn probabilities_are_coupled() {
    use Class::{Classic, Exempt, Scalable};
    if cfg!(miri) {
        return;
    }
    let near = |(drops, marks): (f64, f64), expected: (f64, f64), what: &str| {
        let close = |value: f64, expected: f64| (value - expected).abs() <= 0.018;
        assert!(close(drops, expected.0) && close(marks, expected.1), "{what}: {drops} {marks}");
    };
    near(law("", 0.3, 0, Classic), (0.09, 0.0), "not ECN-capable");
    near(law("", 0.3, 2, Classic), (0.0, 0.09), "ECT(0)");
    near(law("", 0.3, 1, Scalable), (0.0, 0.6), "ECT(1)");
    near(law("coupling_factor 3", 0.3, 1, Scalable), (0.0, 0.9), "another factor");
    near(law("", 0.3, 0, Scalable), (0.6, 0.0), "a filter's choice");
    near(law("", 0.3, 0, Exempt), (0.0, 0.0), "class 2");
    near(law("", 0.8, 2, Classic), (0.64, 0.0), "an overload drops");
    near(law("", 0.8, 1, Scalable), (0.64, 0.36), "an overload drops, and marks the rest");
    near(law("overflow", 0.5, 2, Classic), (0.0, 0.25), "no overload with overflow");
    near(law("overflow", 0.5, 1, Scalable), (0.0, 1.0), "all are marked");
}

#[test]
fn the_step_marks() {
    let mut bench = Bench::new("dualpi2 min_qlen_step 1");
    send_all(&mut bench, &[1; 3]);
    bench.now += MS;
    assert_eq!(fields(&mut bench, 1), [1], "it waited 1 ms, and no longer");
    send_all(&mut bench, &[1]);
    bench.now += 1;
    assert_eq!(fields(&mut bench, 2), [CE, CE]);
    bench.now += 2 * MS;
    send_all(&mut bench, &[0]);
    assert_eq!(fields(&mut bench, 2), [CE, 0]);
    send_all(&mut bench, &[1]);
    bench.now += 2 * MS;
    assert_eq!(fields(&mut bench, 1), [1], "the queue was empty when it came");
    assert_eq!((number(&bench, "step-mark"), number(&bench, "ecn-mark")), (3, 0));
    let mut bench = Bench::new("dualpi2 step_thresh 2p");
    send_all(&mut bench, &[1; 4]);
    assert_eq!(fields(&mut bench, 4), [CE, CE, 1, 1]);
    let mut bench = Virtual::new("dualpi2 step_thresh 1p");
    for priority in [0x1_0001, 0x1_0002, 0x1_0002] {
        assert_eq!(bench.enqueue(100, priority), Verdict::Success);
    }
    assert_eq!(bench.dequeue(9).len(), 2, "class 1 loses what it cannot mark; class 2 loses nothing");
}

/// Sends packets of an ECN field at `offered` times the rate of a link of a packet a millisecond. Returns the median delay of
/// the second half, in milliseconds.
fn run(bench: &mut Bench, offered: f64, ecn: u8, ms: u64) -> u64 {
    let (mut delays, mut owed) = (Vec::new(), 0.0);
    for at in 0..ms {
        bench.now += MS;
        owed += offered;
        while owed >= 1.0 {
            owed -= 1.0;
            let _ = send(bench, ecn);
        }
        bench.to_free = PacketList::new();
        if let Some(packet) = bench.dequeue()
            && at > ms / 2
        {
            delays.push((bench.now - packet.cookie()) / MS);
        }
    }
    assert!(delays.len() as u64 >= ms / 2 - 2, "the link is busy: {}", delays.len());
    delays.sort_unstable();
    delays[delays.len() / 2]
}

/// Flows that do not respond, at 1.1 times the link's rate: the delay is near the target, and the link is busy. With `overflow`
/// ECN-capable packets fill the queue to its limit.
#[test]
fn the_delay_is_near_the_target() {
    if cfg!(miri) {
        return;
    }
    for (text, ecn) in [("dualpi2", 0), ("dualpi2 drop_enqueue", 0), ("dualpi2", 2), ("dualpi2", 1)] {
        let mut bench = Bench::new(text);
        let delay = run(&mut bench, 1.1, ecn, 10_000);
        assert!((8..30).contains(&delay), "{text} {ecn}: {delay} ms");
        assert_eq!(bench.drops(), bench.qdisc.stats().drops);
    }
    let mut bench = Bench::new("dualpi2 overflow limit 200");
    let delay = run(&mut bench, 1.1, 1, 10_000);
    assert!(delay >= 198, "{delay} ms");
    assert_eq!((bench.drops(), bench.drops.get(DropReason::QdiscOverlimit) > 500), (0, true));
    assert!(number(&bench, "step-mark") + number(&bench, "ecn-mark") > 9000);
}

#[test]
fn limits_hold_and_shrink() {
    let mut bench = Bench::new("dualpi2 limit 3");
    let verdicts: Vec<_> = [1, 0, 0, 0].map(|ecn| send(&mut bench, ecn)).to_vec();
    assert_eq!(verdicts, [Verdict::Success, Verdict::Success, Verdict::Success, Verdict::Drop]);
    assert_eq!(bench.qdisc.stats().overlimits, 1);
    bench.change("limit 2").unwrap();
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().drops), (2, 2));
    assert_eq!(fields(&mut bench, 9), [1, 0], "the C queue's oldest goes first");
    let mut bench = Bench::new("dualpi2 memlimit 3000");
    let verdicts: Vec<_> = [1, 0, 0].map(|ecn| send(&mut bench, ecn)).to_vec();
    assert_eq!(verdicts, [Verdict::Success, Verdict::Success, Verdict::Drop]);
    assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 1);
    bench.with(|qdisc, cx| qdisc.reset(cx));
    assert_eq!((bench.qdisc.qlen(), bench.drops.get(DropReason::QueuePurge)), (0, 2));
}

/// A GSO packet is queued as its segments, unless the words say otherwise.
#[test]
fn gso_packets_are_cut() {
    let (header, mut frame) = (etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]), Vec::new());
    header.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(5, 9).write(&mut frame, &[7; 2500]).unwrap();
    for (text, packets) in [("dualpi2", 3), ("dualpi2 no_split_gso", 1)] {
        let mut bench = Bench::with_room(text, 4000);
        let mut packet = bench.packet(frame.len(), 0);
        packet.data_mut().copy_from_slice(&frame);
        packet.set_gso(1000, 3);
        assert_eq!(bench.push(packet), Verdict::Success);
        assert_eq!(bench.qdisc.qlen(), packets, "{text}");
        assert_eq!(bench.take(Budget::packets(9)).segs(), 3);
    }
}

/// Returns the words of a random change.
fn change() -> BoxedStrategy<String> {
    prop_oneof![
        (0u32..30).prop_map(|limit| format!("limit {limit}")),
        (1u64..40).prop_map(|ms| format!("target {ms}ms tupdate {ms}ms drop_enqueue overflow")),
        (0u32..9000).prop_map(|bytes| format!("memlimit {bytes} classic_protection {}", bytes % 101)),
        Just("drop_dequeue drop_on_overload any_ect alpha 0 beta 4000".to_owned()),
    ]
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]

    #[test]
    fn conserves_packets(ops in ops(change())) {
        conserves("dualpi2 limit 40 target 1ms tupdate 1ms alpha 100 beta 1000", &ops);
    }
}

#[test]
fn words_and_errors_are_tcs() {
    let shown = |text: &str, style| try_build(text, &ENV).unwrap().options(style).text().to_owned();
    for (text, expected) in [
        (
            "dualpi2",
            "limit 10000p memlimit 15140000B target 15ms tupdate 16ms alpha 0.156250 beta 3.195312 step_thresh 1ms \
             min_qlen_step 0p coupling_factor 2 drop_on_overload drop_dequeue classic_protection 10% l4s_ect split_gso ",
        ),
        (
            "dualpi2 limit 9 memlimit 90000 coupling_factor 3 step_thresh 5pkts min_qlen_step 2 overflow drop_enqueue \
             any_ect classic_protection 25% target 5ms tupdate 2ms alpha 1.5 beta 0.25 no_split_gso",
            "limit 9p memlimit 90000B target 5ms tupdate 2ms alpha 1.496094 beta 0.246094 step_thresh 5p \
             min_qlen_step 2p coupling_factor 3 overflow drop_enqueue classic_protection 25% any_ect no_split_gso ",
        ),
        // 0.1 * 1 ms / (6 ms)^2 and 0.3 / 6 ms.
        (
            "dualpi2 typical_rtt 1ms limit 0 target 3ms",
            "limit 10000p memlimit 15140000B target 1ms tupdate 1ms alpha 2.773438 beta 49.996094 step_thresh 1ms \
             min_qlen_step 0p coupling_factor 2 drop_on_overload drop_dequeue classic_protection 10% l4s_ect split_gso ",
        ),
        (
            "dualpi2 max_rtt 300ms",
            "limit 10000p memlimit 15140000B target 50ms tupdate 50ms alpha 0.050781 beta 0.996094 step_thresh 1ms \
             min_qlen_step 0p coupling_factor 2 drop_on_overload drop_dequeue classic_protection 10% l4s_ect split_gso ",
        ),
    ] {
        assert_eq!(shown(text, Style::default()), expected);
        let input = Style { input: true, ..Style::default() };
        let saved = shown(text, input);
        assert_eq!(shown(&format!("dualpi2 {saved}"), input), saved);
        assert_eq!(shown(&format!("dualpi2 {saved}"), Style::default()), expected);
    }
    assert!(shown("dualpi2 typical_rtt 20ms max_rtt 200ms", Style::default()).contains(" alpha 0.042969 "));
    let mut bench = Bench::new("dualpi2");
    assert_eq!(
        bench.qdisc.options(Style::default()).json().to_string(),
        r#"{"limit":10000,"memory-limit":15140000,"target":15000,"tupdate":16000,"alpha":0.15625,"beta":3.19531,"step-thresh-us":1000,"min-qlen-step":0,"coupling":2,"drop-overload":"drop","drop-early":"drop-dequeue","c-protection":10,"ecn-mask":"l4s-ect","split-gso":null}"#
    );
    let (text, json) = bench.shown();
    assert!(
        text.ends_with(
            "\nprob 0.000000 delay_c 0us delay_l 0us\npkts_in_c 0 pkts_in_l 0 maxq 0\necn_mark 0 step_mark 0\n\
             credit -121120 (L-queue)\nmemory_used 0 (max 0) of memory limit 15140000\n\n"
        ),
        "{text}"
    );
    assert!(json.contains(r#""credit":-121120,"memory-used":0,"max-memory-used":0,"memory-limit":15140000"#));
    for (text, message) in [
        ("limit x", "Illegal \"limit\""),
        ("memlimit 1k", "Illegal \"memlimit\""),
        ("target x", "Illegal \"target\""),
        ("tupdate x", "Illegal \"tupdate\""),
        ("alpha -1", "Illegal \"alpha\""),
        ("beta 99999999", "Illegal \"beta\""),
        ("coupling_factor 256", "Illegal \"coupling_factor\""),
        ("coupling_factor 0", "Error: integer out of range."),
        ("step_thresh 5packs", "Illegal \"step_thresh\""),
        ("min_qlen_step x", "Illegal \"min_qlen_step\""),
        ("classic_protection 101", "Illegal \"classic_protection\""),
        ("max_rtt 1ms typical_rtt 2ms", "typical_rtt must be <= max_rtt!"),
        ("max_rtt 100s", "Large max_rtt=100s rounds down alpha=0.000167 and/or beta=0.003000!"),
        ("foo", "What is \"foo\"?"),
        ("limit", "Command line is not complete. Try option \"help\""),
    ] {
        assert_eq!(bench.change(text).unwrap_err().message(), message, "{text}");
    }
}
