//! Why a machine cannot be had.

use std::io;

use super::Machine;

/// Why a machine cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// No machine of that name is built in.
    #[error("there is no machine \"{name}\": use one of {known}, or the path of a file")]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("machine file {file}: {source}; `txq sim machines NAME` prints one to start from")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// The text is not TOML, or not that of a machine.
    #[error("machine file {file}, line {line}: {what}; `txq sim machines NAME` prints one to compare with")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A number that cannot be.
    #[error("machine file {file}: {field} = {value}: {remedy}")]
    Field {
        /// The file.
        file: String,
        /// The number's name, with its table's.
        field: &'static str,
        /// The number.
        value: f64,
        /// What it may be.
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
