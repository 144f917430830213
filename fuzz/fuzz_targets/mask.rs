//! CPU masks: whatever is accepted is printed in the kernel's form, and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use txq::cpumask::CpuMask;

fuzz_target!(|data: (u16, &[u8])| {
    let (ids, text) = data;
    let ids = usize::from(ids % 1100) + 1;
    if let Ok(mask) = CpuMask::parse(text, ids) {
        assert!(mask.iter().all(|id| id < ids));
        assert_eq!(CpuMask::parse(mask.format(ids), ids).as_ref(), Ok(&mask));
    }
    let _ = CpuMask::parse_list(text, ids);
});
