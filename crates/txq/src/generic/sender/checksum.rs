//! Checksums that a device may compute.

use txq_core::arch::Arch;
use txq_core::flow::layout::Layout;
use txq_core::packet::Packet;

use crate::generic::sender::Sender;

impl<A: Arch> Sender<A> {
    /// Fills in the checksum of a TCP or UDP packet for this sender's device.
    #[inline(never)]
    pub fn fill_checksum(&self, packet: &mut Packet<A>) -> bool {
        let Some(layout) = Layout::of(packet.data(), &packet.dissect()) else { return false };
        let (hash, offsets) = (packet.hash(), packet.protocol_offsets());
        layout.set_partial_checksum(packet.data_mut());
        if !self.dev.info.checksum {
            layout.set_checksum(packet.data_mut());
        }
        packet.set_checksum_partial(self.dev.info.checksum);
        packet.set_hash(hash);
        if let Some((network, transport, ethertype)) = offsets {
            packet.set_protocol_offsets(network, transport, ethertype);
        }
        true
    }
}
