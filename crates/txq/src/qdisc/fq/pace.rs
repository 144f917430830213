//! `maxrate`: how long a flow pauses after what it has sent.

use crate::arch::{Arch, Nanos};
use crate::qdisc::fq::Fq;

/// The longest pause that a rate makes after a packet.
const MAX_PAUSE: Nanos = 1_000_000_000;
/// Up to so late, a flow's turn was late because whoever calls was: threads are woken up later than timers fire. All of
/// that is made good; of what is later, half a pause.
const LATE: Nanos = 1_000_000;

impl<A: Arch> Fq<A> {
    /// Has a flow that has sent so many bytes pause, to keep to its rate: from `now` on, or from when the device sends them.
    pub(super) fn pace(&mut self, id: u32, rate: u32, bytes: u64, now: Nanos) {
        let flow = self.table.flow_mut(id);
        let bytes = if rate <= self.params.low_rate_threshold {
            // One packet at a time, or such a flow would send bursts of many milliseconds.
            flow.credit = 0;
            bytes
        } else if flow.credit > 0 {
            return;
        } else {
            bytes.max(self.params.quantum.into())
        };
        let pause = bytes.saturating_mul(1_000_000_000).checked_div(rate.into()).unwrap_or(Nanos::MAX);
        self.xstats.pkts_too_long += u64::from(pause > MAX_PAUSE);
        let pause = pause.min(MAX_PAUSE);
        let late = now.saturating_sub(flow.next_time);
        let made_good = if flow.next_time == 0 {
            0
        } else if late <= LATE {
            late
        } else {
            late.min(pause / 2)
        };
        flow.next_time = now - made_good + pause;
    }
}
