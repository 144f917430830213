//! A driver that grows packets, as a tunnel does, and then refuses them: the counters have the lengths with which the packets were handed
//! in.

use std::io;

use crate::device::{assert_conserved, pool};
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::pool::PoolConfig;
use txq::{Discipline, NetDev};

const PACKETS: u64 = 30;
const LEN: usize = 500;
const GROWN: usize = 552;

/// Grows all packets, sends `takes` of them, and refuses the rest, in each second call.
#[derive(Clone)]
struct Growing {
    takes: usize,
    calls: u32,
}

impl Driver for Growing {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("growing")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(self.clone(), NoCompletions))
    }
}

impl Transmit for Growing {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        self.calls += 1;
        let mut grown = PacketList::new();
        while let Some(mut packet) = batch.pop_front() {
            if packet.len() == LEN {
                packet.put(GROWN - LEN).expect("tailroom").fill(0);
            }
            grown.push_back(packet);
        }
        let takes = if self.calls.is_multiple_of(2) { usize::MAX } else { self.takes };
        for _ in 0..takes.min(grown.len()) {
            cx.sent(grown.pop_front().expect("a packet"));
        }
        batch.append(&mut grown);
        if batch.is_empty() { Status::Ok } else { Status::Busy { retry: Some(std::time::Duration::ZERO) } }
    }
}

#[test]
fn bytes_are_those_of_the_first_hand_over() {
    for &discipline in Discipline::ALL {
        for qdisc in ["pfifo", "prio", "tbf rate 100gbit burst 1m limit 10m", "fq", "fq_codel", "cake", "htb"]
        {
            for (takes, batch) in [(0, 1), (0, 10), (1, 10)] {
                let driver = Growing { takes, calls: 0 };
                let dev = NetDev::builder(driver)
                    .pool_config(PoolConfig { room: 600, ..pool() })
                    .bql(None)
                    .qdisc(qdisc)
                    .discipline(discipline);
                let dev = dev.build().unwrap();
                let mut sender = dev.sender("s");
                let mut worker = dev.worker(0);
                let (mut handed_in, mut before) = (0, 0);
                while handed_in < PACKETS {
                    let mut packets: PacketList = (0..batch).map(|_| sender.alloc(LEN).unwrap()).collect();
                    handed_in += packets.len() as u64;
                    let _ = sender.xmit_batch(&mut packets);
                    while !dev.is_idle() {
                        worker.poll();
                        let sent = dev.stats().bytes_sent;
                        assert!(sent >= before, "{discipline} {qdisc}: {sent} after {before}");
                        before = sent;
                    }
                }
                drop(sender);
                let stats = assert_conserved(&dev);
                let expected = (handed_in, handed_in * LEN as u64);
                assert_eq!((stats.sent, stats.bytes_sent), expected, "{discipline} {qdisc} {takes} {batch}");
            }
        }
    }
}
