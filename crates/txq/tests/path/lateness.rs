//! How late shaped packets leave.

use std::time::Duration;

use txq::packet::PacketList;
use txq::pool::PoolConfig;
use txq::{Discipline, NetDev};

use crate::device::Wires;

fn device(wires: &Wires, qdisc: &str, discipline: Discipline) -> NetDev {
    let builder = NetDev::builder(wires.clone()).pool_config(PoolConfig::default()).bql(None);
    builder.qdisc(qdisc).discipline(discipline).start().unwrap()
}

fn send(dev: &NetDev, packets: usize) {
    let (mut sender, mut list) = (dev.sender("s"), PacketList::new());
    sender.alloc_batch(packets, 1000, &mut list).unwrap();
    let _ = sender.xmit_batch(&mut list);
    assert!(dev.drain(Duration::from_secs(60)));
}

/// Each packet but those of the burst waits for its time.
#[test]
fn only_packets_that_wait_for_a_time_are_late() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev = device(&wires, "tbf rate 8mbit burst 1000 limit 100000", discipline);
        send(&dev, 6);
        let late = dev.lateness().count();
        // On a busy machine several become due before the worker runs, and leave together.
        assert!((1..=5).contains(&late), "{discipline:?}: {late}");
        // A purge ends the wait: the next packet is not late by the time until it came.
        let mut sender = dev.sender("t");
        let mut list = PacketList::new();
        sender.alloc_batch(3, 1000, &mut list).unwrap();
        let _ = sender.xmit_batch(&mut list);
        dev.tc("qdisc replace root pfifo").unwrap();
        let before = dev.lateness().count();
        std::thread::sleep(Duration::from_millis(5));
        send(&dev, 6);
        assert_eq!(dev.lateness().count(), before, "{discipline:?}");
    }
}
