//! The option `duplicate`, and netem's child.

use super::*;
use crate::generic::qdisc::testing::Virtual;

#[test]
fn a_copy_follows_its_original_and_is_not_copied() {
    let mut bench = Bench::new("netem duplicate 100%");
    let mut packets: PacketList = (0..3).map(|n| bench.packet(100 + n)).collect();
    while !packets.is_empty() {
        bench.with(|q, cx| q.enqueue_batch(&mut packets, cx));
    }
    let out = bench.take(Budget::packets(9));
    let left: Vec<_> = out.iter().map(|p| (p.cookie(), p.len())).collect();
    assert_eq!(left, [(0, 100), (0, 100), (1, 101), (1, 101), (2, 102), (2, 102)]);
    assert_eq!((bench.created, bench.counter("duplicated"), bench.qdisc.stats().packets), (3, 3, 6));
}

#[test]
fn copies_are_as_often_as_said() {
    const N: usize = 50_000;
    for (text, often, follows) in [("duplicate 10%", 0.1, 0.1), ("duplicate 10% 25% loss 0% 0%", 0.1, 0.325)]
    {
        let mut bench = Bench::new(&format!("netem seed 7 {text}"));
        let twice: Vec<bool> = (0..N)
            .map(|_| {
                let _ = bench.enqueue(100);
                bench.sent().len() == 2
            })
            .collect();
        near(rate(&twice), often, 0.01);
        near(again(&twice), follows, 0.025);
    }
}

/// Of a packet that is copied and lost once, one is left.
#[test]
fn a_loss_takes_one_of_two() {
    let mut bench = Bench::new("netem duplicate 100% loss 100%");
    let _ = bench.enqueue(100);
    assert_eq!(bench.sent(), [0]);
    assert_eq!((bench.created, bench.qdisc.stats().drops), (0, 0));
}

#[test]
fn a_copy_needs_room_and_a_buffer() {
    let mut bench = Bench::new("netem limit 3 duplicate 100%");
    let verdicts = [bench.enqueue(100), bench.enqueue(100), bench.enqueue(100)];
    assert_eq!(verdicts, [Verdict::Success, Verdict::Success, Verdict::Drop]);
    assert_eq!((bench.created, bench.drops.get(DropReason::QdiscOverlimit)), (2, 2));
    assert_eq!(bench.sent(), [0, 0, 1]);

    let mut bench = Bench::new("netem limit 9000 duplicate 100%");
    let mut all = Vec::new();
    while bench.numbers < 8192 {
        all.push(bench.packet(1));
    }
    assert_eq!(bench.push(all.pop().unwrap()), Verdict::Success);
    assert_eq!((bench.created, bench.drops.get(DropReason::NoMem), bench.qdisc.stats().drops), (1, 1, 0));
    assert_eq!((bench.counter("duplicated"), bench.counter("alloc_errors")), (0, 1));
    assert_eq!(bench.sent(), [8191]);
}

/// Packets pass through the child after their wait, in its order and within its limit; packets that overtake do not.
#[test]
fn a_child_has_what_has_waited() {
    let mut bench = Virtual::new("netem delay 10ms reorder 100% gap 5");
    assert!(bench.attach(
        Handle::new(1, 9),
        Handle::new(2, 0),
        "prio bands 2 priomap 1 1 1 1 1 1 0 0 1 1 1 1 1 1 1 1"
    ));
    assert!(bench.attach(Handle::new(2, 2), Handle::new(3, 0), "pfifo limit 2"));
    for priority in [0, 0, 6, 0, 0] {
        let _ = bench.enqueue(100, priority);
    }
    assert_eq!(bench.dequeue(9), [(4, 100)]);
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().backlog), (4, 400));
    bench.now += 10 * MS;
    assert_eq!(bench.dequeue(1), [(2, 100)]);
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().backlog, bench.qdisc.stats().drops), (2, 200, 1));
    assert_eq!(bench.dequeue(9), [(0, 100), (1, 100)]);
    assert_eq!(bench.qdisc.stats().packets, 4);
    let _ = bench.enqueue(100, 0);
    bench.now += 10 * MS;
    let _ = bench.enqueue(100, 0);
    bench.with(|q, cx| q.reset(cx));
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().backlog), (0, 0));
}

/// The time of a packet that the child holds back is known.
#[test]
fn a_childs_time_is_the_next() {
    let mut bench = Virtual::new("netem delay 10ms");
    assert!(bench.attach(Handle::new(1, 1), Handle::new(2, 0), "tbf rate 8mbit burst 1000 limit 10000"));
    let start = bench.now;
    for _ in 0..3 {
        let _ = bench.enqueue(1000, 0);
    }
    assert_eq!(bench.bytes_until(start + 11 * MS), 1000);
    assert_eq!(bench.bytes_until(start + 12 * MS), 1000);
    assert_eq!(bench.bytes_until(start + 20 * MS), 1000);
    assert!(bench.now <= start + 12 * MS);
}
