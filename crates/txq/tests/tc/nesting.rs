//! The maximum depth of a tree of qdiscs.

use crate::device::{Wires, assert_conserved, pool};
use crate::netns::{DEV, Netns};
use txq::NetDev;
use txq::qdisc::Verdict;
use txq::tc::Style;

/// Number of qdiscs from the root to the deepest.
const LEVELS: usize = 8;
const TOO_DEEP: &str = "RTNETLINK answers: Too many levels of symbolic links";

fn device(txqs: usize) -> NetDev {
    NetDev::builder(Wires::new(txqs, None)).qdisc("noqueue").pool_config(pool()).build().unwrap()
}

/// Returns the command that attaches the qdisc of a level, counted from 1, below that of the level before.
fn nested(level: usize, kind: &str) -> String {
    match level {
        1 => format!("root handle 1: {kind}"),
        _ => format!("parent {:x}:1 handle {level:x}: {kind}", level - 1),
    }
}

/// Attaches qdiscs below one another, far more than fit on a stack; returns how many were accepted.
fn nest(dev: &NetDev, kind: &str, levels: usize) -> usize {
    let mut taken = 0;
    for level in 1..=levels {
        match dev.tc(&format!("qdisc add {}", &nested(level, kind))) {
            Ok(_) => taken += 1,
            Err(error) if level == taken + 1 => {
                assert_eq!(error.message(), TOO_DEEP);
                assert!(error.to_string().contains("and a tree at most 8"), "{error}");
            }
            // There is no qdisc to attach this one to.
            Err(error) => assert_eq!(error.message(), "Error: Failed to find specified qdisc."),
        }
    }
    taken
}

#[test]
fn a_ninth_level_is_refused() {
    for kind in ["tbf rate 1gbit burst 100k latency 10ms", "prio", "netem"] {
        let dev = device(1);
        assert_eq!(nest(&dev, kind, 5000), LEVELS, "{kind}");
        // Nothing can be attached below the deepest, but anything can replace it.
        let deepest = dev.tc("qdisc add parent 8:1 pfifo").unwrap_err();
        assert_eq!(deepest.message(), TOO_DEEP);
        dev.tc("qdisc replace parent 7:1 handle 9: pfifo limit 10").unwrap();
        assert_eq!(dev.qdiscs(Style::default()).len(), LEVELS);
        // Packets walk the whole depth, and so do all queries.
        let mut sender = dev.sender("s");
        let packet = sender.packet(&[0; 60]).unwrap();
        assert_eq!(sender.xmit(packet), Verdict::Success);
        assert!(!dev.classes(Style::default()).is_empty());
        dev.tc("qdisc del root").unwrap();
        drop(sender);
        assert_conserved(&dev);
    }
}

/// mq is a level, and htb's classes are not; those have a bound of their own.
#[test]
fn mq_counts_and_classes_do_not() {
    let dev = device(2);
    dev.tc("qdisc add root handle 1: mq").unwrap();
    for level in 2..=LEVELS {
        dev.tc(&format!("qdisc add {}", &nested(level, "prio"))).unwrap();
    }
    assert_eq!(
        dev.tc(&format!("qdisc add {}", &nested(LEVELS + 1, "prio"))).unwrap_err().message(),
        TOO_DEEP
    );
    // The other txq has a tree of its own.
    dev.tc("qdisc add parent 1:2 handle 22: prio").unwrap();
    dev.tc("qdisc add parent 22:1 handle 23: prio").unwrap();
    let dev = device(1);
    for level in 1..=LEVELS {
        dev.tc(&format!("qdisc add {}", &nested(level, "htb"))).unwrap();
        let major = format!("{level:x}:");
        for class in 1..=3 {
            let parent = if class == 1 { String::new() } else { format!("{:x}", class + 9) };
            // The next qdisc is attached to the deepest class.
            let minor = if class == 3 { 1 } else { class + 10 };
            dev.tc(&format!("class add parent {major}{parent} classid {major}{minor:x} htb rate 1gbit"))
                .unwrap();
        }
    }
    let error = dev.tc(&format!("qdisc add {}", &nested(LEVELS + 1, "htb"))).unwrap_err();
    assert_eq!(error.message(), TOO_DEEP);
}

/// The running kernel answers the same up to the bound. Beyond it Linux accepts the qdisc (docs/fidelity.md); once it
/// refuses, this test shows with which text.
#[test]
fn up_to_the_bound_the_kernel_answers_the_same() {
    let Some(netns) = Netns::new("nesting") else { return };
    let dev = device(1);
    for level in 1..=LEVELS + 1 {
        let command = nested(level, "tbf rate 1mbit burst 10k latency 10ms");
        let ours = dev.tc(&format!("qdisc add {command}"));
        let words: Vec<_> = command.split(' ').collect();
        let output = netns.run("tc", &[&["qdisc", "add", "dev", DEV], &words[..]].concat());
        let theirs = String::from_utf8(output.stderr).unwrap();
        assert_eq!((theirs.as_str(), output.status.code()), ("", Some(0)), "level {level}");
        assert_eq!(ours.is_ok(), level <= LEVELS, "level {level}");
    }
}

/// Lists of many classes are read in portions: each class and each qdisc is there once, in tc's order, with traffic meanwhile, too.
#[test]
fn a_long_list_has_each_class_once() {
    const CLASSES: u32 = 150;
    for txqs in [1, 2] {
        let dev = device(txqs);
        let tops = if txqs == 1 {
            vec![("root".to_owned(), 1)]
        } else {
            dev.tc("qdisc replace root handle 9: mq").unwrap();
            vec![("parent 9:1".to_owned(), 1), ("parent 9:2".to_owned(), 2)]
        };
        let mut expected = Vec::new();
        let mut qdiscs = Vec::new();
        for (place, top) in tops {
            dev.tc(&format!("qdisc replace {place} handle {top}: htb")).unwrap();
            qdiscs.push(format!("{top}:"));
            for class in 1..=CLASSES {
                dev.tc(&format!("class add parent {top}: classid {top}:{class:x} htb rate 1mbit")).unwrap();
                expected.push(format!("{top}:{class:x}"));
            }
            // The second has classes of its own, and the last one a qdisc without.
            let (below, last) = (0x10 + top, 0x20 + top);
            dev.tc(&format!("qdisc replace parent {top}:2 handle {below:x}: drr")).unwrap();
            qdiscs.push(format!("{below:x}:"));
            for class in 1..=CLASSES {
                dev.tc(&format!("class add parent {below:x}: classid {below:x}:{class:x} drr")).unwrap();
                expected.push(format!("{below:x}:{class:x}"));
            }
            dev.tc(&format!("qdisc replace parent {top}:{CLASSES:x} handle {last:x}: pfifo")).unwrap();
            qdiscs.push(format!("{last:x}:"));
        }
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sender = dev.sender("s");
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut packet = sender.packet(&[0; 60]).unwrap();
                    packet.set_priority(0x1_0001);
                    let _ = sender.xmit(packet);
                }
            });
            for _ in 0..20 {
                let classes = dev.classes(Style::default());
                let found: Vec<_> = classes.iter().map(|class| class.handle.to_string()).collect();
                let own: Vec<_> = found.into_iter().filter(|handle| !handle.starts_with("9:")).collect();
                assert_eq!(own, expected);
                let listed = dev.qdiscs(Style::default());
                let mut found: Vec<_> = listed.iter().map(|qdisc| qdisc.handle.to_string()).collect();
                found.retain(|handle| handle != "9:");
                // The children of mq are listed from the last to the first.
                let mut tops: Vec<_> = qdiscs.chunks(3).collect();
                tops.reverse();
                assert_eq!(found, tops.concat());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
