//! Flows as classes, and filters that choose flows and hosts.

use super::*;
use crate::tc::{ClassInfo, class_text};

fn shown(bench: &mut Bench) -> String {
    let list: Vec<ClassInfo> = bench.with(|q, _| {
        let classes = q.classes().expect("flows");
        let minors = classes.minors();
        let named = |minor| ClassInfo { kind: "cake".into(), ..classes.class(minor, Style::default()) };
        minors.into_iter().map(named).collect()
    });
    class_text(&list, true)
}

/// A running kernel's output for queued packets, and for an empty queue that waits for its turn.
#[test]
fn active_flows_are_classes() {
    let mut bench = Bench::new("cake bandwidth 8kbit besteffort flows");
    assert_eq!(shown(&mut bench), "");
    let _ = bench.enqueue(49, 2048 + 0x28);
    let _ = bench.enqueue(1242, 0xb9);
    assert_eq!(
        shown(&mut bench),
        "class cake :29 parent none \n (dropped 0, overlimits 0 requeues 0) \n backlog 49b 1p requeues 0\n  \
         deficit 300 count 0 blue_prob 0\n\
         class cake :ba parent none \n (dropped 0, overlimits 0 requeues 0) \n backlog 1242b 1p requeues 0\n  \
         deficit 300 count 0 blue_prob 0\n"
    );
    assert!(bench.dequeue().is_some());
    assert!(shown(&mut bench).contains(" backlog 0b 0p requeues 0\n  deficit 251 count 0 blue_prob 0\n"));
    let none = bench.with(|q, _| q.classes().unwrap().find(0x29).is_none());
    assert!(none, "nobody can put a qdisc there");
}

/// The flow by the minor number, in each tin, and the hosts by the major one.
#[test]
fn a_filter_says_flow_and_hosts() {
    let minors = |bench: &mut Bench| bench.with(|q, _| q.classes().unwrap().minors());
    let said = |text: &str, class: Handle| {
        let mut bench = Bench::new(text);
        bench.with(|q, _| q.filters(0).unwrap().add_closure(1, Box::new(move |_| Some(class))).unwrap());
        for n in 0..3 {
            let frame = Frame { ports: (n, 9), tos: 0xb8 * (n as u8 / 2), ..Frame::default() };
            let packet = frame.packet(&mut bench);
            let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        }
        minors(&mut bench)
    };
    // Two packets are best effort, one is voice.
    assert_eq!(said("cake flows", Handle::new(0, 5)), [0x405, 0x805]);
    assert_eq!(said("cake triple-isolate", Handle::new(3, 1024)), [0x800, 0xc00]);
    assert_eq!(said("cake hosts", Handle::new(7, 5)), [0x407, 0x807]);
    assert_eq!(said("cake srchost", Handle::new(7, 5)), [0x407, 0x807]);
    // Numbers that name no queue have no effect.
    assert_eq!(said("cake flows", Handle::new(3, 1025)).len(), 3);
    assert_eq!(said("cake flows", Handle::new(3, 0)).len(), 3);
    assert_eq!(said("cake flowblind", Handle::new(3, 5)), [0x401, 0x801]);
}

#[test]
fn drops_are_the_flows() {
    let mut bench = Bench::new("cake besteffort flows memlimit 2000");
    for _ in 0..3 {
        let _ = bench.enqueue(1000, 5);
    }
    assert!(shown(&mut bench).contains(" (dropped 2, overlimits 0"), "{}", shown(&mut bench));
}
