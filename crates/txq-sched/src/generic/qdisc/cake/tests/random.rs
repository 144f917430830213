//! cake under random scripts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::generic::qdisc::cake::rounds::{Linked, NONE, ROUNDS, Rounds};
use crate::generic::qdisc::codel::tests::bench::{conserves, ops};

fn texts() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "",
        "unlimited",
        "bandwidth 1",
        "bandwidth 8",
        "bandwidth 1mbit",
        "bandwidth 100gbit",
        "besteffort",
        "precedence",
        "diffserv8",
        "diffserv4",
        "diffserv3",
        "flowblind",
        "srchost",
        "hosts",
        "dual-srchost",
        "triple-isolate",
        "flows",
        "memlimit 1",
        "memlimit 10k",
        "rtt 1us",
        "rtt 4294s",
        "ack-filter",
        "ingress",
        "autorate-ingress",
        "atm overhead -64",
        "overhead 256 mpu 256",
        "ptm",
        "wash",
        "fwmark 0xf0000000",
    ]);
    prop::collection::vec(word, 0..5).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 150 }))]

    /// No packet is lost or reordered under any script. Without a rate, because a shaped qdisc holds packets back at the
    /// end.
    #[test]
    fn conserves_packets(
        text in prop::sample::select(vec!["cake", "cake memlimit 20k", "cake besteffort flows", "cake ingress metro"]),
        ops in ops(prop::sample::select(vec!["memlimit 10k", "rtt 5ms", "wash", "besteffort", "ack-filter", "dual-srchost"])
            .prop_map(str::to_owned).boxed()),
    ) {
        conserves(text, &ops);
    }

    /// With any parameters the counts are exact, and held packets have an event pending.
    #[test]
    fn keeps_the_contract(
        first in texts(),
        script in prop::collection::vec((0usize..1514, 0u32..40, 0u32..5, 0u64..20 * MS, texts()), 1..120),
    ) {
        let mut bench = Bench::new(&format!("cake {first}"));
        let mut queued: BTreeMap<_, (usize, u64)> = BTreeMap::new();
        let leave = |queued: &mut BTreeMap<u64, (usize, u64)>, packet: &Packet| {
            let (segments, bytes) = queued.get_mut(&packet.cookie()).expect("was queued");
            (*segments, *bytes) = (*segments - 1, *bytes - packet.len() as u64);
        };
        for (bytes, number, what, wait, text) in script {
            let frame = Frame { len: bytes, ports: (number as u16, 9), tos: (number * 7) as u8, ..Frame::default() };
            let mut packet = frame.packet(&mut bench);
            packet.set_gso(100, 1 + what as u16 * number as u16);
            let (cookie, created, backlog) = (packet.cookie(), bench.created, bench.qdisc.stats().backlog);
            let _ = bench.with(|q, cx| q.enqueue(packet, cx));
            let segments = 1 + (bench.created - created) as usize;
            let gone: u64 = bench.to_free.iter().map(|p| p.len() as u64).sum();
            let all = bench.qdisc.stats().backlog + gone - backlog;
            prop_assert!(all == bytes as u64 || segments > 1 && all > bytes as u64);
            queued.insert(cookie, (segments, all));
            bench.now += wait;
            match what {
                0 if number == 0 => bench.with(|q, cx| q.reset(cx)),
                1 if number < 8 => bench.change(&text).unwrap(),
                2..4 => match bench.dequeue() {
                    Some(packet) => leave(&mut queued, &packet),
                    None if bench.qdisc.qlen() > 0 => {
                        let next = bench.qdisc.next_event();
                        prop_assert!(next > Some(bench.now), "{next:?}");
                    }
                    None => {}
                },
                _ => {}
            }
            for packet in std::mem::take(&mut bench.to_free).iter() {
                leave(&mut queued, packet);
            }
            let stats = bench.qdisc.stats();
            let there = queued.values().fold((0, 0), |sum, &(segments, bytes)| (sum.0 + segments as u64, sum.1 + bytes));
            prop_assert_eq!((stats.qlen, stats.backlog), there);
        }
        let _ = bench.shown();
    }
}

struct Link(u16);

impl Linked for Link {
    fn next(&mut self) -> &mut u16 {
        &mut self.0
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 100 }))]

    /// Rounds come in order, and the flows of a round in the order of their arrival.
    #[test]
    fn rounds_come_in_order(script in prop::collection::vec((any::<bool>(), 1usize..ROUNDS), 1..300)) {
        let mut flows: Vec<_> = (0..300).map(|_| Link(NONE)).collect();
        let (mut rounds, mut now, mut model) = (Rounds::new(), 0, Vec::new());
        for (number, (push, ahead)) in script.into_iter().enumerate() {
            if push {
                rounds.push(&mut flows, number, ahead);
                model.push((now + ahead, number));
                continue;
            }
            let next = model.iter().copied().min();
            prop_assert_eq!(rounds.front(), next.map(|(_, number)| number));
            if let Some(next) = next {
                rounds.pop(&mut flows);
                model.retain(|&one| one != next);
                now = next.0;
            }
        }
    }

    /// The longest queue is found however queues grow and shrink, and the given one if no other is longer.
    #[test]
    fn the_longest_is_found(script in prop::collection::vec((0usize..200, 0u64..50, 0usize..200), 1..300)) {
        let (mut longest, mut model) = (Longest::new(200), vec![0; 200]);
        for (queue, bytes, own) in script {
            longest.set(queue, bytes);
            model[queue] = bytes;
            let found = longest.find(own);
            prop_assert_eq!(Some(&model[found]), model.iter().max());
            prop_assert!(found == own || model[own] < model[found]);
        }
    }
}
