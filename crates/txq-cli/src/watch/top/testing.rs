//! Snapshots for tests.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::rates::Rates;
use crate::watch::snapshot::{Device, Node, Sender, Snapshot};

/// Returns a program with a device of two txqs and a tree of htb; the counters are multiples of `n`.
pub(crate) fn nested(n: u64) -> Snapshot {
    let mut device = device("null0", n);
    let node =
        |depth, class, kind: &str, handle: &str, parent: &str| node(n, depth, class, kind, handle, parent);
    device.tree = vec![
        node(0, false, "htb", "1:", "root"),
        node(1, true, "htb", "1:1", "root"),
        node(2, true, "htb", "1:10", "1:1"),
        node(3, false, "fq_codel", "8002:", "1:10"),
        node(4, true, "fq_codel", "8002:3a", "8002:"),
        node(2, true, "htb", "1:20", "1:1"),
    ];
    program(vec![device])
}

/// Returns a program whose htb has so many classes.
pub(crate) fn wide(classes: u32) -> Snapshot {
    let mut device = device("null0", 1);
    device.tree = vec![node(1, 0, false, "htb", "1:", "root")];
    device.tree.extend((1..=classes).map(|n| node(1, 1, true, "htb", &format!("1:{n:x}"), "1:")));
    program(vec![device])
}

/// Returns the rates of a first snapshot.
pub(crate) fn rates(snapshot: &Snapshot) -> Rates {
    Rates::between(None, snapshot.clone(), Duration::ZERO, SystemTime::UNIX_EPOCH)
}

/// Returns the rates between two snapshots a second apart.
pub(crate) fn after(before: &Snapshot, snapshot: &Snapshot) -> Rates {
    let (at, time) = (Duration::from_secs(1), SystemTime::UNIX_EPOCH);
    Rates::between(Some(&rates(before)), snapshot.clone(), at, time)
}

pub(crate) fn program(devices: Vec<Device>) -> Snapshot {
    let names = devices
        .iter()
        .map(|device| json!({ "name": device.name, "mtu": 1500, "numtxqueues": 2, "qdisc": "htb" }));
    let info = json!({
        "program": "shaper", "pid": 42, "version": "0.1.0", "protocol": 1, "devices": names.collect::<Vec<_>>(),
    });
    Snapshot { at: 0.0, program: serde_json::from_value(info).unwrap(), devices }
}

fn device(name: &str, n: u64) -> Device {
    let txq = |n: u64| [("packets", n), ("bytes", n * 1000), ("dropped", 0), ("in_flight", 3)];
    let map = |pairs: &[(&str, u64)]| pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    Device {
        name: name.to_owned(),
        counters: map(&[("tx_packets", n * 10), ("tx_bytes", n * 10_000), ("tx_dropped", n), ("queued", 7)]),
        txqs: [(0, map(&txq(n * 4))), (1, map(&txq(n * 6)))].into(),
        senders: vec![Sender {
            index: 0,
            name: "main".to_owned(),
            counters: map(&[("accepted", n * 11), ("sent", n * 10), ("dropped", n), ("pending", 7)]),
            drops: map(&[("qdisc_overlimit", n)]),
        }],
        drops: map(&[("qdisc_overlimit", n)]),
        to_driver: vec![(512, n * 990), (4096, n * 10)],
        ..Device::default()
    }
}

fn node(n: u64, depth: usize, class: bool, kind: &str, handle: &str, parent: &str) -> Node {
    Node {
        depth,
        class,
        kind: kind.to_owned(),
        handle: handle.to_owned(),
        parent: parent.to_owned(),
        packets: n * 10,
        bytes: n * 10_000,
        drops: n,
        overlimits: n * 2,
        backlog: 7000,
        qlen: 7,
        ..Node::default()
    }
}
