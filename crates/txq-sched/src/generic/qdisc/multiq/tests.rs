use std::collections::VecDeque;

use proptest::prelude::*;
use txq_core::drop::DropReason;

use super::*;
use crate::generic::qdisc::testing::{ENV, SMALL, Stand, Virtual, try_build};
use crate::tc::Handle;

fn stand() -> Virtual {
    let mut bench = Virtual::new("pfifo");
    bench.qdisc = try_build("multiq", &SMALL).unwrap();
    bench.qdisc.set_handle(Handle::new(1, 0));
    bench
}

fn send(bench: &mut Virtual, txq: u16, packets: usize) -> Vec<Verdict> {
    (0..packets)
        .map(|_| {
            let mut packet = bench.packet(100, 0);
            packet.set_txq(txq);
            packet.set_cookie(txq.into());
            bench.with(|qdisc, cx| qdisc.enqueue(packet, cx))
        })
        .collect()
}

fn txqs(bench: &mut Virtual, packets: usize) -> Vec<u64> {
    bench.dequeue(packets).into_iter().map(|(txq, _)| txq).collect()
}

#[test]
fn bands_take_turns() {
    let mut bench = stand();
    for txq in [0, 1, 3] {
        send(&mut bench, txq, 3);
    }
    assert_eq!(txqs(&mut bench, 4), [1, 3, 0, 1]);
    assert_eq!(txqs(&mut bench, 100), [3, 0, 1, 3, 0]);
    assert_eq!(bench.qdisc.stats().packets, 9);
    assert!(send(&mut bench, 9, 20).iter().all(|verdict| *verdict == Verdict::Success));
    assert_eq!(send(&mut bench, 0, 1), [Verdict::Drop], "txq 9 has no band, so band 0 is full");
    assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 1);
}

/// A stopped txq holds up its own packets alone, and its shaper's time is no event while it is stopped.
#[test]
fn a_stopped_txq_holds_up_only_its_own() {
    let mut bench = stand();
    (0..4).for_each(|txq| drop(send(&mut bench, txq, 2)));
    bench.stopped.0 = vec![1, 3];
    assert_eq!(txqs(&mut bench, 100), [2, 0, 2, 0]);
    assert!(txqs(&mut bench, 100).is_empty());
    bench.stopped.0 = vec![1];
    assert_eq!(txqs(&mut bench, 100), [3, 3]);
    assert!(bench.attach(Handle::new(1, 2), Handle::new(2, 0), "tbf rate 8kbit burst 200 limit 1k"));
    send(&mut bench, 1, 3);
    bench.stopped.0.clear();
    assert_eq!(txqs(&mut bench, 100), [1, 1]);
    assert!(bench.qdisc.next_event().is_some());
    bench.stopped.0 = vec![1];
    assert!(txqs(&mut bench, 100).is_empty());
    assert_eq!(bench.qdisc.next_event(), None);
}

#[test]
fn filters_only_drop() {
    let mut bench = stand();
    bench.filter(0, 100, Handle::new(1, 4));
    send(&mut bench, 1, 1);
    assert_eq!(bench.qdisc.classes().unwrap().leaf(2).unwrap().0.qlen(), 1, "the txq is the band");
    bench.with(|qdisc, _| {
        let request =
            crate::generic::filter::Request::parse("parent 1: pref 2 matchall action drop").unwrap();
        qdisc
            .filters(0)
            .unwrap()
            .set(&request, Handle::new(1, 0), crate::generic::filter::Mode::Add)
            .unwrap();
    });
    assert_eq!(bench.enqueue(50, 0), Verdict::Drop);
    assert_eq!(bench.drops.get(DropReason::QdiscDrop), 1);
}

#[test]
fn words_and_errors_are_tcs() {
    let mut stand = Stand::new("pfifo", SMALL, 4, 100);
    stand.qdisc = try_build("multiq", &SMALL).unwrap();
    let options = stand.qdisc.options(Style::default());
    assert_eq!(options.text(), "bands 4/4 ");
    assert_eq!(options.json().to_string(), r#"{"bands":4,"max_bands":4}"#);
    assert_eq!(stand.change("foo").unwrap_err().message(), "What is \"foo\"?");
    stand.change("").unwrap();
    let error = try_build("multiq", &ENV).map(|_| ()).unwrap_err();
    assert_eq!(error.message(), "RTNETLINK answers: Operation not supported");
}

#[derive(Debug, Clone)]
enum Op {
    /// A batch of packets of (txq, bytes).
    Enqueue(Vec<(u16, usize)>),
    /// A dequeue of at most so many packets and bytes.
    Dequeue(usize, u64),
    /// The txqs that take no packets from now on.
    Stop(Vec<u16>),
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => prop::collection::vec((0_u16..6, 1_usize..1500), 1..12).prop_map(Op::Enqueue),
        6 => (1_usize..20, prop_oneof![Just(u64::MAX), 0_u64..6000]).prop_map(|(n, b)| Op::Dequeue(n, b)),
        2 => prop::collection::vec(0_u16..4, 0..4).prop_map(Op::Stop),
        1 => Just(Op::Reset),
    ]
}

/// Four pfifos of 20 packets, and the one that sent last.
#[derive(Default)]
struct Model {
    bands: [VecDeque<(u64, usize)>; 4],
    last: usize,
    drops: u64,
    sent: (u64, u64),
}

impl Model {
    fn enqueue(&mut self, txq: u16, packet: (u64, usize)) {
        let band = &mut self.bands[if txq < 4 { usize::from(txq) } else { 0 }];
        match band.len() {
            20 => self.drops += 1,
            _ => band.push_back(packet),
        }
    }

    fn dequeue(&mut self, packets: usize, bytes: u64, stopped: &[u16]) -> Vec<u64> {
        let (mut left, mut numbers) = (i128::from(bytes.max(1)), Vec::new());
        while left > 0 && numbers.len() < packets {
            let mut next = (self.last + 1..=self.last + 4).map(|band| band % 4);
            let may = |band: &usize| !stopped.contains(&(*band as u16)) && !self.bands[*band].is_empty();
            let Some(band) = next.find(may) else { break };
            let (number, len) = self.bands[band].pop_front().unwrap();
            (self.last, left) = (band, left - len as i128);
            self.sent = (self.sent.0 + 1, self.sent.1 + len as u64);
            numbers.push(number);
        }
        numbers
    }

    fn stats(&self) -> QdiscStats {
        let queued = || self.bands.iter().flatten();
        let (backlog, qlen) = (queued().map(|packet| packet.1 as u64).sum(), queued().count() as u64);
        let ((packets, bytes), drops) = (self.sent, self.drops);
        QdiscStats { packets, bytes, drops, backlog, qlen, ..QdiscStats::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn multiq_does_as_its_model(ops in prop::collection::vec(op(), 1..60)) {
        let (mut bench, mut model) = (stand(), Model::default());
        for op in ops {
            match op {
                Op::Enqueue(packets) => {
                    let mut batch = PacketList::new();
                    for (txq, bytes) in packets {
                        let mut packet = bench.packet(bytes, 0);
                        packet.set_txq(txq);
                        model.enqueue(txq, (packet.cookie(), bytes));
                        batch.push_back(packet);
                    }
                    bench.with(|qdisc, cx| qdisc.enqueue_batch(&mut batch, cx));
                    prop_assert!(batch.is_empty());
                }
                Op::Dequeue(packets, bytes) => {
                    let expected = model.dequeue(packets, bytes, &bench.stopped.0);
                    let out = bench.take(Budget::new(packets, bytes));
                    prop_assert!(out.iter().map(Packet::cookie).eq(expected));
                }
                Op::Stop(txqs) => bench.stopped.0 = txqs,
                Op::Reset => {
                    bench.with(|qdisc, cx| qdisc.reset(cx));
                    (model.bands, model.last) = Default::default();
                }
            }
            prop_assert_eq!(bench.qdisc.stats(), model.stats());
            prop_assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), model.drops);
        }
    }
}
