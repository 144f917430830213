//! `autorate-ingress`: estimates the rate of the link over which packets arrive.
//!
//! Arrivals are counted in windows of 20 ms. A pause voids a window, because a sender that pauses does not show the link's
//! rate. The estimate follows a faster window soon and a slower one late. Every 250 ms the shaper's rate is set a sixteenth
//! below the estimate.

use txq_core::arch::Nanos;

const MS: Nanos = 1_000_000;
/// Length of a window; also the length of a pause that voids it.
const RATE_WINDOW: Nanos = 20 * MS;
/// Time between two settings of the rate.
const SETTING_PERIOD: Nanos = 250 * MS;

/// The arrivals, and the rate estimated from them.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The estimate in bytes a second; at first the bandwidth that the qdisc was created with.
    pub(super) estimate: u64,
    /// Start of the window.
    began: Nanos,
    /// Time of the last arrival.
    last: Nanos,
    /// Bytes that arrived in the window.
    bytes: u64,
    /// When the rate was last set.
    set: Nanos,
}

impl Arrivals {
    /// Counts an arrival of `bytes` at `now`. Returns the rate to set, in bytes a second, if one is due.
    pub(super) fn see(&mut self, bytes: u64, now: Nanos) -> Option<u64> {
        if now.saturating_sub(self.last) > RATE_WINDOW {
            (self.began, self.bytes) = (now, 0);
        } else {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        self.last = now;
        let time = now.saturating_sub(self.began);
        if time < RATE_WINDOW {
            return None;
        }
        let rate = u128::from(self.bytes) * 1_000_000_000 / u128::from(time);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let shift = if rate > self.estimate { 2 } else { 8 };
        self.estimate = self.estimate - (self.estimate >> shift) + (rate >> shift);
        (self.began, self.bytes) = (now, 0);
        if now.saturating_sub(self.set) < SETTING_PERIOD {
            return None;
        }
        self.set = now;
        Some((self.estimate - self.estimate / 16).max(1))
    }
}
