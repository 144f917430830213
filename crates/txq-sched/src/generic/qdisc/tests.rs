//! Kinds against simple models of them, under operations drawn at random.

mod shares;
mod usage;

use std::collections::VecDeque;

use proptest::prelude::*;
use txq_core::drop::DropReason;

use super::*;
use crate::generic::qdisc::testing::{SMALL as ENV, Stand};
use crate::tc::show_text;

/// One operation on a qdisc.
#[derive(Debug, Clone)]
enum Op {
    /// A batch of packets of (bytes, priority, segments).
    Enqueue(Vec<(usize, u32, u16)>),
    /// A dequeue of at most so many packets and bytes.
    Dequeue(usize, u64),
    Peek,
    /// A new limit.
    Change(u32),
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    let packet = (1usize..1500, 0u32..20, prop_oneof![4 => Just(1u16), 1 => 2u16..40]);
    prop_oneof![
        8 => prop::collection::vec(packet, 1..12).prop_map(Op::Enqueue),
        6 => (1usize..20, prop_oneof![Just(u64::MAX), 0u64..6000]).prop_map(|(n, b)| Op::Dequeue(n, b)),
        2 => Just(Op::Peek),
        1 => (0u32..30).prop_map(Op::Change),
        1 => Just(Op::Reset),
    ]
}

/// A packet in a model: its number, bytes and segments.
type Seen = (u64, usize, u64);

/// A model of a kind.
struct Model {
    kind: &'static str,
    bands: Vec<VecDeque<Seen>>,
    limit: usize,
    stats: QdiscStats,
    purged: u64,
}

impl Model {
    fn new(kind: &'static str) -> Self {
        let (bands, limit) = match kind {
            "pfifo_fast" => (3, 20),
            "bfifo" => (1, 20 * 1514),
            _ => (1, 20),
        };
        let bands = vec![VecDeque::new(); bands];
        Self { kind, bands, limit, stats: QdiscStats::default(), purged: 0 }
    }

    fn enqueue(&mut self, packet: Seen, priority: u32) -> Verdict {
        let band = match (self.kind, priority % 16) {
            ("pfifo_fast", 6 | 7) => 0,
            ("pfifo_fast", 1..=3 | 5) => 2,
            ("pfifo_fast", _) => 1,
            _ => 0,
        };
        let band = &mut self.bands[band];
        let fits = match self.kind {
            "bfifo" => band.iter().map(|p| p.1).sum::<usize>() + packet.1 <= self.limit,
            _ => band.len() < self.limit,
        };
        if !fits {
            self.stats.drops += 1;
            return Verdict::Drop;
        }
        band.push_back(packet);
        Verdict::Success
    }

    /// Dequeues at least one packet, then others while bytes are left.
    fn dequeue(&mut self, packets: usize, bytes: u64) -> Vec<u64> {
        let (mut numbers, mut left) = (Vec::new(), i128::from(bytes));
        while numbers.is_empty() || (numbers.len() < packets && left > 0) {
            let Some(packet) = self.bands.iter_mut().find_map(VecDeque::pop_front) else { break };
            let (number, bytes, segs) = packet;
            self.stats.bytes += bytes as u64;
            self.stats.packets += segs;
            left -= bytes as i128;
            numbers.push(number);
        }
        numbers
    }

    fn stats(&self) -> QdiscStats {
        let queued = || self.bands.iter().flatten();
        QdiscStats {
            backlog: queued().map(|p| p.1 as u64).sum(),
            qlen: queued().count() as u64,
            ..self.stats
        }
    }
}

fn stand(text: &str) -> Stand {
    Stand::new(text, ENV, 1024, 1514)
}

/// Returns a packet with a priority and segments.
fn packet(stand: &mut Stand, bytes: usize, priority: u32, segs: u16) -> Packet {
    let mut packet = stand.packet(bytes);
    packet.set_priority(priority);
    packet.set_gso(100, segs);
    packet
}

fn check(kind: &'static str, ops: &[Op]) {
    let mut bench = stand(kind);
    let mut model = Model::new(kind);
    for op in ops {
        match op {
            Op::Enqueue(packets) => {
                let first = bench.numbers;
                let mut batch: PacketList =
                    packets.iter().map(|&(b, p, s)| packet(&mut bench, b, p, s)).collect();
                let verdicts: Vec<_> = packets
                    .iter()
                    .zip(first..)
                    .map(|(&(bytes, prio, segs), n)| model.enqueue((n, bytes, segs.into()), prio))
                    .collect();
                if let [expected] = verdicts[..] {
                    let packet = batch.pop_front().unwrap();
                    assert_eq!(bench.with(|q, cx| q.enqueue(packet, cx)), expected);
                } else {
                    bench.with(|q, cx| q.enqueue_batch(&mut batch, cx));
                    assert!(batch.is_empty());
                }
            }
            Op::Dequeue(packets, bytes) => {
                let mut out = PacketList::new();
                bench.with(|q, cx| q.dequeue_batch(Budget::new(*packets, *bytes), &mut out, cx));
                let expected = model.dequeue(*packets, *bytes);
                assert_eq!(out.iter().map(Packet::cookie).collect::<Vec<_>>(), expected);
            }
            Op::Peek => {
                let expected = model.bands.iter().find_map(VecDeque::front).map(|p| p.0);
                assert_eq!(bench.qdisc.front().map(|p| p.cookie()), expected);
            }
            Op::Change(limit) => {
                let text = format!("limit {limit}");
                let changed = bench.with(|q, cx| q.change(&mut Words::split(&text), &ENV, cx));
                assert_eq!(changed.is_ok(), kind != "pfifo_fast");
                if changed.is_ok() {
                    // Queued packets stay, however small the limit has become.
                    model.limit = *limit as usize;
                }
            }
            Op::Reset => {
                bench.with(|q, cx| q.reset(cx));
                model.purged += model.stats().qlen;
                model.bands.iter_mut().for_each(VecDeque::clear);
            }
        }
        assert_eq!(bench.qdisc.stats(), model.stats());
        assert_eq!(bench.qdisc.qlen() as u64, model.stats().qlen);
        assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), model.stats.drops);
        assert_eq!(bench.drops.get(DropReason::QueuePurge), model.purged);
        assert_eq!(bench.to_free.len() as u64, bench.drops.total());
        assert!(bench.to_free.iter().all(|p| p.drop_reason() != DropReason::NotSpecified));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn pfifo_does_as_its_model(ops in prop::collection::vec(op(), 1..60)) {
        check("pfifo", &ops);
    }

    #[test]
    fn bfifo_does_as_its_model(ops in prop::collection::vec(op(), 1..60)) {
        check("bfifo", &ops);
    }

    #[test]
    fn pfifo_fast_does_as_its_model(ops in prop::collection::vec(op(), 1..60)) {
        check("pfifo_fast", &ops);
    }
}

/// A bfifo takes a packet that fills it exactly, and no byte more.
#[test]
fn bfifo_may_be_filled_exactly() {
    let mut bench = stand("bfifo limit 200");
    for (bytes, verdict) in [(100, Verdict::Success), (101, Verdict::Drop), (100, Verdict::Success)] {
        let packet = bench.packet(bytes);
        assert_eq!(bench.with(|q, cx| q.enqueue(packet, cx)), verdict);
    }
    assert!(!bench.qdisc.can_bypass(), "the limit is below the longest packet");
}

#[test]
fn a_limit_of_0_lets_nothing_pass() {
    let mut bench = stand("pfifo limit 0");
    assert!(!bench.qdisc.can_bypass());
    let packet = bench.packet(60);
    assert_eq!(bench.with(|q, cx| q.enqueue(packet, cx)), Verdict::Drop);
}

/// A batch that finds these empty need not be queued; one that finds a packet must be.
#[test]
fn a_batch_bypasses_empty_queues() {
    for kind in ["pfifo", "bfifo", "pfifo_fast", "codel", "fq_codel", "sfq", "fq"] {
        let mut bench = stand(kind);
        let mut batch = PacketList::new();
        for hash in 1..=5 {
            let mut packet = bench.packet(100);
            packet.set_hash(hash << 20);
            batch.push_back(packet);
        }
        assert!(bench.qdisc.bypass(&batch), "{kind}");
        let stats = bench.qdisc.stats();
        assert_eq!((stats.packets, stats.bytes, stats.qlen), (5, 500, 0), "{kind}");
        let packet = bench.packet(100);
        let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        assert!(!bench.qdisc.bypass(&batch), "{kind}");
    }
    for kind in [
        "codel limit 1",
        "sfq redflowlimit 100000",
        "tbf rate 1gbit burst 10k limit 100k",
        "prio",
        "drr",
        "cake",
        "fq_pie",
    ] {
        let mut bench = stand(kind);
        let batch: PacketList = (0..2).map(|_| bench.packet(100)).collect();
        assert_eq!(bench.qdisc.bypass(&batch), kind.starts_with("codel"), "{kind}");
    }
}

#[test]
fn a_gso_packet_counts_as_its_segments_when_it_leaves() {
    let mut bench = stand("pfifo");
    let packet = packet(&mut bench, 1000, 0, 10);
    let _ = bench.with(|q, cx| q.enqueue(packet, cx));
    assert_eq!((bench.qdisc.stats().packets, bench.qdisc.stats().qlen), (0, 1));
    let mut out = PacketList::new();
    bench.with(|q, cx| q.dequeue_batch(Budget::packets(1), &mut out, cx));
    assert_eq!((bench.qdisc.stats().packets, bench.qdisc.stats().bytes), (10, 1000));
}

#[test]
fn defaults_and_options_are_the_kernels() {
    for (text, shown) in [
        ("pfifo", "limit 20p"),
        ("pfifo limit 7", "limit 7p"),
        ("bfifo", "limit 30280b"),
        ("bfifo limit 10k", "limit 10Kb"),
        ("pfifo_fast", "bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1"),
    ] {
        assert_eq!(stand(text).qdisc.options(Style::default()).text(), shown);
    }
}

#[test]
fn errors_are_tcs() {
    let error = |text: &str, env: &Env| build::<Native>(text, env).err().expect(text).to_string();
    for (text, expected) in [
        ("pfifo limit", "Command line is not complete. Try option \"help\""),
        ("pfifo limit abc", "pfifo: Illegal value for \"limit\": \"abc\""),
        ("pfifo limt 5", "pfifo: unknown parameter \"limt\" (did you mean \"limit\"?)"),
        ("pfifo_fast limit 5", "qdisc 'pfifo_fast' does not support option parsing"),
        ("pfivo", "Error: Specified qdisc kind is unknown. (did you mean \"pfifo\"?)"),
        ("", "Error: Specified qdisc kind is unknown."),
        ("mq x", "Unknown qdisc \"mq\", hence option \"x\" is unparsable"),
    ] {
        assert!(error(text, &ENV).starts_with(expected), "{text}: {}", error(text, &ENV));
    }
    let one = Env { txqs: 1, ..ENV };
    assert!(error("mq", &one).contains("Operation not supported"));
}

#[test]
fn shown_as_tc_shows_it() {
    let bench = stand("pfifo limit 50");
    let info = crate::tc::QdiscInfo {
        dev: Some("null0".into()),
        refcnt: 2,
        options: bench.qdisc.options(Style::default()),
        stats: bench.qdisc.stats(),
        ..crate::tc::QdiscInfo::new("pfifo", Handle::new(0x8001, 0), Handle::ROOT, Style::default())
    };
    assert_eq!(
        show_text(&[info], true),
        "qdisc pfifo 8001: dev null0 root refcnt 2 limit 50p\n \
         Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n"
    );
}
