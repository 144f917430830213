//! When a driver tries again what the kernel had no room for.

use txq::Nanos;

/// Time until the first retry, in nanoseconds.
const FIRST_RETRY: Nanos = 50_000;

/// Times until retries: each is twice the one before, until something was sent.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Nanos,
}

impl Backoff {
    /// The longest time where nothing says otherwise, in nanoseconds.
    pub(crate) const BOUND: Nanos = 1_000_000;

    pub(crate) const fn new() -> Self {
        Self { next: FIRST_RETRY }
    }

    /// Returns the time until the retry, at most `bound`, in nanoseconds.
    pub(crate) fn after(&mut self, bound: Nanos) -> Nanos {
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
        let times: Vec<Nanos> = (0..7).map(|_| retry.after(Backoff::BOUND)).collect();
        assert_eq!(times, [50_000, 100_000, 200_000, 400_000, 800_000, 1_000_000, 1_000_000]);
        assert_eq!(retry.after(200_000), 200_000);
        retry.reset();
        assert_eq!(retry.after(Backoff::BOUND), 50_000);
    }
}
