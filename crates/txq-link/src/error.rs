//! What can be wrong with a link's text.

use txq_sched::scheduler::SchedulerError;
use txq_sched::tc::ParseError;

/// Why there is no such link, or no such change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A line is no part of a link's text.
    #[error("line {line}: {what}: {remedy}")]
    Text {
        /// The number of the line, from 1.
        line: usize,
        /// The fault.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A qdisc cannot be built.
    #[error("{qdisc}: {error}")]
    Qdisc {
        /// Its words.
        qdisc: String,
        /// tc's error.
        error: SchedulerError,
    },
    /// A command is wrong.
    #[error("{command}: {error}")]
    Command {
        /// Its words.
        command: String,
        /// tc's error.
        error: ParseError,
    },
    /// A command names a stage that the chain does not have.
    #[error(
        "{command}: {direction} has {stages} qdiscs in its chain, and not {stage}: name one of them, as dev {direction}"
    )]
    Stage {
        /// The command's words.
        command: String,
        /// The direction.
        direction: &'static str,
        /// The number of qdiscs in its chain.
        stages: usize,
        /// The number that the command names, from 1.
        stage: usize,
    },
    /// There is no preset of this name.
    #[error("there is no preset \"{name}\": use one of {known}")]
    Preset {
        /// The name.
        name: String,
        /// The names of all presets.
        known: String,
    },
}
