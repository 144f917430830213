//! The queue against a sorted list, and what the tests of netem and etf have in common.

use proptest::prelude::*;

use txq_core::arch::Native;
use txq_core::drop::DropReason;

use super::*;
pub(in crate::generic::qdisc) use crate::generic::qdisc::testing::MS;
use crate::generic::qdisc::testing::{SMALL, Stand, is_a_stand};
use crate::generic::qdisc::{Budget, Env, Qdisc, Verdict, testing};
use crate::tc::{ParseError, Style};

/// Builds the qdisc that a text describes.
pub(in crate::generic::qdisc) fn try_build(text: &str) -> Result<Box<dyn Qdisc>, ParseError> {
    testing::try_build(text, &SMALL)
}

/// A qdisc in virtual time.
pub(in crate::generic::qdisc) struct Bench(Stand);

is_a_stand!(Bench, 0);

impl Bench {
    pub(in crate::generic::qdisc) fn new(text: &str) -> Self {
        Self(Stand::new(text, SMALL, 8192, 1514))
    }

    pub(in crate::generic::qdisc) fn without_seed(text: &str) -> Self {
        Self(Stand::new(text, Env { seed: None, ..SMALL }, 8192, 1514))
    }

    pub(in crate::generic::qdisc) fn enqueue(&mut self, bytes: usize) -> Verdict {
        let packet = self.packet(bytes);
        self.push(packet)
    }

    pub(in crate::generic::qdisc) fn enqueue_at(&mut self, departure: Nanos) -> Verdict {
        let mut packet = self.packet(100);
        packet.set_departure(departure);
        self.push(packet)
    }

    /// Dequeues all packets that may leave now, and returns their numbers.
    pub(in crate::generic::qdisc) fn sent(&mut self) -> Vec<u64> {
        self.take(Budget::packets(usize::MAX)).iter().map(Packet::cookie).collect()
    }

    /// Goes from event to event until nothing is queued; returns when each packet left, and its number.
    pub(in crate::generic::qdisc) fn run(&mut self) -> Vec<(Nanos, u64)> {
        let mut sent = Vec::new();
        loop {
            let numbers = self.sent();
            sent.extend(numbers.into_iter().map(|number| (self.now, number)));
            if self.qdisc.qlen() == 0 {
                return sent;
            }
            let next = self.qdisc.next_event().expect("packets wait for a time");
            assert!(next > self.now, "an event that has been");
            self.now = next;
        }
    }

    pub(in crate::generic::qdisc) fn counter(&self, key: &str) -> u64 {
        self.qdisc.xstats(Style { details: true, ..Style::default() }).unwrap().json()[key].as_u64().unwrap()
    }
}

/// One operation on a qdisc.
#[derive(Debug, Clone)]
pub(in crate::generic::qdisc) enum Op {
    /// A packet of so many bytes and segments that may leave so long after now, or before.
    Enqueue(usize, u16, i64),
    /// A dequeue of at most so many packets and bytes.
    Dequeue(usize, u64),
    /// The time passes.
    Wait(Nanos),
    /// The time passes until the next event.
    Event,
    Change(String),
    Reset,
}

pub(in crate::generic::qdisc) fn ops(changes: BoxedStrategy<String>) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0usize..1500, prop_oneof![4 => Just(1u16), 1 => 2u16..40], -1_000_000i64..20_000_000)
            .prop_map(|(b, s, t)| Op::Enqueue(b, s, t)),
        4 => (1usize..20, prop_oneof![Just(u64::MAX), 0u64..6000]).prop_map(|(n, b)| Op::Dequeue(n, b)),
        2 => (0u64..5_000_000).prop_map(Op::Wait),
        3 => Just(Op::Event),
        1 => changes.prop_map(Op::Change),
        1 => Just(Op::Reset),
    ];
    prop::collection::vec(op, 1..150)
}

/// Checks under any operations: each packet, and each copy of one, is sent once, dropped once or queued; `qlen` and
/// `backlog` are exact; and all that is queued leaves.
pub(in crate::generic::qdisc) fn conserves(text: &str, ops: &[Op]) {
    let mut bench = Bench::new(text);
    let (mut sizes, mut segs) = (Vec::new(), Vec::new());
    // The bytes of packets and of copies.
    let mut bytes_in = 0;
    let (mut sent, mut freed) = (Vec::new(), 0);
    for op in ops {
        match op {
            Op::Enqueue(bytes, segments, after) => {
                let mut packet = bench.packet(*bytes);
                packet.set_gso(100, *segments);
                packet.set_departure(bench.now.saturating_add_signed(*after));
                sizes.push(*bytes as u64);
                segs.push(u64::from(*segments));
                let (dropped, created) = (bench.drops.total(), bench.created);
                let verdict = bench.push(packet);
                let copies = bench.created - created;
                bytes_in += *bytes as u64 * (1 + copies);
                if verdict == Verdict::Drop {
                    assert_eq!((bench.drops.total() - dropped, copies), (1, 0), "no copy of what is dropped");
                }
            }
            Op::Dequeue(packets, bytes) => {
                let out = bench.take(Budget::new(*packets, *bytes));
                assert!(out.len() <= *packets);
                if out.is_empty() && bench.qdisc.qlen() > 0 {
                    assert!(bench.qdisc.next_event().expect("what waits has a time") > bench.now);
                }
                sent.extend(out.iter().map(Packet::cookie));
            }
            Op::Wait(time) => bench.now = bench.now.saturating_add(*time),
            Op::Event => bench.now = bench.qdisc.next_event().unwrap_or(0).max(bench.now),
            Op::Change(text) => {
                let _ = bench.change(text);
            }
            Op::Reset => bench.with(|q, cx| q.reset(cx)),
        }
        freed += bench.to_free.len() as u64;
        let gone = std::mem::take(&mut bench.to_free);
        assert!(gone.iter().all(|p| p.drop_reason() != DropReason::NotSpecified));
        sent.extend(gone.iter().map(Packet::cookie));
        // `sent` also has what was freed: each packet that is no longer queued, once.
        let stats = bench.qdisc.stats();
        assert_eq!(sizes.len() as u64 + bench.created, sent.len() as u64 + stats.qlen);
        assert_eq!(stats.qlen, bench.qdisc.qlen() as u64);
        assert_eq!(stats.backlog, bytes_in - sent.iter().map(|&n| sizes[n as usize]).sum::<u64>());
        assert_eq!(freed, bench.drops.total());
        assert_eq!(stats.drops, freed - bench.drops.get(DropReason::QueuePurge));
    }
    bench.now = bench.now.saturating_add(10_000 * MS);
    sent.extend(bench.run().into_iter().map(|(_, number)| number));
    sent.extend(bench.to_free.iter().map(Packet::cookie));
    sent.sort_unstable();
    let (mut copies, mut last) = (0, None);
    sent.retain(|&number| {
        let again = last.replace(number) == Some(number);
        copies += u64::from(again);
        !again
    });
    assert_eq!(copies, bench.created);
    assert_eq!(sent, (0..bench.numbers).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn gives_what_a_sorted_list_gives(ops in prop::collection::vec(prop::option::weighted(0.6, 0u64..40), 1..200)) {
        let mut bench = Bench::new("pfifo");
        let (mut queue, mut model): (Timed<Native>, Vec<(Nanos, u64)>) = (Timed::new(), Vec::new());
        for op in ops {
            if let Some(time) = op {
                let packet = bench.packet(time as usize);
                model.push((time, packet.cookie()));
                model.sort_unstable();
                queue.push(time, packet);
            } else {
                prop_assert_eq!(queue.next_time(), model.first().map(|m| m.0));
                let popped = queue.pop().map(|(time, packet)| (time, packet.cookie()));
                prop_assert_eq!(popped, (!model.is_empty()).then(|| model.remove(0)));
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.bytes(), model.iter().map(|m| m.0).sum::<u64>());
        }
    }
}

/// Packets that come in order never reach the heap.
#[test]
fn who_comes_in_order_waits_in_a_fifo() {
    let mut bench = Bench::new("pfifo");
    let mut queue: Timed<Native> = Timed::new();
    for time in [1, 1, 2, 5] {
        queue.push(time, bench.packet(1));
    }
    assert!(queue.out_of_order.is_empty());
}
