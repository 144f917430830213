use super::*;
use crate::generic::qdisc::testing::{ENV, MS, Virtual};

const SECOND: Nanos = 1000 * MS;

fn hfsc(classes: &[(u16, u16, &str)]) -> Virtual {
    let mut bench = Virtual::new("hfsc");
    for &(parent, minor, text) in classes {
        add(&mut bench, parent, minor, text).unwrap_or_else(|error| panic!("{minor:x} {text}: {error}"));
    }
    bench
}

fn add(bench: &mut Virtual, parent: u16, minor: u16, text: &str) -> Result<(), ParseError> {
    bench.with(|q, cx| q.classes().unwrap().add(parent, minor, &mut Words::split(text), &ENV, cx))
}

fn change(bench: &mut Virtual, minor: u16, text: &str) -> Result<(), ParseError> {
    bench.with(|q, cx| q.classes().unwrap().change_class(minor, &mut Words::split(text), cx))
}

fn class(minor: u16) -> u32 {
    Handle::new(1, minor).0
}

/// Keeps the named classes backlogged with packets of 1000 bytes for some time, over a link of `rate` bytes a second. Returns
/// the bytes of each class.
fn shares(bench: &mut Virtual, minors: &[u16], rate: u64, time: Nanos) -> Vec<u64> {
    let mut sent = vec![0; minors.len()];
    let end = bench.now + time;
    while bench.now < end {
        for &minor in minors {
            while bench.qdisc.classes().unwrap().leaf(minor).unwrap().0.qlen() < 4 {
                assert_eq!(bench.enqueue(1000, class(minor)), Verdict::Success);
            }
        }
        let out = bench.take(Budget::packets(1));
        let Some(packet) = out.front() else {
            let next = bench.qdisc.next_event().expect("packets wait");
            assert!(next > bench.now, "it would be asked for ever");
            bench.now = next;
            continue;
        };
        let at = minors.iter().position(|&minor| class(minor) == packet.priority()).unwrap();
        sent[at] += packet.len() as u64;
        bench.now += packet.len() as u64 * SECOND / rate;
    }
    sent
}

fn near(bytes: u64, expected: u64) -> bool {
    bytes.abs_diff(expected) <= expected / 50 + 2000
}

/// Link-sharing is by the curves, on each level, and what a class does not use goes to its siblings first.
#[test]
fn classes_share_by_their_curves() {
    let tree = [
        (0, 1, "ls rate 6mbit"),
        (0, 2, "ls rate 2mbit"),
        (1, 0x11, "ls rate 1mbit"),
        (1, 0x12, "ls rate 2mbit"),
        (2, 0x21, "ls rate 1mbit"),
    ];
    let seconds = if cfg!(miri) { 1 } else { 10 };
    let all = shares(&mut hfsc(&tree), &[0x11, 0x12, 0x21], 1_000_000, seconds * SECOND);
    for (bytes, expected) in all.iter().zip([250_000, 500_000, 250_000]) {
        assert!(near(*bytes, expected * seconds), "{all:?}");
    }
    let two = shares(&mut hfsc(&tree), &[0x12, 0x21], 1_000_000, seconds * SECOND);
    assert!(near(two[0], 750_000 * seconds), "{two:?}");
    let one = shares(&mut hfsc(&tree), &[0x21], 1_000_000, seconds * SECOND);
    assert!(near(one[0], 1_000_000 * seconds), "{one:?}");
}

/// A real-time curve holds however small the class's share is, and an upper limit however much is left.
#[test]
fn guarantees_and_limits_hold() {
    let seconds = if cfg!(miri) { 1 } else { 10 };
    let mut bench = hfsc(&[(0, 1, "rt rate 4mbit ls rate 1kbit"), (0, 2, "ls rate 8mbit")]);
    let sent = shares(&mut bench, &[1, 2], 1_000_000, seconds * SECOND);
    assert!(near(sent[0], 500_000 * seconds) && near(sent[1], 500_000 * seconds), "{sent:?}");
    let mut bench = hfsc(&[(0, 1, "ls rate 8mbit ul rate 2mbit"), (0, 2, "ls rate 1mbit ul rate 3mbit")]);
    let sent = shares(&mut bench, &[1, 2], 1_000_000, seconds * SECOND);
    assert!(near(sent[0], 250_000 * seconds) && near(sent[1], 375_000 * seconds), "{sent:?}");
    let mut bench =
        hfsc(&[(0, 1, "ls rate 1mbit ul rate 2mbit"), (1, 2, "ls rate 1mbit"), (1, 3, "ls rate 3mbit")]);
    let sent = shares(&mut bench, &[2, 3], 1_000_000, seconds * SECOND);
    assert!(near(sent[0], 62_500 * seconds) && near(sent[1], 187_500 * seconds), "{sent:?}");
    assert!(bench.qdisc.stats().overlimits > 0);
    // Only a real-time curve: the class sends at its rate, and no more.
    let mut bench = hfsc(&[(0, 1, "rt rate 2mbit")]);
    let sent = shares(&mut bench, &[1], 1_000_000, seconds * SECOND);
    assert!(near(sent[0], 250_000 * seconds), "{sent:?}");
}

/// The point of the curves: a class with `umax` and `dmax` has its short delay although its rate is low.
#[test]
fn delay_is_apart_from_rate() {
    let delay = |curve: &str| {
        let mut bench = hfsc(&[(0, 1, curve), (0, 2, "sc rate 7mbit")]);
        let (mut worst, link) = (0, 1_000_000);
        for _ in 0..if cfg!(miri) { 2 } else { 100 } {
            shares(&mut bench, &[2], link, 50 * MS);
            let came = bench.now;
            assert_eq!(bench.enqueue(160, class(1)), Verdict::Success);
            loop {
                let left = bench.take(Budget::packets(1));
                let packet = left.front().expect("the link is busy");
                bench.now += packet.len() as u64 * SECOND / link;
                if packet.priority() == class(1) {
                    worst = worst.max(bench.now - came);
                    break;
                }
                while bench.qdisc.qlen() < 8 {
                    let _ = bench.enqueue(1000, class(2));
                }
            }
        }
        worst
    };
    let (fast, slow) = (delay("sc umax 160b dmax 2ms rate 64kbit"), delay("sc rate 64kbit"));
    // A deadline may be missed by the packet that is on the wire.
    assert!(fast <= 3 * MS + MS / 5, "{fast} ns");
    assert!(slow > 2 * fast, "{slow} ns");
}

/// A leaf with a shaper of its own lets the others pass, and is asked again.
#[test]
fn a_leaf_that_waits_lets_others_pass() {
    let mut bench = hfsc(&[(0, 1, "sc rate 1mbit"), (0, 2, "sc rate 1mbit")]);
    assert!(bench.attach(Handle::new(1, 1), Handle::new(10, 0), "tbf rate 8kbit burst 100 limit 4000"));
    for minor in [1, 1, 2, 2, 2] {
        let _ = bench.enqueue(100, class(minor));
    }
    let mut left = Vec::new();
    while left.len() < 5 {
        left.extend(bench.dequeue(1));
        match bench.qdisc.next_event() {
            Some(next) if bench.qdisc.qlen() > 0 => bench.now = bench.now.max(next),
            _ => {}
        }
    }
    assert_eq!(bench.qdisc.qlen(), 0);
    assert!(bench.now >= 1100 * MS, "the second packet waits for its tokens");
}

#[test]
fn packets_without_a_class_are_dropped() {
    let mut bench = hfsc(&[(0, 1, "sc rate 1mbit"), (1, 2, "sc rate 1mbit"), (0, 3, "sc rate 1mbit")]);
    for priority in [0, class(1), class(9), 7] {
        assert_eq!(bench.enqueue(100, priority), Verdict::Success);
    }
    assert_eq!((bench.qdisc.stats().drops, bench.drops.get(DropReason::QdiscDrop)), (4, 4));
    bench.change("default 3").unwrap();
    assert_eq!(bench.qdisc.options(Style::default()).text(), "default 3 ");
    let _ = bench.enqueue(100, 7);
    bench.filter(0, 200, Handle::new(1, 1));
    bench.filter(1, 200, Handle::new(1, 2));
    let _ = bench.enqueue(200, 0);
    let qlen = |bench: &mut Virtual, minor| {
        bench.qdisc.classes().unwrap().class(minor, Style::default()).stats.unwrap().qlen
    };
    assert_eq!((qlen(&mut bench, 2), qlen(&mut bench, 3)), (1, 1));
    bench.change("").unwrap();
    let _ = bench.enqueue(100, 7);
    assert_eq!(bench.drops.get(DropReason::QdiscDrop), 5);
}

#[test]
fn classes_come_and_go_with_packets_in_them() {
    let mut bench = hfsc(&[(0, 1, "sc rate 1mbit"), (0, 2, "sc rate 1mbit")]);
    for _ in 0..3 {
        let _ = bench.enqueue(100, class(1));
        let _ = bench.enqueue(100, class(2));
    }
    // The packets of a leaf that gets a child are dropped.
    add(&mut bench, 1, 3, "sc rate 1mbit").unwrap();
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().drops), (3, 3));
    let delete = |bench: &mut Virtual, minor| bench.with(|q, cx| q.classes().unwrap().delete(minor, cx));
    assert_eq!(delete(&mut bench, 1).unwrap_err().message(), "RTNETLINK answers: Device or resource busy");
    change(&mut bench, 2, "ls rate 3mbit ul rate 3mbit").unwrap();
    let shown = bench.qdisc.classes().unwrap().class(2, Style::default());
    let text = "rt m1 0bit d 0us m2 1Mbit ls m1 0bit d 0us m2 3Mbit ul m1 0bit d 0us m2 3Mbit ";
    assert_eq!(shown.options.text(), text);
    let _ = bench.enqueue(100, class(3));
    bench.bytes_until(bench.now + SECOND);
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().packets), (0, 4));
    let _ = bench.enqueue(100, class(3));
    delete(&mut bench, 3).unwrap();
    assert_eq!(bench.qdisc.qlen(), 0);
    let _ = bench.enqueue(100, class(1));
    assert_eq!(bench.dequeue(9).len(), 1, "the class is a leaf again");
    add(&mut bench, 2, 4, "sc rate 1mbit").unwrap();
    add(&mut bench, 4, 5, "rt rate 2mbit").unwrap();
    add(&mut bench, 5, 6, "rt rate 2mbit").unwrap();
    let inner = bench.qdisc.classes().unwrap().class(5, Style::default());
    assert_eq!(inner.options.text(), "sc m1 0bit d 0us m2 2Mbit ", "it shares, with a class below it");
    [6, 5, 4].iter().for_each(|&minor| delete(&mut bench, minor).unwrap());
    let root = bench.qdisc.classes().unwrap().class(0, Style::default());
    assert_eq!((root.parent, root.xstats.unwrap().text().contains("level 1")), (Handle::ROOT, true));
}

#[test]
fn words_and_errors_are_tcs() {
    let mut bench = hfsc(&[(0, 1, "sc rate 1mbit")]);
    for (minor, text, shown) in [
        (
            0x10,
            "rt m1 1mbit d 10ms m2 500kbit ls rate 300kbit",
            "rt m1 1Mbit d 10ms m2 500Kbit ls m1 0bit d 0us m2 300Kbit ",
        ),
        (0x11, "ls m2 700kbit ul m2 900kbit", "ls m1 0bit d 0us m2 700Kbit ul m1 0bit d 0us m2 900Kbit "),
        (
            0x12,
            "sc umax 1500b dmax 30ms rate 100kbit ul rate 1000kbit",
            "sc m1 400Kbit d 30ms m2 100Kbit ul m1 0bit d 0us m2 1Mbit ",
        ),
        (0x13, "rt umax 1500b dmax 30ms rate 800kbit", "rt m1 0bit d 15ms m2 800Kbit "),
        (0x14, "rt dmax 10ms rate 1mbit", "rt m1 0bit d 10ms m2 1Mbit "),
        (0x15, "sc rate 1mbit ls rate 2mbit", "rt m1 0bit d 0us m2 1Mbit ls m1 0bit d 0us m2 2Mbit "),
    ] {
        add(&mut bench, 1, minor, text).unwrap();
        let classes = bench.qdisc.classes().unwrap();
        assert_eq!(classes.class(minor, Style::default()).options.text(), shown);
        let input = classes.class(minor, Style { input: true, ..Style::default() }).options;
        change(&mut bench, minor, input.text()).unwrap();
        let classes = bench.qdisc.classes().unwrap();
        assert_eq!(classes.class(minor, Style::default()).options.text(), shown);
    }
    let json = bench.qdisc.classes().unwrap().class(0x13, Style::default()).options.json().to_string();
    assert_eq!(json, r#"{"rt":{"m1":0,"d":15000,"m2":100000}}"#);
    for (text, message) in [
        ("", "HFSC: no parameters given"),
        ("foo", "HFSC: What is \"foo\" ?"),
        ("rt", "Command line is not complete. Try option \"help\""),
        ("rt foo", "HFSC: Illegal \"rt\""),
        ("rt m1 1mbit", "Command line is not complete. Try option \"help\""),
        ("rt m1 1mbit d 10ms", "Command line is not complete. Try option \"help\""),
        ("rt m2 0", "HFSC: Service Curve has two zero slopes\nHFSC: Illegal \"rt\""),
        ("rt rate 0", "HFSC: Service Curve has two zero slopes\nHFSC: Illegal \"rt\""),
        ("ul rate 1mbit", "HFSC: Upper-limit Service Curve without Link-Share Service Curve"),
        ("rt rate 1mbit ul rate 2mbit", "HFSC: Upper-limit Service Curve without Link-Share Service Curve"),
        ("rt rate x", "HFSC: Illegal \"rate\"\nHFSC: Illegal \"rt\""),
        ("rt m1 x", "HFSC: Illegal \"m1\"\nHFSC: Illegal \"rt\""),
        ("rt m1 1mbit d x m2 1mbit", "HFSC: Illegal \"d\"\nHFSC: Illegal \"rt\""),
        ("rt umax 1500 rate 1mbit", "HFSC: umax given but dmax is zero.\nHFSC: Illegal \"rt\""),
        ("rt umax x dmax 10ms rate 1mbit", "HFSC: Illegal \"umax\"\nHFSC: Illegal \"rt\""),
    ] {
        assert_eq!(add(&mut bench, 0, 0x99, text).unwrap_err().message(), message, "{text}");
    }
    assert_eq!(
        add(&mut bench, 0x77, 0x99, "sc rate 1mbit").unwrap_err().message(),
        "RTNETLINK answers: No such file or directory"
    );
    for (text, message) in [
        ("default x", "HFSC: Illegal \"default\""),
        ("default 12345", "HFSC: Illegal \"default\""),
        ("default 1 default 2", "HFSC: Double \"default\""),
        ("foo", "HFSC: What is \"foo\" ?"),
    ] {
        assert_eq!(bench.change(text).unwrap_err().message(), message, "{text}");
    }
}
