//! The progress of a run of measurements.

use txq_cli::common::tell::Tell;

use super::case::Key;

/// The progress line, for `all` measurements.
pub(crate) struct Turns {
    line: Tell,
    all: usize,
    done: usize,
}

impl Turns {
    pub(crate) fn new(quiet: bool, all: usize) -> Self {
        Self { line: Tell::new(quiet), all, done: 0 }
    }

    /// Prints the measurement that runs next.
    pub(crate) fn next(&mut self, key: &Key) {
        let threads = if key.threads == 1 { "thread" } else { "threads" };
        let qdisc = key.qdisc.as_deref().unwrap_or_default();
        self.done += 1;
        // More may turn out to be needed than were announced.
        self.all = self.all.max(self.done);
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
        self.line.say(&line);
    }

    /// Clears the line.
    pub(crate) fn end(self) {
        self.line.end();
    }
}
