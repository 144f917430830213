//! How late the packets of a timed or shaped queue leave: the time from a queue's timer to the batch that it was set for.
//!
//! The owner notes when the qdisc wants to be asked again, which it knows anyway, and compares that time with the clock reading
//! of the batch that leaves then. So a batch costs a comparison, and one behind a timer an increment besides; no packet costs
//! anything of its own.

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::stats::log2::Log2;

/// The lateness of a queue's timed departures. Lies in the queue's core.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// When the qdisc has a packet to send; 0 while it waits for no time.
    due: Nanos,
    /// The delays so far, in nanoseconds; `None` before the first one.
    times: Option<Box<Log2>>,
}

impl Lateness {
    /// Notes that no packet leaves before `due`; `None` if the queue waits for another reason.
    #[inline]
    pub(crate) fn wait(&mut self, due: Option<Nanos>) {
        self.due = due.unwrap_or(0);
    }

    /// Records the delay of a batch that leaves, if it has waited for its time.
    #[inline]
    pub(crate) fn leave<A: Arch>(&mut self, clock: &mut Clock<A>) {
        if self.due != 0 {
            self.record(clock.now());
        }
    }

    #[cold]
    fn record(&mut self, now: Nanos) {
        // A batch that leaves earlier has not waited: another packet has the time.
        if now >= self.due {
            self.times.get_or_insert_default().record(now - self.due);
            self.due = 0;
        }
    }

    /// Adds the delays to `sum`.
    pub(crate) fn add_to(&self, sum: &mut Log2) {
        self.times.iter().for_each(|times| sum.merge(times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txq_core::arch::Native;

    fn leave(lateness: &mut Lateness, now: Nanos) -> Vec<(u64, u64)> {
        lateness.leave(&mut Clock::<Native>::at(now));
        let mut all = Log2::new();
        lateness.add_to(&mut all);
        all.buckets().filter(|bucket| bucket.count > 0).map(|bucket| (bucket.min, bucket.count)).collect()
    }

    #[test]
    fn only_the_batch_of_the_timer_counts() {
        let mut lateness = Lateness::default();
        assert_eq!(leave(&mut lateness, 50), []);
        lateness.wait(Some(100));
        assert_eq!(leave(&mut lateness, 99), [], "another packet");
        assert_eq!(leave(&mut lateness, 105), [(4, 1)]);
        assert_eq!(leave(&mut lateness, 900), [(4, 1)], "the next batch has not waited");
        lateness.wait(Some(1000));
        lateness.wait(None);
        assert_eq!(leave(&mut lateness, 2000), [(4, 1)], "the queue was emptied");
        lateness.wait(Some(3000));
        assert_eq!(leave(&mut lateness, 3000), [(0, 1), (4, 1)]);
    }
}
