//! Frames: any bytes have a flow, and the same bytes the same one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use txq::flow::{FlowHasher, dissect};

fuzz_target!(|frame: &[u8]| {
    let hasher = FlowHasher::new([1, 2], true);
    let flow = dissect(frame);
    assert!(usize::from(flow.network_offset) <= frame.len().max(14));
    assert_ne!(hasher.hash(&flow.keys), 0);
    assert_eq!(hasher.hash(&dissect(frame).keys), hasher.hash(&flow.keys));
});
