//! cake against tc, the paper and arithmetic, in virtual time.

mod classes;
mod frames;
mod headers;
mod random;
mod shown;

use std::collections::BTreeMap;

use super::*;
use crate::generic::qdisc::codel::tests::bench::{Bench, MS};
use frames::{Frame, tcp};

const SECOND: Nanos = 1000 * MS;

/// Returns a hash for the flow with this number.
fn flow(number: u32) -> u32 {
    number + 1
}

/// Returns the bytes sent in `time`, while `refill` keeps the queue filled and each dequeue comes at the qdisc's next
/// event.
fn sent_in(bench: &mut Bench, time: Nanos, mut refill: impl FnMut(&mut Bench)) -> u64 {
    let (end, mut bytes) = (bench.now + time, 0);
    while bench.now < end {
        refill(bench);
        let left = bench.dequeue();
        bytes += left.as_ref().map_or(0, |packet| packet.len() as u64);
        if left.is_none() {
            let next = bench.qdisc.next_event().expect("packets wait");
            assert!(next > bench.now, "it would be asked for ever");
            bench.now = next;
        }
        bench.to_free = PacketList::new();
    }
    bytes
}

/// The bytes of a second at each rate, with packets of each size, are exact to 0.5 %.
#[test]
fn rates_are_accurate() {
    for (rate, bits) in [("1mbit", 1e6), ("10mbit", 1e7), ("100mbit", 1e8), ("1gbit", 1e9), ("10gbit", 1e10)]
    {
        for len in [64, 590, 1514, 9000, 65_536] {
            let mut bench = Bench::with_room(&format!("cake bandwidth {rate} besteffort rtt 1000s"), len);
            // A second, or the time of 20,000 packets if that is shorter, but at least that of 400 packets.
            let time =
                SECOND.min((len as f64 * 1.6e14 / bits) as Nanos).max((len as f64 * 3.2e12 / bits) as Nanos);
            let sent = sent_in(&mut bench, time, |bench| {
                while bench.qdisc.qlen() < 4 {
                    let _ = bench.enqueue(len, flow(1));
                }
            });
            let ideal = bits / 8.0 * time as f64 / 1e9;
            // The last packet may begin before the end and end after it.
            let off = (sent as f64 - ideal).abs() - len as f64;
            assert!(off < ideal * 0.005, "{rate} {len}: {sent} of {ideal}");
        }
    }
}

/// The shaper charges the bytes that the link adds.
#[test]
fn links_are_paid_for() {
    // A running kernel's output for packets of 142 and 442 bytes, of which 14 are Ethernet's.
    for (words, short, long) in [
        ("", 142, 442),
        ("ethernet", 166, 466),
        ("conservative", 212, 530),
        ("mpu 256", 256, 442),
        ("raw atm", 159, 530),
        ("pppoe-ptm", 161, 466),
    ] {
        for (len, wire) in [(142, short), (442, long)] {
            let mut bench = Bench::new(&format!("cake bandwidth 8mbit {words}"));
            for n in 0..3 {
                let frame = Frame { len, dst: [10, 0, 0, 2], ports: (n, 9), ..Frame::default() };
                let packet = frame.packet(&mut bench);
                let _ = bench.with(|q, cx| q.enqueue(packet, cx));
            }
            assert!(bench.dequeue().is_some() && bench.dequeue().is_none());
            assert_eq!(bench.qdisc.next_event(), Some(bench.now + wire * 1000), "{words} {len}");
        }
    }
    // Each segment has headers of its own: 14 + 20 + 20 bytes and 1000 of payload, 1092 with ethernet's overhead of 38.
    let mut bench = Bench::new("cake bandwidth 8mbit ethernet no-split-gso");
    for _ in 0..2 {
        let mut packet = tcp(&mut bench, 1, 1000 + 54);
        packet.set_gso(500, 2);
        let _ = bench.with(|q, cx| q.enqueue(packet, cx));
    }
    assert!(bench.dequeue().is_some() && bench.dequeue().is_none());
    assert_eq!(bench.qdisc.next_event(), Some(bench.now + 2 * (40 + 500 + 38) * 1000));
}

/// The segments of two flows take turns after cutting, and each is charged by itself.
#[test]
fn segments_take_turns() {
    let mut bench = Bench::with_room("cake bandwidth 8mbit ethernet besteffort flows", 3200);
    for ack in 0..2 {
        let mut packet = tcp(&mut bench, ack, 54 + 3000);
        packet.set_hash(flow(ack));
        packet.set_gso(1000, 3);
        assert_eq!(bench.with(|q, cx| q.enqueue(packet, cx)), Verdict::Success);
    }
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().backlog, bench.created), (6, 6 * 1054, 4));
    let mut hashes = Vec::new();
    while bench.qdisc.qlen() > 0 {
        let packet = bench.dequeue().expect("its time has come");
        assert_eq!((packet.len(), packet.segs()), (1054, 1));
        hashes.push(packet.hash());
        if let Some(next) = Some(bench.now + (1054 - 14 + 38) * 1000).filter(|_| bench.qdisc.qlen() > 0) {
            assert!(bench.dequeue().is_none());
            assert_eq!(bench.qdisc.next_event(), Some(next));
            bench.now = next;
        }
    }
    assert_eq!(hashes, [1, 2, 1, 2, 1, 2]);
    assert_eq!(bench.qdisc.stats().packets, 6);
}

/// Saturated flows get equal shares, however much they offer.
#[test]
fn saturated_flows_get_the_same() {
    const FLOWS: u32 = 1000;
    let mut bench = Bench::new("cake bandwidth 100mbit besteffort flows memlimit 1g");
    let mut sent = vec![0f64; FLOWS as usize];
    for _ in 0..40 {
        for number in 0..FLOWS {
            for _ in 0..if number == 500 { 100 } else { 1 } {
                let _ = bench.enqueue(1000, flow(number));
            }
        }
        let end = bench.now + Nanos::from(FLOWS) * 80_000;
        while bench.now < end {
            match bench.dequeue() {
                Some(packet) => sent[packet.hash() as usize - 1] += packet.len() as f64,
                None => bench.now = bench.qdisc.next_event().expect("packets wait"),
            }
        }
        bench.to_free = PacketList::new();
    }
    sent.remove(500);
    let jain =
        sent.iter().sum::<f64>().powi(2) / (sent.len() as f64 * sent.iter().map(|x| x * x).sum::<f64>());
    assert!(jain >= 0.99, "{jain}");
}

/// The shares of a host with many flows and of one with a single flow, in each mode.
#[test]
fn hosts_get_the_same() {
    for (mode, share) in [
        ("triple-isolate", 0.5),
        ("dual-srchost", 0.5),
        ("srchost", 0.5),
        ("dual-dsthost", 1.0 / 41.0),
        ("flows", 1.0 / 41.0),
        ("hosts", 1.0 / 41.0),
        ("dsthost", 1.0 / 41.0),
    ] {
        let mut bench = Bench::new(&format!("cake bandwidth 100mbit besteffort {mode} rtt 1000s"));
        let mut sent = [0u64; 2];
        let mut queued = BTreeMap::new();
        for n in 0..4100u16 {
            // Flow 0 is the first host's, the other forty are the second's; each has a destination of its own.
            let number = n % 41;
            let host = u8::from(number != 0);
            let dst = [10, 9, 0, number as u8];
            let frame =
                Frame { len: 1000, src: [10, 0, 0, host], dst, ports: (number, 9), ..Frame::default() };
            let packet = frame.packet(&mut bench);
            queued.insert(packet.cookie(), host);
            let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        }
        // Dequeues until all flows are bulk, and then while the first host has packets.
        for turn in 0..180 {
            let packet = loop {
                match bench.dequeue() {
                    Some(packet) => break packet,
                    None => bench.now = bench.qdisc.next_event().expect("packets wait"),
                }
            };
            if turn >= 120 {
                sent[usize::from(queued[&packet.cookie()])] += packet.len() as u64;
            }
        }
        let got = sent[0] as f64 / (sent[0] + sent[1]) as f64;
        assert!((got - share).abs() < 0.05, "{mode}: {got}");
    }
}

/// A flow that sends little does not wait for others.
#[test]
fn sparse_flows_go_first() {
    let mut bench = Bench::new("cake besteffort flows");
    for n in 0..400 {
        let _ = bench.enqueue(1514, flow(n % 4));
    }
    let hashes =
        |bench: &mut Bench, n| (0..n).filter_map(|_| bench.dequeue()).map(|p| p.hash()).collect::<Vec<_>>();
    assert_eq!(hashes(&mut bench, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    for _ in 0..20 {
        let _ = bench.enqueue(100, flow(9));
        assert_eq!(hashes(&mut bench, 1), [10]);
        let _ = hashes(&mut bench, 5);
    }
}

/// A sparse flow that became empty waits for its turn before it is sparse again.
#[test]
fn a_flow_that_refills_its_queue_starves_nobody() {
    let mut bench = Bench::new("cake besteffort flows");
    let next = |bench: &mut Bench| bench.dequeue().map(|packet| packet.hash());
    for n in 0..400 {
        let _ = bench.enqueue(500, flow(n % 4));
    }
    // All four are bulk.
    (0..17).for_each(|_| assert!(next(&mut bench).is_some()));
    let (mut own, mut others) = (0, 0);
    for _ in 0..100 {
        let _ = bench.enqueue(100, flow(9));
        // The dequeue finds its queue empty in between.
        for _ in 0..2 {
            match next(&mut bench) {
                Some(10) => own += 100,
                _ => others += 500,
            }
        }
    }
    assert!(own * 4 < others, "{own} {others}");
    let _ = bench.enqueue(100, flow(20));
    assert_eq!(next(&mut bench), Some(21));
    let _ = next(&mut bench);
    let _ = bench.enqueue(100, flow(20));
    assert_ne!(next(&mut bench), Some(21), "it waits for its turn");
}

/// A tin has its priority up to its share, and beyond it gets the rest of the rate.
#[test]
fn tins_share_the_rate() {
    for (text, shares) in [
        // Voice has a quarter with priority, bulk a sixteenth; best effort gets the rest.
        ("cake bandwidth 10mbit diffserv3 flows rtt 1000s", [1.0 / 16.0, 11.0 / 16.0, 0.25]),
        ("cake diffserv3 flows rtt 1000s", [1.0 / 21.0, 16.0 / 21.0, 4.0 / 21.0]),
    ] {
        let mut bench = Bench::new(text);
        bench.with(|q, _| q.set_handle(Handle::new(1, 0)));
        let mut sent = [0u64; 3];
        for n in 0..9000u32 {
            let mut packet = bench.packet(1000, 1 + n % 30);
            packet.set_priority(0x1_0001 + n % 3);
            let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        }
        for _ in 0..3000 {
            let packet = loop {
                match bench.dequeue() {
                    Some(packet) => break packet,
                    None => bench.now = bench.qdisc.next_event().expect("packets wait"),
                }
            };
            sent[(packet.priority() as usize & 0xf) - 1] += 1;
        }
        for (sent, share) in sent.iter().zip(shares) {
            assert!((*sent as f64 / 3000.0 - share).abs() < 0.03, "{text}: {sent:?} {share}");
        }
    }
}

/// Nine flows of one set: eight have queues of their own, the ninth shares one, and no packet is overtaken.
#[test]
fn a_set_holds_eight_flows() {
    let mut bench = Bench::new("cake besteffort flows");
    let same_set = |n: u32| 8 + n * QUEUES as u32;
    for round in 0..3 {
        for n in 0..9 {
            let _ = bench.enqueue(1000, same_set(n));
        }
        let tin = &bench.qdisc.xstats(Style::default()).unwrap().json()["tins"][0];
        assert_eq!((&tin["way_misses"], &tin["way_collisions"]), (&8.into(), &(round + 1).into()));
        assert_eq!(tin["way_indirect_hits"], round * 7);
    }
}

/// A flow that shares a queue stays there while it has packets, although another queue became free.
#[test]
fn nobody_overtakes_his_own_packets() {
    let mut bench = Bench::new("cake besteffort flows");
    let same_set = |n: u32| 8 + n * QUEUES as u32;
    for n in 0..8 {
        let _ = bench.enqueue(1514, same_set(n));
    }
    (0..5).for_each(|_| assert_eq!(bench.enqueue(1514, same_set(8)), Verdict::Success));
    // The queues of some others are empty now.
    let mut left: Vec<_> = (0..5).filter_map(|_| bench.dequeue()).collect();
    (0..5).for_each(|_| assert_eq!(bench.enqueue(1514, same_set(8)), Verdict::Success));
    left.extend(std::iter::from_fn(|| bench.dequeue()));
    let own: Vec<_> = left.iter().filter(|p| p.hash() == same_set(8)).map(Packet::cookie).collect();
    assert_eq!(own.len(), 10);
    assert!(own.is_sorted(), "{own:?}");
}

/// A rate set while packets are queued begins then: the time before is not made up for.
#[test]
fn a_new_rate_begins_when_it_is_said() {
    let mut bench = Bench::new("cake besteffort");
    (0..100).for_each(|_| assert_eq!(bench.enqueue(1250, flow(1)), Verdict::Success));
    bench.now += 10 * SECOND;
    bench.change("bandwidth 1mbit rtt 1000s").unwrap();
    assert!(bench.dequeue().is_some() && bench.dequeue().is_none());
    assert_eq!(bench.qdisc.next_event(), Some(bench.now + 10 * MS));
    bench.change("bandwidth 1gbit").unwrap();
    assert!(bench.dequeue().is_some() && bench.dequeue().is_none());
    assert_eq!(bench.qdisc.next_event(), Some(bench.now + 10_000));
}

/// Beyond the memory limit the longest queue loses packets, and its sender gets `Congested`.
#[test]
fn the_longest_queue_pays() {
    let mut bench = Bench::new("cake besteffort flows memlimit 22560");
    for _ in 0..19 {
        assert_eq!(bench.enqueue(1000, flow(1)), Verdict::Success);
    }
    assert_eq!(bench.enqueue(1000, flow(2)), Verdict::Success);
    assert_eq!((bench.qdisc.qlen(), bench.to_free.len()), (20, 0));
    assert_eq!(bench.enqueue(1000, flow(2)), Verdict::Success, "it is another flow that pays");
    assert_eq!(bench.enqueue(1000, flow(1)), Verdict::Congested);
    assert_eq!(bench.to_free.iter().map(Packet::cookie).collect::<Vec<_>>(), [0, 1], "from the head");
    assert_eq!((bench.qdisc.qlen(), bench.drops.get(DropReason::QdiscOverlimit)), (20, 2));
}

/// BLUE stops a flow that never responds.
#[test]
fn floods_are_dropped() {
    let mut bench = Bench::new("cake bandwidth 10mbit besteffort flows memlimit 100k");
    for _ in 0..2000 {
        for _ in 0..4 {
            let _ = bench.enqueue(1250, flow(1));
        }
        bench.now += MS;
        let _ = bench.dequeue();
        bench.to_free = PacketList::new();
    }
    assert!(bench.drops.get(DropReason::CakeFlood) > 100, "{:?}", bench.drops);
}

/// The arrivals set the rate, a little below theirs.
#[test]
fn autorate_follows_arrivals() {
    let mut bench = Bench::new("cake autorate-ingress");
    for _ in 0..20_000 {
        let _ = bench.enqueue(1250, flow(1));
        while bench.dequeue().is_some() {}
        bench.now += MS;
        bench.to_free = PacketList::new();
    }
    let shown = bench.qdisc.options(Style::default()).json();
    let rate = shown["bandwidth"].as_u64().unwrap();
    assert!((1_100_000..1_190_000).contains(&rate), "{rate}");
}

/// With `ingress` dropped packets are charged, because they used the link already.
#[test]
fn ingress_pays_for_drops() {
    let drops = |words| {
        let mut bench = Bench::new(&format!("cake bandwidth 10mbit besteffort flows {words}"));
        sent_in(&mut bench, 4 * SECOND, |bench| {
            while bench.qdisc.qlen() < 100 {
                let _ = bench.enqueue(1250, flow(1));
            }
        })
    };
    let (egress, ingress) = (drops("egress"), drops("ingress"));
    assert!(ingress < egress * 97 / 100 && ingress > egress * 65 / 100, "{ingress} {egress}");
    // However many packets are dropped, two thirds of the rate are left.
    let mut bench = Bench::new("cake bandwidth 10mbit besteffort flows ingress memlimit 50k rtt 1000s");
    let sent = sent_in(&mut bench, SECOND, |bench| {
        (0..20).for_each(|n| assert_ne!(bench.enqueue(1250, flow(n)), Verdict::Drop))
    });
    assert!((820_000..840_000).contains(&sent), "{sent}");
}
