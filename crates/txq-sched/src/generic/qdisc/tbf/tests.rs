use txq_core::drop::DropReason;

use crate::generic::qdisc::Verdict;
use crate::generic::qdisc::testing::Virtual;
use crate::tc::{Handle, Style};

/// What a running kernel does with 20 packets of 92 bytes: two leave as a burst, four wait, and the rest is dropped.
#[test]
fn a_burst_leaves_and_the_limit_holds() {
    let mut tbf = Virtual::new("tbf rate 8kbit burst 200 limit 400");
    let verdicts: Vec<_> = (0..20)
        .map(|_| {
            let verdict = tbf.enqueue(92, 0);
            tbf.dequeue(1);
            verdict
        })
        .collect();
    assert_eq!(verdicts.iter().filter(|&&verdict| verdict == Verdict::Drop).count(), 14);
    let stats = tbf.qdisc.stats();
    assert_eq!((stats.bytes, stats.packets, stats.drops, stats.overlimits), (184, 2, 14, 18));
    assert_eq!((stats.backlog, stats.qlen), (368, 4));
    assert_eq!(tbf.drops.get(DropReason::QdiscOverlimit), 14);
}

/// A bucket of 200 bytes, less two packets of 92, holds 16. The next packet leaves when 76 bytes more have been saved, at a
/// byte a millisecond.
#[test]
fn what_is_held_back_says_when_it_leaves() {
    let mut tbf = Virtual::new("tbf rate 8kbit burst 200 limit 400");
    let began = tbf.now;
    (0..3).for_each(|_| assert_eq!(tbf.enqueue(92, 0), Verdict::Success));
    assert_eq!(tbf.dequeue(64), [(0, 92), (1, 92)]);
    let next = tbf.qdisc.next_event().expect("a packet waits");
    assert_eq!(next - began, 76_000_000);
    tbf.now = next - 1;
    assert_eq!(tbf.dequeue(64), []);
    tbf.now = next;
    assert_eq!(tbf.dequeue(64), [(2, 92)]);
    assert_eq!(tbf.qdisc.next_event(), None);
}

/// A GSO packet that is longer than the bucket is cut. Segments that are still too long are dropped.
#[test]
fn what_is_too_long_is_cut() {
    let mut tbf = Virtual::new("tbf rate 8mbit burst 1000 limit 10000");
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.udp(5, 6).write(&mut frame, &[7; 1800]).unwrap();
    for (size, segs, verdict, left) in [
        (900, 2, Verdict::Success, vec![(0, 942), (0, 942)]),
        (1000, 2, Verdict::Congested, vec![(1, 842)]),
        (1700, 2, Verdict::Congested, vec![(2, 142)]),
        (0, 1, Verdict::Drop, vec![]),
    ] {
        let mut packet = tbf.packet(frame.len(), 0);
        packet.data_mut().copy_from_slice(&frame);
        packet.set_gso(size, segs);
        assert_eq!(tbf.with(|q, cx| q.enqueue(packet, cx)), verdict);
        let mut out = Vec::new();
        while tbf.qdisc.qlen() > 0 {
            out.extend(tbf.dequeue(9));
            tbf.now += 1_000_000;
        }
        assert_eq!(out, left);
    }
    assert_eq!((tbf.created, tbf.qdisc.stats().drops), (3, 3));
}

/// With a peak rate a burst leaves packet by packet, at that rate.
#[test]
fn a_peak_rate_bounds_the_burst() {
    let mut tbf = Virtual::new("tbf rate 8mbit burst 20k limit 100k peakrate 80mbit mtu 1600");
    (0..10).for_each(|_| assert_eq!(tbf.enqueue(1500, 0), Verdict::Success));
    assert_eq!(tbf.dequeue(64).len(), 1);
    // The bucket holds 1600 bytes, at 10 bytes a microsecond. After 1500 of them the next packet lacks 1400.
    assert_eq!(tbf.qdisc.next_event(), Some(tbf.now + 140_000));
    let began = tbf.now;
    assert_eq!(tbf.bytes_until(began + 1_340_000), 9 * 1500 - 1500);
}

#[test]
fn what_can_never_leave_is_dropped_at_once() {
    let mut tbf = Virtual::new("tbf rate 1mbit burst 1000 limit 10k");
    assert_eq!(tbf.enqueue(1001, 0), Verdict::Drop);
    assert_eq!(tbf.enqueue(1000, 0), Verdict::Success);
    let stats = tbf.qdisc.stats();
    assert_eq!((stats.drops, stats.qlen, stats.overlimits), (1, 1, 0));
    assert_eq!(tbf.drops.get(DropReason::QdiscDrop), 1);
}

#[test]
fn a_change_applies_and_loses_nothing() {
    let mut tbf = Virtual::new("tbf rate 8kbit burst 200 limit 1000");
    (0..10).for_each(|_| assert_eq!(tbf.enqueue(92, 0), Verdict::Success));
    assert_eq!(tbf.dequeue(64).len(), 2);
    tbf.change("rate 8gbit burst 10k limit 100").unwrap();
    assert_eq!(tbf.qdisc.qlen(), 8);
    assert_eq!(tbf.enqueue(92, 0), Verdict::Drop);
    assert_eq!(tbf.dequeue(64).len(), 8);
    let before = tbf.qdisc.options(Style::default()).text().to_owned();
    assert!(tbf.change("rate 8gbit").is_err());
    assert_eq!(tbf.qdisc.options(Style::default()).text(), before);
}

/// The leaf's packets are dropped with the leaf, and the parent counts them. Without a leaf all packets are dropped.
#[test]
fn a_leaf_is_exchanged() {
    let mut tbf = Virtual::new("tbf rate 8kbit burst 200 limit 1000");
    (0..5).for_each(|_| assert_eq!(tbf.enqueue(92, 0), Verdict::Success));
    assert_eq!(tbf.dequeue(64).len(), 2);
    assert!(tbf.attach(Handle::new(1, 1), Handle::new(10, 0), "pfifo limit 1"));
    let stats = tbf.qdisc.stats();
    assert_eq!((stats.qlen, stats.backlog, stats.drops), (0, 0, 3));
    assert_eq!(tbf.drops.get(DropReason::QueuePurge), 3);
    assert_eq!([tbf.enqueue(92, 0), tbf.enqueue(92, 0)], [Verdict::Success, Verdict::Drop]);
    assert_eq!(tbf.qdisc.stats().drops, 4);
}

/// What `tc -r` prints for these parameters.
#[test]
fn raw_numbers_are_ticks() {
    for (text, shown) in [
        ("rate 1mbit burst 10k limit 10k", "rate 1Mbit burst 10Kb [00138800] lat 0us limit 10Kb "),
        (
            "rate 1mbit burst 10k latency 5ms peakrate 2mbit mtu 2000",
            "rate 1Mbit burst 10Kb [00138800] peakrate 2Mbit minburst 2000b [0001e848] lat 5ms limit 3250b ",
        ),
    ] {
        let options =
            Virtual::new(&format!("tbf {text}")).qdisc.options(Style { raw: true, ..Style::default() });
        assert_eq!(options.text(), shown);
        assert_eq!(options.json()["burst_raw"], "138800");
    }
    let details = Style { raw: true, details: true, ..Style::default() };
    let text = Virtual::new("tbf rate 1mbit burst 10k limit 10k").qdisc.options(details).text().to_owned();
    assert_eq!(text, "rate 1Mbit burst 10Kb/1 mpu 0b [00138800] lat 0us limit 10Kb linklayer ethernet ");
}
