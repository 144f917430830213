//! What a sender counts, where others can read it.
//!
//! Only the sender writes these, by plain loads and stores on a line of its own. What became of its packets is at its home
//! in the pool (`pool/fate.rs`); the two together are its row in the counters of the device.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, Nanos};
use crate::pool::fate::Tally;
use crate::pool::{AllocError, Cache};
use crate::stats::device::{SampledTimes, SenderStats};
use crate::stats::log2::Log2;
use crate::sync::words::Words;

/// A sender's counters. All stores are the sender's, and relaxed: readers only show them.
pub(crate) struct SenderCounters<A: Arch> {
    name: String,
    line: CachePadded<Line<A>>,
    /// How many calls of xmit took how long, by [`Log2`]'s buckets; none where that is not measured.
    times: Words<A>,
    tally: Tally<A>,
}

/// What its sender writes at every call.
struct Line<A: Arch> {
    /// Packets handed in.
    submitted: A::AtomicU64,
    /// Buffers out after the last call, and below them the number of packets freed elsewhere that goes with it
    /// ([`Tally::pending`]).
    credit: A::AtomicU64,
    /// Calls of alloc that were refused because the pool had no buffer, and because the sender was at its limit.
    exhausted: A::AtomicU64,
    limited: A::AtomicU64,
    /// Calls of xmit that were measured, and the longest of them, in nanoseconds.
    measured: A::AtomicU64,
    longest: A::AtomicU64,
}

/// Adds to a word that the caller alone writes.
#[inline]
fn add<T: Atomic<u64>>(word: &T, n: u64) {
    word.store(word.load(Relaxed) + n, Relaxed);
}

impl<A: Arch> SenderCounters<A> {
    pub(super) fn new(name: &str, times: bool, cache: &Cache<A>) -> Self {
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
        Self { name, line: CachePadded::new(line), times: Words::new(buckets, 0), tally }
    }

    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(&self.line, "sender: packets handed in");
        self.times.name_lines("sender: times of xmit");
    }

    /// Packets handed in.
    #[inline]
    pub(crate) fn submitted(&self) -> u64 {
        self.line.submitted.load(Relaxed)
    }

    /// `n` packets are handed in.
    #[inline]
    pub(super) fn submit(&self, n: u64) {
        add(&self.line.submitted, n);
    }

    /// A call of xmit has ended.
    #[inline]
    pub(super) fn settle(&self, cache: &Cache<A>) {
        let (out, seen) = cache.credit();
        self.line.credit.store(u64::from(out) << 32 | u64::from(seen), Relaxed);
    }

    /// A call of alloc was refused.
    #[cold]
    pub(super) fn refused(&self, error: &AllocError) {
        match error {
            AllocError::Limit { .. } => add(&self.line.limited, 1),
            AllocError::Exhausted { .. } => add(&self.line.exhausted, 1),
            _ => {}
        }
    }

    /// A call of xmit took `time`.
    pub(super) fn took(&self, time: Nanos) {
        add(&self.line.measured, 1);
        if time > self.line.longest.load(Relaxed) {
            self.line.longest.store(time, Relaxed);
        }
        if self.times.iter().next().is_some() {
            add(self.times.at(Log2::index(time)), 1);
        }
    }

    /// Adds how long calls took.
    pub(crate) fn add_times(&self, to: &mut Log2) {
        self.times.iter().enumerate().for_each(|(index, count)| to.add_to_bucket(index, count.load(Relaxed)));
    }

    /// Packets of the sender that were dropped.
    #[inline]
    pub(super) fn dropped(&self) -> u64 {
        self.tally.dropped()
    }

    /// Whether the home is still this sender's, so that its row can be made anew.
    pub(crate) fn is_current(&self) -> bool {
        self.tally.is_current()
    }

    /// The sender's row.
    pub(crate) fn stats(&self, alive: bool) -> SenderStats {
        let credit = self.line.credit.load(Relaxed);
        // First what is pending: what is freed meanwhile may be counted twice then, and the sum below is kept by `sent`.
        let pending = u64::from(self.tally.pending((credit >> 32) as u32, credit as u32));
        let accepted = self.submitted();
        let dropped = self.tally.dropped().min(accepted);
        let pending = pending.min(accepted - dropped);
        let measured = self.line.measured.load(Relaxed);
        let sampled = self.tally.times().map(|times| {
            let (samples, [p50, p99]) = times.summary([0.5, 0.99]);
            SampledTimes { samples, p50, p99 }
        });
        SenderStats {
            name: self.name.clone(),
            alive,
            accepted,
            sent: accepted - dropped - pending,
            dropped,
            pending,
            no_buffer: self.line.exhausted.load(Relaxed),
            at_limit: self.line.limited.load(Relaxed),
            latency: sampled.filter(|times| times.samples > 0),
            measured_calls: measured,
            longest_call: (measured > 0).then(|| self.line.longest.load(Relaxed)),
        }
    }
}
