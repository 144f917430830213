//! A qdisc in virtual time, and scripts of operations drawn at random, for the kinds that drop by time.

use proptest::prelude::*;
use std::collections::BTreeMap;

pub(in crate::generic::qdisc) use crate::generic::qdisc::testing::{MS, SMALL as ENV};
use crate::generic::qdisc::testing::{Stand, is_a_stand};
use crate::generic::qdisc::{Budget, Verdict};
use crate::tc::Style;
use txq_core::arch::Nanos;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};

/// A qdisc in virtual time.
pub(in crate::generic::qdisc) struct Bench(Stand);

is_a_stand!(Bench, 0);

impl Bench {
    pub(in crate::generic::qdisc) fn new(text: &str) -> Self {
        Self::with_room(text, 1514)
    }

    /// A qdisc, and packets of up to `room` bytes.
    pub(in crate::generic::qdisc) fn with_room(text: &str, room: usize) -> Self {
        Self(Stand::new(text, ENV, if room > 1514 { 64 } else { 32768 }, room))
    }

    pub(in crate::generic::qdisc) fn packet(&mut self, bytes: usize, hash: u32) -> Packet {
        let mut packet = self.0.packet(bytes);
        packet.set_hash(hash);
        packet
    }

    pub(in crate::generic::qdisc) fn enqueue(&mut self, bytes: usize, hash: u32) -> Verdict {
        let packet = self.packet(bytes, hash);
        self.push(packet)
    }

    pub(in crate::generic::qdisc) fn dequeue(&mut self) -> Option<Packet> {
        self.take(Budget::packets(1)).pop_front()
    }

    pub(in crate::generic::qdisc) fn drops(&self) -> u64 {
        self.drops.get(DropReason::QdiscCongested)
    }

    /// Returns the output of `tc -s qdisc show` and `tc -j -s qdisc show` for the qdisc.
    pub(in crate::generic::qdisc) fn shown(&self) -> (String, String) {
        let (handle, root, style) =
            (crate::tc::Handle::new(0x8001, 0), crate::tc::Handle::ROOT, Style::default());
        let info = crate::tc::QdiscInfo {
            refcnt: 2,
            options: self.qdisc.options(style),
            stats: self.qdisc.stats(),
            xstats: self.qdisc.xstats(style),
            ..crate::tc::QdiscInfo::new(self.qdisc.kind(), handle, root, style)
        };
        let infos = [info];
        (crate::tc::show_text(&infos, true), crate::tc::show_json(&infos, true).to_string())
    }

    /// Keeps `depth` packets of 1000 bytes in the queue for `time`, and dequeues one each millisecond. Returns the times of
    /// the drops.
    pub(in crate::generic::qdisc) fn stand(&mut self, depth: usize, time: Nanos) -> Vec<Nanos> {
        let (mut drops, end) = (Vec::new(), self.now + time);
        while self.now < end {
            let before = self.drops();
            let _ = self.dequeue();
            drops.extend((before..self.drops()).map(|_| self.now));
            while self.qdisc.qlen() < depth {
                let _ = self.enqueue(1000, 1);
            }
            self.now += MS;
        }
        drops
    }
}

/// Returns an IPv4 frame with this TOS byte, whose ECN field may be set.
pub(in crate::generic::qdisc) fn ipv4(bench: &mut Bench, tos: u8) -> Packet {
    let mut packet = bench.packet(1000, 0);
    packet.data_mut().fill(0);
    packet.data_mut()[12..16].copy_from_slice(&[8, 0, 0x45, tos]);
    packet.set_hash(1);
    packet
}

/// One operation of a random script on codel or fq_codel.
#[derive(Debug, Clone)]
pub(in crate::generic::qdisc) enum Op {
    /// (bytes, hash, segments) of each packet.
    Enqueue(Vec<(usize, u32, u16)>),
    Dequeue(usize, u64),
    Wait(Nanos),
    Change(String),
    Reset,
}

pub(in crate::generic::qdisc) fn ops(change: BoxedStrategy<String>) -> impl Strategy<Value = Vec<Op>> {
    let segs = prop_oneof![4 => Just(1u16), 1 => 2u16..40];
    let hash = (0u32..12).prop_map(|n| (n + 1) * 0x1234_5678);
    let packet = (0usize..1514, hash, segs);
    let op = prop_oneof![
        8 => prop::collection::vec(packet, 1..40).prop_map(Op::Enqueue),
        6 => (1usize..20, prop_oneof![Just(u64::MAX), 0u64..6000]).prop_map(|(n, b)| Op::Dequeue(n, b)),
        4 => prop_oneof![3 => 0..50 * MS, 1 => Just(u64::MAX >> 2)].prop_map(Op::Wait),
        1 => change.prop_map(Op::Change),
        1 => Just(Op::Reset),
    ];
    prop::collection::vec(op, 1..80)
}

/// Checks under any script that no packet is lost or invented, no flow is reordered, and the counters are exact.
pub(in crate::generic::qdisc) fn conserves(text: &str, ops: &[Op]) {
    let mut bench = Bench::new(text);
    // The queued packets by number: (bytes, hash).
    let mut queued = BTreeMap::new();
    let mut last = BTreeMap::new();
    let (mut sent, mut accounted) = ((0, 0), 0);
    for op in ops {
        match op {
            Op::Enqueue(packets) => {
                let packets: Vec<_> = packets
                    .iter()
                    .map(|&(bytes, hash, segs)| {
                        let mut packet = bench.packet(bytes, hash);
                        packet.set_gso(100, segs);
                        queued.insert(packet.cookie(), (bytes as u64, hash));
                        packet
                    })
                    .collect();
                let mut batch: PacketList = packets.into_iter().collect();
                bench.with(|q, cx| q.enqueue_batch(&mut batch, cx));
                assert!(batch.is_empty());
            }
            Op::Dequeue(packets, bytes) => {
                let mut out = PacketList::new();
                let had = bench.qdisc.qlen();
                bench.with(|q, cx| q.dequeue_batch(Budget::new(*packets, *bytes), &mut out, cx));
                assert!(!out.is_empty() || had == 0, "nothing came of {had} packets");
                assert!(out.len() <= *packets && !out.stamped());
                sent = (sent.0 + out.segs(), sent.1 + out.bytes());
                for packet in out.iter() {
                    let (_, hash) = queued.remove(&packet.cookie()).expect("was queued");
                    assert!(last.insert(hash, packet.cookie()) < Some(packet.cookie()), "reordered");
                }
            }
            Op::Wait(time) => bench.now = bench.now.saturating_add(*time),
            Op::Change(text) => bench.change(text).unwrap(),
            Op::Reset => {
                bench.with(|q, cx| q.reset(cx));
                assert_eq!(bench.qdisc.qlen(), 0);
            }
        }
        assert!(!bench.to_free.stamped());
        for packet in std::mem::take(&mut bench.to_free).iter() {
            queued.remove(&packet.cookie()).expect("was queued");
            assert_ne!(packet.drop_reason(), DropReason::NotSpecified);
            accounted += 1;
        }
        let stats = bench.qdisc.stats();
        let bytes: u64 = queued.values().map(|p| p.0).sum();
        assert_eq!((stats.qlen, stats.backlog), (queued.len() as u64, bytes));
        assert_eq!(bench.qdisc.qlen(), queued.len());
        assert_eq!((stats.packets, stats.bytes), sent);
        assert_eq!(stats.drops, bench.drops.total() - bench.drops.get(DropReason::QueuePurge));
        assert_eq!(bench.drops.total(), accounted);
    }
    let _ = bench.shown();
}
