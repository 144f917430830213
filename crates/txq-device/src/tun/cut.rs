//! Cutting a UDP packet in the driver, where the kernel does not: before Linux 6.2, and into more than 128 datagrams.

use super::header::Layout;
use crate::vnet::{self, fold, sum};

/// Number of datagrams that the kernel cuts a packet into at most (`UDP_MAX_SEGMENTS`).
pub(super) const KERNEL_SEGS: usize = 128;

/// Calls `send` with the virtio-net header, the headers and the payload of each datagram in order, until it returns an
/// error. The kernel completes their checksums.
pub(super) fn datagrams<E>(
    packet: &[u8],
    layout: &Layout,
    size: u16,
    mut send: impl FnMut(&[u8; vnet::LEN], &[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (all_headers, payload) = packet.split_at(layout.payload);
    let mut headers = all_headers.to_vec();
    let virtio = layout.header(packet, 0);
    for (number, part) in payload.chunks(size.into()).enumerate() {
        let len = layout.payload - layout.transport + part.len();
        put(&mut headers, layout.transport + 4, len as u16);
        let ip = &mut headers[layout.network..];
        if layout.is_ipv4 {
            put(ip, 2, (layout.transport - layout.network + len) as u16);
            let id = u16::from_be_bytes([all_headers[layout.network + 4], all_headers[layout.network + 5]]);
            put(ip, 4, id.wrapping_add(number as u16));
            put(ip, 10, 0);
            let end = usize::from(ip[0] & 15) * 4;
            let checksum = !fold(sum(&ip[..end]));
            put(ip, 10, checksum);
        } else {
            // Extension headers count as payload.
            put(ip, 4, (layout.transport - layout.network - 40 + len) as u16);
        }
        let partial = layout.partial(len);
        headers[layout.checksum_at()..][..2].copy_from_slice(&partial);
        send(&virtio, &headers, part)?;
    }
    Ok(())
}

/// Writes 16 bits at an offset, in network order.
fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
