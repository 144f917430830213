//! Capture files: any bytes are frames or one error that says where, and reading ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use txq_device::Capture;

fuzz_target!(|file: &[u8]| {
    let Ok(capture) = Capture::from_bytes("fuzz", file) else { return };
    let mut bytes = 0;
    for frame in capture.frames() {
        match frame {
            Ok(frame) => bytes += frame.data.len(),
            Err(error) => return assert!(!error.to_string().contains('\n')),
        }
    }
    assert!(bytes <= file.len());
});
