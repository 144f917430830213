//! Packets that wait in front of a queue keep their place at the end of an owner's turn.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;

use txq::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::generic::qdisc::Verdict;
use txq::generic::{Discipline, Sender};
use txq_core::packet::{Packet, PacketList};

use crate::goodput::{Gate, builder_of};

/// A device without a ring that notes the order of packets.
#[derive(Clone, Default)]
struct Ordered {
    gate: Gate,
    sent: Arc<Mutex<Vec<u64>>>,
}

impl Driver for Ordered {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("ordered")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue { tx: Box::new(self.clone()), done: Box::new(NoCompletions), ring: None })
    }
}

impl Transmit for Ordered {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        self.gate.pass();
        self.sent.lock().expect("nobody panicked").extend(batch.iter().map(Packet::cookie));
        cx.sent_all(batch);
        Status::Ok
    }
}

/// A sender's packets follow those of its own that an owner has left on the list at the end of its turn.
#[test]
fn a_sender_follows_the_packets_that_it_has_listed() {
    // The packets of a turn.
    const QUOTA: u64 = 64;
    for discipline in [Discipline::Combine, Discipline::Lockless] {
        let device = Ordered::default();
        let gate = device.gate.clone();
        let sent = device.sent.clone();
        let dev = builder_of(device, discipline).qdisc("pfifo").build().expect("a device");
        let (mut other, mut sender) = (dev.sender_on("other", 0), dev.sender_on("s", 0));
        let send = |sender: &mut Sender, cookies: Range<u64>| {
            let mut batch = PacketList::new();
            for cookie in cookies {
                let mut packet = sender.alloc(8).expect("the pool is large enough");
                packet.set_cookie(cookie);
                batch.push_back(packet);
            }
            assert_eq!(sender.xmit_batch(&mut batch), Verdict::Success, "{discipline}");
        };
        gate.arm();
        thread::scope(|threads| {
            // Its turn ends with its own packets.
            let owner = threads.spawn(|| send(&mut other, 1000..1000 + QUOTA + 1));
            gate.wait_for_somebody();
            send(&mut sender, 1..2);
            gate.open();
            owner.join().expect("the owner comes back");
        });
        send(&mut sender, 2..3);
        let mut worker = dev.worker(0);
        while !dev.is_idle() {
            worker.poll();
        }
        let own: Vec<u64> =
            sent.lock().expect("nobody panicked").iter().copied().filter(|&n| n < 1000).collect();
        assert!(own.is_sorted() && own.ends_with(&[2]), "{discipline}: {own:?}");
    }
}
