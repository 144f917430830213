//! The device watchdog: reports a txq that is stopped and makes no progress (`dev_watchdog`).
//!
//! A device that loses a completion, or stops for good, leaves its txq stopped for ever, and nothing else would report that.
//! The worker that reaps the txq detects it, since it polls every txq whose device keeps packets. The transmit path pays
//! nothing: the kernel notes the time when a packet is sent (`trans_start`); here the worker notes it when it first finds
//! the txq stopped at the current counts of issued and completed packets.

use std::time::Duration;

use txq_core::arch::Nanos;

/// Reports a txq that has been stopped, with packets in the device, without progress (`NETDEV WATCHDOG: transmit queue timed
/// out`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxTimeout {
    /// The txq.
    pub txq: u16,
    /// How long the worker has found it so.
    pub stopped_for: Duration,
    /// Packets that the device keeps.
    pub in_flight: u32,
    /// Timeouts of this txq so far, this one among them.
    pub tx_timeout: u64,
}

/// The settings of the watchdog.
pub(crate) struct Watchdog {
    /// How long a txq may stay stopped without progress (`watchdog_timeo`); also the time from one event to the next.
    pub(crate) timeo: Nanos,
    /// Called with each event.
    pub(crate) hook: Option<TimeoutHook>,
}

/// The hook that is called with each event.
pub(crate) type TimeoutHook = Box<dyn Fn(&TxTimeout) + Send + Sync>;

/// The watchdog's state of a txq.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The last standstill; `None` if the txq was never found stopped.
    pub(crate) standstill: Option<Standstill>,
    /// Number of events so far.
    pub(crate) tx_timeout: u64,
}

/// A txq that was found stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standstill {
    /// The counts of issued and completed packets then.
    moved: (u32, u32),
    since: Nanos,
    /// When the next event is due.
    due: Nanos,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// How long the txq has made no progress, if that is an event now.
    pub(crate) expired: Option<Nanos>,
    /// When to check again.
    pub(crate) next: Nanos,
}

impl Standstill {
    /// Checks a stopped txq.
    pub(crate) fn check(seen: &mut Option<Self>, moved: (u32, u32), now: Nanos, timeo: Nanos) -> Check {
        let fresh = Self { moved, since: now, due: now.saturating_add(timeo) };
        let seen = match seen {
            Some(seen) if seen.moved == moved => seen,
            _ => seen.insert(fresh),
        };
        let expired = (now >= seen.due).then(|| now - seen.since);
        if expired.is_some() {
            seen.due = now.saturating_add(timeo);
        }
        Check { expired, next: seen.due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (T44)
    #[test]
    fn one_event_a_period_and_none_while_the_txq_moves() {
        let mut seen = None;
        let mut check = |moved, now| Standstill::check(&mut seen, moved, now, 100);
        assert_eq!(check((5, 0), 1000), Check { expired: None, next: 1100 });
        assert_eq!(check((5, 0), 1099), Check { expired: None, next: 1100 });
        assert_eq!(check((5, 0), 1100), Check { expired: Some(100), next: 1200 });
        assert_eq!(check((5, 0), 1101).expired, None, "once a period");
        assert_eq!(check((5, 0), 1250), Check { expired: Some(250), next: 1350 });
        // One completion, though the txq stays stopped: it begins anew.
        assert_eq!(check((5, 1), 1349), Check { expired: None, next: 1449 });
        assert_eq!(check((6, 1), 1449), Check { expired: None, next: 1549 });
        assert_eq!(check((6, 1), 1549).expired, Some(100));
    }
}
