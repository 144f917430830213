//! Progress on stderr: one line that changes on a terminal, lines of their own elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The time between two lines where stderr is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// The progress line.
#[derive(Debug)]
pub struct Tell {
    quiet: bool,
    /// Whether stderr is a terminal, where each line replaces the previous one.
    terminal: bool,
    /// The time of the last line that was printed.
    last: Option<Instant>,
}

impl Tell {
    /// Creates the line; a quiet one is never printed.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, terminal: io::stderr().is_terminal(), last: None }
    }

    /// Returns whether nothing is printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a line. Unless stderr is a terminal, skips lines within a second of the last one.
    pub fn say(&mut self, line: &str) {
        let recent = !self.terminal && self.last.is_some_and(|last| last.elapsed() < LINE_PERIOD);
        if !recent {
            self.print(line);
        }
    }

    /// Prints a line, however recent the last one is.
    pub fn print(&mut self, line: &str) {
        if self.quiet {
            return;
        }
        self.last = Some(Instant::now());
        // A closed stderr is no failure: progress is optional.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
    }

    /// Clears the line on a terminal.
    pub fn end(self) {
        self.finish("\r\x1b[K");
    }

    /// Ends the line on a terminal, so that it stays visible.
    pub fn keep(self) {
        self.finish("\n");
    }

    fn finish(self, text: &str) {
        if self.terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "{text}");
        }
    }
}
