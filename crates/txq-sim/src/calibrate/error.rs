//! Why a machine cannot be measured.

use std::io;

use txq::topology::TopologyError;

use crate::machine::MachineError;

/// Why a machine cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// Its CPUs are not described.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The machine that should fill in what is missing is none, or what was measured is none.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The system refuses something.
    #[error("calibrate: {what}: {source}; {remedy}")]
    Refused {
        /// What.
        what: String,
        /// What the system says.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Something was never seen to happen in the time there was.
    #[error("calibrate: {what} was not measured once; measure for longer, with less else running")]
    Nothing {
        /// What.
        what: &'static str,
    },
}

impl CalibrateError {
    /// The system refuses a thread.
    pub(super) fn thread(source: io::Error) -> Self {
        let remedy = "allow more threads, as by ulimit -u";
        Self::Refused { what: "a thread does not start".into(), source, remedy }
    }
}
