//! The order in which a chain's qdiscs have a packet: a link's, and that of the same words as one tree of qdiscs, in which the last qdisc
//! is the root and each other one the child of the next, as `txq shell` and tc have it.

use txq_link::{Direction, Instant, Link, Packet};
use txq_sched::{Item, Scheduler};

/// Packets that arrive at once, 1000 bytes each.
const PACKETS: u32 = 20;

/// Returns the packets that leave a link, with their times in nanoseconds.
fn by_link(chain: &str) -> Vec<(u64, u32)> {
    let mut link = Link::new(&format!("up {chain}"), 1).expect(chain);
    for number in 0..PACKETS {
        link.send(0, Direction::Up, Packet::new([number.to_le_bytes().repeat(250)].concat()));
    }
    let mut left = Vec::new();
    while let Some(time) = link.next() {
        let number = |data: &[u8]| u32::from_le_bytes(data[..4].try_into().expect("four bytes"));
        left.extend(link.poll(time).map(|packet| (nanos(packet.at), number(&packet.data))));
    }
    left
}

/// Returns the packets that leave a tree, with their times in nanoseconds.
fn by_tree(chain: &str) -> Vec<(u64, u32)> {
    let mut qdiscs = chain.rsplit('|').map(str::trim);
    let mut tree = Scheduler::new(&format!("handle 1: {}", qdiscs.next().expect("a root"))).expect(chain);
    for (child, parent) in qdiscs.zip(1..) {
        tree.tc(0, &format!("qdisc add parent {parent}:1 handle {}: {child}", parent + 1)).expect(chain);
    }
    for number in 0..PACKETS {
        let _ = tree.enqueue(0, Item::new(1000, number));
    }
    let mut left = Vec::new();
    while let Some(time) = tree.next_event() {
        while let Some(packet) = tree.dequeue(time) {
            left.push((nanos(time), packet.value));
        }
    }
    left
}

fn nanos(time: Instant) -> u64 {
    (time - Instant::ZERO).as_nanos() as u64
}

/// A constant delay shifts all times: whether packets wait for the rate before it or behind it, they leave at the same times.
#[test]
fn a_constant_delay_and_a_rate_give_the_same_departures_in_any_order() {
    let (rate, delay) = ("tbf rate 8mbit burst 1000 limit 100000", "netem delay 5ms");
    let expected = by_link(&format!("{rate} | {delay}"));
    assert_eq!((expected.len(), expected[19].0 - expected[0].0), (20, 19_000_000), "{expected:?}");
    for chain in [format!("{rate} | {delay}"), format!("{delay} | {rate}")] {
        assert_eq!(by_link(&chain), expected, "{chain}");
        assert_eq!(by_tree(&chain), expected, "{chain}");
    }
}

/// Linux's netem has a packet before its child does. In a tree the order of the words changes nothing, in a link it counts: behind the rate
/// netem delays three packets at a time, and before it all of them.
#[test]
fn a_tree_delays_before_it_queues_and_a_link_from_left_to_right() {
    let (rate, delay) = ("tbf rate 8mbit burst 1000 limit 100000", "netem delay 2500us limit 4");
    let sizes = |chain: &str| (by_link(chain).len(), by_tree(chain).len());
    assert_eq!(sizes(&format!("{delay} | {rate}")), (4, 4));
    assert_eq!(sizes(&format!("{rate} | {delay}")), (20, 4));
}
