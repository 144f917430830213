//! Errors of scenarios.

use std::io;

use thiserror::Error;

/// Why a scenario cannot be run.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The name is neither a built-in scenario nor a readable file.
    #[error("\"{name}\" is no file that can be read ({source}), and no scenario of {known}")]
    File {
        /// The given name.
        name: String,
        /// The known names.
        known: String,
        /// The system's error.
        source: io::Error,
    },
    /// The text is not TOML, or a field has another type or name.
    #[error("{file}: {source}")]
    Toml {
        /// The file.
        file: String,
        /// The problem, and where.
        source: Box<toml::de::Error>,
    },
    /// A value is invalid.
    #[error("{file}: {why}")]
    Wrong {
        /// The file, or the scenario's name.
        file: String,
        /// The problem, and what to use instead.
        why: String,
    },
}
