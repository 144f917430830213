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

use crate::filter::Filters;
use crate::qdisc::child::{Classes, Total};
use crate::qdisc::{Band, Budget, Cx, Env, NoLock, Qdisc, Verdict};
use crate::tc::{Estimator, Handle, Options, ParseError, Rate, SentRate, Style, Words};

/// Intervals that one call makes up for: after so many the average is that of an idle qdisc.
const INTERVALS: u64 = 1 << 20;

/// A running average.
#[derive(Debug, Clone, Copy)]
struct Average {
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
    fn new(options: Estimator, stats: &QdiscStats) -> Self {
        let QdiscStats { packets, bytes, .. } = *stats;
        Self { options, next: None, packets, bytes, packet_rate: 0.0, byte_rate: 0.0 }
    }

    /// Ends the intervals that are over at `now`. `stats` have not changed since the last call of `dequeue_batch`.
    fn pass_time(&mut self, stats: &QdiscStats, now: Nanos) {
        let interval = self.options.interval();
        let length = interval.as_nanos() as Nanos;
        let next = *self.next.get_or_insert(now.saturating_add(length));
        let Some(late) = now.checked_sub(next) else { return };
        let (packets, bytes) = (stats.packets - self.packets, stats.bytes - self.bytes);
        (self.packets, self.bytes) = (stats.packets, stats.bytes);
        let (weight, idle) = (self.options.weight(), (late / length).min(INTERVALS));
        let kept = (1.0 - weight).powf(idle as f64);
        let update = |average: &mut f64, sent: u64| {
            let rate = sent as f64 / interval.as_secs_f64();
            *average = (*average + (rate - *average) * weight) * kept;
        };
        update(&mut self.packet_rate, packets);
        update(&mut self.byte_rate, bytes);
        self.next = Some(next.saturating_add((late / length + 1).saturating_mul(length)));
    }

    fn rate(&self) -> SentRate {
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
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn set_handle(&mut self, handle: Handle) {
        self.inner.set_handle(handle);
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        self.inner.classes()
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        self.inner.filters(class)
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.inner.enqueue(packet, cx)
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        self.inner.enqueue_batch(batch, cx);
    }

    fn copies(&self) -> Option<bool> {
        self.inner.copies()
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

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.inner.reset(cx);
    }

    fn change(&mut self, words: &mut Words<'_>, env: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.inner.change(words, env, cx)
    }

    fn set_tx_queue_len(&mut self, packets: u32, cx: &mut Cx<'_, A>) {
        self.inner.set_tx_queue_len(packets, cx);
    }

    fn qlen(&self) -> usize {
        self.inner.qlen()
    }

    fn limit(&self) -> Option<usize> {
        self.inner.limit()
    }

    fn max_packets(&self) -> Option<usize> {
        self.inner.max_packets()
    }

    fn stats(&self) -> QdiscStats {
        self.inner.stats()
    }

    fn total(&self) -> Total {
        self.inner.total()
    }

    fn options(&self, style: Style) -> Options {
        self.inner.options(style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        self.inner.xstats(style)
    }

    fn bands(&self) -> Vec<Band> {
        self.inner.bands()
    }

    fn nolock(&self) -> Option<NoLock> {
        self.inner.nolock()
    }

    fn room(&self) -> Option<usize> {
        self.inner.room()
    }

    fn passes_stopped(&self) -> bool {
        self.inner.passes_stopped()
    }

    fn shrink(&mut self, now: Nanos) -> bool {
        self.inner.shrink(now)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.inner.next_event()
    }

    fn rate(&self) -> Option<SentRate> {
        Some(self.rate_at(A::now()))
    }

    /// Starts the average anew, as Linux does.
    fn set_estimator(&mut self, estimator: Estimator) {
        self.average = Average::new(estimator, &self.inner.stats());
    }
}

#[cfg(test)]
mod tests;
