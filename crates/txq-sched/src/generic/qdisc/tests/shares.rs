//! The share that each flow gets: rates to half a percent, fair shares among a thousand flows, and the delay of a flow that
//! sends little.

use txq_core::arch::Nanos;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::Budget;
use crate::generic::qdisc::testing::Virtual;
use crate::tc::Handle;

const SECOND: Nanos = 1_000_000_000;

/// The most packets that a measurement takes. A second of the shortest ones at 10 Gbit/s is 20 million, which only an
/// optimized build takes.
const ENOUGH: u64 = if cfg!(miri) {
    200
} else if cfg!(debug_assertions) {
    20_000
} else {
    u64::MAX
};

/// Returns the bytes per second that leave a queue that is never empty. It measures from the first moment at which packets
/// have to wait, for a second and at least 1000 packets, or for `ENOUGH` packets.
fn measured(text: &str, len: usize) -> f64 {
    let mut bench = Virtual::with_room(text, 64, 1 << 16);
    let (mut began, mut bytes, mut packets) = (0, 0, 0);
    loop {
        while bench.qdisc.qlen() < 32 {
            let _ = bench.enqueue(len, 0);
        }
        let left = bench.dequeue(16);
        bytes += left.iter().map(|&(_, len)| len as u64).sum::<u64>();
        packets += left.len() as u64;
        if !left.is_empty() {
            continue;
        }
        bench.now = bench.qdisc.next_event().expect("packets wait").max(bench.now);
        let time = bench.now - began;
        if began == 0 {
            (began, bytes, packets) = (bench.now, 0, 0);
        } else if (time >= SECOND && packets >= 1000) || packets >= ENOUGH {
            return bytes as f64 * 1e9 / time as f64;
        }
    }
}

#[test]
fn rates_are_accurate() {
    let rates = [("1mbit", 1e6), ("10mbit", 1e7), ("100mbit", 1e8), ("1gbit", 1e9), ("10gbit", 1e10)];
    for (rate, bits) in rates {
        for len in [64, 590, 1514, 9000, 65_536] {
            for text in [
                format!("tbf rate {rate} burst 66000 limit 100m"),
                format!("fq maxrate {rate} timer_slack 0"),
            ] {
                let off = measured(&text, len) / (bits / 8.0) - 1.0;
                assert!(off.abs() <= 0.005, "{text}, {len} bytes: {:+.3} %", off * 100.0);
            }
        }
    }
}

/// A timer that is late by its slack costs a flow no rate while the slack is no more than half of a pause.
#[test]
fn slack_costs_no_rate() {
    for (rate, bits, len) in [("100mbit", 1e8, 64), ("1gbit", 1e9, 1514), ("10gbit", 1e10, 65_536)] {
        let off = measured(&format!("fq maxrate {rate}"), len) / (bits / 8.0) - 1.0;
        assert!(off.abs() <= 0.005, "{rate}, {len} bytes: {:+.3} %", off * 100.0);
    }
}

/// Enqueues a packet of a flow: the flow is its cookie, and selects one of 1024 queues by its hash.
fn send(bench: &mut Virtual, flow: u32, bytes: usize) {
    let mut packet = bench.packet(bytes, 0);
    packet.set_hash(flow << 22 | 1);
    packet.set_cookie(flow.into());
    let _ = bench.with(|qdisc, cx| qdisc.enqueue(packet, cx));
}

/// Returns the packets that each of `flows` flows gets through a link that is too small for them. Each flow wants twice its
/// share, and the first one a hundred times as much as that.
fn shares(bench: &mut Virtual, flows: u32, rounds: usize) -> Vec<f64> {
    let mut sent = vec![0.0; flows as usize];
    for _ in 0..rounds {
        for flow in 0..flows {
            (0..if flow == 0 { 200 } else { 2 }).for_each(|_| send(bench, flow, 1000));
        }
        let left = bench.dequeue(flows as usize);
        left.into_iter().for_each(|(flow, _)| sent[flow as usize] += 1.0);
        bench.now += 1_000_000;
    }
    sent
}

/// Adds a class for each flow, with room for a few packets, and a filter that selects it.
fn class_for_each(bench: &mut Virtual, flows: u32) {
    for minor in 1..=flows as u16 {
        bench.add_class(minor, "quantum 1500").unwrap();
        assert!(bench.attach(Handle::new(1, minor), Handle::new(minor + 1, 0), "pfifo limit 5"));
    }
    let class = |packet: &Packet| Some(Handle::new(1, packet.cookie() as u16 + 1));
    bench.with(|qdisc, _| qdisc.filters(0).unwrap().add_closure(1, Box::new(class)).unwrap());
}

/// Returns Jain's index: 1 for equal shares, 1/n where one flow gets everything.
fn jain(shares: &[f64]) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    shares.iter().sum::<f64>().powi(2) / (shares.len() as f64 * squares)
}

#[test]
fn a_greedy_flow_takes_from_nobody() {
    let (flows, rounds) = if cfg!(miri) { (20, 30) } else { (1000, 60) };
    for text in ["fq flow_limit 5", "fq_codel limit 6000 memory_limit 1g", "drr"] {
        let mut bench = Virtual::with_room(text, 8192, 1024);
        if text == "drr" {
            class_for_each(&mut bench, flows);
        }
        let sent = shares(&mut bench, flows, rounds);
        let index = jain(&sent[1..]);
        assert!(index >= 0.99, "{text}: {index}");
        let all: f64 = sent.iter().sum();
        assert!(all >= 0.95 * (flows as usize * rounds) as f64, "{text}: the link is busy, {all}");
        assert!(sent[0] <= 1.2 * rounds as f64, "{text}: the greedy one got {} of {rounds}", sent[0]);
    }
}

/// Returns how long each packet of 100 bytes takes, from its arrival until it has left a link of 100 Mbit/s. Their flow
/// sends one every 20 ms or so, less often than all others have their turns; `bulk` others keep 20 packets each in the
/// queue.
fn sparse_delays(bulk: u32, packets: usize) -> Vec<Nanos> {
    const SPARSE: u32 = 1023;
    let mut bench = Virtual::with_room("fq_codel limit 8000", 8192, 2048);
    // When the link is free, when the next packet arrives, and when the last one arrived.
    let (mut free, mut comes, mut came) = (bench.now, bench.now, 0);
    let (mut delays, mut turn) = (Vec::new(), 0);
    while delays.len() < packets {
        if comes <= free {
            bench.now = comes;
            send(&mut bench, SPARSE, 100);
            came = comes;
            // Each time at another point within a packet of the others.
            comes += 20_000_000 + came * 7919 % 1_000_000;
            continue;
        }
        bench.now = free;
        while bench.qdisc.qlen() < 20 * bulk as usize {
            send(&mut bench, turn % bulk, 1514);
            turn += 1;
        }
        let mut out = PacketList::new();
        bench.with(|qdisc, cx| qdisc.dequeue_batch(Budget::packets(1), &mut out, cx));
        match out.pop_front() {
            None => free = comes,
            Some(packet) => {
                free += packet.len() as Nanos * 80;
                if packet.cookie() == u64::from(SPARSE) {
                    delays.push(free - came);
                }
            }
        }
    }
    delays
}

/// RFC 8290: a flow that sends little does not wait behind flows that fill their queues.
#[test]
fn a_sparse_flow_hardly_waits_below_a_full_link() {
    let packets = if cfg!(miri) { 20 } else { 1000 };
    let p99 = |mut delays: Vec<Nanos>| {
        delays.sort_unstable();
        delays[delays.len() * 99 / 100]
    };
    let (idle, full) = (p99(sparse_delays(0, packets)), p99(sparse_delays(50, packets)));
    let one_packet = 1514 * 80;
    assert!(full > one_packet / 2, "the link is full");
    assert!(full <= 2 * idle + one_packet, "{full} ns, and {idle} ns when the link is idle");
}
