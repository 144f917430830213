//! Real-time priority: no program without it delays a thread's timers.
//!
//! A worker that holds packets back until a time sleeps until then, and begins when the scheduler gives it a CPU. Beside busy programs
//! that may take milliseconds. Threads with real-time priority begin at once. Threads inherit it from the one that starts them:
//!
//! ```no_run
//! use txq::NetDev;
//! use txq_device::{Null, set_realtime};
//!
//! set_realtime(Some(10))?;
//! let dev = NetDev::builder(Null::new(1)).qdisc("tbf rate 10mbit burst 10k latency 50ms").start()?;
//! set_realtime(None)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;

/// Gives the calling thread a real-time priority from 1 to 99 (`SCHED_RR`), or none (`SCHED_OTHER`). Threads that it starts from now
/// on have the same.
///
/// # Errors
/// When the caller may not have the priority: only root, programs with CAP_SYS_NICE, and those with as much `ulimit -r` may.
pub fn set_realtime(priority: Option<u8>) -> io::Result<()> {
    let policy = priority.map_or(libc::SCHED_OTHER, |_| libc::SCHED_RR);
    let priority = libc::c_int::from(priority.unwrap_or(0));
    // SAFETY: the kernel reads one number, the priority (`struct sched_param`). Thread 0 is the calling one.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> (libc::c_int, libc::c_int) {
        let mut priority: libc::c_int = -1;
        // SAFETY: neither call writes more than the number behind the pointer.
        unsafe {
            let policy = libc::syscall(libc::SYS_sched_getscheduler, 0) as libc::c_int;
            assert_eq!(libc::syscall(libc::SYS_sched_getparam, 0, &raw mut priority), 0);
            (policy, priority)
        }
    }

    #[test]
    fn threads_inherit_the_priority() {
        assert_eq!(set_realtime(Some(100)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        if let Err(error) = set_realtime(Some(3)) {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            eprintln!("SKIP threads_inherit_the_priority: {error}");
            return;
        }
        let inherited = std::thread::spawn(policy).join().unwrap();
        set_realtime(None).unwrap();
        assert_eq!((inherited, policy()), ((libc::SCHED_RR, 3), (libc::SCHED_OTHER, 0)));
    }
}
