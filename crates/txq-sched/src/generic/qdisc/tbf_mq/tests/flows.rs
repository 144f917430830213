//! How equal flows are below one rate, where each txq has an fq or an fq_codel and a flow's hash chooses the txq. A txq has its part of
//! the rate, however many flows it has: so flows are as equal as their placement allows, and no more. A packet's length names its flow.
//!
//! `cargo test -p txq-sched --lib flows_are_as_equal -- --nocapture` prints the numbers.

use std::collections::HashSet;

use txq_core::flow::{hash_to_txq, reciprocal_scale};

use super::*;
use crate::tc::Handle;

const BASE: usize = 1000;
/// Packets of each flow that are queued: a txq has those of a turn, also with few flows.
const EACH: usize = 14;

/// Returns the hashes of flows, as a hash function spreads them.
fn hashes(flows: usize) -> Vec<u32> {
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state | 1
    };
    (0..flows).map(|_| next()).collect()
}

/// Returns the bytes of each flow in `time`, each of which always has packets: CoDel's target is longer than their delay.
fn bytes_of_flows(kind: &str, txqs: u16, hashes: &[u32], time: u64) -> Vec<f64> {
    let mut parts = Parts::new("tbf_mq rate 1gbit burst 20k latency 50ms", txqs);
    let mut minor = 0;
    parts.on_all(|part| {
        minor += 1;
        assert!(part.attach(Handle::new(1, minor), Handle::new(10 + minor, 0), kind));
    });
    let enqueue = |parts: &mut Parts, flow: usize| {
        let part = parts.at(hash_to_txq(hashes[flow], txqs).into());
        let mut packet = part.packet(BASE + flow, 0);
        packet.set_hash(hashes[flow]);
        assert_eq!(part.push(packet), Verdict::Success);
    };
    (0..hashes.len() * EACH).for_each(|n| enqueue(&mut parts, n % hashes.len()));
    let (mut bytes, end) = (vec![0.0; hashes.len()], parts.now + time);
    let mut next = vec![parts.now; txqs.into()];
    while let Some(at) = next.iter().copied().min().filter(|&at| at < end) {
        let part = next.iter().position(|&time| time == at).unwrap();
        parts.now = at.max(parts.now);
        let sent = parts.dequeue(part, 64);
        for &len in &sent {
            bytes[len - BASE] += len as f64;
            enqueue(&mut parts, len - BASE);
        }
        next[part] = match (parts.qlen(part), parts.next_event(part)) {
            (0, _) => end,
            (_, Some(event)) => event.max(parts.now + 1),
            _ => parts.now + 1,
        };
    }
    bytes
}

/// Returns what each flow has if the txqs with flows have equal parts, and in a txq the queues with flows. `queue` is a flow's.
fn placed(txqs: u16, hashes: &[u32], queue: impl Fn(u32) -> u32) -> Vec<f64> {
    let place = |hash: u32| (hash_to_txq(hash, txqs), queue(hash));
    let queues: HashSet<_> = hashes.iter().map(|&hash| place(hash)).collect();
    let busy = queues.iter().map(|(txq, _)| txq).collect::<HashSet<_>>().len();
    let share = |&hash: &u32| {
        let (txq, queue) = place(hash);
        let queues = queues.iter().filter(|of| of.0 == txq).count();
        let flows = hashes.iter().filter(|&&other| place(other) == (txq, queue)).count();
        1.0 / (busy * queues * flows) as f64
    };
    hashes.iter().map(share).collect()
}

/// Returns Jain's index, and the least share by the most.
fn equality(shares: &[f64]) -> (f64, f64) {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
    let [least, most] = [f64::min, f64::max].map(|of| shares.iter().copied().reduce(of).unwrap());
    (sum * sum / (shares.len() as f64 * squares), least / most)
}

#[test]
fn flows_are_as_equal_as_their_placement() {
    println!(
        "{:>4} {:>5} {:9} {:>6} {:>12} {:>6} {:>12}",
        "txqs", "flows", "", "Jain", "least : most", "placed", "least : most"
    );
    for (txqs, flows) in [(2, 8), (2, 64), (8, 16), (8, 64)] {
        let hashes = hashes(flows);
        for (kind, queue) in [
            ("fq", (|hash| hash) as fn(u32) -> u32),
            ("fq_codel target 1s", |hash| reciprocal_scale(hash, 1024)),
        ] {
            let bytes = bytes_of_flows(kind, txqs, &hashes, SECOND / 4);
            let kind = kind.split(' ').next().unwrap_or_default();
            let all: f64 = bytes.iter().sum();
            let due = 125_000_000.0 / 4.0;
            assert!((all - due).abs() <= due / 200.0 + 20_480.0, "{all} of {due}");
            let (shares, ideal): (Vec<_>, _) =
                (bytes.iter().map(|bytes| bytes / all).collect(), placed(txqs, &hashes, queue));
            for (flow, (share, ideal)) in shares.iter().zip(&ideal).enumerate() {
                let off = (share / ideal - 1.0).abs();
                assert!(off <= 0.05, "{kind}, {txqs} txqs: flow {flow} of {flows} has {share}, not {ideal}");
            }
            let ((jain, span), (placed_jain, placed_span)) = (equality(&shares), equality(&ideal));
            println!(
                "{txqs:>4} {flows:>5} {kind:9} {jain:>6.3} {span:>12.2} {placed_jain:>6.3} {placed_span:>12.2}"
            );
        }
    }
}
