//! A core's loads in flight.
//!
//! A core continues after a load of a line that it does not have: it executes the instructions behind the load that need no
//! value of it, other loads among them. So loads of several lines, one after the other, take the time of one transfer, not
//! the sum. Instructions retire in program order, so the core gets no further ahead of a load than its reorder buffer is
//! long ([`Core::window`](crate::sim::machine::Core::window)); then it stands still until the line arrives.
//!
//! The machine says how many lines can be in flight ([`Line::loads`](crate::sim::machine::Line::loads)). A load that finds them all
//! in use waits for the first.
//!
//! A read-modify-write and a fence wait for all loads of the task. An atomic's load waits for its own line, since the task
//! tests the value. So does the load of a cell that holds a pointer, since the task follows it. A store to a line that is on
//! its way to a load requests the line for writing once it has arrived.

use std::collections::VecDeque;

use crate::sim::machine::Picos;

/// A line on its way to a load.
#[derive(Debug, Clone, Copy)]
struct Load {
    line: u32,
    at: Picos,
    /// The work that the task will have done when it can go no further without the line.
    limit: Picos,
}

/// The loads in flight of a task, on its core.
#[derive(Debug)]
pub(crate) struct Loads {
    /// From the oldest to the newest.
    flight: VecDeque<Load>,
    room: usize,
    window: Picos,
    /// The task's work since the first load in flight, and before.
    worked: Picos,
    /// When the last line arrives.
    last: Picos,
}

impl Loads {
    pub(crate) fn new(room: u32, window: Picos) -> Self {
        Self {
            flight: VecDeque::with_capacity(room as usize),
            room: room as usize,
            window,
            worked: 0,
            last: 0,
        }
    }

    /// Returns when all lines have arrived.
    #[inline]
    pub(crate) fn done(&self) -> Picos {
        self.last
    }

    /// Returns whether a load may be in flight.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.flight.is_empty()
    }

    /// Returns when the line arrives if it is on its way to a load.
    #[inline]
    pub(crate) fn arrival(&self, line: u32) -> Option<Picos> {
        self.flight.iter().find(|load| load.line == line).map(|load| load.at)
    }

    /// Adds a load whose line arrives at `at`; returns when there is room for it.
    #[inline]
    pub(crate) fn add(&mut self, line: u32, at: Picos) -> Picos {
        if self.room == 0 {
            return at;
        }
        let room = match self.flight.len() == self.room {
            true => self.flight.pop_front().map_or(0, |load| load.at),
            false => 0,
        };
        self.last = self.last.max(at);
        self.flight.push_back(Load { line, at, limit: self.worked + self.window });
        room
    }

    /// Notes that the task works for `time` from `now` on; returns how long it stands still meanwhile.
    pub(crate) fn work(&mut self, now: Picos, time: Picos) -> Picos {
        let from = self.worked;
        self.worked += time;
        let mut stands = 0;
        while let Some(load) = self.flight.front() {
            if load.limit < self.worked {
                let reached = now + stands + load.limit.saturating_sub(from);
                stands += load.at.saturating_sub(reached);
            } else if load.at > now + stands + time {
                break;
            }
            self.flight.pop_front();
        }
        stands
    }

    /// Notes that all lines have arrived.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.flight.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_finds_no_room_waits_for_the_first() {
        let mut loads = Loads::new(2, 1000);
        assert_eq!([loads.add(1, 300), loads.add(2, 200), loads.add(3, 400)], [0, 0, 300]);
        assert_eq!((loads.arrival(1), loads.arrival(3), loads.done()), (None, Some(400), 400));
        assert_eq!(Loads::new(0, 1000).add(1, 300), 300, "without room");
    }

    #[test]
    fn a_core_gets_no_further_ahead_than_its_window() {
        let mut loads = Loads::new(4, 100);
        loads.add(1, 500);
        assert_eq!(loads.work(0, 60), 0);
        loads.add(2, 600);
        // After 40 more the first load stops it at 100, until 500; the second one 60 later at 560, until 600.
        assert_eq!(loads.work(60, 200), 400 + 40);
        assert!(!loads.any());
        loads.add(3, 800);
        assert_eq!((loads.work(700, 50), loads.any()), (0, true));
        assert_eq!((loads.work(750, 50), loads.any()), (0, false), "it has arrived");
    }
}
