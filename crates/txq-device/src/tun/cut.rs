//! Cutting a UDP packet in the driver, where the kernel does not: before Linux 6.2, and into more than 128 datagrams.

use txq::flow::layout::Layout;

use crate::vnet::{self, Vnet};

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
    let virtio = Vnet::new(layout, packet, 0).to_bytes();
    let (size, last) = (usize::from(size), payload.len().div_ceil(size.into()) - 1);
    for (number, part) in payload.chunks(size).enumerate() {
        headers.copy_from_slice(all_headers);
        layout.set_segment(&mut headers, part.len(), number, number * size, number == last);
        let partial = vnet::partial(layout, &headers, part.len());
        headers[layout.checksum_at()..][..2].copy_from_slice(&partial);
        send(&virtio, &headers, part)?;
    }
    Ok(())
}
