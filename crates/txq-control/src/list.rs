//! The sockets of the runtime folder, and the programs behind them.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::{Client, Error, Info, Place, place, runtime_folder};

/// Whether a program serves a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// A program answers.
    Live,
    /// A program listens, and does not answer in time.
    Silent,
    /// A program listens, and speaks another version of the protocol, or refuses.
    Refused,
    /// The socket is another user's.
    Denied,
    /// The program is dead. The next server of this name replaces the socket.
    Stale,
}

impl State {
    /// Returns the state as `txq ls` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Silent => "silent",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Stale => "stale",
        }
    }
}

/// A program, as its socket shows it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Program {
    /// The name; `None` for a socket outside the runtime folder.
    pub name: Option<String>,
    /// The path.
    pub path: PathBuf,
    /// Whether a program serves it.
    pub state: State,
    /// The process, if the system names it.
    pub pid: Option<u32>,
    /// The program and its devices, for a live one.
    pub info: Option<Info>,
}

/// Returns the sockets of the runtime folder, by name. The call waits `timeout` for each program.
///
/// # Errors
/// [`Error::Socket`] if the folder exists and cannot be read.
pub fn list(timeout: Duration) -> Result<Vec<Program>, Error> {
    list_folder(&runtime_folder(), timeout)
}

/// Returns the sockets of a folder whose names end in `.sock`, by name.
///
/// # Errors
/// Those of [`list`].
pub fn list_folder(folder: &Path, timeout: Duration) -> Result<Vec<Program>, Error> {
    let files = match fs::read_dir(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::socket(folder, "the folder cannot be read")(error)),
    };
    let is_socket =
        |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let paths = files.filter_map(|file| file.ok().map(|file| file.path()));
    let mut paths: Vec<_> = paths.filter(|path| place::name_of(path).is_some()).filter(is_socket).collect();
    paths.sort();
    Ok(paths.iter().map(|path| probe(path, timeout)).collect())
}

/// Asks the program behind a socket, and returns what is known of it.
pub fn probe(path: &Path, timeout: Duration) -> Program {
    let name = place::name_of(path).filter(|_| path.parent() == Some(&runtime_folder()));
    let found = |state, pid, info| Program { name: name.clone(), path: path.to_owned(), state, pid, info };
    let mut client = match Client::connect_within(Place::from(path), timeout) {
        Ok(client) => client,
        Err(Error::NotRunning(_)) => return found(State::Stale, None, None),
        Err(Error::Denied(_)) => return found(State::Denied, None, None),
        Err(_) => return found(State::Silent, None, None),
    };
    let pid = client.pid();
    match client.info() {
        Ok(info) => found(State::Live, Some(info.pid), Some(info)),
        Err(Error::Refused { .. }) => found(State::Refused, pid, None),
        Err(_) => found(State::Silent, pid, None),
    }
}
