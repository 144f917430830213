//! Finds the flow of a packet, and prefetches the cache lines that queueing a batch needs.

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::fq::Fq;
use crate::generic::qdisc::fq::flow::NIL;

/// The number of packets whose flows are prefetched together.
pub(super) const PREFETCHED_FLOWS: usize = 32;

fn is_ip(ethertype: u16) -> bool {
    matches!(ethertype, 0x0800 | 0x86dd)
}

impl<A: Arch> Fq<A> {
    /// Returns the flow key of a packet whose hash is set: the hash, and bit 32 set for frames other than IP.
    #[inline]
    pub(super) fn key(&self, packet: &Packet<A>) -> u64 {
        match packet.protocol_offsets() {
            Some((_, _, ethertype)) if !is_ip(ethertype) => {
                1 << 32 | u64::from(packet.hash() & self.params.orphan_mask)
            }
            // Without protocol offsets the program has set the hash.
            _ => packet.hash().into(),
        }
    }

    /// Returns the key of a packet that may have no hash yet.
    pub(super) fn foreseen_key(&self, packet: &Packet<A>) -> u64 {
        if packet.hash() != 0 {
            return self.key(packet);
        }
        let found = packet.dissect();
        let hash = self.hasher.hash(&found.keys);
        if is_ip(found.ethertype) { hash.into() } else { 1 << 32 | u64::from(hash & self.params.orphan_mask) }
    }

    /// Sets the packet's protocol offsets and hash from its headers.
    pub(super) fn dissect(&self, packet: &mut Packet<A>) {
        let found = packet.dissect();
        packet.set_protocol_offsets(found.network_offset, found.transport_offset, found.ethertype);
        packet.set_hash(self.hasher.hash(&found.keys));
    }

    /// Prefetches the cache lines for queueing the first [`PREFETCHED_FLOWS`] packets of a batch: their buckets, then their flows,
    /// then the last packets of these flows. Returns the probable flow of each packet, or [`NIL`]. The cache misses of each
    /// step overlap.
    pub(super) fn fetch(&self, batch: &PacketList<A>) -> [u32; PREFETCHED_FLOWS] {
        let mut guesses = [NIL; PREFETCHED_FLOWS];
        let mut keys = [0; PREFETCHED_FLOWS];
        let known = batch.iter().zip(&mut keys).filter(|(packet, _)| packet.hash() != 0);
        for (packet, key) in known {
            *key = self.key(packet);
            self.table.fetch_bucket(*key);
        }
        for (guess, &key) in guesses.iter_mut().zip(&keys).filter(|&(_, &key)| key != 0) {
            *guess = self.table.fetch_flow_of(key);
        }
        for &guess in guesses.iter().filter(|&&guess| guess != NIL) {
            self.table.flow(guess).queue.fetch_back();
        }
        guesses
    }
}
