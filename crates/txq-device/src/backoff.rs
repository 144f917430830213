//! When a driver tries again what the kernel had no room for.

use std::time::Duration;

/// Time until the first retry.
const FIRST_RETRY: Duration = Duration::from_micros(50);

/// Times until retries: each is twice the one before, until something was sent.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The longest time where nothing says otherwise.
    pub(crate) const BOUND: Duration = Duration::from_millis(1);

    pub(crate) const fn new() -> Self {
        Self { next: FIRST_RETRY }
    }

    /// Returns the time until the retry, at most `bound`.
    pub(crate) fn after(&mut self, bound: Duration) -> Duration {
        let after = self.next.min(bound);
        self.next = (after * 2).min(bound);
        after
    }

    /// Begins again with the shortest time.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST_RETRY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_doubles_up_to_the_bound() {
        let mut retry = Backoff::new();
        let times: Vec<_> = (0..7).map(|_| retry.after(Backoff::BOUND).as_micros()).collect();
        assert_eq!(times, [50, 100, 200, 400, 800, 1000, 1000]);
        let bound = Duration::from_micros(200);
        assert_eq!(retry.after(bound), bound);
        retry.reset();
        assert_eq!(retry.after(Backoff::BOUND), FIRST_RETRY);
    }
}
