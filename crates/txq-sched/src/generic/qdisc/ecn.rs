//! Explicit congestion notification: marks a packet instead of dropping it (RFC 3168).
//!
//! Shared by all kinds that mark packets. The kernel's counterpart is `INET_ECN_set_ce`.

use txq_core::arch::Arch;
use txq_core::packet::Packet;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Congestion experienced: both bits of the ECN field are set.
const CE: u8 = 3;

/// Returns the offset of the IP header, the ethertype and the ECN field; `None` if the packet is not IPv4 or IPv6, or is cut off.
fn find<A: Arch>(packet: &Packet<A>) -> Option<(u16, u16, u8)> {
    let (network, ethertype) = match packet.protocol_offsets() {
        Some((network, _, ethertype)) => (network, ethertype),
        None => {
            let found = packet.dissect();
            (found.network_offset, found.ethertype)
        }
    };
    let header = packet.data().get(network.into()..)?;
    let field = match (ethertype, header) {
        (IPV4, [0x40..=0x4f, tos, ..]) if header.len() >= 20 => tos & CE,
        (IPV6, [0x60..=0x6f, class, ..]) if header.len() >= 40 => class >> 4 & CE,
        _ => return None,
    };
    Some((network, ethertype, field))
}

/// Returns the ECN field: 1 for ECT(1), 2 for ECT(0), 3 for CE; 0 for packets without ECN, and without an IP header.
pub(super) fn field<A: Arch>(packet: &Packet<A>) -> u8 {
    find(packet).map_or(0, |(.., field)| field)
}

/// Marks an IPv4 or IPv6 packet as CE, if its ECN field says that its ends understand ECN. Returns whether the packet is
/// marked now; one that arrived marked counts as marked.
///
/// The packet keeps its flow hash and its protocol offsets, because the ECN field identifies no flow.
pub(super) fn set_ce<A: Arch>(packet: &mut Packet<A>) -> bool {
    let (hash, known) = (packet.hash(), packet.protocol_offsets());
    // Checks the field before `data_mut`: a packet without ECN is never opened for writing.
    let Some((network, ethertype, field)) = find(packet) else { return false };
    if field == 0 || field == CE {
        return field == CE;
    }
    let header = &mut packet.data_mut()[network.into()..];
    if ethertype == IPV4 {
        header[1] |= CE;
        // RFC 1624: HC' = ~(~HC + ~m + m'), where m' - m is the growth of the field.
        let sum = u32::from(!u16::from_be_bytes([header[10], header[11]])) + u32::from(CE - field);
        let sum = (sum + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&(!sum).to_be_bytes());
    } else {
        header[1] |= CE << 4;
    }
    packet.set_hash(hash);
    if let Some((network, transport, ethertype)) = known {
        packet.set_protocol_offsets(network, transport, ethertype);
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use txq_core::flow::Link;
    use txq_core::pool::{Backing, Pool, PoolConfig};

    use super::*;

    fn packet(bytes: &[u8]) -> Packet {
        let config = PoolConfig { buffers: 4, room: 1514, backing: Backing::Heap, ..PoolConfig::default() };
        let mut packet = Pool::new(&config).unwrap().cache("test", 0).alloc(bytes.len()).unwrap();
        packet.data_mut().copy_from_slice(bytes);
        packet
    }

    /// Returns the ones' complement sum of a header, which is all ones for a correct header (RFC 1071).
    fn sum(header: &[u8]) -> u16 {
        let sum = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    fn ethernet(vlans: usize, ethertype: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..vlans).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        frame.extend(ethertype.to_be_bytes());
        frame
    }

    fn ipv4(vlans: usize, tos: u8, id: u16) -> (Vec<u8>, usize) {
        let mut frame = ethernet(vlans, IPV4);
        let at = frame.len();
        let mut header = [0x45, tos, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[4..6].copy_from_slice(&id.to_be_bytes());
        let checksum = !sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(header);
        frame.extend([0; 8]);
        (frame, at)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn ipv4_is_marked_and_its_checksum_holds(
            tos: u8, id: u16, vlans in 0usize..3, known: bool, bare: bool,
        ) {
            let (mut frame, mut at) = ipv4(vlans, tos, id);
            if bare {
                frame.drain(..std::mem::take(&mut at));
            }
            let mut packet = packet(&frame);
            packet.set_link(if bare { Link::Ip } else { Link::Ethernet });
            if known {
                packet.set_protocol_offsets(at as u16, at as u16 + 20, IPV4);
            }
            packet.set_hash(77);
            let ect = tos & 3 != 0;
            prop_assert_eq!(set_ce(&mut packet), ect);
            let mut expected = frame.clone();
            expected[at + 1] |= if ect { 3 } else { 0 };
            prop_assert_eq!(sum(&packet.data()[at..at + 20]), 0xffff);
            expected[at + 10..at + 12].copy_from_slice(&packet.data()[at + 10..at + 12]);
            prop_assert_eq!(packet.data(), &expected[..], "nothing else has changed");
            prop_assert_eq!(packet.hash(), 77);
            prop_assert_eq!(packet.protocol_offsets().is_some(), known);
        }

        #[test]
        fn ipv6_is_marked(class: u8, label in 0u8..16) {
            let mut frame = ethernet(0, IPV6);
            frame.extend([0x60 | class >> 4, class << 4 | label]);
            frame.extend([0; 38]);
            let mut packet = packet(&frame);
            prop_assert_eq!(set_ce(&mut packet), class & 3 != 0);
            let expected = if class & 3 == 0 { class } else { class | 3 };
            frame[14..16].copy_from_slice(&[0x60 | expected >> 4, expected << 4 | label]);
            prop_assert_eq!(packet.data(), &frame[..]);
        }

        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 1..80), at: u16, known: bool) {
            let mut packet = packet(&bytes);
            if known {
                packet.set_protocol_offsets(at % 90, 0, if at & 1 == 0 { IPV4 } else { IPV6 });
            }
            let _ = set_ce(&mut packet);
        }
    }

    #[test]
    fn what_is_not_ip_or_cut_stays() {
        let (whole, _) = ipv4(0, 2, 1);
        for bytes in
            [&whole[..33], &whole[..14], &whole[..5], &[&ethernet(0, 0x806)[..], &[0x45; 60]].concat()]
        {
            let mut packet = packet(bytes);
            assert!(!set_ce(&mut packet));
            assert_eq!(packet.data(), bytes);
        }
    }
}
