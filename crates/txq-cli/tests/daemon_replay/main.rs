//! The daemon's `[[replay]]`s: what they send, the file's keys, and reload.

#[path = "../socket/bench.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod bench;
#[path = "../../../../tests/support/check.rs"]
mod check;
#[path = "../../../../tests/support/netns.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod netns;
#[path = "../../../../tests/support/offload.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod offload;
#[path = "../../../../tests/support/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../../tests/support/skip.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod skip;
#[path = "../../../../tests/support/tempdir.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod tempdir;

mod keys;
mod play;
mod reload;

use etherparse::PacketBuilder;

/// Time between two frames of a capture, in microseconds.
pub(crate) const GAP: u32 = 100;

/// Returns UDP frames of 40 flows in turn, each with a number of its own.
pub(crate) fn frames(count: u32) -> Vec<Vec<u8>> {
    let frame = |n: u32| {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
            .udp(1024 + (n % 40) as u16, 9);
        let mut payload = n.to_be_bytes().to_vec();
        payload.resize(20 + (n * 7 % 1400) as usize, 0);
        let mut frame = Vec::new();
        builder.write(&mut frame, &payload).expect("a frame");
        frame
    };
    (0..count).map(frame).collect()
}

/// The link types of captures: Ethernet, and packets that begin with IP.
pub(crate) const ETHERNET: u32 = 1;
pub(crate) const RAW: u32 = 101;

pub(crate) fn pcap(frames: &[Vec<u8>], link: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut words = |words: &[u32], data: &[u8]| {
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(data);
    };
    words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link], &[]);
    for (n, frame) in (0..).zip(frames) {
        let (at, len) = (n * GAP, frame.len() as u32);
        words(&[at / 1_000_000, at % 1_000_000, len, len], frame);
    }
    bytes
}
