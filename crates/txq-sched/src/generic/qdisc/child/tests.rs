//! Random trees of qdiscs under random scripts: no packet is lost, none stalls, and each ancestor's counts are exact.

use proptest::prelude::*;

use crate::generic::qdisc::copying::Others;
use crate::generic::qdisc::testing::{ENV, Virtual};
use crate::generic::qdisc::{Cx, Qdisc, child};
use crate::tc::{Handle, Words};

/// Texts of qdiscs that are valid both at the root and below a class.
const TEXTS: [&str; 34] = [
    "pfifo limit 5",
    "bfifo limit 2000",
    "pfifo_fast",
    "prio",
    "prio bands 2 priomap 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0",
    "tbf rate 1mbit burst 2k limit 4k",
    "tbf rate 100mbit burst 1k limit 1k peakrate 200mbit mtu 700",
    "tbf rate 8kbit burst 3k latency 10ms",
    "bfifo limit 100",
    "codel limit 7 target 1ms interval 2ms",
    "fq_codel limit 6 flows 4 target 1ms interval 2ms drop_batch 2",
    "netem limit 5 delay 2ms 1ms loss 10% reorder 20%",
    "blackhole",
    "fq limit 20 flow_limit 5",
    "fq maxrate 1mbit quantum 1000 initial_quantum 1000",
    // No direct queue: all queued packets are in the classes.
    "htb default 1 direct_qlen 0",
    "htb direct_qlen 0",
    "drr",
    "netem duplicate 60% delay 1ms limit 9",
    "netem duplicate 100% loss 10%",
    "red limit 9000 min 1000 max 4000 avpkt 700 probability 0.5",
    "red limit 4000 min 1000 max 3000 avpkt 700 ecn nodrop adaptive",
    "sfq limit 6 depth 3 divisor 2 perturb 1 quantum 100",
    "sfq limit 9 flows 2 headdrop redflowlimit 9000 max 4000 min 1500 burst 3 probability 0.5 ecn",
    "pie limit 7 target 1ms tupdate 1ms alpha 32 beta 32",
    "pie limit 30 target 1ms tupdate 1ms ecn bytemode dq_rate_estimator",
    "ets strict 1 quanta 300 700 priomap 0 1 2",
    "ets bands 2 priomap 1 0",
    "hfsc default 1",
    "hfsc",
    "choke limit 9 bandwidth 1mbit min 2 max 6 burst 4 probability 0.5 ecn",
    "skbprio limit 4",
    "fq_pie limit 6 flows 4 target 1ms tupdate 1ms alpha 32 beta 32",
    "dualpi2 limit 9 target 1ms tupdate 1ms alpha 100 beta 1000 min_qlen_step 2",
];

#[derive(Debug, Clone)]
enum Op {
    Enqueue {
        bytes: usize,
        priority: u32,
    },
    /// Enqueues a batch of packets, each with another priority.
    Batch {
        packets: u32,
        bytes: usize,
    },
    Dequeue(usize),
    Wait(u64),
    /// Attaches one of `TEXTS` below a class of the qdisc with this major number; the second number is the new qdisc's.
    Attach {
        below: u16,
        minor: u16,
        major: u16,
        text: usize,
    },
    /// Changes the qdisc with this major number by the words of one of `TEXTS`.
    Change {
        major: u16,
        text: usize,
    },
    /// Adds a class to the qdisc with this major number, below another class or below the qdisc, or changes the class.
    Class {
        major: u16,
        parent: u16,
        minor: u16,
        number: u32,
    },
    DeleteClass {
        major: u16,
        minor: u16,
    },
    Reset,
}

/// Draws one of `TEXTS`; kinds whose classes are added and deleted are the most likely to fail.
fn root() -> impl Strategy<Value = usize> {
    let classful = |&root: &usize| {
        TEXTS[root].starts_with("htb") || TEXTS[root].starts_with("hfsc") || TEXTS[root] == "drr"
    };
    let classful: Vec<_> = (0..TEXTS.len()).filter(classful).collect();
    prop_oneof![2 => 0..TEXTS.len(), 1 => prop::sample::select(classful)]
}

fn op() -> impl Strategy<Value = Op> {
    // The root's classes get more operations.
    let major = || prop_oneof![2 => Just(1u16), 1 => 1u16..6];
    let class = (major(), 0u32..5).prop_map(|(major, minor)| u32::from(major) << 16 | minor);
    let priority = prop_oneof![1 => 0u32..16, 1 => class];
    let attach = (1u16..6, 1u16..4, 2u16..6, 0..TEXTS.len());
    prop_oneof![
        10 => (1usize..1500, priority).prop_map(|(bytes, priority)| Op::Enqueue { bytes, priority }),
        3 => (2u32..9, 1usize..1500).prop_map(|(packets, bytes)| Op::Batch { packets, bytes }),
        5 => (1usize..20).prop_map(Op::Dequeue),
        3 => (0u64..20_000_000).prop_map(Op::Wait),
        3 => attach.prop_map(|(below, minor, major, text)| Op::Attach { below, minor, major, text }),
        1 => (1u16..6, 0..TEXTS.len()).prop_map(|(major, text)| Op::Change { major, text }),
        4 => (major(), 0u16..5, 1u16..5, 1u32..3000)
            .prop_map(|(major, parent, minor, number)| Op::Class { major, parent, minor, number }),
        1 => (major(), 1u16..5).prop_map(|(major, minor)| Op::DeleteClass { major, minor }),
        1 => Just(Op::Reset),
    ]
}

/// Checks each qdisc's own counts against its children's.
fn exact(qdisc: &mut dyn Qdisc) {
    let (stats, qlen) = (qdisc.stats(), qdisc.qlen());
    assert_eq!(stats.qlen, qlen as u64, "{}", qdisc.kind());
    assert_eq!(stats.qlen == 0, stats.backlog == 0, "{}", qdisc.kind());
    let kind = qdisc.kind();
    // sfq's classes are its own queues.
    let Some(classes) = qdisc.classes().filter(|_| kind != "sfq") else { return };
    let (mut packets, mut bytes, mut said) = (0, 0, child::Total::default());
    for minor in classes.minors() {
        let Some((leaf, total)) = classes.leaf(minor) else { continue };
        said = *total;
        leaf.settle(total);
        assert_eq!(*total, said, "{kind}: there was something that it had not been told");
        packets += leaf.qlen();
        bytes += leaf.qdisc().stats().backlog + leaf.parked.bytes();
        exact(leaf.qdisc_mut());
    }
    assert_eq!((said.qlen, said.backlog), (packets, bytes), "{kind}");
    // netem has a queue of its own in front of its child.
    let own = kind == "netem" && qlen >= packets && stats.backlog >= bytes;
    assert!(own || (qlen, stats.backlog) == (packets, bytes), "{kind}");
}

/// Returns the qdisc with the handle, if there is one.
fn with(tree: &mut Virtual, major: u16, f: impl Fn(&mut dyn Qdisc, &mut Cx<'_>)) {
    tree.with(|qdisc, cx| child::find(qdisc, Handle::new(1, 0), Handle::new(major, 0), &mut |q| f(q, cx)));
}

fn copies(text: usize) -> bool {
    TEXTS[text].contains("duplicate")
}

fn others(tree: &mut Virtual) -> Others {
    tree.with(|qdisc, _| Others::of(qdisc, Handle::new(1, 0), None))
}

fn check(root: usize, script: &[Op]) {
    let mut tree = Virtual::new(TEXTS[root]);
    let (mut taken, mut left) = (0, 0);
    let (mut taken_bytes, mut left_bytes) = (0, 0);
    for op in script {
        match *op {
            Op::Enqueue { bytes, priority } => {
                taken += 1;
                taken_bytes += bytes as u64;
                let _ = tree.enqueue(bytes, priority);
            }
            Op::Batch { packets, bytes } => {
                taken += packets as usize;
                taken_bytes += u64::from(packets) * bytes as u64;
                tree.enqueue_batch(bytes, 0..packets);
            }
            Op::Dequeue(packets) => {
                let out = tree.dequeue(packets);
                left += out.len();
                left_bytes += out.iter().map(|&(_, bytes)| bytes as u64).sum::<u64>();
                let stalled = out.is_empty() && tree.qdisc.qlen() > 0;
                assert!(!stalled || tree.qdisc.next_event().is_some_and(|at| at > tree.now), "it stalls");
            }
            Op::Wait(time) => tree.now += time,
            Op::Attach { below, minor, major, text } => {
                let mut there = false;
                tree.with(|qdisc, _| {
                    let own = Handle::new(1, 0);
                    there = child::find(qdisc, own, Handle::new(major, 0), &mut |_| ()).is_some();
                });
                let netem = TEXTS[text].starts_with("netem");
                if !there && (!netem || others(&mut tree).allow(copies(text)).is_ok()) {
                    tree.attach(Handle::new(below, minor), Handle::new(major, 0), TEXTS[text]);
                }
            }
            Op::Change { text, .. } if copies(text) && others(&mut tree).could > 1 => {}
            Op::Change { major, text } => {
                let (_, words) = TEXTS[text].split_once(' ').unwrap_or_default();
                with(&mut tree, major, |qdisc, cx| {
                    let _ = qdisc.change(&mut Words::split(words), &ENV, cx);
                });
            }
            Op::Class { major, parent, minor, number } => with(&mut tree, major, |qdisc, cx| {
                let text = match qdisc.kind() {
                    "htb" => format!("rate {number}kbit ceil {}kbit prio {}", 2 * number, number % 8),
                    "hfsc" => match number % 4 {
                        0 => format!("rt rate {number}kbit"),
                        1 => format!("ls rate {number}kbit ul rate {}kbit", 2 * number),
                        2 => format!("sc umax 1500 dmax 5ms rate {number}kbit"),
                        _ => format!("ls m1 {number}kbit d 9ms m2 {}kbit", 3 * number),
                    },
                    _ => format!("quantum {number}"),
                };
                let Some(classes) = qdisc.classes() else { return };
                let mut words = Words::split(&text);
                let _ = match classes.find(minor) {
                    Some(_) => classes.change_class(minor, &mut words, cx),
                    None => classes.add(parent, minor, &mut words, &ENV, cx),
                };
            }),
            Op::DeleteClass { major, minor } => with(&mut tree, major, |qdisc, cx| {
                if let Some(classes) = qdisc.classes()
                    && classes.find(minor).is_some()
                {
                    let _ = classes.delete(minor, cx);
                }
            }),
            Op::Reset => tree.with(|qdisc, cx| qdisc.reset(cx)),
        }
        exact(&mut *tree.qdisc);
        let (created, dropped) = (tree.created as usize, tree.drops.total() as usize);
        assert_eq!(taken + created, left + dropped + tree.qdisc.qlen(), "after {op:?}");
        let backlog = tree.qdisc.stats().backlog;
        assert_eq!(taken_bytes + tree.copied, left_bytes + tree.dropped + backlog, "after {op:?}");
    }
    // All packets leave in the end.
    while tree.qdisc.qlen() > 0 {
        // The qdisc may have dropped all.
        if tree.dequeue(64).is_empty() && tree.qdisc.qlen() > 0 {
            let next = tree.qdisc.next_event().expect("packets that nothing will send");
            assert!(next > tree.now, "it would be asked for ever");
            tree.now = next;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_tree_is_exact(root in root(), script in prop::collection::vec(op(), 1..120)) {
        check(root, &script);
    }
}

/// A search among many leaves asks none of these for its flows.
#[test]
fn flows_have_no_leaves() {
    let has_leaves = |text: &str| child::has_leaves(&mut *Virtual::new(text).qdisc);
    assert_eq!(["cake", "sfq", "pfifo"].map(has_leaves), [false; 3]);
    assert_eq!(["htb", "tbf rate 1mbit burst 2k limit 4k", "netem"].map(has_leaves), [true; 3]);
}
