use txq_core::drop::DropReason;

use super::*;
use crate::generic::qdisc::Verdict;
use crate::generic::qdisc::testing::{MS, Virtual};

const TEXT: &str = "red limit 60000 min 5000 max 15000 avpkt 1000 bandwidth 10mbit";

/// Returns an IPv4 packet whose ECN field is `ecn`.
fn packet(bench: &mut Virtual, bytes: usize, ecn: u8) -> Packet {
    let mut packet = bench.packet(bytes, 0);
    let mut header = vec![2; 12];
    header.extend([8, 0, 0x45, ecn, 5, 0xdc, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.data_mut()[..34].copy_from_slice(&header);
    packet
}

/// Fills the queue until the average is above `max`: no packet is taken meanwhile.
fn fill(bench: &mut Virtual, ecn: u8, packets: usize) -> Vec<Verdict> {
    (0..packets)
        .map(|_| {
            let packet = packet(bench, 1000, ecn);
            bench.with(|qdisc, cx| qdisc.enqueue(packet, cx))
        })
        .collect()
}

fn xstats(bench: &Virtual) -> String {
    bench.qdisc.xstats(Style::default()).map(|x| x.text().to_owned()).unwrap_or_default()
}

/// The average of a queue of n packets reaches 15 packets; from then on each packet is dropped, and counted once.
#[test]
fn from_max_on_all_are_dropped() {
    let mut bench = Virtual::new(TEXT);
    let verdicts = fill(&mut bench, 0, 60);
    let first = verdicts.iter().position(|&verdict| verdict != Verdict::Success).expect("a drop");
    assert!(first > 15, "a burst passes: {first}");
    assert!(verdicts[50..].iter().all(|&verdict| verdict == Verdict::Congested), "{verdicts:?}");
    let stats = bench.qdisc.stats();
    let drops = verdicts.iter().filter(|&&verdict| verdict == Verdict::Congested).count() as u64;
    assert_eq!((stats.drops, stats.overlimits, stats.qlen), (drops, drops, 60 - drops));
    assert_eq!(bench.drops.get(DropReason::QdiscCongested), drops);
    assert_eq!(xstats(&bench), format!("  marked 0 early {drops} pdrop 0 other 0 "));
    assert_eq!(bench.dequeue(100).len() as u64, 60 - drops);
    assert_eq!(bench.qdisc.stats().packets, 60 - drops);
}

/// After a pause of ten times the mean length of the queue the average is 0 again.
#[test]
fn a_pause_lowers_the_average() {
    let mut bench = Virtual::new(TEXT);
    fill(&mut bench, 0, 60);
    bench.dequeue(100);
    assert_eq!(bench.enqueue(1000, 0), Verdict::Congested, "the average is still high");
    bench.now += 200 * MS;
    assert_eq!(bench.enqueue(1000, 0), Verdict::Success);
}

#[test]
fn ecn_marks_instead_of_dropping() {
    for (words, ecn, dropped) in
        [("ecn", 2, false), ("ecn", 0, true), ("ecn harddrop", 2, true), ("ecn nodrop", 0, false)]
    {
        let mut bench = Virtual::new(&format!("{TEXT} {words}"));
        fill(&mut bench, ecn, 59);
        let drops = bench.qdisc.stats().drops;
        let packet = packet(&mut bench, 1000, ecn);
        let verdict = bench.with(|qdisc, cx| qdisc.enqueue(packet, cx));
        assert_eq!(
            (verdict == Verdict::Congested, bench.qdisc.stats().drops > drops),
            (dropped, dropped),
            "{words}"
        );
        let out = bench.take(Budget::packets(100));
        let marked = out.iter().filter(|packet| packet.data()[15] & 3 == 3).count();
        assert_eq!(marked > 20, (words, ecn) == ("ecn", 2), "{words} {marked}");
        assert!(xstats(&bench).starts_with(&format!("  marked {marked} ")), "{words}: {}", xstats(&bench));
    }
}

#[test]
fn the_queue_has_its_own_limit() {
    let mut bench = Virtual::new("red limit 3000 min 2000 max 3000 avpkt 1000 burst 30 probability 1");
    let verdicts = fill(&mut bench, 0, 5);
    assert_eq!(
        verdicts,
        [Verdict::Success, Verdict::Success, Verdict::Success, Verdict::Drop, Verdict::Drop]
    );
    assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 2);
    assert_eq!(xstats(&bench), "  marked 0 early 0 pdrop 2 other 0 ");
    bench.change("limit 9000 avpkt 1000 min 5000 max 8000").unwrap();
    assert_eq!(fill(&mut bench, 0, 2), [Verdict::Success; 2], "the bfifo has the new limit");
}

#[test]
fn words_and_errors_are_tcs() {
    let shown = |text: &str, style: Style| Virtual::new(text).qdisc.options(style);
    let details = Style { details: true, ..Style::default() };
    let text = "red limit 60000 avpkt 1000";
    assert_eq!(shown(text, Style::default()).text(), "limit 60000b min 5000b max 15000b ");
    assert_eq!(
        shown(text, details).text(),
        "limit 60000b min 5000b max 15000b ewma 3 probability 0.02 Scell_log 13"
    );
    assert_eq!(
        shown(text, details).json().to_string(),
        r#"{"limit":60000,"min":5000,"max":15000,"ecn":false,"harddrop":false,"adaptive":false,"nodrop":false,"ewma":3,"probability":0.02,"Scell_log":13}"#
    );
    let all = "red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 harddrop ecn nodrop probability 0.1";
    assert_eq!(
        shown(all, details).text(),
        "limit 400000b min 30000b max 90000b ecn harddrop nodrop ewma 5 probability 0.1 Scell_log 15"
    );
    let input = Style { input: true, ..Style::default() };
    let saved = shown(all, input).text().to_owned();
    assert_eq!(shown(&format!("red {saved}"), input).text(), saved);
    let mut bench = Virtual::new(text);
    for (text, message) in [
        ("", "RED: Required parameter (limit, avpkt) is missing"),
        ("limit 60000", "RED: Required parameter (limit, avpkt) is missing"),
        ("limit 0 avpkt 1000", "RED: Required parameter (limit, avpkt) is missing"),
        ("limit x", "Illegal \"limit\""),
        ("limit 100k avpkt 1000 min 50k max 20k", "RED: failed to calculate EWMA constant."),
        ("limit 100k avpkt 1000 burst 1", "RED: failed to calculate EWMA constant."),
        ("limit 100k avpkt 1000 burst 10 min 2000 max 1000", "RED: failed to calculate probability."),
        ("limit 100k avpkt 1000 probability 0", "RED: failed to calculate probability."),
        ("limit 100k avpkt 1000 probability x", "Illegal \"probability\""),
        ("limit 100k avpkt 1000 probability 2", "Illegal \"probability\""),
        ("limit 100k avpkt 1000 burst 1000", "RTNETLINK answers: Invalid argument"),
        ("limit 100k avpkt 1000 nodrop", "Error: sch_red: nodrop mode is only meaningful with ECN."),
        ("limit 100k avpkt 1000 foo", "What is \"foo\"?"),
        ("limit", "Command line is not complete. Try option \"help\""),
    ] {
        assert_eq!(bench.change(text).unwrap_err().message(), message, "{text}");
    }
}
