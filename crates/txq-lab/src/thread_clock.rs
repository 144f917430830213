//! The CPU clocks of the process's threads.
//!
//! Linux adds the time of a running thread to the process's CPU time at its timer's ticks, 4 ms apart or 10, and when its clock is
//! read. So the process's clock alone is late by up to a tick for each thread that runs on another CPU.

#![allow(unsafe_code)]

use std::fs;

/// Brings the CPU times of all threads of the process up to date. Does nothing without /proc.
pub(crate) fn update() {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).for_each(read);
}

/// Reads the CPU clock of the thread `tid`, which updates it. A thread that has ended has none.
fn read(tid: libc::clockid_t) {
    /// The kernel's number of a thread's clock of time on a CPU (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED).
    const OF_THREAD: libc::clockid_t = 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes the time, or refuses the clock and writes nothing.
    unsafe { libc::clock_gettime(!tid << 3 | OF_THREAD, &raw mut time) };
}
