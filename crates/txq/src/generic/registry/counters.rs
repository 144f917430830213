//! A sender's counters, which other threads read.
//!
//! Only the sender writes them, by plain loads and stores on a line of its own. The drops of its packets are counted at its
//! home in the pool (`pool/fate.rs`). Both together are the sender's row in the counters of the device.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::drop::DropCounts;
use txq_core::pool::fate::Tally;
use txq_core::pool::{AllocError, Cache};
use txq_core::stats::log2::Log2;
use txq_core::sync::words::AtomicWords;

use crate::generic::stats::device::{SampledTimes, SenderStats};

/// A sender's counters. Only the sender stores them. All accesses are relaxed: other threads only display them, except
/// `submitted`.
pub(crate) struct SenderCounters<A: Arch> {
    name: String,
    line: CachePadded<Line<A>>,
    /// How many calls of xmit took how long, by [`Log2`]'s buckets; empty unless that is measured.
    times: AtomicWords<A>,
    tally: Tally<A>,
}

/// The words of a sender, which only the sender writes.
struct Line<A: Arch> {
    /// Packets handed in. Stored before the packets enter a queue. The hand-over orders the store before a reader that finds
    /// the packets in the queue, so such a reader finds them counted here (`Shared::totals`).
    submitted: A::AtomicU64,
    /// After the last call of xmit: buffers out (upper 32 bits), and the number of packets freed elsewhere that goes with it
    /// (lower 32 bits; [`Tally::pending`]). One word, so that a reader finds a matching pair.
    credit: A::AtomicU64,
    /// Refused calls of alloc: `exhausted` because the pool had no buffer, `limited` because the sender was at its limit.
    exhausted: A::AtomicU64,
    limited: A::AtomicU64,
    /// Calls of xmit that were measured, and the longest of them, in nanoseconds.
    measured: A::AtomicU64,
    longest: A::AtomicU64,
}

/// Adds `n` to a word that only the caller writes.
#[inline]
fn add<T: Atomic<u64>>(word: &T, n: u64) {
    word.store(word.load(Relaxed) + n, Relaxed);
}

impl<A: Arch> SenderCounters<A> {
    pub(crate) fn new(name: &str, times: bool, cache: &Cache<A>) -> Self {
        let word = || A::AtomicU64::new(0);
        let line = Line {
            submitted: word(),
            credit: word(),
            exhausted: word(),
            limited: word(),
            measured: word(),
            longest: word(),
        };
        let buckets = if times { Log2::BUCKETS } else { 0 };
        let (name, tally) = (name.to_owned(), cache.tally());
        Self { name, line: CachePadded::new(line), times: AtomicWords::new(buckets, 0), tally }
    }

    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self) {
        A::name(&self.line, "sender: packets handed in");
        self.times.name_lines("sender: times of xmit");
    }

    /// Returns the number of packets handed in.
    #[inline]
    pub(crate) fn submitted(&self) -> u64 {
        self.line.submitted.load(Relaxed)
    }

    /// Counts `n` packets as handed in.
    #[inline]
    pub(crate) fn submit(&self, n: u64) {
        add(&self.line.submitted, n);
    }

    /// Publishes the sender's credit at the end of a call of xmit.
    #[inline]
    pub(crate) fn settle(&self, cache: &Cache<A>) {
        let (out, seen) = cache.credit();
        self.line.credit.store(u64::from(out) << 32 | u64::from(seen), Relaxed);
    }

    /// Counts a refused call of alloc.
    #[cold]
    pub(crate) fn refused(&self, error: &AllocError) {
        match error {
            AllocError::Limit { .. } => add(&self.line.limited, 1),
            AllocError::Exhausted { .. } | AllocError::Reserved { .. } => add(&self.line.exhausted, 1),
            _ => {}
        }
    }

    /// Records that a call of xmit took `time`.
    pub(crate) fn took(&self, time: Nanos) {
        add(&self.line.measured, 1);
        if time > self.line.longest.load(Relaxed) {
            self.line.longest.store(time, Relaxed);
        }
        if self.times.iter().next().is_some() {
            add(self.times.at(Log2::index(time)), 1);
        }
    }

    /// Adds the times of all measured calls to `to`.
    pub(crate) fn add_times(&self, to: &mut Log2) {
        self.times.iter().enumerate().for_each(|(index, count)| to.add_to_bucket(index, count.load(Relaxed)));
    }

    /// Returns how many packets of the sender were dropped.
    #[inline]
    pub(crate) fn dropped(&self) -> u64 {
        self.tally.dropped()
    }

    /// Wakes the sender if it waits for credit or for a buffer.
    pub(crate) fn wake_to_recheck(&self) {
        self.tally.wake_to_recheck();
    }

    /// Returns whether the home is still this sender's, so that its row can be computed again.
    pub(crate) fn is_current(&self) -> bool {
        self.tally.is_current()
    }

    /// Returns the sender's drops if the sender of `next` has moved into its home after it.
    pub(crate) fn final_drops(&self, next: &Tally<A>) -> Option<DropCounts> {
        self.tally.final_drops(next)
    }

    /// Returns the sender's row.
    pub(crate) fn stats(&self, alive: bool) -> SenderStats {
        let credit = self.line.credit.load(Relaxed);
        // `pending` first: a packet dropped between the two loads may then count in both, and is never missed. `sent` is the
        // rest, so that the sum is right.
        let pending = u64::from(self.tally.pending((credit >> 32) as u32, credit as u32));
        let accepted = self.submitted();
        let dropped = self.tally.dropped().min(accepted);
        let pending = pending.min(accepted - dropped);
        let measured = self.line.measured.load(Relaxed);
        let latency = self.tally.times().and_then(|times| {
            let (samples, quantiles) = times.summary([0.5, 0.99]);
            let [p50, p99] = quantiles.map(Duration::from_nanos);
            (samples > 0).then_some(SampledTimes { samples, p50, p99 })
        });
        SenderStats {
            name: self.name.clone(),
            alive,
            accepted,
            sent: accepted - dropped - pending,
            dropped,
            drops: self.tally.drops(),
            pending,
            no_buffer: self.line.exhausted.load(Relaxed),
            at_limit: self.line.limited.load(Relaxed),
            latency,
            measured_calls: measured,
            longest_call: (measured > 0).then(|| Duration::from_nanos(self.line.longest.load(Relaxed))),
        }
    }
}
