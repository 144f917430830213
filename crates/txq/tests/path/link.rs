//! Devices whose packets have no link layer: hashes, filters and qdiscs find the headers behind nothing.

use std::io;

use crate::device::Wires;
use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Link};
use txq::packet::PacketList;
use txq::pool::{Backing, PoolConfig};

/// [`Wires`] as a tunnel.
struct Tunnel(Wires);

impl Driver for Tunnel {
    fn info(&self) -> DeviceInfo {
        self.0.info().link(Link::Ip)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        self.0.open(txq)
    }
}

/// Returns an IPv4 packet of UDP. Its first bytes, which an Ethernet header would have, differ from packet to packet.
fn packet(number: u16, tos: u8, port: u16) -> Vec<u8> {
    let mut packet = vec![0x45, tos, 0, 100];
    packet.extend(number.to_be_bytes());
    packet.extend([0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 53, 0, 80, 0, 0]);
    packet.resize(100, 0);
    packet
}

fn device(wires: &Wires, root: &str) -> NetDev {
    let pool = PoolConfig { buffers: 1024, backing: Backing::Heap, ..PoolConfig::default() };
    NetDev::builder(Tunnel(wires.clone())).pool_config(pool).qdisc(root).build().unwrap()
}

#[test]
fn one_flow_keeps_its_order() {
    for root in ["fq_codel flows 64", "fq flow_limit 1000", "cake", "mq"] {
        let wires = Wires::new(4, None);
        let dev = device(&wires, root);
        let (mut sender, mut worker) = (dev.sender("one"), dev.worker(0));
        let mut batch = PacketList::new();
        for number in 0..400 {
            let mut packet = sender.packet(&packet(number, 0, 7)).unwrap();
            assert_eq!(packet.link(), Link::Ip);
            packet.set_cookie(number.into());
            batch.push_back(packet);
        }
        let _ = sender.xmit_batch(&mut batch);
        while worker.poll().is_some_and(|at| at == txq::Instant::ZERO) {}
        let sent: Vec<Vec<u64>> =
            (0..4).map(|txq| wires.at(txq).sent()).filter(|sent| !sent.is_empty()).collect();
        assert_eq!(sent, [(0..400).collect::<Vec<u64>>()], "{root}: one txq, in order");
    }
}

/// A quantum is one packet of the device's MTU, which has no header here.
#[test]
fn quanta_count_no_link_layer() {
    let dev = device(&Wires::new(1, None), "fq_codel");
    let shown = txq::tc::show_text(&dev.qdiscs(Default::default()), false);
    assert!(shown.contains("quantum 1500 "), "{shown}");
}

#[test]
fn a_driver_of_another_link_does_not_replace_it() {
    let wires = Wires::new(1, None);
    let error = device(&wires, "pfifo").replace_driver(wires).unwrap_err();
    let text =
        "driver \"wires\" sends packets that begin with ethernet: those of device \"wires\" begin with ip";
    assert_eq!(error.to_string(), text);
}
