use super::*;
use crate::qdisc::testing::{ENV, Virtual};

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

#[test]
fn first() {
    let mut htb = htb("htb default 10", &["0 1 rate 8mbit", "1 10 rate 8mbit"]);
    for _ in 0..100 {
        assert_eq!(htb.enqueue(1000, 0), Verdict::Success);
    }
    let end = htb.now + 50_000_000;
    let bytes = htb.bytes_until(end);
    assert!((50_000..54_000).contains(&bytes), "{bytes}");
}

const MBIT: u64 = 125_000;

/// Bytes that leave in the next second, while all packets that leave are replaced by others of their class.
fn bytes_of_second(htb: &mut Virtual, classes: &[(u32, usize)]) -> Vec<u64> {
    let end = htb.now + 1_000_000_000;
    let mut bytes = vec![0; classes.len()];
    // Each class has two packets queued; by number, whose a packet is.
    let first = htb.packets();
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
            let mut htb = htb("htb", &[&format!("0 10 rate {mbit}mbit burst {burst} cburst {burst}")]);
            // The burst leaves first, and then the second begins.
            let warm = htb.now;
            htb.now = warm;
            for _ in 0..64 {
                assert_eq!(htb.enqueue(len, 0x1_0010), Verdict::Success);
            }
            while htb.dequeue(64).len() == 64 {
                for _ in 0..64 {
                    assert_eq!(htb.enqueue(len, 0x1_0010), Verdict::Success);
                }
            }
            let rate = mbit * MBIT;
            // A whole number of packets fits into the time.
            let seconds = if rate < 20_000_000 && len > 9000 { 100 } else { 1 };
            let (start, mut bytes) = (htb.now, 0);
            while htb.now < start + seconds * 1_000_000_000 {
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
        ],
    );
    let bytes = bytes_of_second(&mut htb, &[(0x1_0010, 1000), (0x1_0020, 1000)]);
    // 70 Mbit/s are left, of which one has 1 part and the other 3.
    assert_near(bytes[0], 275 * MBIT / 10, 20, "1:10");
    assert_near(bytes[1], 725 * MBIT / 10, 20, "1:20");
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

/// What a subtree is sure of is lent inside it before others get it.
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
        assert_near(*bytes, mbit * MBIT, 10, &format!("{mbit} Mbit/s"));
    }
    // One of the leaves pauses: its sibling has its part.
    let end = htb.now + 1_000_000_000;
    htb.bytes_until(end);
    let bytes = bytes_of_second(&mut htb, &[(0x1_0020, 1000), (0x1_0030, 1000)]);
    for (bytes, mbit) in bytes.iter().zip([60, 40]) {
        assert_near(*bytes, mbit * MBIT, 10, &format!("{mbit} Mbit/s"));
    }
}
