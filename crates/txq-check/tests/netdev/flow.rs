//! A flow, or a sender, that changes its txq: no driver gets a packet of it before the other txq's driver has completed the
//! packets before.
//!
//! Guards the count of a flow's packets (`txq/src/packet/outstanding.rs`) and the rule that a flow keeps its txq while
//! packets are outstanding (`sender/flow.rs`). Mutants that it catches: a packet's end without release, or a reader of the
//! count without acquire, by loom's "Causality violation" where the second driver notes the packet; a flow that changes
//! although packets are outstanding, or a packet that is not counted, by the same or by "out of order"; an end that is
//! counted twice or never, by "packets are outstanding" or an overflow. It also guards the rule that a sender keeps its
//! choice until its txqs are idle (`steering.rs`): without it, the same failures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use txq::cpumask::CpuMask;
use txq::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::generic::netdev::Builder;
use txq::generic::{Discipline, Flow, NetDev, Sender};
use txq::xps::XpsMap;
use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::CellApi;
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Backing, PoolConfig};

/// The cookie of packets of other senders.
const OTHER: u64 = u64::MAX;

/// The flow's packets in the order of the driver calls. Only the rule that a flow uses one txq at a time keeps two drivers
/// apart here; the checker verifies that.
struct Order<A: Model>(A::Cell<Vec<u64>>);

// SAFETY: see above.
unsafe impl<A: Model> Send for Order<A> {}
// SAFETY: as above.
unsafe impl<A: Model> Sync for Order<A> {}

/// Two txqs that complete each packet at once, one txq for each CPU.
struct Device<A: Model>(Arc<Order<A>>);

impl<A: Model> Driver<A> for Device<A> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("model").txqs(2)
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

/// Maps CPU n to `txqs[n]`.
fn map(txqs: [usize; 2]) -> XpsMap {
    let masks = [0, 1].map(|txq| (0..2).filter(|&cpu| txqs[cpu] == txq).collect::<CpuMask>());
    XpsMap::from_masks(&masks, 2, 2).expect("two txqs, two CPUs")
}

fn device<A: Model>(discipline: Discipline, order: &Arc<Order<A>>) -> NetDev<A> {
    let pool = PoolConfig {
        name: "model".into(),
        buffers: 64,
        room: 64,
        headroom: 0,
        backing: Backing::Heap,
        ..PoolConfig::default()
    };
    let map = map([0, 1]);
    let builder = Builder::new(Box::new(Device(order.clone()))).pool_config(pool).default_qdisc("pfifo");
    builder.discipline(discipline).xps(map).txq_reselection(Duration::ZERO).build().expect("a device")
}

fn packet<A: Model>(sender: &mut Sender<A>, cookie: u64) -> Packet<A> {
    let mut packet = sender.alloc(8).expect("the pool is large enough");
    packet.set_cookie(cookie);
    packet
}

/// Other threads send on CPU 0, and so may hold the flow's packet when its owner already runs on CPU 1.
fn from_cpu_to_cpu<A: Model>(discipline: Discipline, others: u32, packets: u64) {
    let order = Arc::new(Order::<A>(A::Cell::new(Vec::new())));
    let dev = device(discipline, &order);
    let threads = busy(&dev, others);
    let mut senders = [0, 1].map(|cpu| dev.sender_on("s", cpu));
    let mut flow = Flow::new();
    let own: Vec<_> = (0..packets).map(|cookie| packet(&mut senders[0], cookie)).collect();
    for (turn, packet) in own.into_iter().enumerate() {
        let _ = senders[turn % 2].xmit_on(&mut flow, packet);
    }
    threads.into_iter().for_each(|join| join());
    // Packets that llist's senders left to the worker.
    let _ = dev.worker(0).poll();
    assert_eq!(flow.outstanding(), 0, "packets are outstanding");
    drop(senders);
    assert_order(&dev, &order, packets);
}

/// The flow's owner waits until no packet is outstanding. It learns nothing else about its packet, which another thread may
/// have sent.
fn after_a_wait<A: Model>(discipline: Discipline) {
    let order = Arc::new(Order::<A>(A::Cell::new(Vec::new())));
    let dev = device(discipline, &order);
    let mut senders = [0, 1].map(|cpu| dev.sender_on("s", cpu));
    let own = [0, 1].map(|cookie| packet(&mut senders[0], cookie));
    // llist's senders leave packets to the worker. With the others, only the count informs the owner.
    let mut worker = (discipline == Discipline::Llist).then(|| dev.worker(0));
    let owner = A::spawn(1, move || {
        let mut flow = Flow::new();
        for (sender, packet) in senders.iter_mut().zip(own) {
            while flow.outstanding() > 0 {
                let _ = worker.as_mut().map(|worker| worker.poll());
                A::relax();
            }
            let _ = sender.xmit_on(&mut flow, packet);
        }
    });
    let mut sender = dev.sender_on("other", 0);
    let other = packet(&mut sender, OTHER);
    let _ = sender.xmit(other);
    owner();
    let _ = dev.worker(0).poll();
    drop(sender);
    assert_order(&dev, &order, 2);
}

/// The map is replaced while a sender sends, and with `fewer` the number of txqs in use changes twice.
fn from_map_to_map<A: Model>(discipline: Discipline, others: u32, packets: u64, fewer: bool) {
    let order = Arc::new(Order::<A>(A::Cell::new(Vec::new())));
    let dev = device(discipline, &order);
    let mut threads = busy(&dev, others);
    let mut sender = dev.sender_on("s", 0);
    let own: Vec<_> = (0..packets).map(|cookie| packet(&mut sender, cookie)).collect();
    threads.push(Box::new(A::spawn(others + 1, move || {
        for packet in own {
            let _ = sender.xmit(packet);
        }
    })));
    dev.set_xps(Some(map([1, 0]))).expect("a map for this device");
    if fewer {
        dev.set_txqs(1).expect("one is left");
        dev.set_txqs(2).expect("there are two");
    }
    threads.into_iter().for_each(|join| join());
    // Packets that llist's senders left to the worker.
    let _ = dev.worker(0).poll();
    assert_order(&dev, &order, packets);
}

/// Starts threads that send one packet each on CPU 0.
fn busy<A: Model>(dev: &NetDev<A>, threads: u32) -> Vec<Box<dyn FnOnce()>> {
    let one = |number| -> Box<dyn FnOnce()> {
        let mut sender = dev.sender_on("other", 0);
        let own = packet(&mut sender, OTHER);
        Box::new(A::spawn(number + 1, move || {
            let _ = sender.xmit(own);
        }))
    };
    (0..threads).map(one).collect()
}

fn assert_order<A: Model>(dev: &NetDev<A>, order: &Order<A>, packets: u64) {
    // SAFETY: all threads are joined.
    let sent = order.0.with(|order| unsafe { (*order).clone() });
    assert_eq!(sent, Vec::from_iter(0..packets), "out of order");
    assert_eq!(dev.pool().in_use(), Default::default(), "buffers are not home");
}

#[test]
fn a_flow_changes_its_txq_under_loom() {
    for &discipline in Discipline::ALL {
        Loom::check_long(move || from_cpu_to_cpu::<Loom>(discipline, 1, 2));
    }
}

#[test]
fn a_flow_waits_for_its_packets_under_loom() {
    for &discipline in Discipline::ALL {
        Loom::check_long(move || after_a_wait::<Loom>(discipline));
    }
}

#[test]
fn a_sender_changes_its_txq_under_shuttle() {
    for &discipline in Discipline::ALL {
        Shuttle::check(move || from_map_to_map::<Shuttle>(discipline, 1, 3, true));
    }
}

#[test]
fn a_flow_changes_its_txq_under_shuttle() {
    for &discipline in Discipline::ALL {
        Shuttle::check(move || from_cpu_to_cpu::<Shuttle>(discipline, 2, 3));
    }
}
