//! Progress on stderr: one line that changes on a terminal, a line a second elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::case::Key;

const EVERY: Duration = Duration::from_secs(1);

/// The progress line, for `all` measurements.
pub(crate) struct Tell {
    quiet: bool,
    terminal: bool,
    all: usize,
    done: usize,
    last: Option<Instant>,
}

impl Tell {
    pub(crate) fn new(quiet: bool, all: usize) -> Self {
        Self { quiet, terminal: io::stderr().is_terminal(), all, done: 0, last: None }
    }

    /// Prints the measurement that runs next.
    pub(super) fn next(&mut self, key: &Key) {
        let threads = if key.threads == 1 { "thread" } else { "threads" };
        let qdisc = key.qdisc.as_deref().unwrap_or_default();
        self.done += 1;
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
        self.say(&line);
    }

    /// Prints a line. Unless stderr is a terminal, skips lines within a second of the last one.
    pub(crate) fn say(&mut self, line: &str) {
        let recent = !self.terminal && self.last.is_some_and(|last| last.elapsed() < EVERY);
        if self.quiet || recent {
            return;
        }
        self.last = Some(Instant::now());
        // A closed stderr is no failure: progress is optional.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
    }

    /// Clears the line.
    pub(crate) fn end(self) {
        if self.terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
