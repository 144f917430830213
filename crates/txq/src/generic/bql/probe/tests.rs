//! A link in virtual time whose completions come together, late, or both, under all of the byte queue limits.

use std::collections::VecDeque;

use txq_core::arch::{Nanos, Native};
use txq_core::clock::Clock;

use crate::generic::bql::{BqlConfig, Consumer, Producer};

type Word = <Native as txq_core::arch::Arch>::AtomicU32;

const MS: Nanos = 1_000_000;
/// The machine's clock when the link comes up: an hour after its start.
const UP: Nanos = 3_600_000 * MS;
/// Bytes that a packet takes on the wire beside its own.
const WIRE: u64 = 24;
/// Packets that a driver reports in one poll.
const POLL: usize = 64;

/// A link of 1 Gbit/s.
#[derive(Debug, Clone, Copy)]
struct Link {
    /// Bytes of a packet.
    len: u64,
    /// Completions are reported at multiples of this, if it is not 0.
    coalesce: Nanos,
    /// From the end on the wire to the completion.
    delay: Nanos,
    /// How late completions are reaped at most: all until then are reaped together.
    late: Nanos,
}

impl Link {
    /// Nanoseconds that a packet is on the wire.
    fn wire(self) -> Nanos {
        (self.len + WIRE) * 8
    }

    /// Bytes in flight that keep it busy: what it sends until their completion, and a batch.
    fn needs(self) -> f64 {
        (self.coalesce + self.delay) as f64 / self.wire() as f64 * self.len as f64
            + (POLL as u64 * self.len) as f64
    }
}

/// The result of a run, over the second half of its time.
#[derive(Debug)]
struct Outcome {
    /// Share of the link that was sent.
    share: f64,
    /// Bytes in flight, on average over the time, and the limit at the end; as multiples of what the link needs.
    in_flight: f64,
    limit: f64,
    /// The bytes that the limits report the link to need, and how many times as much was sent with them.
    needed: u32,
    gain: f64,
}

/// Offers packets at a share of the link's rate for `time`; with `trials`, or by the algorithm of the kernel alone.
fn send(link: Link, offered: f64, time: Nanos, trials: bool) -> Outcome {
    let (producer, adj_limit) = (Producer::<Native>::new(), Word::new(0));
    let mut consumer = Consumer::new(&BqlConfig::default(), &producer, &adj_limit, UP);
    if !trials {
        consumer.probe.next = Nanos::MAX;
    }
    let gap = link.wire() as f64 / offered;
    let (mut now, mut wire_free, mut sent, mut at_half) = (0, 0, 0u64, 0);
    let mut ring: VecDeque<Nanos> = VecDeque::new();
    let mut area = 0.0;
    while now < time {
        let mut clock = Clock::at(UP + now);
        while sent < (now as f64 / gap) as u64 + 1 && producer.avail(&adj_limit) >= 0 {
            wire_free = now.max(wire_free) + link.wire();
            let done = wire_free + link.delay;
            ring.push_back(done.next_multiple_of(link.coalesce.max(1)));
            producer.queued(link.len as u32, link.len as u32, &mut clock).kept(link.len as u32);
            sent += 1;
        }
        let arrival = (producer.avail(&adj_limit) >= 0).then_some((sent as f64 * gap) as Nanos);
        let completion = ring.front().map(|done| done.next_multiple_of(link.late.max(1)));
        let next =
            arrival.into_iter().chain(completion).min().expect("packets in flight, or to come").max(now + 1);
        if now >= time / 2 {
            at_half = if at_half == 0 { sent } else { at_half };
            area += (ring.len() as u64 * link.len * (next - now)) as f64;
        }
        now = next;
        let done = ring.iter().take_while(|&&done| done <= now).count();
        ring.drain(..done);
        consumer.completed((done as u64 * link.len) as u32, &producer, &adj_limit, &mut Clock::at(UP + now));
    }
    let half = (time - time / 2) as f64;
    let state = consumer.state(&producer);
    let limit = f64::from(state.limit) / link.needs();
    let share = ((sent - at_half) * link.wire()) as f64 / half;
    let in_flight = area / half / link.needs();
    Outcome { share, in_flight, limit, needed: state.needed, gain: f64::from(state.gain) / 100.0 }
}

/// Completions together every 1 or 10 ms, or 1 or 5 ms late, or both, of packets of two sizes, reaped at once or up to 0.1 ms
/// late: a link that is offered nine tenths of its rate sends them, and with no more in flight than twice what it needs.
#[test]
fn a_link_is_kept_busy_however_late_its_completions_come() {
    println!(
        "bytes | together every, ms | late, ms | sent by dql alone | sent | in flight, of what is needed"
    );
    for (coalesce, delay) in [(0, 0), (1, 0), (10, 0), (0, 1), (0, 5), (1, 1), (1, 5)] {
        for len in [1500, 700] {
            for late in [0, MS / 10] {
                let link = Link { len, coalesce: coalesce * MS, delay: delay * MS, late };
                for offered in [0.9, 1.5] {
                    let outcome = send(link, offered, 1500 * MS, true);
                    if late == 0 && offered < 1.0 {
                        let Outcome { share, in_flight, .. } = outcome;
                        let alone = send(link, offered, 1500 * MS, false).share;
                        println!("{len} | {coalesce} | {delay} | {alone:.2} | {share:.2} | {in_flight:.2}");
                    }
                    let wanted = 0.95 * f64::min(offered, 1.0);
                    assert!(outcome.share >= wanted, "{link:?}, {offered} offered: {outcome:?}");
                    assert!(outcome.in_flight <= 2.0, "{link:?}, {offered} offered: {outcome:?}");
                    assert!(outcome.limit <= 2.0, "{link:?}, {offered} offered: {outcome:?}");
                }
            }
        }
    }
}

/// A link that is busy with what the algorithm of the kernel finds keeps that limit: nothing is gained by more.
#[test]
fn a_device_that_needs_no_more_gets_no_more() {
    let link = Link { len: 1500, coalesce: 0, delay: 0, late: 0 };
    let outcome = send(link, 1.5, 3000 * MS, true);
    assert!(outcome.limit * link.needs() <= 6000.0, "{outcome:?}");
    assert_eq!((outcome.needed, outcome.gain), (0, 0.0));
}

/// The limits of a device that the algorithm alone would hold back report by how much, and what the device needs.
#[test]
fn what_the_algorithm_alone_would_cost_is_told() {
    for delay in [1, 5] {
        let link = Link { len: 1500, coalesce: 0, delay: delay * MS, late: 0 };
        let outcome = send(link, 1.5, 1500 * MS, true);
        let alone = send(link, 1.5, 1500 * MS, false);
        let needed = f64::from(outcome.needed) / link.needs();
        assert!((0.5..=2.0).contains(&needed), "{outcome:?}");
        assert!(outcome.gain >= 0.5 / alone.share, "{outcome:?}, alone {alone:?}");
        assert_eq!((alone.needed, alone.gain), (0, 0.0));
    }
}
