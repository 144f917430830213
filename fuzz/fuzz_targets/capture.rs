//! Capture files: any bytes are frames or one error that says where, and reading ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use txq_device::Capture;

fuzz_target!(|file: &[u8]| {
    let Ok(capture) = Capture::from_bytes("fuzz", file) else { return };
    let mut frames = capture.frames();
    let mut bytes = 0;
    loop {
        match frames.advance() {
            Ok(true) => bytes += frames.frame().data.len(),
            Ok(false) => break,
            Err(error) => return assert!(!error.to_string().contains('\n')),
        }
    }
    assert!(bytes <= file.len());
});
