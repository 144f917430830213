//! A device for models, and checks of its packets. It records the packets it sends in cells, whose accesses the checker
//! verifies, and completes each packet at once.

use std::io;
use std::sync::Arc;

use txq::cpumask::CpuMask;
use txq::generic::Sender;
use txq::generic::driver::{
    Clock, Complete, DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx,
};
use txq::generic::netdev::{Builder, NetDev};
use txq::xps::XpsMap;
use txq_check::Model;
use txq_core::arch::{CellApi, Nanos};
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Backing, PoolConfig};
use txq_core::sync::spsc::{Consumer, Producer, ring};

/// The cookies of the sent packets, in order, by txq.
pub(crate) struct Record<A: Model>(Box<[A::Cell<Vec<u64>>]>);

// SAFETY: a txq's transmitting half writes under its tx lock, and tests read when all threads are joined; the checker
// verifies that.
unsafe impl<A: Model> Send for Record<A> {}
// SAFETY: as above.
unsafe impl<A: Model> Sync for Record<A> {}

impl<A: Model> Record<A> {
    pub(crate) fn new(txqs: u16) -> Arc<Self> {
        Arc::new(Self((0..txqs).map(|_| A::Cell::new(Vec::new())).collect()))
    }

    fn add(&self, txq: usize, cookie: u64) {
        // SAFETY: see above.
        self.0[txq].with_mut(|sent| unsafe { (*sent).push(cookie) });
    }

    pub(crate) fn sent(&self) -> Vec<u64> {
        // SAFETY: see above.
        self.0.iter().flat_map(|txq| txq.with(|sent| unsafe { (*sent).clone() })).collect()
    }
}

/// Txqs with a qdisc and a CPU each. They keep `ring` packets until these are reaped, also by senders if `inline`; or they
/// keep none. Bytes are not limited and no completion is deferred, unless a model says so.
pub(crate) struct Device<A: Model> {
    pub(crate) record: Arc<Record<A>>,
    pub(crate) ring: Option<u32>,
    pub(crate) inline: bool,
}

impl<A: Model> Device<A> {
    pub(crate) fn builder(self) -> Builder<A> {
        let pool = PoolConfig {
            buffers: 1024,
            room: 64,
            headroom: 0,
            backing: Backing::Heap,
            ..PoolConfig::default()
        };
        let txqs = self.record.0.len();
        let cpu = |cpu| {
            let mut mask = CpuMask::new();
            mask.set(cpu);
            mask
        };
        let masks: Vec<_> = (0..txqs).map(cpu).collect();
        let map = XpsMap::from_masks(&masks, txqs, txqs).expect("a CPU for each txq");
        Builder::new(Box::new(self))
            .pool_config(pool)
            .default_qdisc("pfifo")
            .xps(map)
            .bql(None)
            .defer_completions(false)
    }
}

impl<A: Model> Driver<A> for Device<A> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("model").txqs(self.record.0.len() as u16)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue<A>> {
        let sent = Sent { record: self.record.clone(), txq: txq.into() };
        Ok(match self.ring {
            None => DriverQueue { tx: Box::new(Sink { sent }), done: Box::new(NoCompletions), ring: None },
            Some(size) => {
                let (kept, done) = ring(size);
                let done = Done { done, inline: self.inline };
                DriverQueue { tx: Box::new(Keep { sent, kept }), done: Box::new(done), ring: Some(size) }
            }
        })
    }
}

/// A txq's part of the record.
struct Sent<A: Model> {
    record: Arc<Record<A>>,
    txq: usize,
}

impl<A: Model> Sent<A> {
    fn add(&self, packet: &Packet<A>) {
        self.record.add(self.txq, packet.cookie());
    }
}

struct Sink<A: Model> {
    sent: Sent<A>,
}

impl<A: Model> Transmit<A> for Sink<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status {
        batch.iter().for_each(|packet| self.sent.add(packet));
        cx.sent_all(batch);
        Status::Ok
    }
}

struct Keep<A: Model> {
    sent: Sent<A>,
    kept: Producer<A, Packet<A>>,
}

impl<A: Model> Transmit<A> for Keep<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, _: &mut TxCx<'_, A>) -> Status {
        while let Some(packet) = batch.pop_front() {
            self.sent.add(&packet);
            self.kept.push(packet).expect("the txq counts what the ring holds");
        }
        self.kept.publish();
        Status::Ok
    }
}

struct Done<A: Model> {
    done: Consumer<A, Packet<A>>,
    inline: bool,
}

impl<A: Model> Complete<A> for Done<A> {
    fn poll(&mut self, budget: usize, done: &mut PacketList<A>, _: &mut Clock<A>) -> Option<Nanos> {
        done.extend(std::iter::from_fn(|| self.done.pop()).take(budget));
        self.done.publish();
        None
    }

    fn inline(&self) -> bool {
        self.inline
    }
}

/// Returns `n` packets whose cookies hold their sender and their number.
pub(crate) fn packets<A: Model>(sender: &mut Sender<A>, who: u64, n: u64) -> PacketList<A> {
    let one = |number| {
        let mut packet = sender.alloc(8).expect("the pool is large enough");
        packet.set_cookie(who << 32 | number);
        packet
    };
    (0..n).map(one).collect()
}

/// Checks that each sender's packets were sent once and in order; if `lossy`, some may be missing.
pub(crate) fn assert_order(sent: &[u64], senders: u64, each: u64, lossy: bool) {
    for who in 0..senders {
        let own: Vec<_> = sent.iter().filter(|c| **c >> 32 == who).map(|c| c & u64::from(u32::MAX)).collect();
        if lossy {
            assert!(own.is_sorted_by(|a, b| a < b), "sender {who}: doubled or out of order: {own:?}");
        } else {
            assert_eq!(own, Vec::from_iter(0..each), "sender {who}: lost, doubled or out of order");
        }
    }
}

/// Checks that no packet is in flight or missing.
pub(crate) fn assert_conserved<A: Model>(dev: &NetDev<A>) {
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(stats.queued, 0, "a packet is left behind");
    assert!(dev.is_idle());
    assert_eq!(dev.pool().in_use(), Default::default(), "buffers are not home");
}
