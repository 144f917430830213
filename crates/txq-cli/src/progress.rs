//! The progress of a run: one line a second, on stderr.

use std::time::{Duration, Instant};

use crate::common::rate::metric;
use crate::common::tell::Tell;
use txq::NetDev;

const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Prints the progress line once a second.
pub(crate) struct Progress {
    line: Tell,
    start: Instant,
    last: Instant,
    sent: (u64, u64),
}

impl Progress {
    pub(crate) fn new(quiet: bool, start: Instant) -> Self {
        Self { line: Tell::new(quiet), start, last: start, sent: (0, 0) }
    }

    /// Prints a line with the counters of `devices` if a second has passed since the last line; nothing if quiet.
    pub(crate) fn tell<'a>(&mut self, devices: impl Iterator<Item = &'a NetDev>) {
        let since = self.last.elapsed();
        if self.line.is_quiet() || since < PROGRESS_PERIOD {
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
        self.line.print(&line);
    }

    /// Ends the last line on a terminal, so that it stays visible.
    pub(crate) fn end(self) {
        self.line.keep();
    }
}
