//! Filters of htb and of its classes.

use super::*;
use crate::generic::filter::{Mode, Request};

#[test]
fn a_class_that_a_filter_chooses_stays() {
    let mut htb = htb("htb", &["0 1 rate 8mbit", "1 10 rate 8kbit", "1 20 rate 8kbit"]);
    // A filter of the qdisc, and one of the inner class.
    for (of, minor) in [(0, 0x10), (1, 0x20)] {
        let (rule, all) = (format!("pref 1 matchall classid 1:{minor:x}"), Request::parse("pref 1").unwrap());
        let rule = Request::parse(&rule).unwrap();
        htb.with(|qdisc, _| qdisc.filters(of).unwrap().set(&rule, Handle::new(1, of), Mode::Add)).unwrap();
        assert_eq!(delete(&mut htb, minor).unwrap_err().message(), "Error: HTB class in use.");
        htb.with(|qdisc, _| qdisc.filters(of).unwrap().delete(&all)).unwrap();
        delete(&mut htb, minor).unwrap();
    }
}

/// A filter may name an inner class, whose own filters go on, or the qdisc itself for the direct queue.
#[test]
fn filters_lead_down_the_tree() {
    let classes = ["0 1 rate 8mbit", "1 10 rate 8mbit", "1 20 rate 8mbit", "1 30 rate 8mbit"];
    let mut htb = htb("htb default 30", &classes);
    let class = |minor| Handle::new(1, minor);
    htb.filter(0, 100, class(0x10));
    htb.filter(0, 200, class(1));
    htb.filter(0, 300, class(0));
    htb.filter(0, 400, class(0x99));
    htb.filter(0, 500, class(1));
    htb.filter(0, 700, Handle::new(2, 0x10));
    htb.filter(1, 200, class(0x20));
    htb.filter(1, 500, class(1));
    for (bytes, priority) in [
        (100, 0),
        (200, 0),
        (200, 0x1_0001),
        (300, 0),
        (400, 0),
        (500, 0),
        (600, 0),
        (700, 0),
        (100, 0x1_0020),
    ] {
        assert_eq!(htb.enqueue(bytes, priority), Verdict::Success);
    }
    let mut queued = |minor| htb.with(|qdisc, _| qdisc.classes().unwrap().leaf(minor).unwrap().0.qlen());
    assert_eq!([queued(0x10), queued(0x20), queued(0x30)], [1, 3, 4]);
    assert_eq!(htb.qdisc.qlen(), 9, "one is queued directly");
}

/// A deleted class frees its filters, which may be large.
#[test]
fn deleted_classes_free_their_filters() {
    let mut htb = htb("htb", &["0 1 rate 8mbit", "1 10 rate 8mbit"]);
    let held = std::sync::Arc::new(());
    let kept = held.clone();
    htb.with(|qdisc, _| {
        let closure = move |_: &Packet| (std::sync::Arc::strong_count(&kept) > 9).then_some(Handle::ROOT);
        qdisc.filters(0x10).unwrap().add_closure(1, Box::new(closure)).unwrap();
    });
    assert_eq!(std::sync::Arc::strong_count(&held), 2);
    delete(&mut htb, 0x10).unwrap();
    assert_eq!(std::sync::Arc::strong_count(&held), 1);
}
