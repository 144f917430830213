//! Which measurement is running, on stderr: one line that changes on a terminal, a line a second elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::case::Key;

const EVERY: Duration = Duration::from_secs(1);

pub(super) struct Tell {
    quiet: bool,
    terminal: bool,
    all: usize,
    done: usize,
    last: Option<Instant>,
}

impl Tell {
    pub(super) fn new(quiet: bool, all: usize) -> Self {
        Self { quiet, terminal: io::stderr().is_terminal(), all, done: 0, last: None }
    }

    /// Tells what is measured next.
    pub(super) fn next(&mut self, key: &Key) {
        self.done += 1;
        let recent = !self.terminal && self.last.is_some_and(|last| last.elapsed() < EVERY);
        if self.quiet || recent {
            return;
        }
        self.last = Some(Instant::now());
        let threads = if key.threads == 1 { "thread" } else { "threads" };
        let qdisc = key.qdisc.as_deref().unwrap_or_default();
        let line = format!(
            "{}/{} {}: {} {qdisc}{}, {} {threads}, batch {}",
            self.done,
            self.all,
            key.suite,
            key.subject(),
            key.demand(),
            key.threads,
            key.batch
        );
        // Progress that nobody reads any more is no failure.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
    }

    /// Clears the line.
    pub(super) fn end(self) {
        if self.terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
