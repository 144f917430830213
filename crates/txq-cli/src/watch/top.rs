//! `txq top`: the queues of a running program in a terminal, and as one table.

mod columns;
mod draw;
mod history;
mod keys;
mod once;
mod rates;
mod sampler;
mod screen;
mod state;
#[cfg(test)]
mod testing;
mod tree;
mod units;

use std::io;
use std::time::Duration;

use txq_control::{Client, Place};

use crate::watch::select::Selection;
use crate::watch::snapshot::Snapshot;

pub use once::once;
pub use screen::run;

/// The program to watch, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its socket.
    pub place: Place,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// The time between two snapshots.
    pub delay: Duration,
    /// Whether colours may be used.
    pub colour: bool,
    /// The devices and queues to show.
    pub selection: Selection,
}

impl Options {
    fn connect(&self) -> Result<Client, txq_control::Error> {
        Client::connect_within(self.place.clone(), self.timeout)
    }

    /// Takes a snapshot of the program; returns the chosen devices and queues.
    fn snapshot(&self, client: &mut Client) -> Result<Snapshot, txq_control::Error> {
        let snapshot = Snapshot::take(client)?;
        Ok(self.selection.of(&snapshot).into_owned())
    }
}

/// Why watching ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program cannot be reached.
    #[error(transparent)]
    Program(#[from] txq_control::Error),
    /// There is no terminal.
    #[error("stdout is no terminal: run it in one, or print one table with --once")]
    NoTerminal,
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}: print one table with --once")]
    Terminal(#[from] io::Error),
    /// A thread cannot be started, or ended by a panic.
    #[error("the thread that asks the program {0}")]
    Thread(String),
}
