use super::*;
use crate::generic::qdisc::testing::{ENV, Virtual, try_build};

/// Returns an IPv4 UDP packet of a flow.
fn packet(bench: &mut Virtual, flow: u8) -> Packet {
    let mut packet = bench.packet(100, 0);
    let header = [
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8, 0, 0x45, 0, 0, 86, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0,
        flow, 10, 0, 0, 2,
    ];
    packet.data_mut()[..34].copy_from_slice(&header);
    packet.set_cookie(flow.into());
    packet
}

/// A flow that sends five times as much as each of nine others gets less than five times as much: its packets meet each other.
#[test]
fn a_flow_that_fills_the_queue_pays() {
    let mut bench =
        Virtual::new("choke limit 1000 bandwidth 10mbit min 20 max 900 burst 40 probability 0.00001");
    let (mut sent, rounds) = ([0u32; 11], if cfg!(miri) { 20 } else { 2000 });
    for _ in 0..rounds {
        for flow in [1, 1, 2, 3, 1, 4, 5, 6, 1, 7, 8, 9, 1, 10] {
            let packet = packet(&mut bench, flow);
            let _ = bench.with(|qdisc, cx| qdisc.enqueue(packet, cx));
        }
        for (flow, _) in bench.dequeue(8) {
            sent[flow as usize] += 1;
        }
    }
    let stats = bench.qdisc.stats();
    assert_eq!(bench.drops.get(DropReason::QdiscCongested), stats.drops);
    if !cfg!(miri) {
        let others = sent[2..].iter().sum::<u32>() / 9;
        assert!(sent[1] < 3 * others, "{sent:?}");
        let counts = bench.qdisc.xstats(Style::default()).unwrap();
        let matched = counts.json()["matched"].as_u64().unwrap();
        assert!(2 * matched <= stats.drops && matched > 1000, "{}", counts.text());
    }
}

#[test]
fn short_queues_and_limits() {
    let mut bench = Virtual::new("choke limit 8 bandwidth 10mbit min 6 max 8 burst 10 probability 0.001");
    let verdicts: Vec<_> = (1..=10)
        .map(|flow| {
            let packet = packet(&mut bench, flow);
            bench.with(|qdisc, cx| qdisc.enqueue(packet, cx))
        })
        .collect();
    assert_eq!(verdicts[..8], [Verdict::Success; 8], "the average is below min");
    assert_eq!(verdicts[8..], [Verdict::Drop; 2]);
    assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 2);
    bench.change("limit 5 bandwidth 10mbit min 2 max 5 burst 9").unwrap();
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().drops), (5, 5));
    let flows: Vec<_> = bench.dequeue(9).into_iter().map(|(flow, _)| flow).collect();
    assert_eq!(flows, [1, 2, 3, 4, 5]);
}

#[test]
fn words_and_errors_are_tcs() {
    let details = Style { details: true, ..Style::default() };
    for (text, shown) in [
        (
            "choke limit 1000 bandwidth 10mbit",
            "limit 1000p min 83p max 250p ewma 6 probability 0.02 Scell_log 16",
        ),
        (
            "choke limit 1000 bandwidth 10mbit min 50 max 200 burst 60 ecn probability 0.1",
            "limit 1000p min 50p max 200p ecn ewma 4 probability 0.1 Scell_log 14",
        ),
    ] {
        let bench = Virtual::new(text);
        assert_eq!(bench.qdisc.options(details).text(), shown);
        let input = bench.qdisc.options(Style { input: true, ..Style::default() });
        assert_eq!(Virtual::new(&format!("choke {}", input.text())).qdisc.options(details).text(), shown);
        assert!(bench.qdisc.xstats(details).unwrap().text().ends_with("pdrop 0 other 0 matched 0"));
    }
    for (text, message) in [
        ("", "Required parameter (bandwidth, limit) is missing"),
        ("limit 10", "Required parameter (bandwidth, limit) is missing"),
        ("limit 10 bandwidth 0", "Required parameter (bandwidth, limit) is missing"),
        ("limit x bandwidth 1mbit", "Illegal \"limit\""),
        ("limit 10 bandwidth x", "Illegal \"bandwidth\""),
        ("limit 10 bandwidth 1mbit foo", "What is \"foo\"?"),
        ("limit 10 bandwidth 1mbit min 50 max 20", "\"max\" is larger than \"limit\""),
        ("limit 100 bandwidth 1mbit min 30", "\"min\" is not smaller than \"max\""),
        ("limit 1 bandwidth 1mbit", "\"min\" is not smaller than \"max\""),
        ("limit 4 bandwidth 1mbit", "CHOKE: failed to calculate EWMA constant."),
        ("limit 100 bandwidth 1mbit burst 1", "CHOKE: failed to calculate EWMA constant."),
        ("limit 100 bandwidth 1mbit probability 0", "CHOKE: failed to calculate probability."),
        ("limit 131073 bandwidth 1mbit", "RTNETLINK answers: Invalid argument"),
    ] {
        assert_eq!(try_build(&format!("choke {text}"), &ENV).err().unwrap().message(), message, "{text}");
    }
}
