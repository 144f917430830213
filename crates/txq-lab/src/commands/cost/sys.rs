//! The CPU time of child processes.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;

/// CPU time in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuTime {
    pub(super) user: f64,
    pub(super) system: f64,
}

/// Returns the CPU time of all children that have ended and were waited for, and of theirs.
pub(super) fn of_children() -> io::Result<CpuTime> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes the struct, of which all zeros is a value.
    let (result, usage) = unsafe {
        let result = libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        (result, usage.assume_init())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let nanos = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    Ok(CpuTime { user: nanos(usage.ru_utime), system: nanos(usage.ru_stime) })
}
