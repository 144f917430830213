//! Finds the limit for a device whose completions come long after the wire is free.
//!
//! The algorithm (`dql`) grows the limit when a completion leaves nothing in flight. That never happens on a device that
//! completes each packet a fixed time after the wire has sent it: while the wire idles for want of packets, some packets
//! still wait for their completion. The limit then stays at a few packets, in Linux too (measured there and here: 0.9 Gbit/s
//! offered to 1 Gbit/s, a delay of 1 ms, 0.04 sent).
//!
//! So this module tries higher limits. While the limit stops the transmitter, it measures the bytes that complete in a
//! window of time, and then once more with a higher limit. If more bytes complete, the limit was too low. A minimum, the
//! [`floor`](Dql::floor), then becomes the measured rate times the shortest time seen from queue to completion, and an
//! eighth more. Otherwise the limit returns to its old value, and the next trial waits for a second, then for twice as long
//! each time. A floor is dropped after some time, and found again if it is still needed. (BBR estimates a path in the same
//! way.)
//!
//! A device that needs no more than the algorithm finds sees one trial of a quarter more, for two windows, at growing
//! intervals. A txq that its limit never stops sees none.

use txq_core::arch::Nanos;

use super::dql::Dql;

/// The shortest window, in nanoseconds.
const SHORTEST_WINDOW: Nanos = 4_000_000;
/// The time from a trial without gain to the next, in nanoseconds. It doubles each time, up to the longest.
const FIRST_PROBE_WAIT: Nanos = 1_000_000_000;
const LONGEST_PROBE_WAIT: Nanos = 64_000_000_000;
/// How long a floor holds, in nanoseconds.
const FLOOR_LIFETIME: Nanos = 10_000_000_000;

/// A measurement from one completion to another. It lasts until a byte that was queued after the first has completed, and at
/// least for [`SHORTEST_WINDOW`].
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    since: Nanos,
    /// Bytes completed and queued at its beginning, wrapping.
    completed: u32,
    queued: u32,
    /// How long the limit stopped the transmitter, as far as completions tell, in nanoseconds.
    blocked: Nanos,
    /// Time until the first byte completed that was queued in the window, in nanoseconds.
    round: Option<Nanos>,
}

/// The result of a window.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Bytes completed in a nanosecond.
    rate: f64,
    /// From queue to completion, in nanoseconds.
    round: Nanos,
    /// Whether the limit stopped the transmitter for at least three quarters of the time.
    limited: bool,
}

/// A trial of a higher limit.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// Whether all bytes in flight were queued under the trial, so that they can be measured.
    settled: bool,
    /// The measurement before the trial.
    before: Measured,
    /// The limit and the floor before the trial.
    limit: u32,
    floor: u32,
}

/// The state of the probe, on the completing side.
#[derive(Debug, Clone)]
#[repr(C)]
pub(super) struct Probe {
    /// The time of the last completion; 0 before the first.
    last: Nanos,
    window: Window,
    trial: Option<Trial>,
    /// The shortest time from queue to completion since the floor was dropped, in nanoseconds.
    round: Nanos,
    /// When the next trial may begin, and how long the one after it waits if it brings no gain.
    next: Nanos,
    wait: Nanos,
    /// Whether the last trial brought a gain; the next one then doubles the limit.
    won: bool,
    /// When the floor was found.
    found: Nanos,
    /// The gain of the trials so far.
    gained: Option<Gained>,
}

/// The gain of a limit found by trial over the algorithm's own limit.
#[derive(Debug, Clone, Copy)]
struct Gained {
    /// Bytes completed in a nanosecond before the first trial that brought a gain, and the most since.
    alone: f64,
    most: f64,
    /// The floor that was found last.
    floor: u32,
}

impl Probe {
    pub(super) fn new() -> Self {
        Self {
            last: 0,
            window: Window::default(),
            trial: None,
            round: Nanos::MAX,
            next: 0,
            wait: FIRST_PROBE_WAIT,
            won: false,
            found: 0,
            gained: None,
        }
    }

    /// Returns the bytes that the last successful trial found to be needed, and how many times as much was sent with them as
    /// under the algorithm's own limit, in hundredths. Zeros if no trial has brought a gain.
    pub(super) fn gained(&self) -> (u32, u32) {
        let times = |gained: Gained| (gained.most / gained.alone.max(f64::MIN_POSITIVE) * 100.0) as u32;
        self.gained.map_or((0, 0), |gained| (gained.floor, times(gained)))
    }

    /// Begins anew with the current limit, which the user has set.
    pub(super) fn reset(&mut self, dql: &mut Dql) {
        dql.floor = 0;
        *self = Self { last: self.last, ..Self::new() };
    }

    /// Records a completion, which `dql` has counted. `blocked` says whether more bytes than the limit were in flight before
    /// it.
    pub(super) fn completed(&mut self, dql: &mut Dql, queued: u32, blocked: bool, now: Nanos) {
        let last = std::mem::replace(&mut self.last, now);
        if last == 0 {
            // The first completion begins the first window.
            self.window = Window { since: now, completed: dql.num_completed, queued, ..Window::default() };
            return;
        }
        if blocked {
            self.window.blocked += now.saturating_sub(last);
        }
        let elapsed = now.saturating_sub(self.window.since);
        if self.window.round.is_none() && dql.num_completed.wrapping_sub(self.window.queued) as i32 > 0 {
            self.window.round = Some(elapsed);
        }
        let Some(round) = self.window.round else { return };
        if let Some(trial @ Trial { settled: false, .. }) = &mut self.trial {
            trial.settled = true;
        } else if elapsed >= SHORTEST_WINDOW {
            let bytes = dql.num_completed.wrapping_sub(self.window.completed);
            let limited = self.window.blocked >= elapsed / 4 * 3;
            let measured = Measured { rate: f64::from(bytes) / elapsed as f64, round, limited };
            match self.trial.take() {
                Some(trial) => self.judge(trial, measured, dql, now),
                None => self.watch(measured, dql, queued, now),
            }
        } else {
            return;
        }
        let (completed, since) = (dql.num_completed, now);
        self.window = Window { since, completed, queued, blocked: 0, round: None };
    }

    /// Ends a trial: keeps the floor if it brought a gain, or if the higher limit did not stop the transmitter.
    fn judge(&mut self, trial: Trial, measured: Measured, dql: &mut Dql, now: Nanos) {
        let Trial { before, limit, floor, .. } = trial;
        self.round = self.round.min(measured.round);
        self.won = measured.rate >= before.rate * (17.0 / 16.0);
        if self.won || !measured.limited {
            // More was sent, or all that there was to send.
            let needed = measured.rate.max(before.rate) * self.round as f64 * (9.0 / 8.0);
            dql.floor = dql.floor.min(needed as u32);
            dql.limit = dql.limit.min(limit.max(dql.floor));
            (self.found, self.wait) = (now, FIRST_PROBE_WAIT);
            if self.won {
                let gained = Gained { alone: before.rate, most: 0.0, floor: 0 };
                let gained = self.gained.get_or_insert(gained);
                gained.most = gained.most.max(measured.rate);
                gained.floor = dql.floor;
            }
            self.next = if self.won { now } else { now.saturating_add(FIRST_PROBE_WAIT) };
        } else {
            dql.floor = floor;
            dql.limit = dql.limit.min(limit);
            self.next = now.saturating_add(self.wait);
            self.wait = LONGEST_PROBE_WAIT.min(2 * self.wait);
        }
    }

    /// Drops an old floor, and begins a trial if one is due.
    fn watch(&mut self, measured: Measured, dql: &mut Dql, queued: u32, now: Nanos) {
        if dql.floor > 0 && now.saturating_sub(self.found) > FLOOR_LIFETIME {
            dql.floor = 0;
            self.round = Nanos::MAX;
        }
        if !measured.limited || now < self.next || dql.limit >= dql.max_limit {
            return;
        }
        self.round = self.round.min(measured.round);
        let (limit, floor) = (dql.limit, dql.floor);
        self.trial = Some(Trial { settled: false, before: measured, limit, floor });
        // The bytes in flight beyond the limit, the rest of a packet, were measured with it.
        let used = limit.max(queued.wrapping_sub(dql.num_completed));
        let more = if self.won { used } else { used / 4 + dql.last_object() };
        dql.floor = used.saturating_add(more).min(dql.max_limit);
        dql.limit = dql.floor;
    }
}

#[cfg(test)]
mod tests;
