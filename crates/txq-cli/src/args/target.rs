//! Options that name a running program.

use std::path::PathBuf;

use crate::common::span::Span;

/// The place of a program's socket.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct At {
    /// Name of the socket, in $XDG_RUNTIME_DIR/txq or /run/txq [default: control]
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    pub(crate) name: Option<String>,
    /// Path of the socket [default: $XDG_RUNTIME_DIR/txq/control.sock, or /run/txq/control.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// A running program to reach.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) at: At,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = TIMEOUT)]
    pub(crate) timeout: Span,
}

const TIMEOUT: &str = "10s";

impl Default for Target {
    fn default() -> Self {
        Self { at: At::default(), timeout: TIMEOUT.parse().expect("a time") }
    }
}

/// A running program to record, instead of a workload.
#[derive(Debug, clap::Args)]
pub(crate) struct RunningArgs {
    /// Record the running program of this name (`txq ls`), and send nothing
    #[arg(long, value_name = "NAME", conflicts_with_all = ["socket", "file", "discipline", "spin_us"])]
    pub(crate) name: Option<String>,
    /// Record the running program of this socket, and send nothing
    #[arg(long, value_name = "PATH", conflicts_with_all = ["file", "discipline", "spin_us"])]
    pub(crate) socket: Option<PathBuf>,
    /// Record only this device of the running program
    #[arg(long, value_name = "NAME")]
    pub(crate) dev: Option<String>,
    /// How long to wait for the running program's answer, after the recording
    #[arg(long, value_name = "TIME", default_value = TIMEOUT)]
    pub(crate) timeout: Span,
}
