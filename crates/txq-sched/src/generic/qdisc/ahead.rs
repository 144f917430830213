//! Tokens that a part takes from a shared bucket before it needs them, where there are enough.
//!
//! While the bucket is more than half full, a part that takes often takes tokens ahead: as many as it will spend in about
//! half a millisecond, going by what it has spent. So it writes the shared word that often, however many packets it sends.
//! Tokens that it does not use grow old. They are lost, but they came from a bucket that was overflowing anyway. A bucket
//! that is less full gives no tokens ahead: each one taken is spent.

use txq_core::arch::Nanos;

/// How long tokens taken ahead are kept, at most; a quarter of the depth of a bucket that is less deep.
const LONGEST_AHEAD: Nanos = 1_000_000;

/// How fast a part spends.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// When tokens were last taken.
    taken: Nanos,
    /// Tokens spent since then.
    spent: Nanos,
}

/// What a part takes at once.
pub(super) struct Share {
    keep: Nanos,
    /// Tokens ahead; `None` if the call was late: parts wait for tokens, and those ahead would be lost.
    extra: Option<Nanos>,
    /// Tokens that are older are void.
    pub(super) oldest: Nanos,
    depth: Nanos,
    now: Nanos,
}

impl Ahead {
    /// Counts tokens that were spent.
    #[inline]
    pub(super) fn spent(&mut self, tokens: Nanos) {
        self.spent += tokens;
    }

    /// Returns what to take now from a bucket that fills within `depth`, and counts that it was taken. Tokens are as much older as
    /// the `credit` for a late call.
    pub(super) fn take(&mut self, depth: Nanos, credit: Nanos, now: Nanos) -> Share {
        let keep = LONGEST_AHEAD.min(depth / 4);
        let extra = (credit == 0).then(|| self.within(keep / 2, now));
        (self.taken, self.spent) = (now, 0);
        Share { keep, extra, oldest: now.saturating_sub(depth.saturating_add(credit)), depth, now }
    }

    /// Returns how many tokens the part will spend within `time`, but at most twice what it has spent since it last took; 0
    /// if that was long ago.
    fn within(&self, time: Nanos, now: Nanos) -> Nanos {
        let passed = now.saturating_sub(self.taken);
        match passed {
            _ if passed > 4 * time => 0,
            _ if passed <= time / 2 => self.spent.max(1) * 2,
            _ => self.spent * time / passed,
        }
    }
}

impl Share {
    /// Returns the end of the interval for a part that needs the tokens up to `end`, with those ahead; `None` if the bucket is
    /// less than half full.
    #[inline]
    pub(super) fn ahead_of(&self, end: Nanos) -> Option<Nanos> {
        let extra = self.extra.filter(|_| end.saturating_add(self.depth / 2) <= self.now)?;
        // The tokens that are about to grow old are not worth taking.
        let end = end.max(self.oldest + self.keep);
        Some(end + extra.min((self.now - end) / 4))
    }
}
