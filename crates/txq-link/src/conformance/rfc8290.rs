//! FQ-CoDel: RFC 8290.

use super::bench::Bench;
use super::report::{Case, Level, Report, Runner};
use super::{Codel, Ecn, Queue};

/// The parameters of a queue with FQ-CoDel. Write `..FqCodel::default()` last: a later version may have more fields.
#[derive(Clone, Copy, Debug)]
pub struct FqCodel {
    /// CoDel's parameters in each flow's queue.
    pub codel: Codel,
    /// The bytes that a flow may send in a round.
    pub quantum: u32,
    /// The most packets in the queue. 0 leaves out the cases beyond it.
    pub limit: usize,
}

impl Default for FqCodel {
    /// CoDel's defaults, 1514 bytes and 10,240 packets.
    fn default() -> Self {
        Self { codel: Codel::default(), quantum: 1514, limit: 10_240 }
    }
}

const SPARSE: Case = (
    "sparse flow",
    "RFC 8290, 4.2",
    Level::Text,
    "the packet of a flow without backlog leaves before the backlogs of others",
);
const NEW_ORDER: Case =
    ("new order", "RFC 8290, 4.1", Level::Text, "new flows are served in the order of their first packets");
const NEW_QUANTUM: Case = (
    "new quantum",
    "RFC 8290, 4.2",
    Level::Text,
    "a new flow sends one or two quanta before an old one: not less than one, and no more than two and a packet",
);
const NO_STARVATION: Case = (
    "no starvation",
    "RFC 8290, 4.2",
    Level::Text,
    "a new flow that empties becomes old: flows that come again and again leave a backlog its share",
);
const BYTES: Case = (
    "bytes",
    "RFC 8290, 3 and 4.2",
    Level::Text,
    "flows with packets of 1 and 1/5 quantum send the same bytes, within a quantum and a packet",
);
const FATTEST: Case = (
    "fattest flow",
    "RFC 8290, 4.1",
    Level::Text,
    "a packet beyond the limit costs the flow with the most bytes, and no other, packets",
);
const HEAD: Case = (
    "head drop",
    "RFC 8290, 4.1",
    Level::Text,
    "packets beyond the limit are dropped from the head of the flow",
);
const LIMIT: Case =
    ("limit", "RFC 8290, 5.2.3", Level::Must, "the queue holds no more packets than its limit");
const OWN_CODEL: Case = (
    "own codel",
    "RFC 8290, 1.3",
    Level::Text,
    "each flow has CoDel's state: a standing queue loses packets, and a flow beside it none",
);

/// Runs the cases of RFC 8290. `build` returns a new queue for each. [`rfc8289`](super::rfc8289) checks the CoDel of a single flow.
///
/// # Panics
/// A `quantum` below 500 bytes.
pub fn rfc8290<Q: Queue>(fq: &FqCodel, build: impl FnMut() -> Q) -> Report {
    let FqCodel { codel, quantum, limit } = *fq;
    assert!(quantum >= 500, "the quantum is at least 500 bytes");
    let mut runner = Runner::new(build);
    let long = quantum.min(codel.mtu);

    runner.case(SPARSE, |bench| {
        [1, 3, 4].iter().for_each(|&flow| bench.fill(flow, BACKLOG, long, Ecn::NotEct));
        (0..3 * SERVED).for_each(|_| _ = bench.dequeue());
        let number = bench.send(2, long / 5, Ecn::NotEct);
        bench.drain();
        let before = bench.left[3 * SERVED..].iter().position(|left| left.packet.number == number);
        let measured = before.map_or("it was lost".to_owned(), |n| format!("{n} of the backlogs before it"));
        (before == Some(0), measured)
    });

    runner.case(NEW_ORDER, |bench| {
        backlog(bench, long);
        (2..=4).for_each(|flow| _ = bench.send(flow, long / 5, Ecn::NotEct));
        bench.drain();
        let flows: Vec<_> = bench.left[SERVED..].iter().map(|left| left.packet.flow).take(3).collect();
        (flows == [2, 3, 4], format!("flows 2, 3, 4 came, {flows:?} left"))
    });

    runner.case(NEW_QUANTUM, |bench| {
        backlog(bench, long);
        bench.fill(2, 40, long / 5, Ecn::NotEct);
        bench.drain();
        let new = bench.left[SERVED..].iter().take_while(|left| left.packet.flow == 2);
        let bytes: u32 = new.map(|left| left.packet.len).sum();
        // Two, where the old flow has used up its turn, and gets another behind the new flow.
        let passed = bytes >= quantum && bytes <= 2 * quantum + long / 5;
        (passed, format!("{bytes} bytes, with a quantum of {quantum}"))
    });

    runner.case(NO_STARVATION, |bench| {
        backlog(bench, long);
        // In turns: a queue is found empty when the other one's packet leaves.
        for turn in SERVED..BACKLOG {
            bench.fill(2 + turn as u64 % 2, 1, long, Ecn::NotEct);
            bench.dequeue();
        }
        let all = bench.left.len() - SERVED;
        let share = bench.left[SERVED..].iter().filter(|left| left.packet.flow == 1).count();
        (share * 4 >= all, format!("{share} of {all} packets, beside 2 flows"))
    });

    runner.case(BYTES, |bench| {
        let lens = [quantum, quantum / 5];
        bench.fill(1, 40, lens[0], Ecn::NotEct);
        bench.fill(2, 200, lens[1], Ecn::NotEct);
        (0..100).for_each(|_| _ = bench.dequeue());
        let bytes = [1, 2].map(|flow| {
            let left = bench.left.iter().filter(|left| left.packet.flow == flow);
            left.map(|left| u64::from(left.packet.len)).sum::<u64>()
        });
        let passed = bytes[0].abs_diff(bytes[1]) <= u64::from(2 * quantum);
        (passed, format!("{} and {} bytes", bytes[0], bytes[1]))
    });

    if limit > 0 {
        // Flow 1 has the most bytes, flow 2 the most packets; the packet beyond the limit is of flow 3.
        let few = limit.div_ceil(4);
        let lost = runner.run(|bench| {
            bench.fill(1, few, long, Ecn::NotEct);
            bench.fill(2, limit - few, long / 25, Ecn::NotEct);
            bench.send(3, long / 25, Ecn::NotEct);
            bench.drain();
            bench.lost.iter().map(|lost| lost.packet).collect::<Vec<_>>()
        });
        let others = lost.iter().filter(|packet| packet.flow != 1).count();
        let measured = format!("{} packets of it lost, {others} of others", lost.len() - others);
        runner.add(FATTEST, lost.len() > others && others == 0, measured);
        let of_one = lost.iter().filter(|packet| packet.flow == lost[0].flow);
        let first = of_one.clone().map(|packet| packet.number).min();
        let head = match lost.first().map(|packet| packet.flow) {
            Some(1) => 0,
            Some(2) => few as u64,
            _ => limit as u64,
        };
        let is_head = first == Some(head) && lost.iter().any(|packet| packet.flow != 3);
        let measured = match first {
            Some(first) => format!("the first of {} lost packets is number {}", of_one.count(), first - head),
            None => "no packet lost".to_owned(),
        };
        runner.add(HEAD, is_head, measured);

        runner.case(LIMIT, |bench| {
            (0..2 * limit).for_each(|number| _ = bench.send(1 + number as u64 % 4, long / 25, Ecn::NotEct));
            bench.drain();
            (bench.left.len() <= limit, format!("{} of {} packets left", bench.left.len(), 2 * limit))
        });
    }

    runner.case(OWN_CODEL, |bench| {
        // Flow 2 sends a packet for each four of flow 1.
        let gap = super::nanos(codel.target) / 25;
        let mut slot = 0;
        bench.serve(gap, 6 * super::nanos(codel.interval), |bench| {
            slot += 1;
            bench.fill(1, 100, long, Ecn::NotEct);
            if slot % 5 == 0 {
                bench.send(2, long, Ecn::NotEct);
            }
        });
        let lost = [1, 2].map(|flow| bench.lost.iter().filter(|lost| lost.packet.flow == flow).count());
        let passed = lost[0] >= 3 && lost[1] == 0;
        (passed, format!("the standing queue lost {} packets, the other flow {}", lost[0], lost[1]))
    });

    runner.finish(format!("RFC 8290, FQ-CoDel, quantum {quantum} bytes, limit {limit} packets"))
}

/// Packets of the backlog of flow 1, and packets of it that have left.
const BACKLOG: usize = 70;
const SERVED: usize = 10;

/// Queues a backlog of flow 1, and sends some of it, so that the flow is an old one.
fn backlog<Q: Queue>(bench: &mut Bench<Q>, len: u32) {
    bench.fill(1, BACKLOG, len, Ecn::NotEct);
    (0..SERVED).for_each(|_| _ = bench.dequeue());
}
