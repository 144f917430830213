use super::super::{Bql, Txq};
use super::*;

/// Returns a healthy interface: a txq for each of four CPUs, under mq.
fn healthy() -> Interface {
    let row = |text: &str| serde_json::from_str(text).unwrap();
    let txq = |cpu| Txq { cpus: vec![cpu], ..Txq::default() };
    Interface {
        name: "eth0".to_owned(),
        up: true,
        carrier: Some(true),
        mtu: 1500,
        cpus: 4,
        txqs: (0..4).map(txq).collect(),
        qdiscs: Some(vec![row(r#"{"kind":"mq","handle":"0:","root":true,"packets":9,"drops":0}"#)]),
        offloads: Some([("tcp-segmentation-offload".to_owned(), true)].into()),
        channels: Some((4, 4)),
        ..Interface::default()
    }
}

/// Returns the one remedy for an interface that differs from the healthy one by `change`.
#[track_caller]
fn remedy(change: impl FnOnce(&mut Interface)) -> String {
    let mut interface = healthy();
    change(&mut interface);
    let mut found = advice(&interface);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).remedy
}

#[test]
fn a_healthy_interface_needs_nothing() {
    assert_eq!(advice(&healthy()), []);
    // An unknown value is no finding.
    let unknown = Interface { qdiscs: None, offloads: None, channels: None, carrier: None, ..healthy() };
    assert_eq!(advice(&unknown), []);
}

#[test]
fn each_defect_has_its_command() {
    assert_eq!(remedy(|i| i.up = false), "ip link set dev eth0 up");
    assert!(remedy(|i| i.carrier = Some(false)).starts_with("ethtool eth0"));
    assert_eq!(remedy(|i| i.txqs.iter_mut().for_each(|txq| txq.cpus.clear())), "txq xps auto eth0");
    assert_eq!(remedy(|i| i.txqs[3].cpus.clear()), "txq xps auto eth0");
    let crowded = |i: &mut Interface| {
        i.txqs[2].cpus.push(3);
        i.txqs[3].cpus.clear();
    };
    assert_eq!(remedy(crowded), "txq xps auto eth0");
    let htb = |i: &mut Interface| i.qdiscs.as_mut().unwrap()[0]["kind"] = "htb".into();
    assert_eq!(remedy(htb), "tc qdisc replace dev eth0 root mq");
    let off = |i: &mut Interface| i.offloads = Some([("tcp-segmentation-offload".to_owned(), false)].into());
    assert_eq!(remedy(off), "ethtool -K eth0 tso on");
    assert!(remedy(|i| i.txqs[1].timeouts = 2).starts_with("dmesg"));
    let drops = |i: &mut Interface| i.qdiscs.as_mut().unwrap()[0]["drops"] = 7.into();
    assert!(remedy(drops).starts_with("tc -s qdisc"));
    let bql = |i: &mut Interface| i.txqs[0].bql = Some(Bql { limit: 0, limit_max: 1500, inflight: 0 });
    assert!(remedy(bql).ends_with("tx-0/byte_queue_limits/limit_max"));
}

#[test]
fn cpus_that_share_a_txq_need_more_channels_if_there_are_some() {
    let one = |i: &mut Interface| {
        i.txqs.truncate(1);
        i.qdiscs.as_mut().unwrap()[0]["kind"] = "pfifo_fast".into();
    };
    let with = |channels| {
        remedy(|i| {
            one(i);
            i.channels = channels;
        })
    };
    assert!(with(Some((8, 1))).starts_with("ethtool -L eth0 combined 4"));
    assert!(with(None).contains("numtxqueues 4"));
    // The hardware has no more, or has no queue at all: nothing to change.
    let mut interface = healthy();
    one(&mut interface);
    interface.channels = Some((1, 1));
    assert_eq!(advice(&interface), []);
    interface.channels = None;
    interface.qdiscs.as_mut().unwrap()[0]["kind"] = "noqueue".into();
    assert_eq!(advice(&interface), []);
}
