//! A qdisc with an estimator: an average of the rate at which it sends (`tc qdisc add ... estimator 1s 8s KIND`).
//!
//! The average moves once in each interval. There is no timer: the intervals that have ended are made up for at the next dequeue,
//! and when the rate is shown. All packets since the last dequeue belong to the interval of that dequeue, so the result is
//! that of a timer. No packet bypasses the qdisc, so that none is missed.
//!
//! The kernel's counterpart is `gen_estimator`.

use txq_core::arch::{Arch, Nanos};
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::inner::calls_of_inner;
use crate::generic::qdisc::{Arrival, Budget, Cx, Full, Qdisc, Verdict};
use crate::tc::{Estimator, Rate, SentRate, Stab};

/// Intervals that one call makes up for: after so many the average is that of an idle qdisc.
const INTERVALS: u64 = 1 << 20;

/// A running average.
#[derive(Debug, Clone, Copy)]
pub(super) struct Average {
    options: Estimator,
    /// When the present interval ends; `None` before the first call.
    next: Option<Nanos>,
    /// Packets and bytes sent when the interval began.
    packets: u64,
    bytes: u64,
    /// The averages, in a second.
    packet_rate: f64,
    byte_rate: f64,
}

impl Average {
    pub(super) fn new(options: Estimator, stats: &QdiscStats) -> Self {
        let QdiscStats { packets, bytes, .. } = *stats;
        Self { options, next: None, packets, bytes, packet_rate: 0.0, byte_rate: 0.0 }
    }

    /// Ends the intervals that are over at `now`; returns when the next one ends. `stats` have not changed since the last call of
    /// `dequeue_batch`.
    pub(super) fn pass_time(&mut self, stats: &QdiscStats, now: Nanos) -> Nanos {
        let interval = self.options.interval();
        let length = interval.as_nanos() as Nanos;
        let next = *self.next.get_or_insert(now.saturating_add(length));
        let Some(late) = now.checked_sub(next) else { return next };
        // Packets of a class may have come back to it.
        let (packets, bytes) =
            (stats.packets.saturating_sub(self.packets), stats.bytes.saturating_sub(self.bytes));
        (self.packets, self.bytes) = (stats.packets, stats.bytes);
        let (weight, idle) = (self.options.weight(), (late / length).min(INTERVALS));
        let kept = (1.0 - weight).powf(idle as f64);
        let update = |average: &mut f64, sent: u64| {
            let rate = sent as f64 / interval.as_secs_f64();
            *average = (*average + (rate - *average) * weight) * kept;
        };
        update(&mut self.packet_rate, packets);
        update(&mut self.byte_rate, bytes);
        let next = next.saturating_add((late / length + 1).saturating_mul(length));
        self.next = Some(next);
        next
    }

    pub(super) fn rate(&self) -> SentRate {
        let rate = Rate(self.byte_rate as u64);
        SentRate { rate, packets: self.packet_rate as u64, estimator: self.options }
    }
}

/// A qdisc and the average of its rate.
pub(super) struct Estimated<A: Arch> {
    inner: Box<dyn Qdisc<A>>,
    average: Average,
}

impl<A: Arch> Estimated<A> {
    pub(super) fn new(inner: Box<dyn Qdisc<A>>, options: Estimator) -> Self {
        let average = Average::new(options, &inner.stats());
        Self { inner, average }
    }

    fn rate_at(&self, now: Nanos) -> SentRate {
        let mut average = self.average;
        average.pass_time(&self.inner.stats(), now);
        average.rate()
    }
}

impl<A: Arch> Qdisc<A> for Estimated<A> {
    calls_of_inner!();

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.inner.enqueue(packet, cx)
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        self.inner.enqueue_batch(batch, cx);
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        self.average.pass_time(&self.inner.stats(), cx.clock.now());
        self.inner.dequeue_batch(budget, out, cx);
    }

    fn requeue(&mut self, batch: &mut PacketList<A>) {
        self.inner.requeue(batch);
        let QdiscStats { packets, bytes, .. } = self.inner.stats();
        // Packets of an interval that is over may have come back.
        (self.average.packets, self.average.bytes) =
            (self.average.packets.min(packets), self.average.bytes.min(bytes));
    }

    fn front(&self) -> Option<&Packet<A>> {
        self.inner.front()
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        self.inner.room_for(arrival)
    }

    fn rate(&self) -> Option<SentRate> {
        Some(self.rate_at(A::now()))
    }

    /// Starts the average anew, as Linux does.
    fn set_estimator(&mut self, estimator: Estimator) {
        self.average = Average::new(estimator, &self.inner.stats());
    }

    fn stab(&self) -> Option<Stab> {
        self.inner.stab()
    }

    fn set_stab(&mut self, stab: Option<Stab>) -> bool {
        self.inner.set_stab(stab)
    }
}

#[cfg(test)]
mod tests;
