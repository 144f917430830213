use proptest::prelude::*;

use super::*;
use crate::generic::filter::{Mode, Request};
use crate::generic::qdisc::testing::Virtual;

/// Returns a drr whose classes have these quanta, and minor numbers from 1.
fn drr(quanta: &[u32]) -> Virtual {
    let mut drr = Virtual::new("drr");
    for (minor, quantum) in (1..).zip(quanta) {
        drr.add_class(minor, &format!("quantum {quantum}")).unwrap();
    }
    drr
}

/// Returns the bytes of each class among the next packets, while no class is empty. Each class has its own packet length.
fn shares(quanta: &[u32], lens: &[usize], packets: usize) -> Vec<u64> {
    let mut drr = drr(quanta);
    let mut of: Vec<_> = (0..2 * lens.len()).map(|number| number / 2).collect();
    for &class in &of {
        assert_eq!(drr.enqueue(lens[class], 0x1_0001 + class as u32), Verdict::Success);
    }
    let mut bytes = vec![0; lens.len()];
    for _ in 0..packets {
        let &[(number, len)] = &drr.dequeue(1)[..] else { panic!("a class has packets") };
        let class = of[number as usize];
        bytes[class] += len as u64;
        assert_eq!(drr.enqueue(len, 0x1_0001 + class as u32), Verdict::Success);
        of.push(class);
    }
    bytes
}

#[test]
fn classes_share_by_their_quanta_whatever_their_packets() {
    for quanta in [[1500, 3000, 6000], [5, 10, 20], [70_000, 140_000, 280_000]] {
        let bytes = shares(&quanta, &[64, 1514, 700], 20_000);
        let part = bytes.iter().sum::<u64>() / 7;
        for (bytes, parts) in bytes.iter().zip([1, 2, 4]) {
            let off = bytes.abs_diff(part * parts);
            // The tolerance includes one turn.
            assert!(
                off <= part * parts / 50 + u64::from(quanta[2]),
                "{quanta:?}: {bytes}, not {}",
                part * parts
            );
        }
    }
}

#[test]
fn small_quanta_do_not_take_long() {
    let mut drr = drr(&[1, 1]);
    assert_eq!(drr.enqueue(2000, 0x1_0001), Verdict::Success);
    assert_eq!(drr.enqueue(1000, 0x1_0002), Verdict::Success);
    assert_eq!(drr.dequeue(1), [(1, 1000)]);
    // As many rounds have passed as a walk would have counted, and the other class had its turn in the last one.
    let info = drr.with(|qdisc, _| qdisc.classes().unwrap().class(1, Style::default()));
    assert_eq!(info.xstats.unwrap().text(), " deficit 1001b ");
    assert_eq!(drr.dequeue(64), [(0, 2000)]);
}

#[test]
fn what_names_no_class_is_dropped() {
    let mut drr = drr(&[1500]);
    for priority in [0, 1, 0x1_0000, 0x1_0002, 0x2_0001] {
        assert_eq!(drr.enqueue(100, priority), Verdict::Success);
    }
    assert_eq!(drr.qdisc.stats().drops, 5);
    assert_eq!(drr.drops.get(DropReason::QdiscDrop), 5);
}

#[test]
fn a_leaf_that_waits_for_itself_lets_others_pass() {
    let mut drr = drr(&[1500, 1500]);
    assert!(drr.attach(Handle::new(1, 1), Handle::new(10, 0), "tbf rate 8kbit burst 200 limit 1000"));
    for _ in 0..2 {
        assert_eq!(drr.enqueue(150, 0x1_0001), Verdict::Success);
        assert_eq!(drr.enqueue(100, 0x1_0002), Verdict::Success);
    }
    let left: Vec<_> = drr.dequeue(64).into_iter().map(|(number, _)| number).collect();
    assert_eq!(left, [0, 1, 3]);
    assert_eq!(drr.qdisc.next_event(), Some(drr.now + 100_000_000));
    drr.now += 100_000_000;
    assert_eq!(drr.dequeue(64), [(2, 150)]);
}

#[test]
fn deleted_classes_drop_what_they_have() {
    let mut drr = drr(&[1500, 1500]);
    for priority in [0x1_0001, 0x1_0001, 0x1_0002] {
        assert_eq!(drr.enqueue(100, priority), Verdict::Success);
    }
    drr.with(|qdisc, cx| qdisc.classes().unwrap().delete(1, cx)).unwrap();
    let stats = drr.qdisc.stats();
    assert_eq!((stats.qlen, stats.backlog, stats.drops), (1, 100, 2));
    drr.add_class(7, "").unwrap();
    assert_eq!(drr.enqueue(100, 0x1_0007), Verdict::Success);
    assert_eq!(drr.dequeue(64), [(2, 100), (3, 100)]);
}

#[test]
fn words_and_errors_are_tcs() {
    let mut drr = drr(&[]);
    for (text, message) in [
        ("quantum x", "Illegal \"quantum\""),
        ("quantum 0", "Error: Specified DRR quantum cannot be zero."),
        ("foo", "What is \"foo\"?"),
    ] {
        assert_eq!(drr.add_class(1, text).unwrap_err().message(), message, "{text}");
    }
    drr.add_class(1, "").unwrap();
    let info = drr.with(|qdisc, _| qdisc.classes().unwrap().class(1, Style::default()));
    assert_eq!(info.options.text(), "quantum 1514b ");
    assert_eq!(info.xstats.unwrap().text(), " deficit 0b ");
    drr.change("").unwrap();
    assert_eq!(drr.change("quantum 5").unwrap_err().message(), "What is \"quantum\"?");
}

proptest! {
    /// No packet is lost or counted twice, each class keeps its packets' order, and all packets leave.
    #[test]
    fn nothing_is_lost(steps in proptest::collection::vec((0u8..12, 1u16..6, 1u32..3000), 1..200)) {
        let mut drr = drr(&[1, 1500, 70_000]);
        let (mut of, mut sent) = (Vec::new(), 0);
        let mut given = 0;
        let mut last = std::collections::HashMap::new();
        let mut take = |left: &[(u64, usize)], of: &[u16]| {
            for &(number, _) in left {
                let before = last.insert(of[number as usize], number);
                assert!(before.is_none_or(|before| before < number), "{number} after {before:?}");
            }
            left.len()
        };
        for (step, minor, number) in steps {
            match step {
                0..=5 => {
                    given += 1 + u64::from(number) % 2000;
                    let _ = drr.enqueue(1 + number as usize % 2000, 0x1_0000 + u32::from(minor));
                    of.push(minor);
                }
                6 | 7 => {
                    let left = drr.dequeue(1 + number as usize % 9);
                    sent += take(&left, &of);
                }
                8 => drop(drr.add_class(minor, &format!("quantum {number}"))),
                9 => drop(drr.with(|qdisc, cx| qdisc.classes().unwrap().delete(minor, cx))),
                10 if number % 20 == 0 => drr.with(|qdisc, cx| qdisc.reset(cx)),
                10 => drop(drr.with(|qdisc, cx| {
                    let text = format!("quantum {}", number - 1);
                    qdisc.classes().unwrap().change_class(minor, &mut Words::split(&text), cx)
                })),
                _ => {
                    let exists = drr.with(|qdisc, _| qdisc.classes().unwrap().find(minor).is_some());
                    if exists {
                        let text = if number % 2 == 0 { "tbf rate 1mbit burst 10k limit 20k" } else { "codel" };
                        drr.attach(Handle::new(1, minor), Handle::new(0x20 + minor, 0), text);
                    }
                }
            }
            let stats = drr.qdisc.stats();
            prop_assert_eq!(of.len() as u64, sent as u64 + drr.drops.total() + stats.qlen);
            prop_assert_eq!(stats.packets, sent as u64);
            prop_assert_eq!(stats.backlog, given - stats.bytes - drr.dropped);
        }
        while drr.qdisc.qlen() > 0 {
            let left = drr.dequeue(64);
            sent += take(&left, &of);
            if left.is_empty() && drr.qdisc.qlen() > 0 {
                let next = drr.qdisc.next_event().expect("packets are queued");
                prop_assert!(next > drr.now);
                drr.now = next;
            }
        }
        prop_assert_eq!(of.len() as u64, sent as u64 + drr.drops.total());
    }
}

#[test]
fn a_class_that_a_filter_chooses_stays() {
    let mut drr = drr(&[1500, 1500]);
    let rule = Request::parse("pref 1 matchall classid 1:2").unwrap();
    drr.with(|qdisc, _| qdisc.filters(0).unwrap().set(&rule, Handle::new(1, 0), Mode::Add)).unwrap();
    let delete = |drr: &mut Virtual, minor| drr.with(|qdisc, cx| qdisc.classes().unwrap().delete(minor, cx));
    assert_eq!(delete(&mut drr, 2).unwrap_err().message(), "Error: DRR class is in use.");
    delete(&mut drr, 1).unwrap();
    drr.with(|qdisc, _| qdisc.filters(0).unwrap().delete(&Request::parse("pref 1").unwrap())).unwrap();
    delete(&mut drr, 2).unwrap();
}

#[test]
fn filters_choose_where_the_priority_does_not() {
    let mut drr = drr(&[1500, 1500]);
    drr.filter(0, 100, Handle::new(1, 2));
    drr.filter(0, 200, Handle::new(1, 3));
    drr.filter(0, 400, Handle::new(2, 2));
    assert_eq!(drr.enqueue(100, 0), Verdict::Success);
    assert_eq!(drr.enqueue(100, 0x1_0001), Verdict::Success);
    // There is no class 3, and 2:2 is a class of another qdisc. Packets without a class are dropped, and the verdict is
    // success.
    assert_eq!(drr.enqueue(200, 0), Verdict::Success);
    assert_eq!(drr.enqueue(300, 0), Verdict::Success);
    assert_eq!(drr.enqueue(400, 0), Verdict::Success);
    assert_eq!(drr.qdisc.stats().drops, 3);
    let mut queued = |minor| drr.with(|qdisc, _| qdisc.classes().unwrap().leaf(minor).unwrap().0.qlen());
    assert_eq!([queued(1), queued(2)], [1, 1]);
}
