//! What the crate needs of Linux and std does not have: the CPUs of the program, and precise sleeps of a thread.

use txq_core::cpumask::CpuMask;

/// Makes the calling thread sleep no longer than asked. By default a sleep may be 50 us longer; if that cannot be changed, it
/// stays so.
pub(crate) fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Returns the CPUs that the program may use, as far as the calling thread knows: a thread that is pinned to one CPU says nothing
/// about the others.
pub(crate) fn allowed_cpus() -> Option<CpuMask> {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity};
        let set = sched_getaffinity(None).ok()?;
        let cpus: CpuMask = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
        (cpus.len() > 1).then_some(cpus)
    }
    #[cfg(not(target_os = "linux"))]
    None
}
