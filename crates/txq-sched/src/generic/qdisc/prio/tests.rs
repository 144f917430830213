use txq_core::drop::DropReason;

use crate::generic::qdisc::Verdict;
use crate::generic::qdisc::testing::Virtual;
use crate::tc::{Handle, Style};

#[test]
fn lower_bands_go_first() {
    let mut prio = Virtual::new("prio");
    // By the map: bands 2, 1 and 0. By a priority that is a handle: bands 0 and 2.
    for priority in [2, 0, 6, 0x1_0001, 0x1_0003] {
        assert_eq!(prio.enqueue(100, priority), Verdict::Success);
    }
    let order: Vec<_> = prio.dequeue(64).into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, [2, 3, 1, 0, 4]);
}

/// A class that does not exist stands for the band of priority 0, and so does the qdisc itself.
#[test]
fn unknown_classes_go_where_priority_0_goes() {
    let mut prio = Virtual::new("prio bands 3 priomap 2 0");
    for priority in [0x1_0009, 0x1_0000, 1] {
        assert_eq!(prio.enqueue(100, priority), Verdict::Success);
    }
    let order: Vec<_> = prio.dequeue(64).into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, [2, 0, 1]);
}

/// A shaper in the first band does not hold up the others.
#[test]
fn a_band_that_waits_lets_others_pass() {
    let mut prio = Virtual::new("prio");
    assert!(prio.attach(Handle::new(1, 1), Handle::new(10, 0), "tbf rate 8kbit burst 200 limit 1000"));
    for _ in 0..3 {
        assert_eq!(prio.enqueue(150, 6), Verdict::Success);
        assert_eq!(prio.enqueue(100, 0), Verdict::Success);
    }
    let order: Vec<_> = prio.dequeue(64).into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, [0, 1, 3, 5]);
    assert_eq!(prio.qdisc.next_event(), Some(prio.now + 100_000_000));
}

#[test]
fn fewer_bands_lose_what_the_others_had() {
    let mut prio = Virtual::new("prio bands 4 priomap 3 2");
    for priority in [0, 0, 1] {
        assert_eq!(prio.enqueue(100, priority), Verdict::Success);
    }
    prio.change("bands 3 priomap 1 2").unwrap();
    let stats = prio.qdisc.stats();
    assert_eq!((stats.qlen, stats.backlog, stats.drops), (1, 100, 2));
    assert_eq!(prio.drops.get(DropReason::QueuePurge), 2);
    prio.change("bands 16").unwrap();
    assert_eq!(prio.enqueue(100, 0x1_0010), Verdict::Success);
    assert_eq!(prio.dequeue(64).len(), 2);
}

#[test]
fn words_and_errors_are_tcs() {
    let mut prio = Virtual::new("prio");
    assert_eq!(
        prio.qdisc.options(Style::default()).text(),
        "bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1"
    );
    for (text, message) in [
        ("bands x", "Illegal \"bands\""),
        ("bands 1", "RTNETLINK answers: Invalid argument"),
        ("bands 17", "RTNETLINK answers: Invalid argument"),
        ("priomap 0 1 2 3 x", "\"priomap\" element is out of bands"),
        ("priomap 0 1 x", "Illegal \"priomap\" element"),
        ("bands 1024 priomap 1024", "\"priomap\" element is out of bands"),
        ("bands 1024 priomap 20", "RTNETLINK answers: Invalid argument"),
        ("bands 300 priomap 256", "RTNETLINK answers: Invalid argument"),
        ("priomap 0 1 2 3", "\"priomap\" element is out of bands"),
        ("bands 2", "RTNETLINK answers: Invalid argument"),
        ("foo", "What is \"foo\"?"),
    ] {
        assert_eq!(prio.change(text).unwrap_err().message(), message, "{text}");
    }
}
