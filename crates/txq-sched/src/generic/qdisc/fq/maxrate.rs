//! `maxrate`: the pause of a flow after the bytes that it sent.

use txq_core::arch::{Arch, Nanos};

use crate::generic::qdisc::fq::Fq;

/// The longest pause after a packet.
const MAX_PAUSE: Nanos = 1_000_000_000;
/// Without credit for a late call (`lateness.rs`), a flow's turn that is at most this late is taken as a late dequeue: threads wake later than timers fire. The next pause
/// is shorter by all of it. A turn that is later shortens the next pause by at most half, or by the credit.
const LATE_TURN: Nanos = 1_000_000;

impl<A: Arch> Fq<A> {
    /// Sets the time of a flow's next packet, after the flow sent `bytes` at `rate` bytes a second. Does nothing while the
    /// flow has credit, unless the rate is low (`low_rate_threshold`). `now` is the time at which the bytes leave the
    /// device, and `due` the one at which they could.
    pub(super) fn pace(&mut self, id: u32, rate: u32, bytes: u64, due: Nanos, now: Nanos) {
        let credit = self.lateness.credit();
        let flow = self.table.flow_mut(id);
        let bytes = if rate <= self.params.low_rate_threshold {
            // One packet at a time: a quantum at this rate would be a burst of many milliseconds.
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
        } else if late <= LATE_TURN {
            late
        } else {
            late.min(pause / 2).max(now.saturating_sub(due).min(credit))
        };
        flow.next_time = now - made_good + pause;
    }
}
