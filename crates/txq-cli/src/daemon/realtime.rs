//! The real-time priority of the threads that move packets: workers, bridges, replays and senders. Threads that serve commands have
//! none, so a long command keeps no program from the CPU.

use crate::common::failure::refused;
use txq_device::set_realtime;

/// The priority that `--rt` asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Realtime(Option<u8>);

impl Realtime {
    /// Returns the priority; an error if the daemon may not have it.
    pub(super) fn of(asked: Option<u8>) -> anyhow::Result<Self> {
        let realtime = Self(asked);
        realtime.hold().map(drop)?;
        Ok(realtime)
    }

    /// Gives the calling thread the priority, and so the threads that it starts, until the result is dropped.
    pub(super) fn hold(self) -> anyhow::Result<Held> {
        if let Some(priority) = self.0 {
            set_realtime(Some(priority)).map_err(refused(format!(
                "--rt {priority}: only root, programs with CAP_SYS_NICE and those with as much `ulimit -r` may have it"
            )))?;
        }
        Ok(Held(self.0.is_some()))
    }
}

/// The time in which the calling thread has the priority.
#[derive(Debug)]
pub(super) struct Held(bool);

impl Drop for Held {
    fn drop(&mut self) {
        if self.0 {
            // Every thread may have none.
            let _ = set_realtime(None);
        }
    }
}
