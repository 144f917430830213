//! Which txq a sender's packets go to (`netdev_core_pick_tx`): by the CPU it runs on, and by flow hash where that
//! leaves a choice.
//!
//! In order within a flow means: a sender does not move to another txq while a packet of its own may still be on the one
//! it used. It may run on another CPU by now, or the map may have been replaced; it keeps to its old choice until every
//! txq it has used under that choice is idle, then makes a new one. Until then nothing is lost but locality.

use std::sync::Arc;

use crate::arch::{Arch, CpuId};
use crate::flow::{FlowHasher, dissect};
use crate::netdev::Shared;
use crate::packet::Packet;
use crate::sync::rcu::{Rcu, Reader};
use crate::txqset::TxqSet;
use crate::xps::{XpsMap, hash_to_txq};

/// What steering goes by; replaced as a whole.
#[derive(Debug)]
pub(crate) struct Steering {
    /// None: by flow hash alone.
    pub(crate) xps: Option<XpsMap>,
}

/// A sender's choice.
pub(crate) struct Steer<A: Arch> {
    reader: Reader<A, Steering>,
    cpu: CpuId,
    txqs: u16,
    hasher: FlowHasher,
    /// The one txq for all packets, where CPU and map leave no choice.
    fixed: Option<u16>,
    /// Txqs used since the choice was made.
    used: TxqSet,
}

impl<A: Arch> Steer<A> {
    pub(crate) fn new(rcu: &Arc<Rcu<A, Steering>>, cpu: CpuId, txqs: u16, hasher: FlowHasher) -> Self {
        let reader = rcu.reader();
        let fixed = fixed(reader.get(), cpu, txqs);
        Self { reader, cpu, txqs, hasher, fixed, used: TxqSet::new(txqs.into()) }
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

    /// Remembers that packets went to a txq.
    #[inline]
    pub(crate) fn note(&mut self, txq: u16) {
        self.used.insert(txq);
    }

    /// Makes a new choice for `cpu` and the current map, unless that could put a packet in front of an older one.
    /// Tells whether it did.
    pub(crate) fn renew(&mut self, cpu: CpuId, dev: &Shared<A>) -> bool {
        if !self.used.iter().all(|txq| dev.is_idle(txq)) {
            return false;
        }
        self.used.retain(|_| false);
        self.reader.update();
        self.cpu = cpu;
        self.fixed = fixed(self.reader.get(), cpu, self.txqs);
        true
    }

    /// The txq for one packet. Dissects and hashes it only if its flow decides and is not known.
    pub(crate) fn pick(&self, packet: &mut Packet<A>) -> u16 {
        let mut hash = || {
            if packet.hash() == 0 {
                let flow = dissect(packet.data());
                packet.set_protocol_offsets(flow.network_offset, flow.transport_offset, flow.ethertype);
                packet.set_hash(self.hasher.hash(&flow.keys));
            }
            packet.hash()
        };
        match &self.reader.get().xps {
            // A CPU without a queue of its own falls back to the hash over all.
            Some(xps) if xps.txqs_of(self.cpu as usize).len() > 0 => {
                xps.pick(self.cpu as usize, hash).filter(|&q| q < self.txqs).unwrap_or(0)
            }
            _ => hash_to_txq(hash(), self.txqs),
        }
    }
}

fn fixed(steering: &Steering, cpu: CpuId, txqs: u16) -> Option<u16> {
    if txqs == 1 {
        return Some(0);
    }
    let mut queues = steering.xps.as_ref()?.txqs_of(cpu as usize);
    match (queues.next(), queues.len()) {
        (Some(txq), 0) if txq < txqs => Some(txq),
        _ => None,
    }
}
