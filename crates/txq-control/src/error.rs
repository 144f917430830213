//! Errors of servers and clients.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a server does not start, or a client gets no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is not one that a socket can have.
    #[error(
        "\"{0}\" cannot name a socket: use 1 to 64 of the characters a-z, A-Z, 0-9, _, - and ., no . first"
    )]
    Name(String),
    /// Another server has the socket.
    #[error("control socket {path}: another txq listens there{by}: end it, or use --socket with another path", by = process(*.pid))]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The process that serves it, if the lock file names one.
        pid: Option<u32>,
    },
    /// The socket, its folder or its lock file cannot be used.
    #[error("control socket {path}: {what}: {source}: use --socket with another path")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The step that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The system gives no thread or descriptor for the server.
    #[error("control socket {path}: the server does not start: {source}")]
    Start {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Two devices of one server have the same name.
    #[error("device \"{0}\" is served already: give each device of a server a name of its own")]
    SameDevice(String),
    /// The name is not one that a device or a scheduler can have.
    #[error("\"{0}\" cannot name a device: use 1 to 15 printable ASCII characters without blanks, / and :")]
    DeviceName(String),
    /// A command of tc failed.
    #[error("device \"{device}\", tc \"{command}\": {message}")]
    Command {
        /// The device.
        device: String,
        /// The command.
        command: String,
        /// The message of tc, and the remedy.
        message: String,
    },
    /// No server has the socket.
    #[error(
        "no txq listens on {0}: start `txq daemon`, or name its socket with --socket (`txq ls` lists them)"
    )]
    NotRunning(PathBuf),
    /// The socket's permissions exclude the caller.
    #[error("{0} is another user's: run the command as the user that started that txq")]
    Denied(PathBuf),
    /// The server did not answer in time.
    #[error("{path}: no answer within {timeout:?}: {why}", why = silent(*.pid, *.stopped))]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The time that the client waited.
        timeout: Duration,
        /// The server's process, if the system names it.
        pid: Option<u32>,
        /// Whether that process is stopped, as by SIGSTOP.
        stopped: bool,
    },
    /// The connection failed, or the answer cannot be parsed.
    #[error("{path}: {why}: is that txq still there?")]
    Lost {
        /// The socket.
        path: PathBuf,
        /// The failure.
        why: String,
    },
    /// The server refused the request.
    #[error("{path}: {why}")]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The server's message.
        why: String,
    },
}

impl Error {
    pub(crate) fn socket(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Socket { path, what, source }
    }

    pub(crate) fn start(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Start { path, source }
    }

    pub(crate) fn lost(path: &Path, why: impl ToString) -> Self {
        Self::Lost { path: path.to_owned(), why: why.to_string() }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

fn silent(pid: Option<u32>, stopped: bool) -> String {
    match pid {
        Some(pid) if stopped => format!("process {pid} is stopped: `kill -CONT {pid}` continues it"),
        Some(pid) => format!("process {pid} is busy or stuck: try again, or allow more with --timeout"),
        None => "its process is busy or stuck: try again, or allow more with --timeout".to_owned(),
    }
}
