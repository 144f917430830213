//! How often a user connects.

use std::time::{Duration, Instant};

/// The time between two connections of a user, on average: each costs the server the pages of a ring.
const CONNECTION_PERIOD: Duration = Duration::from_millis(10);
/// How far a user may be ahead of that: so many connections are welcomed at once.
const CONNECTION_BURST: Duration = CONNECTION_PERIOD.saturating_mul(64);
/// How long a connection beyond those waits; one that would wait longer is refused.
const MAX_CONNECTION_DELAY: Duration = CONNECTION_PERIOD.saturating_mul(64);

/// The users that have connected lately.
#[derive(Default)]
pub(super) struct Rates {
    /// A user, and when its next connection is due at the average rate.
    users: Vec<(u32, Instant)>,
}

impl Rates {
    /// Returns when a connection of a user is welcomed; `None` if it is refused.
    pub(super) fn due(&mut self, user: u32, now: Instant) -> Option<Instant> {
        let earliest = now.checked_sub(CONNECTION_BURST).unwrap_or(now);
        self.users.retain(|(_, due)| *due > earliest);
        let known = self.users.iter_mut().find(|(of, _)| *of == user);
        let Some((_, next)) = known else {
            self.users.push((user, earliest + CONNECTION_PERIOD));
            return Some(now);
        };
        let due = *next;
        if due > now + MAX_CONNECTION_DELAY {
            return None;
        }
        *next = due + CONNECTION_PERIOD;
        Some(due.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_burst_and_then_its_rate() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        let dues: Vec<_> = (0..200).filter_map(|_| rates.due(1, now)).collect();
        assert_eq!(dues.iter().filter(|due| **due == now).count(), 65);
        assert_eq!((dues.len(), dues.last().copied()), (129, Some(now + MAX_CONNECTION_DELAY)));
        // Another user has a share of its own, and the first one a new connection for each period.
        assert_eq!(rates.due(2, now), Some(now));
        assert_eq!(rates.due(1, now), None);
        assert!(rates.due(1, now + CONNECTION_PERIOD).is_some());
        assert_eq!(rates.due(1, now + CONNECTION_PERIOD), None);
        assert_eq!(rates.due(1, now + 3 * CONNECTION_BURST), Some(now + 3 * CONNECTION_BURST));
    }
}
