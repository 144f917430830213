//! A scenario that cannot be.

use std::io;

use thiserror::Error;

/// Why a scenario cannot be run.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// Neither a scenario that is built in nor a file that can be read.
    #[error("\"{name}\" is no file that can be read ({source}), and no scenario of {known}")]
    File {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
        /// What the system says.
        source: io::Error,
    },
    /// Not TOML, or a field of another type or name.
    #[error("{file}: {source}")]
    Toml {
        /// The file.
        file: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A value that cannot be.
    #[error("{file}: {why}")]
    Wrong {
        /// The file, or the scenario's name.
        file: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}
