use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use txq_core::drop::DropReason;
use txq_core::stats::QdiscStats;

use super::*;
use crate::generic::qdisc::testing::{ENV, MS, Virtual, try_build};
use crate::tc::{Handle, Header, ParseError, Words};

const ATM: &str = "stab linklayer atm overhead 4 mpu 64 mtu 1500";

fn table(text: &str) -> SizeTable {
    Header::parse(&mut Words::split(text)).unwrap().stab.unwrap().table()
}

/// Changes a qdisc as a command does.
fn change(stand: &mut Virtual, text: &str) -> Result<(), ParseError> {
    let mut words = Words::split(text);
    let header = Header::parse(&mut words).unwrap();
    stand.with(|qdisc, cx| crate::generic::qdisc::change(qdisc, &header, &mut words, &ENV, cx))
}

#[derive(Clone, Debug)]
enum Op {
    /// Packets of (bytes, priority, hash), as a batch.
    Enqueue(Vec<(usize, u32, u32)>),
    Dequeue(usize),
    /// Milliseconds.
    Wait(u64),
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    // Some packets name the first class.
    let priority = prop_oneof![0_u32..5, Just(0x1_0001)];
    let packet = (1_usize..1400, priority, 1_u32..6);
    prop_oneof![
        8 => prop::collection::vec(packet, 1..8).prop_map(Op::Enqueue),
        6 => (1_usize..20).prop_map(Op::Dequeue),
        3 => (1_u64..300).prop_map(Op::Wait),
        1 => Just(Op::Reset),
    ]
}

const STABS: [&str; 4] = [ATM, "stab overhead 24", "stab overhead -100", "stab mpu 200 tsize 16 overhead 8"];

/// Kinds that do nothing by chance, each with a qdisc for its first class if it has classes.
const KINDS: [(&str, &str); 14] = [
    ("pfifo limit 9", ""),
    ("bfifo limit 5000", ""),
    ("pfifo_fast", ""),
    ("prio bands 4", "tbf rate 1mbit burst 2k limit 6000"),
    ("tbf rate 1mbit burst 2k limit 9000", "sfq"),
    ("htb default 1", "fq_codel limit 20 flows 8 quantum 500"),
    ("drr", ""),
    ("ets bands 3 strict 1 quanta 500 1000", "bfifo limit 4000"),
    ("sfq limit 20", ""),
    ("codel limit 20", ""),
    ("fq_codel limit 20 flows 8 quantum 400 memory_limit 9000", ""),
    ("fq limit 20 flow_limit 5 nopacing", ""),
    ("netem delay 20ms rate 1mbit limit 15", "pfifo limit 12"),
    ("plug limit 9000", ""),
];

fn stand(text: &str, leaf: &str) -> Virtual {
    let mut stand = Virtual::new(text);
    match stand.qdisc.kind() {
        "htb" => stand.add_class(1, "rate 1mbit burst 3k").unwrap(),
        "drr" => stand.add_class(1, "quantum 700").unwrap(),
        _ => {}
    }
    if !leaf.is_empty() {
        assert!(stand.attach(Handle::new(1, 1), Handle::new(2, 0), leaf), "{text}");
    }
    stand
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    /// A qdisc with a size table does the same as one without, whose packets have the table's lengths; and the packets have their
    /// own lengths again wherever they leave.
    #[test]
    fn the_tables_lengths_count_and_the_packets_keep_theirs(
        (stab, kind) in (0..STABS.len(), 0..KINDS.len()), ops in prop::collection::vec(op(), 1..60),
    ) {
        let (stab, (text, leaf)) = (STABS[stab], KINDS[kind]);
        let table = table(stab);
        let mut sized = stand(&format!("{stab} handle 1: {text}"), leaf);
        let mut plain = stand(text, leaf);
        let (mut lengths, mut left) = (Vec::new(), 0);
        for op in ops {
            match op {
                Op::Enqueue(packets) => for (stand, own) in [(&mut sized, true), (&mut plain, false)] {
                    let mut batch = PacketList::new();
                    for &(bytes, priority, hash) in &packets {
                        let len = if own { bytes } else { table.size(bytes) as usize };
                        let mut packet = stand.packet(len, priority);
                        packet.set_hash(hash);
                        batch.push_back(packet);
                        lengths.extend(own.then_some(bytes));
                    }
                    stand.with(|qdisc, cx| qdisc.enqueue_batch(&mut batch, cx));
                    prop_assert!(batch.is_empty());
                },
                Op::Dequeue(packets) => {
                    let (out, expected) = (sized.dequeue(packets), plain.dequeue(packets));
                    prop_assert!(out.iter().all(|&(number, len)| len == lengths[number as usize]), "{:?}", out);
                    left += out.iter().map(|(_, len)| len).sum::<usize>();
                    prop_assert!(out.iter().map(|(number, _)| number).eq(expected.iter().map(|(number, _)| number)));
                }
                Op::Wait(millis) => for stand in [&mut sized, &mut plain] {
                    stand.now += millis * MS;
                },
                Op::Reset => for stand in [&mut sized, &mut plain] {
                    stand.with(|qdisc, cx| qdisc.reset(cx));
                },
            }
            prop_assert_eq!(sized.qdisc.stats(), plain.qdisc.stats());
            prop_assert_eq!(sized.qdisc.next_event(), plain.qdisc.next_event());
            prop_assert_eq!(sized.drops.total(), plain.drops.total());
        }
        sized.with(|qdisc, cx| qdisc.reset(cx));
        prop_assert_eq!(lengths.iter().sum::<usize>() as u64, left as u64 + sized.dropped);
    }
}

/// BQL's bytes are the device's.
#[test]
fn a_budget_counts_the_packets_own_bytes() {
    let mut stand = Virtual::new("stab overhead 900 pfifo");
    (0..5).for_each(|_| assert_eq!(stand.enqueue(100, 0), Verdict::Success));
    let out = stand.take(Budget::new(9, 300));
    assert_eq!((out.len(), out.bytes(), stand.qdisc.stats().bytes), (3, 300, 3000));
    let mut out = stand.take(Budget::new(1, 10_000));
    assert_eq!(out.len(), 1);
    // None of them can be put back: the next dequeue returns the fifth.
    stand.with(|qdisc, _| qdisc.requeue(&mut out));
    assert_eq!(out.len(), 1);
    assert_eq!(stand.dequeue(9), [(4, 100)]);
}

/// netem keeps the packet and leaves the copy, which enters at the root like any other packet.
#[test]
fn a_copy_counts_the_tables_length_once() {
    let mut stand = Virtual::new("stab overhead 24 netem duplicate 100%");
    stand.enqueue_batch(100, 0..3);
    assert_eq!((stand.qdisc.stats().backlog, stand.copied), (6 * 124, 300));
    assert_eq!(stand.dequeue(9).iter().map(|(_, len)| *len).collect::<Vec<_>>(), [100; 6]);
    assert_eq!((stand.qdisc.stats().bytes, stand.qdisc.stats().backlog), (744, 0));
}

/// As in Linux, the whole of a GSO packet has one length from the table, and segments that a qdisc cuts have their own.
#[test]
fn segments_count_as_they_are() {
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.tcp(80, 90, 7, 512).write(&mut frame, &[5; 2900]).unwrap();
    let headers = frame.len() - 2900;
    for (text, sent) in [
        ("stab overhead 100 tbf rate 1gbit burst 4k limit 9k", frame.len() + 100),
        ("stab overhead 100 tbf rate 1gbit burst 1600 limit 9k", frame.len() + headers),
    ] {
        let mut stand = Virtual::with_room(text, 16, 4000);
        let mut packet = stand.packet(frame.len(), 0);
        packet.data_mut().copy_from_slice(&frame);
        packet.set_gso(1450, 2);
        let _ = stand.with(|qdisc, cx| qdisc.enqueue(packet, cx));
        let mut bytes = 0;
        while stand.qdisc.qlen() > 0 {
            bytes += stand.dequeue(9).iter().map(|(_, len)| len).sum::<usize>();
            stand.now += MS;
        }
        let own = if stand.created > 0 { frame.len() + headers } else { frame.len() };
        assert_eq!((bytes, stand.qdisc.stats().bytes), (own, sent as u64), "{text}");
    }
}

#[test]
fn a_change_sets_or_removes_the_table() {
    let mut stand = Virtual::new("stab overhead 24 pfifo limit 5");
    let shown = |stand: &Virtual| stand.qdisc.stab().map(|stab| stab.words());
    let _ = stand.enqueue(100, 0);
    assert!(change(&mut stand, "stab mpu 500 pfifo limit x").is_err());
    assert_eq!(shown(&stand).unwrap(), "stab overhead 24 ");
    change(&mut stand, "stab overhead 50 pfifo limit 6").unwrap();
    let _ = stand.enqueue(100, 0);
    change(&mut stand, "pfifo").unwrap();
    let _ = stand.enqueue(100, 0);
    assert_eq!((shown(&stand), stand.qdisc.stats().backlog), (None, 124 + 150 + 100));
    change(&mut stand, "stab overhead 1 pfifo").unwrap();
    let _ = stand.enqueue(100, 0);
    assert_eq!(stand.dequeue(9), [(0, 100), (1, 100), (2, 100), (3, 100)]);
    assert_eq!(stand.qdisc.stats().bytes, 124 + 150 + 100 + 101);

    let mut without = Virtual::new("pfifo");
    let error = change(&mut without, "stab overhead 1 pfifo limit 3").unwrap_err();
    assert_eq!(error.message(), "RTNETLINK answers: Operation not supported");
    assert_eq!(without.qdisc.limit(), Some(1000));
    let mut both = Virtual::new("estimator 1s 8s stab overhead 1 pfifo");
    change(&mut both, "stab overhead 2 pfifo").unwrap();
    assert_eq!((shown(&both).unwrap().as_str(), both.qdisc.rate().is_some()), ("stab overhead 2 ", true));
    for text in ["stab overhead 1 noqueue", "stab overhead 1 mq", "stab overhead 1 cake_mq"] {
        let env = crate::generic::qdisc::Env { txqs: 4, ..ENV };
        let error = crate::generic::qdisc::build::<txq_core::arch::Native>(text, &env).err().expect(text);
        assert_eq!(error.message(), "RTNETLINK answers: Operation not supported", "{text}");
    }
    assert!(!try_build("stab overhead 1 pfifo_fast", &ENV).unwrap().can_bypass());
}

/// Panics at the packet with the number 3: where it is enqueued, or else where it is dequeued.
struct Panics {
    queue: PacketList,
    early: bool,
}

impl Qdisc for Panics {
    fn kind(&self) -> &'static str {
        "panics"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        assert!(!self.early || packet.cookie() != 3);
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, _: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        while let Some(packet) = self.queue.pop_front() {
            assert!(packet.cookie() != 3);
            out.push_back(packet);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        while let Some(packet) = self.queue.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.queue.bytes(), ..QdiscStats::default() }
    }
}

#[test]
fn a_panic_leaves_no_packet_with_the_tables_length() {
    for early in [true, false] {
        let mut stand = Virtual::new("pfifo");
        let stab = Header::parse(&mut Words::split("stab overhead 24")).unwrap().stab.unwrap();
        stand.qdisc = Box::new(WithStab::new(Box::new(Panics { queue: PacketList::new(), early }), stab));
        let mut batch: PacketList = (0..6).map(|_| stand.packet(100, 0)).collect();
        let call = AssertUnwindSafe(|| stand.with(|qdisc, cx| qdisc.enqueue_batch(&mut batch, cx)));
        assert_eq!(catch_unwind(call).is_err(), early);
        assert_eq!((batch.len(), batch.bytes()), if early { (2, 200) } else { (0, 0) });
        assert!(batch.iter().all(|packet| packet.len() == 100));
        let mut out = PacketList::new();
        let call = AssertUnwindSafe(|| {
            stand.with(|qdisc, cx| qdisc.dequeue_batch(Budget::packets(9), &mut out, cx));
        });
        assert_eq!(catch_unwind(call).is_err(), !early);
        assert_eq!((out.len(), out.bytes()), (3, 300));
        assert!(out.iter().all(|packet| packet.len() == 100));
        stand.with(|qdisc, cx| qdisc.reset(cx));
        assert_eq!(stand.dropped, if early { 0 } else { 200 });
    }
}
