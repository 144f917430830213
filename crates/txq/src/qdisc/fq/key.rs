//! Which flow a packet is of, and the lines of memory that queueing it needs.

use crate::arch::Arch;
use crate::flow::dissect;
use crate::packet::{Packet, PacketList};
use crate::qdisc::fq::Fq;
use crate::qdisc::fq::flow::NIL;

/// Packets whose flows are fetched together.
pub(super) const TOGETHER: usize = 32;

fn is_ip(ethertype: u16) -> bool {
    matches!(ethertype, 0x0800 | 0x86dd)
}

impl<A: Arch> Fq<A> {
    /// What tells the flow of a packet whose hash is known.
    #[inline]
    pub(super) fn key(&self, packet: &Packet<A>) -> u64 {
        match packet.protocol_offsets() {
            Some((_, _, ethertype)) if !is_ip(ethertype) => {
                1 << 32 | u64::from(packet.hash() & self.params.orphan_mask)
            }
            // Without an ethertype the program said which flow it is.
            _ => packet.hash().into(),
        }
    }

    /// Makes the packet's hash from its headers.
    pub(super) fn dissect(&self, packet: &mut Packet<A>) {
        let found = dissect(packet.data());
        packet.set_protocol_offsets(found.network_offset, found.transport_offset, found.ethertype);
        packet.set_hash(self.hasher.hash(&found.keys));
    }

    /// Fetches what queueing the first packets of a batch needs, up to [`TOGETHER`]: their buckets, then their flows,
    /// then the packets that they are linked to. Returns the flows that they are probably of. Each step has all its cache
    /// misses at once, and none waits.
    pub(super) fn fetch(&self, batch: &PacketList<A>) -> [u32; TOGETHER] {
        let mut guesses = [NIL; TOGETHER];
        let mut keys = [0; TOGETHER];
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
