//! Generated frames: Ethernet, IPv4 and UDP with correct lengths and checksums.
//!
//! A flow is a header; the payload is zeros, which do not change a checksum. Addresses are from the documentation's and
//! the private ranges, so that no host answers if a frame reaches a network.

use etherparse::PacketBuilder;

/// The length of all three headers, in bytes.
pub(crate) const HEADERS: usize = 42;
/// The number of flows with the same source address, each with a source port from 1024 on.
const PORTS: u32 = 60_000;

/// Returns the headers for frames of `len` bytes of one flow of one thread.
pub(crate) fn header(thread: u16, flow: u32, len: usize) -> [u8; HEADERS] {
    let [high, low] = thread.to_be_bytes();
    let source = [10, high, low, 1 + (flow / PORTS) as u8];
    let port = 1024 + (flow % PORTS) as u16;
    let payload = vec![0; len.saturating_sub(HEADERS)];
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, high, low], [2, 0, 0, 0, 255, 255])
        .ipv4(source, [192, 0, 2, 1], 64)
        .udp(port, 9);
    let mut frame = Vec::with_capacity(HEADERS + payload.len());
    builder.write(&mut frame, &payload).expect("a Vec takes every frame that fits a device");
    frame[..HEADERS].try_into().expect("longer than its headers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{SlicedPacket, TransportSlice};
    use std::collections::HashSet;

    #[test]
    fn frames_are_whole() {
        for len in [42, 60, 1514, 9014] {
            let mut frame = header(3, 70_000, len).to_vec();
            frame.resize(len, 0);
            let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP in {frame:?}") };
            assert_eq!(usize::from(udp.length()), len - 34);
            let etherparse::NetSlice::Ipv4(ip) = sliced.net.unwrap() else { panic!("no IPv4 in {frame:?}") };
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            let checksum = udp.to_header().calc_checksum_ipv4(&header.to_header(), udp.payload());
            assert_eq!(checksum.unwrap(), udp.checksum());
        }
    }

    #[test]
    fn flows_and_threads_differ() {
        let flows = [0, 1, 59_999, 60_000, 999_999];
        let headers: HashSet<_> =
            (0..3).flat_map(|thread| flows.map(|flow| header(thread, flow, 60))).collect();
        assert_eq!(headers.len(), 15);
    }
}
