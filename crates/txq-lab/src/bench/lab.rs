//! State that all measurements of a run share: the machine's CPUs, the speed of its loops, the signals.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use txq_cli::common::failure::refused;
use txq_cli::common::stop::Signals;

use super::work::Calibration;

/// The longest sleep between two checks for signals.
const LONGEST_SIGNAL_SLEEP: Duration = Duration::from_millis(10);

/// The laboratory.
pub(super) struct Lab {
    /// The CPUs that the process may use, at least one.
    pub(super) cpus: Vec<u32>,
    pub(super) calibration: Calibration,
    /// Whether each sender stays on one CPU, assigned round robin.
    pub(super) pin: bool,
    pub(super) signals: Signals,
}

impl Lab {
    pub(super) fn new(pin: bool) -> anyhow::Result<Self> {
        Ok(Self { cpus: cpus()?, calibration: Calibration::measure(), pin, signals: Signals::catch()? })
    }

    /// Returns the CPU of the thread number `index`, round robin.
    pub(super) fn cpu(&self, index: usize) -> u32 {
        self.cpus[index % self.cpus.len()]
    }

    /// Returns the last CPU, for work that needs a CPU apart from the senders.
    pub(super) fn last_cpu(&self) -> u32 {
        self.cpus[self.cpus.len() - 1]
    }

    /// Sleeps; returns whether for the whole time, `false` if a signal ended the sleep.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.signals.seen().is_some() {
                return false;
            }
            std::thread::sleep(left.min(LONGEST_SIGNAL_SLEEP));
        }
        self.signals.seen().is_none()
    }
}

/// Returns the CPUs that the process may use, at least one.
pub(super) fn cpus() -> anyhow::Result<Vec<u32>> {
    let set = sched_getaffinity(None).map_err(refused("the CPUs of this process cannot be read"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// Pins the calling thread to a CPU.
pub(super) fn pin_to(cpu: u32) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).map_err(refused(format!("CPU {cpu} cannot be used")))
}
