//! Checks of a queue against the RFCs of CoDel, FQ-CoDel and the coupled dual queue.
//!
//! A test suite that has an AQM of its own implements [`Queue`] for it and calls the function of its RFC: [`rfc8289`], [`rfc8290`] or
//! [`rfc9332`]. Each case builds a new queue, sends packets through it in simulated time, and compares the packets that leave with
//! the RFC's text. The [`Report`] prints as a table: a case that fails names the section, the requirement and what was measured.
//!
//! ```
//! use std::collections::VecDeque;
//! use txq_link::Instant;
//! use txq_link::conformance::{Codel, Queue, TestPacket, rfc8289};
//!
//! /// A queue without an AQM.
//! struct Fifo(VecDeque<TestPacket>);
//!
//! impl Queue for Fifo {
//!     fn enqueue(&mut self, _: Instant, packet: TestPacket) {
//!         self.0.push_back(packet);
//!     }
//!
//!     fn dequeue(&mut self, _: Instant) -> Option<TestPacket> {
//!         self.0.pop_front()
//!     }
//! }
//!
//! let report = rfc8289(&Codel::default(), || Fifo(VecDeque::new()));
//! println!("{report}");
//! assert!(!report.passed());
//! let failed: Vec<_> = report.failed().map(|outcome| outcome.name).collect();
//! assert_eq!(failed, ["schedule", "at dequeue", "leaves", "resume", "restart", "ecn"]);
//! ```
//!
//! The requirements of these RFCs bind differently; [`Level`] says how. An AQM other than PI2 may fail the cases of the level
//! [`Example`](Level::Example) and still conform to RFC 9332.
//!
//! A case sees only the packets that leave. The number of drops is exact; a drop counts from the time at which a later packet of the
//! same flow leaves, or at which the queue is empty.

mod bench;
mod report;
mod rfc8289;
mod rfc8290;
mod rfc9332;

use std::time::Duration;

use crate::Instant;

pub use report::{Level, Outcome, Report};
pub use rfc8289::{Codel, rfc8289};
pub use rfc8290::{FqCodel, rfc8290};
pub use rfc9332::{DualQ, rfc9332};

/// Nanoseconds on the clock of the cases, which begins at 0; also the length of a time.
type Nanos = u64;

/// Returns a duration in nanoseconds.
fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

/// A queue under test.
///
/// The times of the calls never decrease. A queue drops a packet by never returning it.
pub trait Queue {
    /// Queues a packet at the time `now`, or drops it.
    fn enqueue(&mut self, now: Instant, packet: TestPacket);

    /// Takes and returns the packet that leaves at the time `now`. Returns `None` only if the queue is empty: the link is never idle
    /// while packets wait.
    fn dequeue(&mut self, now: Instant) -> Option<TestPacket>;
}

/// A packet of a test. A queue may change [`ecn`](TestPacket::ecn) from ECN-capable to [`Ecn::Ce`], and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// The packet's number, in the order of arrival, from 0.
    pub number: u64,
    /// The length in bytes.
    pub len: u32,
    /// The number of the flow, from 1. A case has at most four flows.
    pub flow: u64,
    /// The ECN field.
    pub ecn: Ecn,
}

/// The ECN field of an IP header (RFC 3168, section 5). The values are those of the two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    NotEct = 0,
    /// ECN-capable, of a scalable (L4S) sender.
    Ect1 = 1,
    /// ECN-capable, of a classic sender.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// Returns the field whose two bits are the lowest of a TOS byte or a traffic class.
    pub fn from_tos(tos: u8) -> Self {
        [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce][usize::from(tos & 3)]
    }
}
