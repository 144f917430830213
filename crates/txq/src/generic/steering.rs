//! Steering: chooses the txq of a packet (`netdev_core_pick_tx`), by the rx queue that the packet answers, by the CPU that
//! sends it, and by flow hash if these leave a choice or decide nothing.
//!
//! To keep flows in order, a sender does not move to another txq while one of its own packets may still be on a txq that it
//! used. If it now runs on another CPU, or the map was replaced, it keeps its old choice until every txq that it has used
//! under that choice is idle. Only locality is lost until then. A sender whose txqs are never idle would keep its choice for
//! ever; it moves when the reselection interval has passed (`net.core.txq_reselection_ms`), which may put packets in front
//! of older ones.
//!
//! A [`Flow`](crate::Flow) counts its own packets and need not wait for whole txqs; [`Here`] steers it.

use std::sync::Arc;

use txq_core::arch::{Arch, CpuId, Nanos};
use txq_core::flow::FlowHasher;
use txq_core::packet::Packet;
use txq_core::sync::rcu::{Rcu, Reader};

use crate::generic::txqset::TxqSet;
use crate::xps::{TrafficClasses, XpsMap, hash_to_txq};

/// The steering configuration. Replaced as a whole ([`Rcu`]).
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    /// Number of txqs in use, which are the first ones (`real_num_tx_queues`).
    pub(crate) real: u16,
    pub(crate) classes: TrafficClasses,
    pub(crate) cpus: Option<XpsMap>,
    pub(crate) rxqs: Option<XpsMap>,
}

impl Steering {
    /// Returns the txq for a packet sent on `cpu`. Calls `hash` only if the flow decides.
    #[inline]
    pub(crate) fn pick(
        &self,
        cpu: CpuId,
        priority: u32,
        rx_queue: Option<u16>,
        mut hash: impl FnMut() -> u32,
    ) -> u16 {
        if self.real == 1 {
            return 0;
        }
        let class = self.classes.of_priority(priority);
        let by_rxq = self.rxqs.as_ref().zip(rx_queue);
        let by_rxq = by_rxq.and_then(|(map, rxq)| map.pick(rxq.into(), class, &mut hash));
        let in_use = |txq: &u16| *txq < self.real;
        by_rxq
            .filter(in_use)
            .or_else(|| self.cpus.as_ref()?.pick(cpu as usize, class, &mut hash).filter(in_use))
            .unwrap_or_else(|| self.fall_back(class, rx_queue, hash))
    }

    /// Returns the txq if no map decides (`skb_tx_hash`): by the rx queue if it is known, else by hash, among the txqs of
    /// the class.
    fn fall_back(&self, class: usize, rx_queue: Option<u16>, mut hash: impl FnMut() -> u32) -> u16 {
        let txqs = self.classes.txqs(class).filter(|txqs| txqs.end <= self.real);
        let txqs = txqs.unwrap_or(0..self.real);
        let count = txqs.end - txqs.start;
        match rx_queue {
            Some(rxq) => txqs.start + rxq.checked_sub(txqs.start).unwrap_or(rxq) % count,
            None => txqs.start + hash_to_txq(hash(), count),
        }
    }

    /// Returns the txq for all packets sent on `cpu`, if there is only one.
    fn fixed(&self, cpu: CpuId) -> Option<u16> {
        if self.real == 1 {
            return Some(0);
        }
        if self.rxqs.is_some() {
            return None;
        }
        let map = self.cpus.as_ref()?;
        let mut fixed = None;
        for class in 0..self.classes.len().max(1) {
            let mut txqs = map.txqs_of(cpu as usize, class);
            let (Some(txq), 0) = (txqs.next(), txqs.len()) else { return None };
            if txq >= self.real || fixed.is_some_and(|other| other != txq) {
                return None;
            }
            fixed = Some(txq);
        }
        fixed
    }
}

/// Returns the hash of a packet's flow. If it is unknown, computes it and stores it in the packet, with the offsets of the
/// headers.
fn hash_of<A: Arch>(packet: &mut Packet<A>, hasher: &FlowHasher) -> u32 {
    if packet.hash() == 0 {
        let flow = packet.dissect();
        packet.set_protocol_offsets(flow.network_offset, flow.transport_offset, flow.ethertype);
        packet.set_hash(hasher.hash(&flow.keys));
    }
    packet.hash()
}

/// A sender's choice of txqs.
pub(crate) struct Steer<A: Arch> {
    reader: Reader<A, Steering>,
    cpu: CpuId,
    hasher: FlowHasher,
    /// The txq for all packets, if CPU and map leave no choice.
    fixed: Option<u16>,
    /// Txqs used since the choice was made.
    used: TxqSet,
    /// When the choice was made; `None` if the device has no reselection interval.
    made: Option<Nanos>,
}

impl<A: Arch> Steer<A> {
    pub(crate) fn new(
        rcu: &Arc<Rcu<A, Steering>>,
        cpu: CpuId,
        txqs: u16,
        hasher: FlowHasher,
        reselection: Nanos,
    ) -> Self {
        let reader = rcu.reader();
        let fixed = reader.get().fixed(cpu);
        let made = (reselection > 0).then(A::now);
        Self { reader, cpu, hasher, fixed, used: TxqSet::new(txqs.into()), made }
    }

    /// Returns the txq for all packets, if there is only one.
    #[inline]
    pub(crate) fn fixed(&self) -> Option<u16> {
        self.fixed
    }

    /// Returns whether the map was replaced.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.reader.is_stale()
    }

    /// Returns the CPU that the choice was made for.
    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Returns how many txqs are in use.
    pub(crate) fn in_use(&self) -> u16 {
        self.reader.get().real
    }

    /// Returns the txqs that packets went to since the choice was made.
    pub(crate) fn used(&self) -> &TxqSet {
        &self.used
    }

    /// Records that packets went to a txq.
    #[inline]
    pub(crate) fn note(&mut self, txq: u16) {
        self.used.insert(txq);
    }

    /// Makes a new choice for `cpu` and the current map; returns whether it did. It does not if the new choice could put a
    /// packet in front of an older one, unless the old choice was made the reselection interval ago.
    pub(crate) fn renew(&mut self, cpu: CpuId, reselection: Nanos, is_idle: impl Fn(u16) -> bool) -> bool {
        let now = self.made.map(|made| (made, A::now()));
        let is_old = now.is_some_and(|(made, now)| now.saturating_sub(made) >= reselection);
        if !is_old && !self.used.iter().all(is_idle) {
            return false;
        }
        self.used.retain(|_| false);
        self.made = now.map(|(_, now)| now);
        self.reader.update();
        self.cpu = cpu;
        self.fixed = self.reader.get().fixed(cpu);
        true
    }

    /// Returns the txq for one packet. Dissects and hashes the packet only if its flow decides and its hash is not known.
    pub(crate) fn pick(&self, packet: &mut Packet<A>) -> u16 {
        let (priority, rx_queue) = (packet.priority(), packet.rx_queue());
        self.reader.get().pick(self.cpu, priority, rx_queue, || hash_of(packet, &self.hasher))
    }

    /// As [`pick`](Steer::pick), for a packet that is not sent yet.
    pub(crate) fn foresee(&self, packet: &Packet<A>) -> u16 {
        let hash = || match packet.hash() {
            0 => self.hasher.hash(&packet.dissect().keys),
            known => known,
        };
        self.reader.get().pick(self.cpu, packet.priority(), packet.rx_queue(), hash)
    }
}

/// The steering state of a sender's flows: the sender's current CPU and the current map. The sender itself may still be held
/// to older ones.
pub(crate) struct Here<A: Arch> {
    reader: Reader<A, Steering>,
    hasher: FlowHasher,
    pub(crate) cpu: CpuId,
    /// The time; read only if there is a reselection interval.
    pub(crate) now: Nanos,
}

impl<A: Arch> Here<A> {
    pub(crate) fn new(
        rcu: &Arc<Rcu<A, Steering>>,
        hasher: FlowHasher,
        reselection: Nanos,
        cpu: CpuId,
    ) -> Self {
        let mut here = Self { reader: rcu.reader(), hasher, cpu, now: 0 };
        here.set_cpu(reselection, cpu);
        here
    }

    /// Records the CPU, and the time if there is a reselection interval.
    pub(crate) fn set_cpu(&mut self, reselection: Nanos, cpu: CpuId) {
        self.cpu = cpu;
        if reselection != 0 {
            self.now = A::now();
        }
    }

    /// Changes over to the current map. Returns the number of txqs in use.
    #[inline]
    pub(crate) fn refresh(&mut self) -> u16 {
        if self.reader.is_stale() {
            self.reader.update();
        }
        self.reader.get().real
    }

    /// Returns the txq for a flow whose next packet is `packet`. `hash` is the flow's hash, 0 while unknown; it is filled in
    /// if the flow decides.
    pub(crate) fn pick(&self, packet: &Packet<A>, hash: &mut u32) -> u16 {
        let known = || {
            if *hash == 0 {
                *hash = match packet.hash() {
                    0 => self.hasher.hash(&packet.dissect().keys),
                    known => known,
                };
            }
            *hash
        };
        self.reader.get().pick(self.cpu, packet.priority(), packet.rx_queue(), known)
    }
}

#[cfg(test)]
mod tests {
    use txq_core::cpumask::CpuMask;

    use super::*;

    fn map(
        make: fn(&[CpuMask], usize, usize) -> Result<XpsMap, crate::xps::XpsError>,
        lists: [&str; 4],
    ) -> XpsMap {
        make(&lists.map(|list| CpuMask::parse_list(list, 8).unwrap()), 4, 4).unwrap()
    }

    fn no_hash() -> u32 {
        panic!("no flow decides here")
    }

    /// The kernel's order of decision, step by step.
    #[test]
    fn the_order_of_decision() {
        let none = Steering { real: 4, classes: TrafficClasses::default(), cpus: None, rxqs: None };
        assert_eq!(none.pick(0, 0, None, || u32::MAX), 3);
        assert_eq!([0, 3, 4, 65535].map(|rxq| none.pick(0, 0, Some(rxq), no_hash)), [0, 3, 0, 3]);
        let cpus = Some(map(XpsMap::from_masks, ["", "0", "", "1"]));
        let by_cpu = Steering { cpus, ..none.clone() };
        assert_eq!([0, 1].map(|cpu| by_cpu.pick(cpu, 0, Some(2), no_hash)), [1, 3], "not by the rx queue");
        assert_eq!(by_cpu.pick(2, 0, Some(2), no_hash), 2, "a CPU without a txq falls back");
        assert_eq!([0, 1, 2].map(|cpu| by_cpu.fixed(cpu)), [Some(1), Some(3), None]);
        let rxqs = Some(map(XpsMap::from_rxq_masks, ["2", "", "2", ""]));
        let by_rxq = Steering { rxqs, ..by_cpu.clone() };
        assert_eq!([1, u32::MAX].map(|hash| by_rxq.pick(0, 0, Some(2), || hash)), [0, 2]);
        assert_eq!(by_rxq.pick(0, 0, Some(1), no_hash), 1, "an rx queue without a txq leaves it to the CPU");
        assert_eq!((by_rxq.pick(0, 0, None, no_hash), by_rxq.fixed(0)), (1, None));
        // At each step, a txq that is not in use counts as none.
        let fewer = Steering { real: 2, ..by_rxq.clone() };
        assert_eq!(fewer.pick(0, 0, Some(2), || u32::MAX), 1, "rx queue: 2, CPU: 1");
        assert_eq!(
            fewer.pick(1, 0, Some(2), || u32::MAX),
            0,
            "rx queue: 2, CPU: 3, fallback: rx queue 2 of 2"
        );
        let fewer = Steering { real: 2, ..by_cpu.clone() };
        assert_eq!((fewer.fixed(0), fewer.fixed(1)), (Some(1), None));
        assert_eq!(Steering { real: 1, ..by_rxq }.pick(1, 0, Some(2), no_hash), 0);
    }

    #[test]
    fn a_class_decides_within_its_txqs() {
        let classes =
            TrafficClasses::new(std::array::from_fn(|p| u8::from(p > 7)), &[(1, 0), (2, 2)], 4).unwrap();
        let cpus = map(XpsMap::from_masks, ["0", "", "0-1", ""]).in_classes(&classes).unwrap();
        let steering = Steering { real: 4, classes, cpus: Some(cpus), rxqs: None };
        assert_eq!([0, 8].map(|priority| steering.pick(0, priority, None, no_hash)), [0, 2]);
        assert_eq!(steering.pick(1, 8, None, no_hash), 2);
        assert_eq!(steering.pick(1, 0, None, || u32::MAX), 0, "no txq for CPU 1 in this class");
        assert_eq!(steering.pick(2, 8, None, || u32::MAX), 3);
        assert_eq!([0, 1, 2, 3].map(|rxq| steering.pick(2, 8, Some(rxq), no_hash)), [2, 3, 2, 3]);
        assert_eq!((steering.fixed(0), steering.fixed(1)), (None, None), "the class decides");
    }
}
