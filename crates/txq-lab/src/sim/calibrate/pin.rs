//! Pins threads to CPUs, and lists the CPUs that this process may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::CalibrateError;

/// Returns the CPUs that this thread may use.
pub(super) fn allowed() -> Result<Vec<u32>, CalibrateError> {
    let set = sched_getaffinity(None).map_err(|error| CalibrateError::Refused {
        what: "the CPUs of this process cannot be read".into(),
        source: error.into(),
        remedy: "allow sched_getaffinity",
    })?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// Pins the calling thread to a CPU.
pub(super) fn pin_to(cpu: u32) -> Result<(), CalibrateError> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).map_err(|error| CalibrateError::Refused {
        what: format!("CPU {cpu} cannot be used"),
        source: error.into(),
        remedy: "leave the CPUs online and this process's cpuset as it is meanwhile",
    })
}

/// Runs `work` on a new thread pinned to a CPU; returns its result.
pub(super) fn on<T: Send>(
    cpu: u32,
    work: impl FnOnce() -> Result<T, CalibrateError> + Send,
) -> Result<T, CalibrateError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
            pin_to(cpu)?;
            work()
        });
        join(thread.map_err(CalibrateError::thread)?)
    })
}

/// Joins a thread; returns its result, or continues its panic.
pub(super) fn join<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, CalibrateError>>,
) -> Result<T, CalibrateError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
