//! A FIFO with a limit: all that pfifo and bfifo have in common. They differ only in what the limit counts (`sch_fifo`).

use std::marker::PhantomData;

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::child::Total;
use crate::generic::qdisc::fifo::Fifo;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{Options, ParseError, Style, Syntax, Words};

/// The unit of a FIFO's limit.
pub(super) trait Limit: Send + 'static {
    /// The kind's syntax; its one word is `limit`.
    const SYNTAX: &'static Syntax;
    /// Returns the limit when none is given.
    fn default_limit(env: &Env) -> u32;
    /// Returns whether a queue of so many packets and bytes is within the limit.
    fn within(limit: u32, packets: usize, bytes: u64) -> bool;
    /// Returns the limit in packets, or `None` if it counts something else.
    fn packets(_limit: u32) -> Option<usize> {
        None
    }
    /// Writes the limit as tc does.
    fn show(limit: u32, options: &mut Options);
}

/// A FIFO whose limit counts what `L` says.
pub(super) struct Limited<A: Arch, L: Limit> {
    queue: Fifo<A>,
    limit: u32,
    /// The device's longest packet, in bytes.
    mtu: u32,
    kind: PhantomData<L>,
}

pub(super) fn build<A: Arch, L: Limit>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let mut qdisc = Limited::<A, L>::new(env);
    qdisc.limit = parse::<L>(words)?.unwrap_or(qdisc.limit);
    Ok(Built::Qdisc(Box::new(qdisc)))
}

impl<A: Arch, L: Limit> Limited<A, L> {
    /// Returns an empty FIFO with the default limit.
    pub(super) fn new(env: &Env) -> Self {
        Self { queue: Fifo::new(), limit: L::default_limit(env), mtu: env.mtu, kind: PhantomData }
    }
}

/// Returns the limit that the options give, if they give one.
fn parse<L: Limit>(words: &mut Words<'_>) -> Result<Option<u32>, ParseError> {
    let mut limit = None;
    let mut options = words.options(L::SYNTAX);
    while let Some(word) = options.next_word() {
        match word {
            // tc reads a number of packets as a size as well: `limit 1k` is 1024.
            "limit" => limit = Some(options.value_size("limit")?.0),
            other => return Err(options.unknown(other)),
        }
    }
    Ok(limit)
}

impl<A: Arch, L: Limit> Qdisc<A> for Limited<A, L> {
    fn kind(&self) -> &'static str {
        L::SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let bytes = self.queue.bytes() + packet.len() as u64;
        if L::within(self.limit, self.queue.len() + 1, bytes) {
            self.queue.push(packet)
        } else {
            self.queue.refuse(packet, cx)
        }
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let bytes = self.queue.bytes() + batch.bytes();
        if L::within(self.limit, self.queue.len() + batch.len(), bytes) {
            self.queue.push_all(batch);
        }
        while let Some(packet) = batch.pop_front() {
            let _ = self.enqueue(packet, cx);
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, _: &mut Cx<'_, A>) {
        self.queue.pop(&mut budget, out);
    }

    fn requeue(&mut self, batch: &mut PacketList<A>) {
        self.queue.put_back(batch);
    }

    fn front(&self) -> Option<&Packet<A>> {
        self.queue.front()
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.queue.purge(cx);
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        if let Some(limit) = parse::<L>(words)? {
            self.limit = limit;
        }
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let (arrival, queued) = (arrival.and_back(), self.queue.len());
        let (packets, bytes) = (queued + arrival.packets(), self.queue.bytes() + arrival.bytes());
        arrival.if_room(L::within(self.limit, packets, bytes), queued)
    }

    fn has_one_limit(&self) -> bool {
        L::packets(self.limit).is_some()
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn limit(&self) -> Option<usize> {
        L::packets(self.limit)
    }

    fn stats(&self) -> QdiscStats {
        self.queue.stats()
    }

    fn total(&self) -> Total {
        self.queue.total()
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        L::show(self.limit, &mut options);
        options
    }

    /// Returns true only where the longest packet would have been queued: `limit 0` drops everything.
    fn can_bypass(&self) -> bool {
        L::within(self.limit, 1, self.mtu.into())
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.queue.bypassed(packets, bytes);
    }

    /// Lets a batch bypass an empty queue that would take all of it: a FIFO returns the same packets in the same order.
    fn bypass(&mut self, batch: &PacketList<A>) -> bool {
        let may = self.queue.is_empty()
            && L::within(self.limit, batch.len(), batch.bytes())
            && (batch.len() > 1 || self.can_bypass());
        if may {
            self.queue.bypassed(batch.segs(), batch.bytes());
        }
        may
    }
}
