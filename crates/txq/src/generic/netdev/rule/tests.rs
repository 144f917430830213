use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use txq_core::packet::PacketList;

use crate::generic::datapath::Ctx;
use crate::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use crate::generic::{Discipline, NetDev, Sender};

/// A device that sends at once, and the cookies of what it has sent.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u64>>>);

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink").txqs(2)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue { tx: Box::new(self.clone()), done: Box::new(NoCompletions), ring: None })
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        self.0.lock().unwrap().extend(batch.iter().map(|packet| packet.cookie()));
        cx.sent_all(batch);
        Status::Ok
    }
}

fn packet(sender: &mut Sender, cookie: u64) -> PacketList {
    let mut packet = sender.packet(&[0; 60]).unwrap();
    packet.set_cookie(cookie);
    PacketList::from_iter([packet])
}

/// A sender chooses a queue and loses its CPU. Meanwhile the rule changes twice. A packet that it has submitted before is still on
/// the list of the second queue.
#[test]
fn a_packet_that_comes_late_overtakes_none() {
    const RULES: [&str; 3] = ["root pfifo", "root mq", "root noqueue"];
    for &discipline in Discipline::ALL {
        for [first, second, third] in [[0, 1, 2], [0, 1, 0], [1, 0, 2], [1, 0, 1], [2, 0, 1], [2, 1, 2]] {
            let sink = Sink::default();
            let dev = NetDev::builder(sink.clone()).discipline(discipline).build().unwrap();
            dev.tc(&format!("qdisc replace {}", RULES[first])).unwrap();
            let (mut sender, shared) = (dev.sender("sender"), dev.shared.clone());
            let mut cache = shared.cache("late", 0);
            let chosen = shared.root_of(0);
            dev.tc(&format!("qdisc replace {}", RULES[second])).unwrap();
            let (mut old, mut new) = (packet(&mut sender, 1), packet(&mut sender, 2));
            let listed = &shared.roots[shared.root_of(0)];
            let lists = matches!(discipline, Discipline::Combine | Discipline::Lockless);
            if lists {
                // While a visit owns the queue, a sender leaves its packets on the list.
                listed.with_core(&shared, |_| {
                    let mut cx = Ctx::new(&shared, &mut cache);
                    let _verdict = shared.submit(listed.index, 0, &mut old, &mut cx);
                });
            }
            dev.tc(&format!("qdisc replace {}", RULES[third])).unwrap();
            let mut cx = Ctx::new(&shared, &mut cache);
            let _verdict = shared.enter(chosen, 0, &mut new, &mut cx);
            assert!(dev.drain(Duration::from_secs(10)));
            let sent = sink.0.lock().unwrap().clone();
            assert_eq!(sent, [2], "{discipline}: {} {} {}", RULES[first], RULES[second], RULES[third]);
            assert_eq!(dev.stats().dropped.total(), u64::from(lists));
        }
    }
}
