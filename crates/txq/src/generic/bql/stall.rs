//! Stalls: completions stay away for long although packets are in flight (`stall_thrs`).
//!
//! The transmitter sets a bit for the jiffy in which it queues packets. The completer finds the first bit since its last
//! completion. It counts a stall at the completion that ends it, if that completion comes at least `stall_thrs` after the
//! one before, and the first packet queued between the two has waited for at least half of `stall_thrs`. So it finds each
//! stall longer than the threshold, and some that are longer than half of it.
//!
//! The kernel keeps the bits of 256 jiffies in four words, and clears a word before it is used again. Here a word holds the
//! bits of 32 jiffies and the number of the period that they belong to. So each word is valid by itself, and the completer
//! may read while the transmitter writes. Relaxed loads and stores suffice, because the bits that matter were written before
//! the driver was given the packets that are now complete.

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic};

use super::jiffies::Jiffies;

/// Words of the history, each of 32 jiffies.
const HISTORY_WORDS: usize = 8;
const JIFFIES_PER_WORD: u64 = 32;

/// The shortest and the longest threshold, in jiffies: the latter is half of what the history remembers.
pub(super) const THRESHOLDS: std::ops::RangeInclusive<u32> =
    4..=(HISTORY_WORDS as u64 * JIFFIES_PER_WORD / 2) as u32;

/// In which of the last 256 jiffies packets were queued. A word holds one bit for each of 32 jiffies (lower half) and the
/// number of their period (upper half). Written by the transmitter, read by the completer (Relaxed).
pub(super) struct History<A: Arch>([A::AtomicU64; HISTORY_WORDS]);

impl<A: Arch> History<A> {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| A::AtomicU64::new(0)))
    }

    /// Records that packets are queued now.
    pub(super) fn note(&self, now: Jiffies) {
        let (period, bit) = (now / JIFFIES_PER_WORD, 1 << (now % JIFFIES_PER_WORD));
        let word = &self.0[period as usize % HISTORY_WORDS];
        let was = word.load(Relaxed);
        // The upper half of the period is dropped: the lower half wraps after 17 years.
        let bits = if was >> JIFFIES_PER_WORD == u64::from(period as u32) {
            was | bit
        } else {
            period << JIFFIES_PER_WORD | bit
        };
        if bits != was {
            word.store(bits, Relaxed);
        }
    }

    /// Returns the first jiffy after `after` in which packets were queued, as far as the history goes back.
    fn first(&self, after: Jiffies, now: Jiffies) -> Option<Jiffies> {
        let newest = now / JIFFIES_PER_WORD;
        let in_word = |word: &A::AtomicU64| {
            let word = word.load(Relaxed);
            let age = (newest as u32).wrapping_sub((word >> JIFFIES_PER_WORD) as u32);
            let period = newest.checked_sub(age.into())?;
            let jiffies = (0..JIFFIES_PER_WORD)
                .filter(|bit| word >> bit & 1 != 0)
                .map(|bit| period * JIFFIES_PER_WORD + bit);
            jiffies.filter(|&at| at > after).min()
        };
        self.0.iter().filter_map(in_word).min()
    }
}

/// The completer's state.
#[derive(Debug, Clone, Default)]
pub(super) struct Stalls {
    /// The time of the last completion.
    last_reap: Jiffies,
    /// Stalls so far.
    pub(super) count: u32,
    /// The longest, in jiffies.
    pub(super) max: u32,
}

impl Stalls {
    /// Begins to watch at `now`: earlier completions are not known.
    pub(super) fn begin(&mut self, now: Jiffies) {
        self.last_reap = now;
    }

    /// Records a completion, and counts a stall that it ends (`dql_check_stall`).
    pub(super) fn completed<A: Arch>(&mut self, thrs: u32, history: &History<A>, now: Jiffies) {
        let before = self.last_reap;
        self.last_reap = now.max(before);
        if now < before + u64::from(thrs) {
            return;
        }
        let first = history.first(before, now).filter(|&at| at <= now - u64::from(thrs) / 2);
        if let Some(first) = first {
            self.count += 1;
            self.max = self.max.max((now - first) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use txq_core::arch::Native;

    use super::*;

    const THRS: u32 = 10;

    /// Returns the number of stalls and the longest, for packets queued at jiffies `queued` and completions at jiffies
    /// `reaped`, after one at `start`.
    fn stalls(start: Jiffies, queued: &[Jiffies], reaped: &[Jiffies]) -> (u32, u32) {
        let history = History::<Native>::new();
        let mut stalls = Stalls::default();
        stalls.begin(start);
        let mut queued = queued.iter().peekable();
        for &at in reaped {
            while let Some(&at) = queued.next_if(|&&q| q <= at) {
                history.note(start + at);
            }
            stalls.completed(THRS, &history, start + at);
        }
        (stalls.count, stalls.max)
    }

    #[test]
    fn a_stall_is_a_long_wait_by_something_that_was_queued_early() {
        // The last two begin so that periods, and the 32 bits that a word keeps of them, wrap in between.
        for start in [0, 1, 31, 250, 1_000_000, (1 << 37) - 5, (1 << 37) - 300] {
            assert_eq!(stalls(start, &[1], &[10]), (1, 9));
            assert_eq!(stalls(start, &[1], &[9]), (0, 0), "completions do not stay away long enough");
            assert_eq!(stalls(start, &[5], &[10]), (1, 5), "half of the threshold");
            assert_eq!(stalls(start, &[6], &[10]), (0, 0), "queued late: the wait was short");
            assert_eq!(stalls(start, &[], &[100]), (0, 0), "nothing was queued");
            assert_eq!(stalls(start, &[1, 90], &[2, 100]), (1, 10), "idle before, and then a stall");
            assert_eq!(stalls(start, &[1, 98], &[2, 100]), (0, 0), "idle before");
            assert_eq!(stalls(start, &[1, 20, 60], &[12, 40, 100]), (3, 40));
            assert_eq!(stalls(start, &[5], &[5, 100]), (0, 0), "it was complete in its own jiffy");
        }
    }

    #[test]
    fn the_history_goes_back_as_far_as_256_jiffies_and_a_quiet_one_further() {
        let every: Vec<_> = (1..=1000).collect();
        let (count, longest) = stalls(7, &every, &[1000]);
        assert_eq!(count, 1);
        assert!((224..=256).contains(&longest), "{longest}");
        assert_eq!(stalls(7, &[1], &[100_000]), (1, 99_999));
    }
}
