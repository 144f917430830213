//! Which txq a packet goes to (`netdev_core_pick_tx`): by the rx queue it answers, by the CPU it is sent on, and by flow
//! hash where that leaves a choice or says nothing.
//!
//! In order within a flow means: a sender does not move to another txq while a packet of its own may still be on the one
//! it used. It may run on another CPU by now, or the map may have been replaced; it keeps to its old choice until every
//! txq it has used under that choice is idle, then makes a new one. Until then nothing is lost but locality. A sender
//! whose txqs are never idle would keep to its choice for ever; it moves when the reselection interval has passed
//! (`net.core.txq_reselection_ms`), which may put packets in front of older ones.
//!
//! A [`Flow`](crate::Flow) knows its own packets and so need not wait for whole txqs; it goes by [`Here`].

use std::sync::Arc;

use crate::arch::{Arch, CpuId, Nanos};
use crate::flow::{FlowHasher, dissect};
use crate::netdev::Shared;
use crate::packet::Packet;
use crate::sync::rcu::{Rcu, Reader};
use crate::txqset::TxqSet;
use crate::xps::{TrafficClasses, XpsMap, hash_to_txq};

/// What steering goes by; replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    /// Txqs in use, from the first on (`real_num_tx_queues`).
    pub(crate) real: u16,
    pub(crate) classes: TrafficClasses,
    pub(crate) cpus: Option<XpsMap>,
    pub(crate) rxqs: Option<XpsMap>,
}

impl Steering {
    /// The txq for a packet sent on `cpu`. Asks for its hash only if its flow decides.
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

    /// Without a map (`skb_tx_hash`): by the rx queue if it is known, else by hash, among the txqs of the class.
    fn fall_back(&self, class: usize, rx_queue: Option<u16>, mut hash: impl FnMut() -> u32) -> u16 {
        let txqs = self.classes.txqs(class).filter(|txqs| txqs.end <= self.real);
        let txqs = txqs.unwrap_or(0..self.real);
        let count = txqs.end - txqs.start;
        match rx_queue {
            Some(rxq) => txqs.start + rxq.checked_sub(txqs.start).unwrap_or(rxq) % count,
            None => txqs.start + hash_to_txq(hash(), count),
        }
    }

    /// The one txq for all packets sent on `cpu`, if there is one.
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

/// The hash of a packet's flow, and where its headers are.
fn hash_of<A: Arch>(packet: &mut Packet<A>, hasher: &FlowHasher) -> u32 {
    if packet.hash() == 0 {
        let flow = dissect(packet.data());
        packet.set_protocol_offsets(flow.network_offset, flow.transport_offset, flow.ethertype);
        packet.set_hash(hasher.hash(&flow.keys));
    }
    packet.hash()
}

/// A sender's choice.
pub(crate) struct Steer<A: Arch> {
    reader: Reader<A, Steering>,
    cpu: CpuId,
    hasher: FlowHasher,
    /// The one txq for all packets, where CPU and map leave no choice.
    fixed: Option<u16>,
    /// Txqs used since the choice was made.
    used: TxqSet,
    /// Since when a new choice is due that would put packets in front of others.
    due_since: Option<Nanos>,
}

impl<A: Arch> Steer<A> {
    pub(crate) fn new(rcu: &Arc<Rcu<A, Steering>>, cpu: CpuId, txqs: u16, hasher: FlowHasher) -> Self {
        let reader = rcu.reader();
        let fixed = reader.get().fixed(cpu);
        Self { reader, cpu, hasher, fixed, used: TxqSet::new(txqs.into()), due_since: None }
    }

    /// The one txq for all packets, if there is one.
    #[inline]
    pub(crate) fn fixed(&self) -> Option<u16> {
        self.fixed
    }

    /// Whether the map has been replaced.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.reader.is_stale()
    }

    /// The CPU that the choice was made for.
    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The txqs that packets went to since the choice was made.
    pub(crate) fn used(&self) -> &TxqSet {
        &self.used
    }

    /// Remembers that packets went to a txq.
    #[inline]
    pub(crate) fn note(&mut self, txq: u16) {
        self.used.insert(txq);
    }

    /// Makes a new choice for `cpu` and the current map, unless that could put a packet in front of an older one and has
    /// been put off for less than the reselection interval. Tells whether it did.
    pub(crate) fn renew(&mut self, cpu: CpuId, dev: &Shared<A>) -> bool {
        if !self.used.iter().all(|txq| dev.is_idle(txq)) && !self.is_overdue(dev.reselection) {
            return false;
        }
        self.used.retain(|_| false);
        self.due_since = None;
        self.reader.update();
        self.cpu = cpu;
        self.fixed = self.reader.get().fixed(cpu);
        true
    }

    /// The choice in use is the right one.
    pub(crate) fn is_right(&mut self) {
        self.due_since = None;
    }

    fn is_overdue(&mut self, interval: Nanos) -> bool {
        if interval == 0 {
            return false;
        }
        let now = A::now();
        now.saturating_sub(*self.due_since.get_or_insert(now)) >= interval
    }

    /// The txq for one packet. Dissects and hashes it only if its flow decides and is not known.
    pub(crate) fn pick(&self, packet: &mut Packet<A>) -> u16 {
        let (priority, rx_queue) = (packet.priority(), packet.rx_queue());
        self.reader.get().pick(self.cpu, priority, rx_queue, || hash_of(packet, &self.hasher))
    }
}

/// What a sender's flows go by: where it runs now and the current map, though the sender itself may be held to older
/// ones.
pub(crate) struct Here<A: Arch> {
    reader: Reader<A, Steering>,
    hasher: FlowHasher,
    pub(crate) cpu: CpuId,
    /// The time, where a reselection interval needs it.
    pub(crate) now: Nanos,
}

impl<A: Arch> Here<A> {
    pub(crate) fn new(dev: &Shared<A>, cpu: CpuId) -> Self {
        let mut here = Self { reader: dev.steering.reader(), hasher: dev.hasher, cpu, now: 0 };
        here.look(dev, cpu);
        here
    }

    /// Remembers CPU and time.
    pub(crate) fn look(&mut self, dev: &Shared<A>, cpu: CpuId) {
        self.cpu = cpu;
        if dev.reselection != 0 {
            self.now = A::now();
        }
    }

    /// Goes by the current map from now on. Returns the number of txqs in use.
    #[inline]
    pub(crate) fn refresh(&mut self) -> u16 {
        if self.reader.is_stale() {
            self.reader.update();
        }
        self.reader.get().real
    }

    /// The txq for a flow whose next packet is `packet` and whose hash is `hash`, or 0 as long as it is unknown.
    pub(crate) fn pick(&self, packet: &Packet<A>, hash: &mut u32) -> u16 {
        let known = || {
            if *hash == 0 {
                *hash = match packet.hash() {
                    0 => self.hasher.hash(&dissect(packet.data()).keys),
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
    use super::*;
    use crate::cpumask::CpuMask;

    fn map(
        make: fn(&[CpuMask], usize, usize) -> Result<XpsMap, crate::xps::XpsError>,
        lists: [&str; 4],
    ) -> XpsMap {
        make(&lists.map(|list| CpuMask::parse_list(list, 8).unwrap()), 4, 4).unwrap()
    }

    fn no_hash() -> u32 {
        panic!("no flow decides here")
    }

    /// What the kernel does, stop by stop.
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
        // A txq that is not in use is as good as none, step by step.
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
