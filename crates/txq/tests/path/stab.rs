//! Size tables (`stab`): the qdisc counts the table's lengths; the driver, the byte limit and the device's counters have the
//! packets' own.

use crate::device::{Wires, assert_conserved, pool};
use txq::bql::BqlConfig;
use txq::packet::PacketList;
use txq::tc::{Style, show_text};
use txq::{Discipline, NetDev};

const PACKETS: u64 = 20;

/// Sends packets of 60 bytes as a batch.
fn send(dev: &NetDev) {
    let mut sender = dev.sender("s");
    let one = |cookie| {
        let mut packet = sender.alloc(60).unwrap();
        packet.set_cookie(cookie);
        packet
    };
    let mut batch: PacketList = (0..PACKETS).map(one).collect();
    let _ = sender.xmit_batch(&mut batch);
}

#[test]
fn the_driver_gets_the_packets_own_lengths() {
    for &discipline in Discipline::ALL {
        for qdisc in ["pfifo", "pfifo_fast", "fq_codel", "netem duplicate 50%", "cake"] {
            let wires = Wires::new(1, Some(8));
            // The limit is that of five packets; the table's lengths would be three.
            let limit = BqlConfig { limit: 299, limit_min: 299, limit_max: 299, ..BqlConfig::default() };
            let builder = NetDev::builder(wires.clone()).pool_config(pool()).bql(Some(limit));
            let root = format!("stab overhead 40 {qdisc}");
            let dev = builder.qdisc(&root).discipline(discipline).build().unwrap();
            {
                let mut wire = wires.at(0);
                // A packet of the table's length would be dropped by the driver. The first batch comes back.
                (wire.longest, wire.busy) = (Some(60), 1);
            }
            send(&dev);
            let mut worker = dev.worker(0);
            let mut most = 0;
            while !dev.is_idle() {
                worker.poll();
                most = most.max(wires.at(0).kept().len());
                wires.at(0).complete(usize::MAX);
            }
            assert_eq!(most, 5, "{discipline} {qdisc}: 300 bytes in flight");
            let stats = assert_conserved(&dev);
            assert_eq!(stats.dropped.total(), 0, "{discipline} {qdisc}");
            assert_eq!((stats.sent, stats.bytes_sent), (PACKETS + stats.created, 60 * stats.sent));
            let root = &dev.qdiscs(Style::default())[0];
            assert_eq!((root.stats.packets, root.stats.bytes), (stats.sent, 100 * stats.sent));
            assert!(wires.at(0).sent().is_sorted(), "the refused packets went first");
        }
    }
}

/// A queued packet keeps its own length whichever way it ends.
#[test]
fn a_purge_and_an_exchange_restore_nothing_of_the_table() {
    let wires = Wires::new(1, Some(4));
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).bql(None).qdisc("pfifo").build().unwrap();
    for command in ["stab mpu 100 tbf rate 1mbit burst 5k limit 900", "handle 7: stab overhead 9 fq", "pfifo"]
    {
        dev.tc(&format!("qdisc replace root {command}")).unwrap();
        send(&dev);
        let held = dev.qdiscs(Style::default())[0].stats;
        let expected = if command.contains("tbf") { 100 } else { 69 };
        if command != "pfifo" {
            assert_eq!(held.backlog, held.qlen * expected, "{command}");
        }
    }
    let mut worker = dev.worker(0);
    while !dev.is_idle() {
        worker.poll();
        wires.at(0).complete(usize::MAX);
    }
    let stats = assert_conserved(&dev);
    assert_eq!((stats.accepted, stats.bytes_sent), (3 * PACKETS, 60 * stats.sent));
}

#[test]
fn tcs_commands_know_where_a_table_can_be() {
    let wires = Wires::new(4, None);
    let dev = NetDev::builder(wires).pool_config(pool()).qdisc("noqueue").build().unwrap();
    let details = Style { details: true, ..Style::default() };
    let shown = || show_text(&dev.qdiscs(details), false);
    dev.tc("qdisc add root handle 1: stab overhead 4 mpu 64 htb_mq default 1").unwrap();
    dev.tc("class add parent 1: classid 1:1 htb_mq rate 1gbit").unwrap();
    assert!(shown().ends_with("\n overhead 4 mpu 64 mtu 2047 tsize 512 \n"), "{}", shown());
    send(&dev);
    let stats = dev.qdiscs(details)[0].stats;
    assert_eq!(stats.bytes + stats.backlog, 64 * PACKETS);
    let error = dev.tc("qdisc add parent 1:1 handle 10: stab overhead 4 pfifo").unwrap_err();
    assert_eq!(error.message(), "Error: STAB not supported on a non root.");
    dev.tc("qdisc change root handle 1: stab linklayer atm htb_mq").unwrap();
    assert!(shown().ends_with("\n linklayer atm mtu 2047 tsize 512 \n"), "{}", shown());
    dev.tc("qdisc change root handle 1: htb_mq").unwrap();
    assert!(!shown().contains("\n "), "{}", shown());

    for text in [
        "root handle 2: stab overhead 4 mq",
        "root handle 2: stab overhead 4 noqueue",
        "stab overhead 4 clsact",
    ] {
        let error = dev.tc(&format!("qdisc replace {text}")).unwrap_err();
        assert_eq!(error.message(), "RTNETLINK answers: Operation not supported", "{text}");
    }
    dev.tc("qdisc replace root handle 2: mq").unwrap();
    let error = dev.tc("qdisc change root handle 2: stab overhead 4 mq").unwrap_err();
    assert_eq!(error.message(), "RTNETLINK answers: Operation not supported");
    // mq's children are roots of their own.
    dev.tc("qdisc replace parent 2:3 handle 3: stab overhead 4 fq").unwrap();
    assert!(shown().contains("qdisc fq 3: dev wires parent 2:3 "), "{}", shown());
    assert_eq!(shown().matches("\n overhead 4 \n").count(), 1, "{}", shown());
    dev.audit().unwrap();
}
