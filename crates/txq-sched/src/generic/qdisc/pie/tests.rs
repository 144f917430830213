use super::*;
use crate::generic::qdisc::testing::{MS, Virtual};

/// Sends packets of 1000 bytes at `offered` times the rate of a link of 8 Mbit/s, one a millisecond, for so many
/// milliseconds. Returns the delays of the packets of the second half, in nanoseconds.
fn run(bench: &mut Virtual, offered: f64, time: u64, tos: u8) -> Vec<Nanos> {
    let (mut delays, mut owed) = (Vec::new(), 0.0);
    let began = bench.now;
    for ms in 0..time {
        bench.now = began + ms * MS;
        owed += offered;
        while owed >= 1.0 {
            owed -= 1.0;
            let mut packet = bench.packet(1000, 0);
            let header = [
                2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8, 0, 0x45, tos, 3, 0xda, 0, 0, 0x40, 0, 64, 17, 0, 0,
                10, 0, 0, 1, 10, 0, 0, 2,
            ];
            packet.data_mut()[..34].copy_from_slice(&header);
            packet.set_cookie(bench.now);
            let _ = bench.with(|qdisc, cx| qdisc.enqueue(packet, cx));
        }
        for (came, _) in bench.dequeue(1) {
            if ms > time / 2 {
                delays.push(bench.now - came);
            }
        }
    }
    delays
}

fn median(mut delays: Vec<Nanos>) -> Nanos {
    delays.sort_unstable();
    delays[delays.len() / 2]
}

/// Flows that do not respond, at 1.2 times the link's rate: the delay is near the target, and the link is busy.
#[test]
fn the_delay_is_near_the_target() {
    let time = if cfg!(miri) { 400 } else { 60_000 };
    for text in ["pie limit 5000", "pie limit 5000 target 30ms", "pie limit 5000 dq_rate_estimator"] {
        let mut bench = Virtual::new(text);
        let delays = run(&mut bench, 1.2, time, 0);
        if cfg!(miri) {
            continue;
        }
        assert!(delays.len() as u64 >= time / 2 - 2, "{text}: the link is busy: {}", delays.len());
        let (median, target) = (median(delays), if text.contains("30ms") { 30 * MS } else { 15 * MS });
        assert!((target / 2..target * 2).contains(&median), "{text}: {median} ns");
        let stats = bench.qdisc.stats();
        assert_eq!(bench.drops.get(DropReason::QdiscCongested), stats.drops);
        let share = stats.drops as f64 / (time as f64 * 1.2);
        assert!((0.13..0.2).contains(&share), "{text}: a sixth is too much: {share}");
    }
}

#[test]
fn below_the_rate_nothing_is_dropped() {
    let mut bench = Virtual::new("pie");
    let delays = run(&mut bench, 0.9, 5000, 0);
    assert_eq!(bench.qdisc.stats().drops, 0);
    assert!(median(delays) <= MS);
}

/// While the probability is small, ECN-capable packets are marked, and none is dropped.
#[test]
fn ecn_marks_instead_of_dropping() {
    let mut bench = Virtual::new("pie limit 5000 ecn");
    run(&mut bench, 1.02, 20_000, 2);
    let counts = bench.qdisc.xstats(Style::default()).unwrap();
    let marks = counts.json()["ecn_mark"].as_u64().unwrap();
    assert!(marks > 10, "{}", counts.text());
    let mut bench = Virtual::new("pie limit 5000 ecn");
    run(&mut bench, 1.02, 20_000, 0);
    assert!(bench.qdisc.stats().drops > 10, "packets that cannot be marked are dropped");
}

#[test]
fn the_limit_holds_and_shrinks() {
    let mut bench = Virtual::new("pie limit 5");
    let verdicts: Vec<_> = (0..7).map(|_| bench.enqueue(1000, 0)).collect();
    assert_eq!(verdicts[5..], [Verdict::Drop; 2]);
    let shown = bench.qdisc.xstats(Style::default()).unwrap();
    assert!(shown.text().ends_with("pkts_in 5 overlimit 2 dropped 2 maxq 4 ecn_mark 0"), "{}", shown.text());
    bench.change("limit 3").unwrap();
    let stats = bench.qdisc.stats();
    assert_eq!((stats.qlen, stats.drops), (3, 4));
    assert_eq!(bench.dequeue(9).iter().map(|&(number, _)| number).collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn words_and_errors_are_tcs() {
    let shown = |text: &str, style| Virtual::new(text).qdisc.options(style).text().to_owned();
    for (text, expected) in [
        ("pie", "limit 1000p target 15ms tupdate 15ms alpha 2 beta 20 "),
        (
            "pie limit 0 target 0 tupdate 0 alpha 0 beta 0",
            "limit 1000p target 15ms tupdate 15ms alpha 2 beta 20 ",
        ),
        (
            "pie limit 50 target 20ms tupdate 30ms alpha 3 beta 25 ecn bytemode dq_rate_estimator",
            "limit 50p target 20ms tupdate 30ms alpha 3 beta 25 ecn bytemode dq_rate_estimator ",
        ),
        ("pie target 10us tupdate 1us", "limit 1000p target 9us tupdate 1ms alpha 2 beta 20 "),
    ] {
        assert_eq!(shown(text, Style::default()), expected);
        let input = Style { input: true, ..Style::default() };
        let saved = shown(text, input);
        assert_eq!(shown(&format!("pie {saved}"), Style::default()), expected, "{saved}");
    }
    let mut bench = Virtual::new("pie");
    bench.change("ecn bytemode").unwrap();
    bench.change("noecn nobytemode limit 7").unwrap();
    assert_eq!(
        bench.qdisc.options(Style::default()).json().to_string(),
        r#"{"limit":7,"target":15000,"tupdate":15000,"alpha":2,"beta":20}"#
    );
    for (text, message) in [
        ("alpha 33", "Illegal \"alpha\""),
        ("beta 33", "Illegal \"beta\""),
        ("alpha -1", "Illegal \"alpha\""),
        ("target x", "Illegal \"target\""),
        ("tupdate x", "Illegal \"tupdate\""),
        ("limit x", "Illegal \"limit\""),
        ("foo", "What is \"foo\"?"),
        ("limit", "Command line is not complete. Try option \"help\""),
    ] {
        assert_eq!(bench.change(text).unwrap_err().message(), message, "{text}");
    }
}
