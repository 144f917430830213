//! IPv4 frames for the tests.

use txq_core::packet::Packet;

use crate::generic::qdisc::codel::tests::bench::Bench;

pub(super) struct Frame {
    pub(super) len: usize,
    pub(super) src: [u8; 4],
    pub(super) dst: [u8; 4],
    pub(super) ports: (u16, u16),
    pub(super) tos: u8,
}

impl Default for Frame {
    fn default() -> Self {
        Self { len: 100, src: [10, 0, 0, 1], dst: [10, 0, 0, 2], ports: (1, 9), tos: 0 }
    }
}

impl Frame {
    /// Returns a UDP frame, or the beginning of one, without a hash.
    pub(super) fn packet(&self, bench: &mut Bench) -> Packet {
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, self.tos]);
        bytes.extend((self.len.saturating_sub(14) as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        bytes.extend(self.src);
        bytes.extend(self.dst);
        bytes.extend(self.ports.0.to_be_bytes());
        bytes.extend(self.ports.1.to_be_bytes());
        bytes.extend([0; 4]);
        let sum = !sum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        write(bench, self.len, &bytes)
    }
}

fn write(bench: &mut Bench, len: usize, bytes: &[u8]) -> Packet {
    let mut packet = bench.packet(len, 0);
    packet.data_mut().fill(0);
    let known = len.min(bytes.len());
    packet.data_mut()[..known].copy_from_slice(&bytes[..known]);
    packet
}

/// Returns a TCP frame without options that acknowledges up to `ack`. With a `len` above 54 bytes it carries data.
pub(super) fn tcp(bench: &mut Bench, ack: u32, len: usize) -> Packet {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((len as u16 - 14).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 0, 90, 0, 0, 0, 7]);
    bytes.extend(ack.to_be_bytes());
    bytes.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    write(bench, len, &bytes)
}

/// Returns the ones' complement sum of a header.
fn sum(header: &[u8]) -> u16 {
    let sum = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// Returns whether the header's checksum is right.
pub(super) fn is_right(frame: &[u8]) -> bool {
    sum(&frame[14..34]) == 0xffff
}
