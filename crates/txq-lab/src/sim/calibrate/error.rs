//! Why a machine cannot be measured.

use std::io;

use txq::topology::TopologyError;

use crate::sim::machine::MachineError;

/// Why a machine cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The kernel does not describe its CPUs.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The machine to fill in from is invalid, or the measured one is.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The system refuses an operation.
    #[error("calibrate: {what}: {source}; {remedy}")]
    Refused {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A measurement has no sample, because its event never occurred in the given time.
    #[error("calibrate: {what} was not measured once; measure for longer, with less else running")]
    Nothing {
        /// The field.
        what: &'static str,
    },
}

impl CalibrateError {
    /// Creates the error of a thread that does not start.
    pub(super) fn thread(source: io::Error) -> Self {
        let remedy = "allow more threads, as by ulimit -u";
        Self::Refused { what: "a thread does not start".into(), source, remedy }
    }
}
