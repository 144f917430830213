//! Hooks of a device: clsact and ingress, with traffic.

use crate::device::{Wires, assert_conserved, pool};
use txq::NetDev;
use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::qdisc::Verdict;
use txq::tc::Style;

fn device(wires: &Wires) -> NetDev {
    NetDev::builder(wires.clone()).qdisc("pfifo").pool_config(pool()).build().unwrap()
}

fn batch(sender: &mut txq::Sender, marks: &[u32]) -> PacketList {
    let mut batch = PacketList::new();
    for &mark in marks {
        let mut packet = sender.packet(&[0; 60]).unwrap();
        packet.set_mark(mark);
        packet.set_cookie(mark.into());
        batch.push_back(packet);
    }
    batch
}

fn send(sender: &mut txq::Sender, marks: &[u32]) {
    let mut batch = batch(sender, marks);
    let _ = sender.xmit_batch(&mut batch);
}

fn hook_line(dev: &NetDev) -> Option<(String, u64, u64)> {
    let hook = dev
        .qdiscs(Style::default())
        .into_iter()
        .find(|info| info.kind == "clsact" || info.kind == "ingress")?;
    Some((hook.kind, hook.stats.packets, hook.stats.drops))
}

/// Filters before the root qdisc drop packets, change them and send them to another device.
#[test]
fn the_egress_hook_acts() {
    let (wires, others) = (Wires::new(2, None), Wires::new(1, None));
    let (dev, other) = (device(&wires), device(&others));
    let error = dev.tc("filter add egress matchall action drop").unwrap_err();
    assert_eq!(error.message(), "Error: Parent Qdisc doesn't exists.");
    dev.tc("qdisc add clsact").unwrap();
    dev.tc("filter add egress pref 1 handle 1 fw action drop").unwrap();
    let redirect =
        format!("egress pref 2 handle 2 fw action mirred egress redirect dev {}", other.info().name);
    assert!(
        dev.tc(&format!("filter add {redirect}")).unwrap_err().message().starts_with("Cannot find device")
    );
    dev.connect(&other).unwrap();
    dev.tc(&format!("filter add {redirect}")).unwrap();
    dev.tc(&format!(
        "filter add {}",
        &redirect.replace("redirect", "mirror").replace("pref 2 handle 2", "pref 3 handle 3")
    ))
    .unwrap();
    dev.tc("filter add egress pref 4 handle 4 fw action skbedit queue_mapping 1").unwrap();
    let mut sender = dev.sender_on("test", 0);
    send(&mut sender, &[1, 2, 3, 4, 5, 1, 2]);
    let mut sent = [wires.at(0).sent(), wires.at(1).sent()].concat();
    sent.sort_unstable();
    assert_eq!(sent, [3, 4, 5]);
    assert!(wires.at(1).sent().contains(&4), "the txq that skbedit chose");
    assert_eq!(others.at(0).sent().len(), 3, "two are redirected, one is copied");
    // A flow has a txq of its own, but for packets for which an action chooses.
    let mut flow = txq::Flow::new();
    let before = wires.at(1).sent().len();
    let mut of_flow = batch(&mut sender, &[4, 4]);
    assert_eq!(sender.xmit_batch_on(&mut flow, &mut of_flow), Verdict::Success);
    assert_eq!(wires.at(1).sent().len(), before + 2);
    let mut of_flow = batch(&mut sender, &[1, 4, 5]);
    assert_eq!(sender.xmit_batch_on(&mut flow, &mut of_flow), Verdict::Congested);
    assert_eq!([wires.at(0).sent(), wires.at(1).sent()].concat().len(), 3 + 2 + 2);
    assert_eq!(hook_line(&dev), Some(("clsact".to_owned(), 12, 3)));
    let stats = dev.stats();
    assert_eq!((stats.accepted, stats.dropped.get(DropReason::TcEgress)), (5 + 2 + 3, 3), "{stats:?}");
    assert_eq!(sender.dropped(), 3);
    dev.tc("qdisc del clsact").unwrap();
    let before = wires.at(0).sent().len() + wires.at(1).sent().len();
    send(&mut sender, &[1, 2]);
    assert_eq!(wires.at(0).sent().len() + wires.at(1).sent().len(), before + 2);
    assert_eq!(hook_line(&dev), None);
    assert_conserved(&dev);
    assert_conserved(&other);
}

/// Two devices whose filters redirect to each other: the packet ends.
#[test]
fn a_circle_of_devices_ends() {
    let wires = [Wires::new(1, None), Wires::new(1, None)];
    let devs = [device(&wires[0]), device(&wires[1])];
    for (dev, to) in [(&devs[0], &devs[1]), (&devs[1], &devs[0])] {
        dev.tc("qdisc add clsact").unwrap();
        dev.connect(to).unwrap();
        let name = &to.info().name;
        dev.tc(&format!("filter add egress pref 1 matchall action mirred egress redirect dev {name}"))
            .unwrap();
    }
    let mut sender = devs[0].sender("test");
    send(&mut sender, &[1, 2, 3]);
    assert!(wires.iter().all(|wires| wires.at(0).sent().is_empty()));
    drop(sender);
    devs.iter().for_each(|dev| drop(assert_conserved(dev)));
}

/// wondershaper's policer: what a device receives meets the filters where a thread receives it.
#[test]
fn the_ingress_hook_polices() {
    let wires = Wires::new(1, None);
    let (dev, out) = (device(&wires), device(&wires));
    dev.tc("qdisc add handle ffff: ingress").unwrap();
    let (ingress, mut sender) = (dev.ingress(), out.sender("from dev"));
    let mut received = batch(&mut sender, &[0; 9]);
    ingress.filter(&mut sender, &mut received);
    assert_eq!(received.len(), 9, "no filters");
    let police =
        "parent ffff: protocol all prio 50 u32 match u32 0 0 police rate 8kbit burst 300 drop flowid :1";
    dev.tc(&format!("filter add {police}")).unwrap();
    ingress.filter(&mut sender, &mut received);
    assert_eq!(received.len(), 5, "5 of 60 bytes are the burst");
    assert_eq!(hook_line(&dev), Some(("ingress".to_owned(), 9, 4)));
    let _ = sender.xmit_batch(&mut received);
    assert_eq!(
        dev.tc("qdisc add clsact").unwrap_err().message(),
        "Error: Exclusivity flag on, cannot modify."
    );
    assert_eq!(dev.tc("qdisc replace clsact").unwrap_err().message(), "Error: Invalid qdisc name.");
    assert_eq!(dev.tc("qdisc del clsact").unwrap_err().message(), "Error: Invalid qdisc name.");
    assert_eq!(
        dev.tc("qdisc add root ingress").unwrap_err().message(),
        "Error: \"ingress\" is a duplicate parent ID"
    );
    dev.tc("qdisc replace ingress").unwrap();
    dev.tc("qdisc del ingress").unwrap();
    assert_eq!(dev.tc("qdisc del ingress").unwrap_err().message(), "Error: Invalid handle.");
    assert_conserved(&out);
}

/// A filter of a qdisc may drop and measure, in every kind that has filters.
#[test]
fn filters_of_qdiscs_drop() {
    for kind in ["prio", "ets bands 3", "htb", "drr", "hfsc default 1", "fq_codel", "sfq", "cake"] {
        let wires = Wires::new(1, None);
        let dev = device(&wires);
        dev.tc(&format!("qdisc replace root handle 1: {kind}")).unwrap();
        if kind == "drr" {
            dev.tc("class add parent 1: classid 1:1 drr").unwrap();
        }
        if kind.starts_with("hfsc") {
            dev.tc("class add parent 1: classid 1:1 hfsc ls rate 1gbit").unwrap();
        }
        dev.tc("filter add parent 1: pref 1 handle 1 fw action drop").unwrap();
        dev.tc("filter add parent 1: pref 2 matchall classid 1:1 action police pkts_rate 1 pkts_burst 2 conform-exceed drop")
            .unwrap();
        let mut sender = dev.sender("test");
        send(&mut sender, &[1, 2, 3, 4]);
        assert_eq!(wires.at(0).sent(), [2, 3], "{kind}");
        assert_eq!(dev.qdiscs(Style::default())[0].stats.drops, 2, "{kind}");
        assert_conserved(&dev);
    }
}
