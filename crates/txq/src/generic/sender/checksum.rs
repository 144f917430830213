//! Checksums that a device may compute.

use txq_core::arch::Arch;
use txq_core::flow::layout::Layout;
use txq_core::packet::Packet;

use crate::generic::sender::Sender;

impl<A: Arch> Sender<A> {
    /// Fills in the checksum of a TCP or UDP packet for this sender's device. A device that computes checksums
    /// ([`DeviceInfo::checksum`](crate::generic::driver::DeviceInfo::checksum)) gets the packet with the sum of the pseudo header
    /// (`CHECKSUM_PARTIAL`), for any other device the checksum is computed here (`skb_checksum_help`). Returns false for another
    /// packet, which stays as it is.
    ///
    /// Call it when all headers are written. The payload may change afterwards if
    /// [`is_checksum_partial`](Packet::is_checksum_partial) is true then, and only this device may get the packet.
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
