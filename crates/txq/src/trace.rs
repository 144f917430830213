//! Traces: an event for each step of a packet.

use std::fmt;
use std::time::Duration;

use crate::generic::netdev as generic;

pub use crate::generic::trace::{Event, EventKind, Expr, ExprError, Filter, ParseEventError, SNAPLEN};

/// A trace: reads the events of a device's packets, while it exists. Made by [`NetDev::trace`](crate::NetDev::trace).
///
/// A trace keeps no device alive, and no thread of the device waits for it. If its ring is full when a packet has an event,
/// that event is lost, and [`lost`](Trace::lost) counts it.
pub struct Trace(pub(crate) generic::Trace);

impl Trace {
    /// Returns the next event; `None` if there is none yet.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.try_next()
    }

    /// Returns the next event, for which it waits at most `timeout`. It polls once in a few milliseconds: a wakeup would cost
    /// the threads that send.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Event> {
        self.0.next_within(timeout)
    }

    /// Returns how many events were lost, because the reader had not made room for them. They count before the reader's
    /// choice of events: a trace of dequeues also counts the enqueues from which it learns the times.
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }

    /// Returns whether the device was shut down or dropped, so that no further events come.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
