//! A link in simulated time with the queue under test, and a record of its packets.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::{Ecn, Nanos, Queue, TestPacket};

/// A packet that has left.
pub(super) struct Left {
    pub(super) at: Nanos,
    pub(super) packet: TestPacket,
    /// How long it was queued.
    pub(super) waited: Nanos,
    /// Whether the queue has set CE.
    pub(super) marked: bool,
}

/// A dropped packet.
pub(super) struct Lost {
    /// When the drop was noticed.
    pub(super) at: Nanos,
    pub(super) packet: TestPacket,
}

pub(super) struct Bench<Q> {
    queue: Q,
    pub(super) now: Nanos,
    /// The packets sent, by their numbers, and the times.
    sent: Vec<(Nanos, TestPacket)>,
    /// The numbers of the packets in the queue, by their flows.
    waiting: BTreeMap<u64, VecDeque<u64>>,
    pub(super) left: Vec<Left>,
    pub(super) lost: Vec<Lost>,
    /// The first packet that the queue has returned wrongly.
    pub(super) violation: Option<String>,
}

impl<Q: Queue> Bench<Q> {
    pub(super) fn new(queue: Q) -> Self {
        let (left, lost) = (Vec::new(), Vec::new());
        Self { queue, now: 0, sent: Vec::new(), waiting: BTreeMap::new(), left, lost, violation: None }
    }

    /// Sends a packet; returns its number.
    pub(super) fn send(&mut self, flow: u64, len: u32, ecn: Ecn) -> u64 {
        let number = self.sent.len() as u64;
        let packet = TestPacket { number, len, flow, ecn };
        self.sent.push((self.now, packet));
        self.waiting.entry(flow).or_default().push_back(number);
        self.queue.enqueue(self.now.into(), packet);
        number
    }

    /// Returns the number of a flow's packets in the queue. Drops that were not noticed count as queued.
    pub(super) fn waiting(&self, flow: u64) -> usize {
        self.waiting.get(&flow).map_or(0, VecDeque::len)
    }

    /// Sends packets of a flow until `packets` of them are queued.
    pub(super) fn fill(&mut self, flow: u64, packets: usize, len: u32, ecn: Ecn) {
        while self.waiting(flow) < packets {
            self.send(flow, len, ecn);
        }
    }

    /// Takes the next packet; returns whether there was one. Notices drops.
    pub(super) fn dequeue(&mut self) -> bool {
        let Some(packet) = self.queue.dequeue(self.now.into()) else {
            let numbers = self.waiting.values_mut().flat_map(|numbers| numbers.drain(..));
            self.lost
                .extend(numbers.map(|number| Lost { at: self.now, packet: self.sent[number as usize].1 }));
            return false;
        };
        let sent = usize::try_from(packet.number).ok().and_then(|number| self.sent.get(number).copied());
        let Some((sent, before)) = sent else {
            self.violation.get_or_insert_with(|| format!("{packet:?} was never sent"));
            return true;
        };
        let marked = before.ecn != packet.ecn;
        let is_legal = !marked || (before.ecn != Ecn::NotEct && packet.ecn == Ecn::Ce);
        if !is_legal || (TestPacket { ecn: packet.ecn, ..before }) != packet {
            self.violation.get_or_insert_with(|| format!("{before:?} left as {packet:?}"));
        }
        let numbers = self.waiting.entry(before.flow).or_default();
        match numbers.iter().position(|&number| number == before.number) {
            Some(before) => {
                let numbers = numbers.drain(..=before).take(before);
                let sent = &self.sent;
                self.lost
                    .extend(numbers.map(|number| Lost { at: self.now, packet: sent[number as usize].1 }));
            }
            None => {
                self.unlose(before.number);
                let text = || format!("{before:?} left a second time, or after a later packet of its flow");
                self.violation.get_or_insert_with(text);
            }
        }
        self.left.push(Left { at: self.now, packet, waited: self.now.saturating_sub(sent), marked });
        true
    }

    /// Forgets the drop of a packet that has left after all.
    fn unlose(&mut self, number: u64) {
        if let Some(at) = self.lost.iter().rposition(|lost| lost.packet.number == number) {
            self.lost.remove(at);
        }
    }

    /// Serves the link for `time`: calls `arrive`, and takes a packet, at each `gap`.
    pub(super) fn serve(&mut self, gap: Nanos, time: Nanos, mut arrive: impl FnMut(&mut Self)) {
        for _ in 0..time / gap {
            arrive(self);
            self.now += gap;
            self.dequeue();
        }
    }

    /// Takes packets, all at this time, until none is left.
    pub(super) fn drain(&mut self) {
        // A queue that returns more packets than it got is stopped.
        for _ in 0..=self.sent.len() {
            if !self.dequeue() {
                return;
            }
        }
    }
}

/// A time, in milliseconds.
pub(super) struct Ms(pub(super) f64);

impl Ms {
    pub(super) fn of(time: Nanos) -> Self {
        Self(time as f64 / 1e6)
    }

    /// Returns the time from `from` to `to`, which may be negative.
    pub(super) fn between(from: Nanos, to: Nanos) -> Self {
        Self((to as f64 - from as f64) / 1e6)
    }
}

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.2}", self.0);
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        write!(f, "{text} ms")
    }
}
