//! Latency of sampled packets: the times since they were handed in.

use crate::arch::{Arch, Nanos};
use crate::packet::PacketList;
use crate::stats::latency::Latency;

impl<A: Arch> PacketList<A> {
    /// Adds the times until `now` of the sampled packets to `latency`.
    #[doc(hidden)]
    pub fn record_times(&self, now: Nanos, latency: &mut Latency) {
        for packet in self.iter().filter(|packet| packet.stamp() != 0) {
            latency.record(now.saturating_sub(packet.stamp()));
        }
    }

    /// Adds the times until now of the sampled packets, without the first `skip` packets, to `latency`.
    #[doc(hidden)]
    #[cold]
    pub fn record_times_behind(&self, skip: usize, latency: &mut Latency) {
        let mut now = 0;
        for packet in self.iter().skip(skip).filter(|packet| packet.stamp() != 0) {
            if now == 0 {
                now = A::now();
            }
            latency.record(now.saturating_sub(packet.stamp()));
        }
    }
}
