//! Bounds of a server: connections, sizes and times.

use std::time::Duration;

/// Bounds of a server. A client that exceeds one gets an answer that names the bound, and its connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most connections at a time; 256. A further connection replaces the one that is idle for the longest time.
    pub connections: usize,
    /// The most commands that run at a time, each on a thread of its own; 16. Further commands wait for a thread.
    pub commands: usize,
    /// The most recordings (contention, histograms of a time, traces) that run at a time; 4. Further ones are refused.
    pub recordings: usize,
    /// The longest recording; 1 h.
    pub recording_time: Duration,
    /// The longest request, in bytes; 256 KiB.
    pub request_bytes: usize,
    /// The longest time from a request's first byte to its last; 10 s.
    pub request_time: Duration,
    /// The longest time that an answer waits for its reader; 5 s.
    pub answer_time: Duration,
    /// The longest time without a request; 60 s.
    pub idle_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            commands: 16,
            recordings: 4,
            recording_time: Duration::from_secs(3600),
            request_bytes: 256 << 10,
            request_time: Duration::from_secs(10),
            answer_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(60),
        }
    }
}
