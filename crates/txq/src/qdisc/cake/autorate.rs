//! `autorate-ingress`: the rate of a link behind which this qdisc is, by what arrives.
//!
//! Arrivals are counted in windows; a pause makes a window void, since a sender that pauses says nothing of the link. The
//! estimate follows a faster window soon and a slower one late, and the rate is set a sixteenth below it.

use crate::arch::Nanos;

const MS: Nanos = 1_000_000;
/// How long arrivals are counted; also the pause that voids a window.
const WINDOW: Nanos = 20 * MS;
/// How often the rate is set.
const PERIOD: Nanos = 250 * MS;

/// What arrives.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Bytes a second; at first, what the qdisc was made with.
    pub(super) estimate: u64,
    began: Nanos,
    last: Nanos,
    bytes: u64,
    set: Nanos,
}

impl Arrivals {
    /// A packet arrives. Returns the rate to be set, where it is time.
    pub(super) fn see(&mut self, bytes: u64, now: Nanos) -> Option<u64> {
        if now.saturating_sub(self.last) > WINDOW {
            (self.began, self.bytes) = (now, 0);
        } else {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        self.last = now;
        let time = now.saturating_sub(self.began);
        if time < WINDOW {
            return None;
        }
        let rate = u128::from(self.bytes) * 1_000_000_000 / u128::from(time);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let shift = if rate > self.estimate { 2 } else { 8 };
        self.estimate = self.estimate - (self.estimate >> shift) + (rate >> shift);
        (self.began, self.bytes) = (now, 0);
        if now.saturating_sub(self.set) < PERIOD {
            return None;
        }
        self.set = now;
        Some((self.estimate - self.estimate / 16).max(1))
    }
}
