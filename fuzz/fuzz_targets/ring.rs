//! A client's ring with any contents: the server accepts only frames that lie in the data, and never faults or panics.
#![no_main]

use std::os::fd::AsFd;

use libfuzzer_sys::fuzz_target;
use txq_control::socket::{Host, Layout};

/// The offsets of the producer's cursor and of the descriptors.
const PRODUCER: u64 = 128;
const DESCRIPTORS: u64 = 512;

fuzz_target!(|bytes: &[u8]| {
    let layout = Layout::new(8, 256, 6, txq::driver::Link::Ethernet).expect("in range");
    let mut host = Host::new(&layout).expect("memory");
    let fd = host.fd().as_fd().try_clone_to_owned().expect("a descriptor");
    let write = |bytes: &[u8], at: u64| {
        assert_eq!(rustix::io::pwrite(&fd, bytes, at).expect("in the memory"), bytes.len());
    };
    // Rounds of: a cursor or a step of it, and bytes at a place of the descriptors or of the whole memory.
    let mut cursor = 0_u32;
    for round in bytes.chunks(24) {
        let Ok(round) = <[u8; 24]>::try_from(round) else { return };
        let at = u16::from_ne_bytes([round[0], round[1]]);
        let at = if round[2] & 1 == 0 { DESCRIPTORS + u64::from(at % 8) * 16 } else { u64::from(at % 4096) };
        write(&round[8..], at);
        cursor = match round[2] >> 4 {
            0 => u32::from_ne_bytes(round[4..8].try_into().expect("four bytes")),
            step => cursor.wrapping_add(u32::from(step) % 9),
        };
        write(&cursor.to_ne_bytes(), PRODUCER);
        loop {
            match host.next() {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(Err(_))) => {}
                Ok(Some(Ok(frame))) => {
                    assert!((14..=256).contains(&frame.len()) && frame.priority() <= 6);
                    host.copy(&frame, &mut vec![0; frame.len()]);
                }
            }
        }
        let _ = host.release(0);
        if host.wait().is_err() {
            return;
        }
    }
});
