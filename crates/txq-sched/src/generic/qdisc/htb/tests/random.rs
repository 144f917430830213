//! Random trees of classes that change under random packets.

use proptest::prelude::*;

use super::*;

/// A random step on a tree of random classes.
#[derive(Debug, Clone)]
enum Step {
    Enqueue(u16, usize),
    Dequeue(usize),
    Pass(u64),
    Add(u16, u16, u64, u64, u8, u32),
    Change(u16, u64, u64, u8, u32),
    Delete(u16),
    Reset,
    Leaf(u16, bool),
}

fn step() -> impl Strategy<Value = Step> {
    // From 8 bit/s to more than a bucket can express.
    let rate = || prop_oneof![8u64..1000, 1_000_000u64..20_000_000, 1_000_000_000u64..200_000_000_000];
    let quantum = || prop_oneof![Just(0), 1u32..3000, Just(u32::MAX)];
    prop_oneof![
        20 => (0u16..12, 1usize..2000).prop_map(|(c, len)| Step::Enqueue(c, len)),
        20 => (1usize..70).prop_map(Step::Dequeue),
        10 => prop_oneof![0u64..1_000_000, 0u64..100_000_000_000].prop_map(Step::Pass),
        8 => (0u16..12, 1u16..12, rate(), rate(), 0u8..9, quantum())
            .prop_map(|(p, m, r, c, prio, q)| Step::Add(p, m, r, c, prio, q)),
        3 => (1u16..12, rate(), rate(), 0u8..9, quantum())
            .prop_map(|(m, r, c, prio, q)| Step::Change(m, r, c, prio, q)),
        3 => (1u16..12).prop_map(Step::Delete),
        1 => Just(Step::Reset),
        2 => (1u16..12, any::<bool>()).prop_map(|(m, shapes)| Step::Leaf(m, shapes)),
    ]
}

proptest! {
    /// No packet is lost or counted twice, each class keeps its packets' order, and everything leaves in the end.
    #[test]
    fn nothing_is_lost(steps in proptest::collection::vec(step(), 1..150)) {
        let mut htb = htb("htb default 3", &["0 1 rate 8mbit", "1 2 rate 1mbit ceil 8mbit", "1 3 rate 2mbit"]);
        let (mut given, mut given_bytes, mut left, mut bytes) = (0u64, 0u64, 0u64, 0u64);
        let mut last = std::collections::HashMap::new();
        let mut of = Vec::new();
        let mut take = |left_now: Vec<(u64, usize)>, of: &[u16]| {
            for &(number, len) in &left_now {
                bytes += len as u64;
                left += 1;
                let before = last.insert(of[number as usize], number);
                assert!(before.is_none_or(|before| before < number), "{number} after {before:?}");
            }
            (left_now.len(), left, bytes)
        };
        let mut sent = (0, 0, 0);
        for step in steps {
            match step {
                Step::Enqueue(class, len) => {
                    of.push(htb.with(|qdisc, _| {
                        let classes = qdisc.classes().unwrap();
                        let mut is_leaf = |&minor: &u16| classes.find(minor).is_some_and(|m| classes.leaf(m).is_some());
                        [class, 3].into_iter().filter(|_| class != 0).find(&mut is_leaf).unwrap_or(0)
                    }));
                    let _ = htb.enqueue(len, 0x1_0000 + u32::from(class));
                    given += 1;
                    given_bytes += len as u64;
                }
                Step::Dequeue(packets) => {
                    let now = htb.dequeue(packets);
                    if now.is_empty() && htb.qdisc.qlen() > 0 {
                        prop_assert!(htb.qdisc.next_event().is_some_and(|at| at > htb.now));
                    }
                    sent = take(now, &of);
                }
                Step::Pass(time) => htb.now += time,
                Step::Add(parent, minor, rate, ceil, prio, quantum) => {
                    let _ = add(&mut htb, &format!(
                        "{parent:x} {minor:x} rate {rate}bit ceil {ceil}bit prio {prio} quantum {quantum}"));
                }
                Step::Change(minor, rate, ceil, prio, quantum) => {
                    let _ = change(&mut htb, minor, &format!(
                        "rate {rate}bit ceil {ceil}bit prio {prio} quantum {quantum}"));
                }
                Step::Delete(minor) => {
                    let _ = delete(&mut htb, minor);
                }
                Step::Reset => htb.with(|qdisc, cx| qdisc.reset(cx)),
                Step::Leaf(minor, shapes) => {
                    let text = if shapes { "tbf rate 1mbit burst 10k limit 20k" } else { "codel" };
                    let class = htb.with(|qdisc, _| {
                        let classes = qdisc.classes().unwrap();
                        classes.find(minor).filter(|&minor| classes.leaf(minor).is_some())
                    });
                    if let Some(minor) = class {
                        htb.attach(Handle::new(1, minor), Handle::new(0x20 + minor, 0), text);
                    }
                }
            }
            let stats = htb.qdisc.stats();
            prop_assert_eq!(given, sent.1 + htb.drops.total() + stats.qlen);
            prop_assert_eq!((stats.packets, stats.bytes), (sent.1, sent.2));
            prop_assert_eq!(stats.qlen as usize, htb.qdisc.qlen());
            prop_assert_eq!(stats.backlog, given_bytes - sent.2 - htb.dropped);
        }
        // Rates of a few bits a second need many rounds.
        for _ in 0..100_000 {
            let now = htb.dequeue(64);
            if now.is_empty() {
                let Some(next) = htb.qdisc.next_event().filter(|_| htb.qdisc.qlen() > 0) else { break };
                prop_assert!(next > htb.now);
                htb.now = next;
            }
            sent = take(now, &of);
        }
        prop_assert_eq!(htb.qdisc.qlen(), 0);
        prop_assert_eq!(given, sent.1 + htb.drops.total());
    }
}
