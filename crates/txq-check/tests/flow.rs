//! A flow that changes its txq: no driver sees a packet of it before the driver of the other txq is done with those
//! before.
//!
//! Guards the count of a flow's packets (`txq/src/packet/outstanding.rs`) and the rule that a flow keeps its txq while
//! there are some (`sender/flow.rs`). Seen when they were broken: without the release of a packet's end or the acquire of
//! who asks, loom's "Causality violation" where the second driver notes the packet; when the flow changes although
//! packets are outstanding, or a packet is not counted, the same, or "out of order"; when an end is counted twice or
//! never, "packets are outstanding" or an overflow.

use std::io;
use std::sync::Arc;

use txq::arch::CellApi;
use txq::cpumask::CpuMask;
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::enqueue;
use txq::netdev::Builder;
use txq::packet::{Packet, PacketList};
use txq::pool::{Backing, PoolConfig};
use txq::xps::XpsMap;
use txq::{Flow, NetDev, Sender};
use txq_check::{Loom, Model, Shuttle};

/// The cookie of packets that are not the flow's.
const OTHER: u64 = u64::MAX;

/// The flow's packets in the order in which drivers were called with them. Nothing keeps two drivers apart here but that
/// a flow is at one of them at a time: that is what the checker verifies.
struct Order<A: Model>(A::Cell<Vec<u64>>);

// SAFETY: see above.
unsafe impl<A: Model> Send for Order<A> {}
// SAFETY: as above.
unsafe impl<A: Model> Sync for Order<A> {}

/// Two txqs that are done with a packet at once, one for each CPU.
struct Device<A: Model>(Arc<Order<A>>);

impl<A: Model> Driver<A> for Device<A> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "model".into(), txqs: 2, mtu: 1500 }
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue<A>> {
        Ok(DriverQueue { tx: Box::new(Device(self.0.clone())), done: Box::new(NoCompletions), ring: None })
    }
}

impl<A: Model> Transmit<A> for Device<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status {
        for packet in batch.iter().filter(|packet| packet.cookie() != OTHER) {
            // SAFETY: see `Order`.
            self.0.0.with_mut(|order| unsafe { (*order).push(packet.cookie()) });
        }
        cx.sent_all(batch);
        Status::Ok
    }
}

fn device<A: Model>(discipline: &str, order: &Arc<Order<A>>) -> NetDev<A> {
    let pool =
        PoolConfig { name: "model".into(), buffers: 64, room: 64, headroom: 0, backing: Backing::Heap };
    let masks = [0, 1].map(|cpu| [cpu].into_iter().collect::<CpuMask>());
    let map = XpsMap::from_masks(&masks, 2, 2).expect("a CPU for each txq");
    let builder = Builder::new(Box::new(Device(order.clone()))).pool_config(pool).default_qdisc("pfifo");
    builder.discipline(discipline).xps(map).txq_reselection_ms(0).build().expect("a device")
}

fn packet<A: Model>(sender: &mut Sender<A>, cookie: u64) -> Packet<A> {
    let mut packet = sender.alloc(8).expect("the pool is large enough");
    packet.set_cookie(cookie);
    packet
}

/// Others send on CPU 0 and so may have the flow's packet when its owner is on CPU 1 already.
fn from_cpu_to_cpu<A: Model>(discipline: &str, others: u32, packets: u64) {
    let order = Arc::new(Order::<A>(A::Cell::new(Vec::new())));
    let dev = device(discipline, &order);
    let threads: Vec<_> = (0..others)
        .map(|number| {
            let mut sender = dev.sender_on("other", 0);
            let own = packet(&mut sender, OTHER);
            A::spawn(number + 1, move || {
                let _ = sender.xmit(own);
                sender
            })
        })
        .collect();
    let mut senders = [0, 1].map(|cpu| dev.sender_on("s", cpu));
    let mut flow = Flow::new();
    let own: Vec<_> = (0..packets).map(|cookie| packet(&mut senders[0], cookie)).collect();
    for (turn, packet) in own.into_iter().enumerate() {
        let _ = senders[turn % 2].xmit_on(&mut flow, packet);
    }
    threads.into_iter().for_each(|join| drop(join()));
    assert_eq!(flow.outstanding(), 0, "packets are outstanding");
    // SAFETY: all threads are joined.
    let sent = order.0.with(|order| unsafe { (*order).clone() });
    assert_eq!(sent, Vec::from_iter(0..packets), "out of order");
    drop(senders);
    assert_eq!(dev.pool().in_use(), Default::default(), "buffers are not home");
}

#[test]
fn a_flow_changes_its_txq_under_loom() {
    for discipline in enqueue::names() {
        Loom::check(|| from_cpu_to_cpu::<Loom>(discipline, 1, 2));
    }
}

#[test]
fn a_flow_changes_its_txq_under_shuttle() {
    for discipline in enqueue::names() {
        Shuttle::check(|| from_cpu_to_cpu::<Shuttle>(discipline, 3, 4));
    }
}
