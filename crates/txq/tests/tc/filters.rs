//! Filters of a device, through its own methods.

use crate::device::{Wires, assert_conserved, pool};
use txq::NetDev;
use txq::filter::filters_text;
use txq::packet::PacketList;
use txq::tc::{Handle, Style};

/// Sends packets with these marks in one batch; returns the marks in the order of the wire.
fn order(wires: &Wires, dev: &NetDev, marks: &[u32]) -> Vec<u64> {
    let mut sender = dev.sender("test");
    let mut batch = PacketList::new();
    for &mark in marks {
        let mut packet = sender.packet(&[0; 60]).unwrap();
        packet.set_mark(mark);
        packet.set_cookie(mark.into());
        batch.push_back(packet);
    }
    wires.at(0).batches.clear();
    let _ = sender.xmit_batch(&mut batch);
    wires.at(0).sent()
}

#[test]
fn filters_come_and_go_under_traffic() {
    let wires = Wires::new(1, None);
    let dev = NetDev::builder(wires.clone()).qdisc("prio").pool_config(pool()).build().unwrap();
    dev.tc("qdisc replace root handle 1: prio").unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2, 3]), [1, 2, 3]);
    dev.tc("filter add parent 1: pref 2 handle 2 fw classid 1:1").unwrap();
    dev.tc("filter add pref 2 handle 1 fw classid 1:3").unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2, 3]), [2, 3, 1]);
    dev.add_classifier(Handle::new(1, 0), 1, |packet| (packet.mark() == 3).then_some(Handle::new(1, 1)))
        .unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2, 3]), [2, 3, 1]);
    dev.tc("filter change pref 2 handle 2 fw classid 1:2").unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2, 3]), [3, 2, 1]);
    let shown = filters_text(&dev.filters(Some(Handle::new(1, 0)), Style::default()), false);
    let expected = "filter protocol all pref 1 closure chain 0 \nfilter protocol all pref 2 fw chain 0 \n";
    assert!(shown.starts_with(expected), "{shown}");
    dev.tc("filter del pref 2 handle 1 fw").unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2, 3]), [3, 1, 2]);
    dev.tc("filter del parent 1:").unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2, 3]), [1, 2, 3]);
    assert_conserved(&dev);
}

/// A qdisc below a class has filters of its own, and a qdisc that packets could bypass no longer is bypassed.
#[test]
fn filters_hold_wherever_the_qdisc_is() {
    let wires = Wires::new(1, None);
    let dev = NetDev::builder(wires.clone()).qdisc("prio").pool_config(pool()).build().unwrap();
    dev.tc("qdisc replace root handle 1: prio").unwrap();
    dev.tc("qdisc add parent 1:2 handle 20: fq_codel").unwrap();
    dev.tc("filter add parent 20: pref 1 handle 1 fw classid 20:1").unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2]), [1], "what fq_codel's filters do not know is dropped");
    dev.tc("qdisc replace root handle 2: fq_codel").unwrap();
    assert_eq!(order(&wires, &dev, &[1, 2]), [1, 2]);
    dev.tc("filter add pref 1 handle 1 fw classid 2:1").unwrap();
    assert_eq!(order(&wires, &dev, &[2]), [0; 0]);
    assert_eq!(order(&wires, &dev, &[1]), [1]);
    assert_conserved(&dev);
}

#[test]
fn only_those_who_choose_have_filters() {
    let dev = NetDev::builder(Wires::new(2, None)).qdisc("noqueue").pool_config(pool()).build().unwrap();
    let message = |text: &str| dev.tc(&format!("filter add {text}")).unwrap_err().message().to_owned();
    assert_eq!(message("matchall classid 1:1"), "Error: Parent Qdisc doesn't exists.");
    dev.tc("qdisc add root handle 1: mq").unwrap();
    assert_eq!(message("parent 1: matchall classid 1:1"), "Error: Class doesn't support blocks.");
    dev.tc("qdisc replace parent 1:1 handle 10: tbf rate 1mbit burst 10k limit 10k").unwrap();
    assert_eq!(message("parent 10: matchall classid 1:1"), "Error: Class doesn't support blocks.");
    dev.tc("qdisc replace parent 1:2 handle 11: pfifo").unwrap();
    assert_eq!(message("parent 11: matchall classid 1:1"), "Error: Qdisc not classful.");
    dev.tc("qdisc replace parent 1:2 handle 12: prio").unwrap();
    assert_eq!(message("parent 12:1 matchall classid 1:1"), "RTNETLINK answers: Invalid argument");
    assert_eq!(message("parent 12:9 matchall classid 1:1"), "Error: Specified class doesn't exist.");
    assert_eq!(message("dev other parent 12: matchall classid 1:1"), "Cannot find device \"other\"");
    dev.tc("filter add parent 12: matchall classid 12:1").unwrap();
    assert_eq!(dev.filters(Some(Handle::new(0x12, 0)), Style::default()).len(), 2);
}
