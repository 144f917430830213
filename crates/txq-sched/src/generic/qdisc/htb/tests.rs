use super::*;
use crate::generic::qdisc::testing::{ENV, Virtual};

mod filters;
mod idle;
mod random;

/// An htb with classes, each as `PARENT MINOR OPTIONS`.
fn htb(text: &str, classes: &[&str]) -> Virtual {
    let mut htb = Virtual::new(text);
    classes.iter().for_each(|class| add(&mut htb, class).unwrap());
    htb
}

fn add(htb: &mut Virtual, class: &str) -> Result<(), ParseError> {
    let mut words = Words::split(class);
    let mut number = || u16::from_str_radix(words.next_word().unwrap(), 16).unwrap();
    let (parent, minor) = (number(), number());
    htb.with(|qdisc, cx| qdisc.classes().unwrap().add(parent, minor, &mut words, &ENV, cx))
}

/// tc's own words for a class, after `classid`.
fn change(htb: &mut Virtual, minor: u16, text: &str) -> Result<(), ParseError> {
    htb.with(|qdisc, cx| qdisc.classes().unwrap().change_class(minor, &mut Words::split(text), cx))
}

fn delete(htb: &mut Virtual, minor: u16) -> Result<(), ParseError> {
    htb.with(|qdisc, cx| qdisc.classes().unwrap().delete(minor, cx))
}

#[test]
fn the_default_class_takes_what_names_none() {
    let mut htb = htb("htb default 10", &["0 1 rate 8mbit", "1 10 rate 8mbit"]);
    for _ in 0..100 {
        assert_eq!(htb.enqueue(1000, 0), Verdict::Success);
    }
    let end = htb.now + 50_000_000;
    let bytes = htb.bytes_until(end);
    assert!((50_000..54_000).contains(&bytes), "{bytes}");
}

const MBIT: u64 = 125_000;

/// Returns the bytes of each class that leave in the next second, while each packet that leaves is replaced by one of its
/// class.
fn bytes_of_second(htb: &mut Virtual, classes: &[(u32, usize)]) -> Vec<u64> {
    let end = htb.now + 1_000_000_000;
    let mut bytes = vec![0; classes.len()];
    // Each class has two packets queued. The class of each packet, by the packet's number.
    let first = htb.numbers;
    let mut class_of: Vec<_> = (0..2 * classes.len()).map(|number| number / 2).collect();
    for &class in &class_of {
        assert_eq!(htb.enqueue(classes[class].1, classes[class].0), Verdict::Success);
    }
    while htb.now < end {
        let left = htb.dequeue(1);
        for &(number, len) in &left {
            let class = class_of[(number - first) as usize];
            bytes[class] += len as u64;
            assert_eq!(htb.enqueue(len, classes[class].0), Verdict::Success);
            class_of.push(class);
        }
        if left.is_empty() {
            let next = htb.qdisc.next_event().expect("packets are queued");
            assert!(next > htb.now, "it would be asked for ever");
            htb.now = next;
        }
    }
    bytes
}

fn assert_near(bytes: u64, expected: u64, parts_of_1000: u64, what: &str) {
    let off = bytes.abs_diff(expected);
    assert!(off * 1000 <= expected * parts_of_1000, "{what}: {bytes} and not {expected}");
}

#[test]
fn rates_are_kept_within_half_a_percent() {
    for mbit in [1, 10, 100, 1000, 10_000] {
        for len in [64, 300, 1514, 9000, 65_536] {
            let burst = 4 * len;
            let mut htb = Virtual::with_room("htb", 512, 65_536);
            add(&mut htb, &format!("0 10 rate {mbit}mbit burst {burst} cburst {burst}")).unwrap();
            // The burst leaves first, and then the second begins.
            for _ in 0..64 {
                assert_eq!(htb.enqueue(len, 0x1_0010), Verdict::Success);
            }
            while htb.dequeue(64).len() == 64 {
                for _ in 0..64 {
                    assert_eq!(htb.enqueue(len, 0x1_0010), Verdict::Success);
                }
            }
            let rate = mbit * MBIT;
            // As long as 2000 packets take: one more or less is then within the bounds.
            let long = 2000 * len as u64 * 1_000_000_000 / rate;
            let (start, mut bytes) = (htb.now, 0);
            while htb.now < start + long {
                let left = htb.dequeue(64);
                for &(_, len) in &left {
                    bytes += len as u64;
                    assert_eq!(htb.enqueue(len, 0x1_0010), Verdict::Success);
                }
                if left.len() < 64 {
                    htb.now = htb.qdisc.next_event().expect("packets are queued");
                }
            }
            let time = htb.now - start;
            let expected = u128::from(rate) * u128::from(time) / 1_000_000_000;
            assert_near(bytes, expected as u64, 5, &format!("{mbit} Mbit/s, {len} bytes"));
        }
    }
}

#[test]
fn siblings_share_what_is_left_by_their_quanta() {
    let mut htb = htb(
        "htb",
        &[
            "0 1 rate 100mbit",
            "1 10 rate 10mbit ceil 100mbit quantum 2000",
            "1 20 rate 20mbit ceil 100mbit quantum 6000",
            "1 30 rate 10mbit ceil 100mbit quantum 4000",
        ],
    );
    let bytes = bytes_of_second(&mut htb, &[(0x1_0010, 1000), (0x1_0020, 1000), (0x1_0030, 1000)]);
    // 60 Mbit/s are left, of which they have 1, 3 and 2 parts.
    for (bytes, mbit) in bytes.iter().zip([20, 50, 30]) {
        assert_near(*bytes, mbit * MBIT, 20, &format!("{mbit} Mbit/s"));
    }
}

/// A class that pauses saves a burst and no more, though its ceiling would allow more.
#[test]
fn a_pause_saves_a_burst() {
    let mut htb = htb("htb", &["0 10 rate 8mbit burst 2k ceil 80mbit cburst 100k"]);
    for _ in 0..3 {
        for _ in 0..10 {
            assert_eq!(htb.enqueue(1000, 0x1_0010), Verdict::Success);
        }
        assert_eq!(htb.dequeue(64).len(), 3);
        htb.with(|qdisc, cx| qdisc.reset(cx));
        htb.now += 10_000_000_000;
    }
}

#[test]
fn a_lower_prio_borrows_first_and_a_rate_is_sure() {
    let mut htb = htb(
        "htb",
        &[
            "0 1 rate 100mbit",
            "1 10 rate 10mbit ceil 100mbit prio 1",
            "1 20 rate 20mbit ceil 50mbit prio 0",
            "1 30 rate 5mbit ceil 100mbit prio 2",
        ],
    );
    let bytes = bytes_of_second(&mut htb, &[(0x1_0010, 1000), (0x1_0020, 1000), (0x1_0030, 1000)]);
    assert_near(bytes[0], 45 * MBIT, 10, "1:10");
    assert_near(bytes[1], 50 * MBIT, 10, "1:20");
    assert_near(bytes[2], 5 * MBIT, 10, "1:30");
}

/// A subtree's guaranteed rate is lent inside it before other classes get it.
#[test]
fn a_subtree_keeps_its_rate() {
    let mut htb = htb(
        "htb",
        &[
            "0 1 rate 100mbit",
            "1 2 rate 60mbit ceil 100mbit",
            "1 3 rate 40mbit ceil 100mbit",
            "2 20 rate 10mbit ceil 100mbit quantum 1500",
            "2 21 rate 10mbit ceil 100mbit quantum 1500",
            "3 30 rate 40mbit ceil 100mbit quantum 1500",
        ],
    );
    let bytes = bytes_of_second(&mut htb, &[(0x1_0020, 1000), (0x1_0021, 1000), (0x1_0030, 1000)]);
    for (bytes, mbit) in bytes.iter().zip([30, 30, 40]) {
        assert_near(*bytes, mbit * MBIT, 30, &format!("{mbit} Mbit/s"));
    }
    // One of the leaves pauses: its sibling gets its share.
    let end = htb.now + 1_000_000_000;
    htb.bytes_until(end);
    let bytes = bytes_of_second(&mut htb, &[(0x1_0020, 1000), (0x1_0030, 1000)]);
    for (bytes, mbit) in bytes.iter().zip([60, 40]) {
        assert_near(*bytes, mbit * MBIT, 10, &format!("{mbit} Mbit/s"));
    }
}

/// Where inner classes borrow, each of their leaves sends its quantum in a round.
#[test]
fn all_leaves_take_turns_when_their_parents_borrow() {
    let mut htb = htb(
        "htb",
        &[
            "0 1 rate 100mbit",
            "1 2 rate 100kbit ceil 100mbit",
            "1 3 rate 100kbit ceil 100mbit",
            "2 20 rate 50kbit ceil 100mbit quantum 2000",
            "2 21 rate 50kbit ceil 100mbit quantum 4000",
            "3 30 rate 100kbit ceil 100mbit quantum 4000",
        ],
    );
    let bytes = bytes_of_second(&mut htb, &[(0x1_0020, 1000), (0x1_0021, 1000), (0x1_0030, 1000)]);
    for (bytes, mbit) in bytes.iter().zip([20, 40, 40]) {
        assert_near(*bytes, mbit * MBIT, 20, &format!("{mbit} Mbit/s"));
    }
}

#[test]
fn what_no_leaf_is_for_goes_directly() {
    // 1:1 is no leaf, 1:99 is none at all, and 1:0 is the qdisc.
    let mut htb = htb("htb default 99 direct_qlen 3", &["0 1 rate 8kbit", "1 10 rate 8kbit"]);
    assert_eq!(htb.enqueue(1000, 0x1_0010), Verdict::Success);
    for priority in [0x1_0001, 0x1_0099, 0x1_0000] {
        assert_eq!(htb.enqueue(100, priority), Verdict::Success);
    }
    assert_eq!(htb.enqueue(100, 0), Verdict::Drop);
    assert_eq!(htb.drops.get(DropReason::QdiscDrop), 1);
    assert_eq!(
        htb.qdisc.options(Style::default()).text(),
        "r2q 10 default 0x99 direct_packets_stat 3 direct_qlen 3"
    );
    let left: Vec<_> = htb.dequeue(64).into_iter().map(|(number, _)| number).collect();
    assert_eq!(left, [1, 2, 3, 0]);
    let stats = htb.qdisc.stats();
    assert_eq!((stats.packets, stats.bytes, stats.drops, stats.qlen, stats.backlog), (4, 1300, 1, 0, 0));
}

/// The kernel shows the same numbers for the same packets.
#[test]
fn tokens_are_those_of_the_kernel() {
    let mut htb =
        htb("htb default 10", &["0 1 rate 800kbit", "1 10 rate 80kbit ceil 160kbit burst 2k cburst 2k"]);
    for _ in 0..3 {
        assert_eq!(htb.enqueue(1000, 0), Verdict::Success);
    }
    // A burst of 2 kB lets three packets leave at once: the third takes more than is left.
    assert_eq!(htb.dequeue(64).len(), 3);
    let info = htb.with(|qdisc, _| qdisc.classes().unwrap().class(0x10, Style::default()));
    // 2048 bytes at 10 and at 20 kB/s, less 3000.
    let tokens = |bytes: i64, rate: i64| (bytes * 1_000_000_000 / rate) >> 6;
    let (tokens, ctokens) = (tokens(2048 - 3000, 10_000), tokens(2048 - 3000, 20_000));
    assert_eq!(
        info.xstats.unwrap().text(),
        format!(" lended: 3 borrowed: 0 giants: 0\n tokens: {tokens} ctokens: {ctokens}\n")
    );
    assert_eq!(info.stats.unwrap().overlimits, 1);
}

#[test]
fn deleted_classes_drop_what_they_have() {
    let mut htb = htb("htb", &["0 1 rate 8mbit", "1 10 rate 8kbit"]);
    for _ in 0..5 {
        assert_eq!(htb.enqueue(1000, 0x1_0010), Verdict::Success);
    }
    assert_eq!(delete(&mut htb, 1).unwrap_err().message(), "Error: HTB class in use.");
    delete(&mut htb, 0x10).unwrap();
    let stats = htb.qdisc.stats();
    assert_eq!((stats.qlen, stats.backlog, stats.drops), (0, 0, 5));
    assert_eq!(htb.drops.get(DropReason::QueuePurge), 5);
    assert_eq!(htb.qdisc.next_event(), None);
    // Its parent is a leaf now. It loses its leaf again, with the packets in it.
    assert_eq!(htb.enqueue(1000, 0x1_0001), Verdict::Success);
    add(&mut htb, "1 20 rate 8kbit").unwrap();
    let stats = htb.qdisc.stats();
    assert_eq!((stats.qlen, stats.backlog, stats.drops), (0, 0, 6));
    assert_eq!(htb.enqueue(1000, 0x1_0020), Verdict::Success);
    assert_eq!(htb.dequeue(64).len(), 1);
}

#[test]
fn a_leaf_that_waits_for_itself_lets_others_pass() {
    let mut htb = htb("htb", &["0 10 rate 8mbit", "0 20 rate 8mbit"]);
    assert!(htb.attach(Handle::new(1, 0x10), Handle::new(10, 0), "tbf rate 8kbit burst 200 limit 1000"));
    for _ in 0..2 {
        assert_eq!(htb.enqueue(150, 0x1_0010), Verdict::Success);
        assert_eq!(htb.enqueue(100, 0x1_0020), Verdict::Success);
    }
    let left: Vec<_> = htb.dequeue(64).into_iter().map(|(number, _)| number).collect();
    assert_eq!(left.len(), 3);
    assert!(!left.contains(&2), "{left:?}");
    assert_eq!(htb.qdisc.next_event(), Some(htb.now + 100_000_000));
    htb.now += 100_000_000;
    assert_eq!(htb.dequeue(64), [(2, 150)]);
    assert_eq!(htb.qdisc.qlen(), 0);
}

#[test]
fn a_class_changes_with_packets_queued() {
    let mut htb = htb("htb", &["0 10 rate 8kbit burst 100 cburst 100", "0 20 rate 8mbit prio 1"]);
    for _ in 0..4 {
        assert_eq!(htb.enqueue(1000, 0x1_0010), Verdict::Success);
        assert_eq!(htb.enqueue(1000, 0x1_0020), Verdict::Success);
    }
    assert_eq!(htb.dequeue(2), [(0, 1000), (1, 1000)]);
    change(&mut htb, 0x10, "rate 8mbit prio 2 quantum 1").unwrap();
    change(&mut htb, 0x20, "rate 8gbit burst 1m cburst 1m").unwrap();
    let end = htb.now + 2_000_000_000;
    assert_eq!(htb.bytes_until(end), 6000);
    assert_eq!(
        change(&mut htb, 0x30, "rate 8mbit").unwrap_err().message(),
        "RTNETLINK answers: No such file or directory"
    );
}

#[test]
fn words_and_errors_are_tcs() {
    let mut htb = htb("htb default 0x20 r2q 5 direct_qlen 7", &[]);
    for (text, message) in [
        ("", "\"rate\" is required."),
        ("rate 7bit", "\"rate\" is required."),
        ("rate x", "Illegal \"rate\""),
        ("rate 1mbit rate 2mbit", "Double \"rate\" spec"),
        ("rate 1mbit ceil 2mbit ceil 3mbit", "Double \"ceil\" spec"),
        ("rate 1mbit burst 10k/3", "Illegal \"burst\""),
        ("rate 1mbit cbuffer x", "Illegal \"cburst\""),
        ("rate 1mbit mpu 0x10", "Illegal \"mpu\""),
        ("rate 1mbit overhead 70000", "Illegal \"overhead\""),
        ("rate 1mbit quantum 1k", "Illegal \"quantum\""),
        ("rate 1mbit linklayer x", "Illegal \"linklayer\""),
        ("rate 1mbit slot 3", "What is \"slot\"?"),
    ] {
        assert_eq!(add(&mut htb, &format!("0 1 {text}")).unwrap_err().message(), message, "{text}");
    }
    for minor in 1..=8 {
        add(&mut htb, &format!("{} {minor} rate 1mbit", minor - 1)).unwrap();
    }
    assert_eq!(add(&mut htb, "8 9 rate 1mbit").unwrap_err().message(), "Error: sch_htb: tree is too deep.");
    htb.with(|qdisc, _| assert!(qdisc.classes().unwrap().take_warnings().is_empty()));
    add(&mut htb, "0 1a rate 10mbit").unwrap();
    add(&mut htb, "0 b rate 8bit").unwrap();
    let warnings = htb.with(|qdisc, _| qdisc.classes().unwrap().take_warnings());
    assert_eq!(
        warnings,
        [
            "Warning: sch_htb: quantum of class 1001A is big. Consider r2q change.",
            "Warning: sch_htb: quantum of class 1000B is small. Consider r2q change.",
        ]
    );
    let details = Style { details: true, ..Style::default() };
    add(&mut htb, "0 c rate 1kbit ceil 10gbit prio 3 burst 10k/8 cburst 3k/16 mpu 64 overhead 20 linklayer atm quantum 5000").unwrap();
    let info = htb.with(|qdisc, _| qdisc.classes().unwrap().class(0xc, details));
    assert_eq!(
        info.options.text(),
        "prio 3 quantum 5000 rate 1Kbit overhead 20 ceil 10Gbit linklayer atm \
        burst 10Kb/1 mpu 64b cburst 1250b/1 mpu 64b level 0 "
    );
    assert!(info.xstats.unwrap().text().ends_with(" tokens: 1280000000 ctokens: 31\n"));
}
