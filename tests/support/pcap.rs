//! A capture that the test makes: UDP frames, and the file that holds them.

use std::path::Path;

use etherparse::PacketBuilder;
use txq_device::Capture;

/// The link types of captures: Ethernet, and packets that begin with IP.
pub(crate) const ETHERNET: u32 = 1;
pub(crate) const RAW: u32 = 101;

/// The flows of the frames.
pub(crate) const FLOWS: u32 = 40;

/// Returns UDP frames of [`FLOWS`] flows in turn, each with a number of its own.
pub(crate) fn frames(count: u32) -> Vec<Vec<u8>> {
    let frame = |n: u32| {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
            .udp(1024 + (n % FLOWS) as u16, 9);
        let mut payload = n.to_be_bytes().to_vec();
        payload.resize(20 + (n * 7 % 1400) as usize, 0);
        let mut frame = Vec::new();
        builder.write(&mut frame, &payload).expect("a frame");
        frame
    };
    (0..count).map(frame).collect()
}

/// Returns a pcap file of the frames, which come `gap` microseconds after each other.
pub(crate) fn pcap(frames: &[Vec<u8>], link: u32, gap: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut words = |words: &[u32], data: &[u8]| {
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(data);
    };
    words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link], &[]);
    for (n, frame) in (0..).zip(frames) {
        let (at, len) = (n * gap, frame.len() as u32);
        words(&[at / 1_000_000, at % 1_000_000, len, len], frame);
    }
    bytes
}

/// Returns the frames of a file.
pub(crate) fn read(file: impl AsRef<Path>) -> Vec<Vec<u8>> {
    let capture = Capture::open(file).expect("a capture");
    let (mut frames, mut all) = (capture.frames(), Vec::new());
    while frames.advance().expect("a frame") {
        all.push(frames.frame().data.to_vec());
    }
    all
}
