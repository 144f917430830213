//! fq_codel against RFC 8290 in virtual time.

use proptest::prelude::*;

use txq_core::arch::Native;

use super::*;
use crate::generic::qdisc::build as build_kind;
use crate::generic::qdisc::codel::tests::bench::{Bench, ENV, MS, conserves, ipv4, ops};

/// Returns a hash for the flow with this number, of 1024.
fn flow(number: u32) -> u32 {
    (number << 22) | 1
}

/// Dequeues `n` packets and returns their hashes, in order.
fn next(bench: &mut Bench, n: usize) -> Vec<u32> {
    (0..n).filter_map(|_| bench.dequeue()).map(|p| p.hash() >> 22).collect()
}

fn counter(bench: &Bench, key: &str) -> u64 {
    bench.qdisc.xstats(Style::default()).unwrap().json()[key].as_u64().unwrap_or(0)
}

/// Section 4.2: each queue sends a quantum of bytes before the next queue's turn.
#[test]
fn queues_take_turns_by_bytes() {
    for (sizes, quantum, expected) in [
        ([1000, 1000], 1000, vec![1, 2, 1, 2, 1, 2]),
        ([500, 1000], 1000, vec![1, 1, 2, 1, 1, 2]),
        ([300, 1200], 1200, vec![1, 1, 1, 1, 2, 1, 1, 1, 1, 2]),
        // The bytes sent beyond the quantum are missing in the next turn.
        ([1000, 1500], 1500, vec![1, 1, 2, 1, 2, 1, 1, 2]),
    ] {
        let mut bench = Bench::new(&format!("fq_codel quantum {quantum}"));
        for _ in 0..20 {
            let _ = bench.enqueue(sizes[0], flow(1));
            let _ = bench.enqueue(sizes[1], flow(2));
        }
        assert_eq!(next(&mut bench, expected.len()), expected, "{sizes:?} quantum {quantum}");
    }
}

/// Sections 3 and 4.2: a queue that was empty goes before all that were not, once.
#[test]
fn sparse_flows_go_first() {
    let mut bench = Bench::new("fq_codel");
    for n in 0..400 {
        let _ = bench.enqueue(1514, flow(1 + n % 4));
    }
    // All four become old.
    assert_eq!(next(&mut bench, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    for _ in 0..20 {
        let _ = bench.enqueue(100, flow(9));
        assert_eq!(next(&mut bench, 1), [9]);
        // The next packet would make the flow new again, if its queue did not wait for its turn among the old ones.
        let _ = next(&mut bench, 5);
    }
}

/// Section 4.2: a new queue found empty moves to the old ones, so that its flow cannot come back as new and starve them.
#[test]
fn a_flow_that_refills_its_queue_starves_nobody() {
    let mut bench = Bench::new("fq_codel");
    for n in 0..400 {
        let _ = bench.enqueue(500, flow(1 + n % 4));
    }
    // All four flows are old, and the first one has the turn.
    assert_eq!(next(&mut bench, 17).last(), Some(&1));
    let _ = bench.enqueue(100, flow(9));
    // The dequeue finds its queue empty.
    assert_eq!(next(&mut bench, 2), [9, 1]);
    let _ = bench.enqueue(100, flow(9));
    assert_eq!(next(&mut bench, 4), [1, 2, 2, 2], "it waits for its turn");
}

/// Section 1: saturated flows get equal shares, however much they offer.
#[test]
fn saturated_flows_get_the_same() {
    const FLOWS: u32 = 1000;
    let mut bench = Bench::new("fq_codel limit 20000 memory_limit 1g");
    let mut sent = vec![0f64; FLOWS as usize];
    // One flow offers 100 packets for each packet of the others, and the link takes one packet for each flow.
    for round in 0..60 {
        for number in 0..FLOWS {
            for _ in 0..if number == 500 { 100 } else { 1 } {
                let _ = bench.enqueue(1000, flow(number));
            }
        }
        for _ in 0..FLOWS {
            let packet = bench.dequeue().expect("the link is saturated");
            sent[(packet.hash() >> 22) as usize] += packet.len() as f64;
        }
        bench.now += if round < 30 { MS } else { 20 * MS };
        bench.to_free = PacketList::new();
    }
    let jain =
        sent.iter().sum::<f64>().powi(2) / (f64::from(FLOWS) * sent.iter().map(|x| x * x).sum::<f64>());
    assert!(jain >= 0.99, "{jain}");
}

/// Section 4.1: at the limit the flow with the most bytes loses from its head, half of them or a batch.
#[test]
fn the_fattest_flow_pays() {
    for (text, fat, bytes, dropped) in [
        ("fq_codel limit 300", 290, 1000, 64),
        ("fq_codel limit 300 drop_batch 7", 290, 1000, 7),
        // Five of ten packets and six of eleven are half of the bytes.
        ("fq_codel limit 20", 10, 1000, 5),
        ("fq_codel limit 20", 11, 1000, 6),
        ("fq_codel limit 5", 1, 1500, 1),
        ("fq_codel memory_limit 500k limit 100000", 400, 1000, 64),
    ] {
        let mut bench = Bench::new(text);
        for _ in 0..fat {
            let _ = bench.enqueue(bytes, flow(7));
        }
        let (mut last, mut others) = (Verdict::Success, 0);
        while bench.to_free.is_empty() {
            // Each packet is a flow of its own.
            last = bench.enqueue(60, flow(100 + others));
            others += 1;
        }
        assert_eq!(last, Verdict::Success, "{text}: it is not this flow that paid");
        assert_eq!(bench.to_free.len(), dropped, "{text}");
        assert!(
            bench.to_free.iter().enumerate().all(|(n, p)| p.cookie() == n as u64),
            "{text}: from the head"
        );
        assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), dropped as u64);
        assert_eq!(counter(&bench, "drop_overlimit"), dropped as u64);
        let overmemory = if text.contains("memory") { dropped as u64 } else { 0 };
        assert_eq!(counter(&bench, "drop_overmemory"), overmemory, "{text}");
    }
}

#[test]
fn who_pays_itself_is_told() {
    let mut bench = Bench::new("fq_codel limit 10 drop_batch 1");
    let verdicts: Vec<_> = (0..12).map(|_| bench.enqueue(1000, flow(1))).collect();
    assert_eq!(verdicts, [[Verdict::Success; 10].as_slice(), &[Verdict::Congested; 2]].concat());
    assert_eq!(bench.enqueue(1, flow(2)), Verdict::Success);
    // A queue of empty packets is no longer than an empty queue.
    let mut bench = Bench::new("fq_codel limit 1");
    let _ = bench.enqueue(0, flow(3));
    assert_eq!(bench.enqueue(0, flow(4)), Verdict::Congested);
    assert_eq!(bench.qdisc.qlen(), 1);
}

/// The longest queue is found after any number of packets came and went.
#[test]
fn the_fattest_is_found_wherever_it_is() {
    for flows in [1usize, 63, 64, 65, 1000] {
        let mut bench = Bench::new("fq_codel");
        let mut table: Flows<Native, Law> = Flows::new(flows as u32);
        let mut random = 1u32;
        for _ in 0..1000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (at, own) = (table.of_hash(random), table.of_hash(random.rotate_left(16)));
            match random >> 8 & 3 {
                0 => drop(table.pop(at)),
                _ => table.push(at, bench.packet((random >> 4 & 1023) as usize, 1), 300),
            }
            let fattest = table.fattest(own);
            let most = (0..flows).map(|flow| table.bytes_of(flow)).max();
            assert_eq!(Some(table.bytes_of(fattest)), most);
            assert!(fattest == own || most > Some(table.bytes_of(own)));
        }
        table.clear(drop);
        assert_eq!((table.fattest(0), table.any(), table.len()), (0, None, 0));
    }
}

/// Each queue has a CoDel state of its own: a standing queue loses packets, and no other queue does.
#[test]
fn codel_works_on_each_queue() {
    for (text, tos, drops) in [
        ("fq_codel", 0, true),
        ("fq_codel", 2, false),
        ("fq_codel noecn", 2, true),
        ("fq_codel target 1s", 0, false),
    ] {
        let mut bench = Bench::new(text);
        let mut sparse = 0;
        for turn in 0..2000 {
            while bench.qdisc.qlen() < 50 {
                let packet = ipv4(&mut bench, tos);
                let _ = bench.with(|q, cx| q.enqueue(packet, cx));
            }
            if turn % 10 == 0 {
                let _ = bench.enqueue(100, flow(900));
            }
            bench.now += MS;
            sparse += u64::from(bench.dequeue().is_some_and(|p| p.hash() == flow(900)));
        }
        assert_eq!(bench.drops() > 0, drops, "{text}");
        assert!(bench.to_free.iter().all(|p| p.hash() != flow(900)), "{text}");
        assert_eq!(sparse, 200, "{text}: a sparse flow waits for one packet at most");
        assert_eq!(counter(&bench, "ecn_mark") > 0, text == "fq_codel" && tos == 2, "{text}");
    }
}

/// CoDel counts the bytes of all queues together: a queue with less than an MTU behind its first packet loses packets if
/// the others have enough.
#[test]
fn the_bytes_of_all_queues_count() {
    for (others, dropped) in [(0, false), (5, true)] {
        let mut bench = Bench::new("fq_codel noecn");
        let (mut few, mut many) = (0, 0);
        for _ in 0..300 {
            (few..2).for_each(|_| assert_eq!(bench.enqueue(700, flow(1)), Verdict::Success));
            (many..others).for_each(|_| assert_eq!(bench.enqueue(1514, flow(2)), Verdict::Success));
            (few, many) = (2, others);
            bench.now += 10 * MS;
            let left = bench.dequeue().expect("there are packets");
            for hash in bench.to_free.iter().map(Packet::hash).chain([left.hash()]) {
                *(if hash == flow(1) { &mut few } else { &mut many }) -= 1;
            }
            if bench.to_free.iter().any(|packet| packet.hash() == flow(1)) {
                break;
            }
            bench.to_free = PacketList::new();
        }
        assert_eq!(!bench.to_free.is_empty(), dropped, "{others} others");
    }
}

/// A queue that empties when all others are empty as well is a new one next time: it can starve no other.
#[test]
fn nobody_is_old_when_all_are_idle() {
    let mut bench = Bench::new("fq_codel");
    let _ = bench.enqueue(1000, flow(1));
    let _ = bench.enqueue(1000, flow(2));
    assert_eq!(next(&mut bench, 2), [1, 2]);
    assert!(bench.shown().0.ends_with("new_flows_len 0 old_flows_len 0\n"), "{}", bench.shown().0);
    let _ = bench.enqueue(1514, flow(3));
    let _ = bench.enqueue(1000, flow(2));
    assert_eq!((next(&mut bench, 2), counter(&bench, "new_flow_count")), (vec![3, 2], 4));
}

/// An idle one gives its memory back when no flow remembers a drop rate, and does then as one that has kept it.
#[test]
fn memory_given_back_is_not_missed() {
    let text = "fq_codel flows 64";
    let [mut lean, mut twin] = [(); 2].map(|()| Bench::new(text));
    let shrink = |bench: &mut Bench| {
        let now = bench.now;
        bench.qdisc.shrink(now)
    };
    assert!(shrink(&mut lean), "it has none yet");
    let mut drops = 0;
    for (depth, ms, pause) in
        [(1, 100, 50), (30, 3000, 50), (30, 2000, 1000), (1, 10, 5000), (30, 2000, 5000)]
    {
        let seen = [&mut lean, &mut twin].map(|bench| {
            let seen = bench.stand(depth, ms * MS);
            while bench.dequeue().is_some() {}
            bench.now += pause * MS;
            seen
        });
        assert_eq!(seen[0], seen[1], "after {depth} packets for {ms} ms");
        drops += seen[0].len();
        // A drop rate is remembered for 16 intervals of 100 ms.
        let many = seen[0].len() > 2;
        assert_eq!(shrink(&mut lean), !many || pause > 1600, "{} drops, {pause} ms ago", seen[0].len());
    }
    assert!(drops > 50, "{drops}");
    let _ = lean.enqueue(1000, flow(1));
    assert!(!shrink(&mut lean), "it has a packet");
}

/// With one queue fq_codel drops when codel does.
#[test]
fn one_queue_is_codel() {
    let drops = |text: &str| {
        let mut bench = Bench::new(text);
        [(20, 2000), (1, 300), (20, 1000)].map(|(depth, ms)| bench.stand(depth, ms * MS)).concat()
    };
    let expected = drops("codel");
    assert!(expected.len() > 60, "{}", expected.len());
    assert_eq!(drops("fq_codel flows 1"), expected);
}

#[test]
fn the_selector_says_whom_ce_threshold_marks() {
    for (selector, tos, marked) in [
        ("0x1/0x3", 1, true),
        ("0x1/0x3", 2, false),
        ("1/3", 0x41, true),
        ("0/0", 2, true),
        ("0x40/0xfc", 0x42, true),
    ] {
        let mut bench =
            Bench::new(&format!("fq_codel noecn ce_threshold 1ms ce_threshold_selector {selector}"));
        for _ in 0..3 {
            let packet = ipv4(&mut bench, tos);
            let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        }
        bench.now += 2 * MS;
        let ce = std::iter::from_fn(|| bench.dequeue()).filter(|p| p.data()[15] & 3 == 3).count();
        assert_eq!(ce, if marked { 3 } else { 0 }, "{selector} {tos:x}");
        assert_eq!(counter(&bench, "ce_mark"), ce as u64);
    }
}

/// A packet without a hash belongs to the flow of its headers.
#[test]
fn flows_are_told_without_a_hash() {
    let mut bench = Bench::new("fq_codel");
    for n in 0..60u8 {
        let mut packet = ipv4(&mut bench, 0);
        packet.data_mut()[29] = n % 3;
        assert_eq!(packet.hash(), 0);
        let _ = bench.with(|q, cx| q.enqueue(packet, cx));
    }
    assert_eq!(counter(&bench, "new_flow_count"), 3);
}

#[test]
fn a_change_trims_and_keeps_the_flows() {
    let mut bench = Bench::new("fq_codel flows 16");
    for n in 0..100 {
        let _ = bench.enqueue(1000, flow(n * 10));
    }
    bench.change("limit 40 quantum 3000").unwrap();
    assert_eq!((bench.qdisc.qlen(), bench.drops.get(DropReason::QdiscOverlimit)), (40, 60));
    bench.change("memory_limit 11280").unwrap();
    assert_eq!(bench.qdisc.qlen(), 10);
    let error = bench.change("limit 5 flows 16").unwrap_err().to_string();
    assert!(error.starts_with("RTNETLINK answers: Invalid argument (flows cannot be changed"), "{error}");
    assert_eq!(bench.qdisc.qlen(), 10, "nothing has changed");
    assert_eq!(next(&mut bench, 20).len(), 10);
    assert_eq!(counter(&bench, "memory_used"), 0);
}

/// The expected texts are tc 6.1's output for a kernel's qdisc with these values.
#[test]
fn shown_as_tc_shows_it() {
    let default =
        "limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 32Mb ecn drop_batch 64 ";
    for (text, shown) in [
        ("fq_codel", default),
        ("fq_codel limit 0 flows 0 target 0 interval 0 quantum 0 drop_batch 0", default),
        (
            "fq_codel ce_threshold 1ms ce_threshold_selector 0x1/0x3 noecn",
            "limit 10240p flows 1024 quantum 1514 target 5ms ce_threshold 999us ce_threshold_selector 0x1/0x3 \
             interval 100ms memory_limit 32Mb drop_batch 64 ",
        ),
        (
            "fq_codel limit 1000 flows 65536 target 50ms interval 20ms quantum 1 memory_limit 100000 drop_batch 1 \
             ce_threshold 0 ce_threshold_selector 1/0",
            "limit 1000p flows 65536 quantum 256 target 50ms ce_threshold 0us ce_threshold_selector 0x1/0 \
             interval 20ms memory_limit 100000b ecn drop_batch 1 ",
        ),
    ] {
        assert_eq!(Bench::new(text).qdisc.options(Style::default()).text(), shown, "{text}");
    }
    let mut bench = Bench::new("fq_codel ce_threshold 1ms ce_threshold_selector 1/3");
    let options = r#""options":{"limit":10240,"flows":1024,"quantum":1514,"target":4999,"ce_threshold":999,"#
        .to_owned()
        + r#""ce_threshold_selector":1,"ce_threshold_mask":3,"interval":99999,"memory_limit":33554432,"#
        + r#""ecn":true,"drop_batch":64},"bytes":0"#;
    assert!(bench.shown().1.contains(&options), "{}", bench.shown().1);
    assert!(bench.shown().0.ends_with(
        "  maxpacket 0 drop_overlimit 0 new_flow_count 0 ecn_mark 0\n  new_flows_len 0 old_flows_len 0\n"
    ));
    for number in [1, 1, 2, 3] {
        let _ = bench.enqueue(1000, flow(number));
    }
    let _ = next(&mut bench, 3);
    assert!(
        bench.shown().0.ends_with(
            "  maxpacket 1000 drop_overlimit 0 new_flow_count 3 ecn_mark 0 memory_used 1128\n  \
         new_flows_len 2 old_flows_len 1\n"
        ),
        "{}",
        bench.shown().0
    );
}

#[test]
fn errors_are_tcs() {
    for (text, expected) in [
        ("fq_codel foo", "What is \"foo\"?"),
        ("fq_codel limit 1k", "Illegal \"limit\""),
        ("fq_codel flows abc", "Illegal \"flows\""),
        ("fq_codel flows 65537", "RTNETLINK answers: Invalid argument (65537 flows: use 1 to 65536)"),
        ("fq_codel quantum 1k", "Illegal \"quantum\""),
        ("fq_codel quantum 1048577", "Error: Invalid quantum."),
        ("fq_codel memory_limit 1x", "Illegal \"memory_limit\""),
        ("fq_codel drop_batch x", "Illegal \"drop_batch\""),
        ("fq_codel ce_threshold x", "Illegal \"ce_threshold\""),
        ("fq_codel ce_threshold_selector 1", "Missing mask for \"ce_threshold_selector\""),
        ("fq_codel ce_threshold_selector 1/x", "Illegal mask for \"ce_threshold_selector\""),
        ("fq_codel ce_threshold_selector x/1", "Illegal \"ce_threshold_selector\""),
        ("fq_codel ce_threshold_selector 256/1", "Illegal \"ce_threshold_selector\""),
        ("fq_codel help", "Usage: ... fq_codel\t[ limit PACKETS ]"),
    ] {
        let error = build_kind::<Native>(text, &ENV).err().expect(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn nothing_is_lost(
        ops in ops(
            (1u32..60, 0u32..40_000, 0u32..9)
                .prop_map(|(l, m, b)| format!("limit {l} memory_limit {m} drop_batch {b} quantum {m} interval {b}"))
                .boxed()
        ),
        text in prop::sample::select(vec![
            "fq_codel limit 30",
            "fq_codel flows 1 target 1 interval 1",
            "fq_codel flows 2 memory_limit 0",
            "fq_codel flows 65536 limit 4294967295 quantum 1048576 drop_batch 4294967295 memory_limit 9k",
            "fq_codel target 4294s interval 4294s ce_threshold 0 drop_batch 1 limit 50",
        ]),
    ) {
        conserves(text, &ops);
    }
}
