//! Why a machine cannot be loaded.

use std::io;

use super::Machine;

/// Why a machine cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// No built-in machine has that name.
    #[error("there is no machine \"{name}\": use one of {known}, or the path of a file")]
    Unknown {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The file cannot be read.
    #[error("machine file {file}: {source}; `txq sim machines NAME` prints one to start from")]
    Io {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The text is not TOML, or does not describe a machine.
    #[error("machine file {file}, line {line}: {what}; `txq sim machines NAME` prints one to compare with")]
    Syntax {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The problem.
        what: String,
    },
    /// A number is out of its bounds.
    #[error("machine file {file}: {field} = {value}: {remedy}")]
    Field {
        /// The file.
        file: String,
        /// The number's name, prefixed with its table's.
        field: &'static str,
        /// The number.
        value: f64,
        /// What to use instead.
        remedy: String,
    },
}

impl MachineError {
    pub(super) fn unknown(name: &str) -> Self {
        Self::Unknown { name: name.to_owned(), known: Machine::names().collect::<Vec<_>>().join(", ") }
    }

    pub(super) fn syntax(file: &str, text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        let line = 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        Self::Syntax { file: file.to_owned(), line, what }
    }
}
