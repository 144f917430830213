//! The progress of a run: one line a second, on stderr.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use txq::NetDev;

use crate::rate::metric;

const EVERY: Duration = Duration::from_secs(1);

/// Prints the progress line once a second.
pub(crate) struct Progress {
    /// Whether stderr is a terminal, where each line replaces the previous one.
    terminal: bool,
    quiet: bool,
    start: Instant,
    last: Instant,
    sent: (u64, u64),
    printed: bool,
}

impl Progress {
    pub(crate) fn new(quiet: bool, start: Instant) -> Self {
        let terminal = io::stderr().is_terminal();
        Self { terminal, quiet, start, last: start, sent: (0, 0), printed: false }
    }

    /// Prints a line with the counters of `devices` if a second has passed since the last line; nothing if quiet.
    pub(crate) fn tell<'a>(&mut self, devices: impl Iterator<Item = &'a NetDev>) {
        let since = self.last.elapsed();
        if self.quiet || since < EVERY {
            return;
        }
        self.last = Instant::now();
        let (mut sent, mut dropped, mut queued) = ((0, 0), 0, 0);
        for stats in devices.map(NetDev::stats) {
            sent = (sent.0 + stats.sent, sent.1 + stats.bytes_sent);
            dropped += stats.dropped.total();
            queued += stats.queued;
        }
        let rate = |now: u64, before: u64| (now - before) as f64 / since.as_secs_f64();
        let line = format!(
            "{:3.0} s  {}pps  {}bit/s  dropped {dropped}  queued {queued}",
            self.start.elapsed().as_secs_f64(),
            metric(rate(sent.0, self.sent.0)),
            metric(rate(sent.1, self.sent.1) * 8.0),
        );
        self.sent = sent;
        self.printed = true;
        // A closed stderr is no failure.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
    }

    /// Ends the last line on a terminal, so that it stays visible.
    pub(crate) fn end(self) {
        if self.terminal && self.printed {
            let _ = writeln!(io::stderr());
        }
    }
}
