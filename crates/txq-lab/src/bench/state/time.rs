//! The time of a qdisc's own code, on one thread that has all of its lines.

use super::ops::{Op, Ops, Unmarked, shortest};
use super::trace::Calls;
use crate::sim::state::{Each, Times};

/// Packets of a call that takes several.
const PACKETS_PER_CALL: u32 = 32;
/// Calls of a measurement.
const CALLS: u32 = 2000;
/// How often all qdiscs are measured in turn. The shortest times count: other programs and hypervisors only add to them.
const ROUNDS: u32 = 25;

/// The shortest times of a qdisc so far, in nanoseconds a packet.
struct Shortest {
    text: String,
    /// The part of enqueue in the time of both: by the instructions of the trace.
    part: f64,
    /// To enqueue and dequeue single packets, and packets in calls of many.
    one: f64,
    many: f64,
    /// To enqueue at the limit, and how many packets that drops.
    full: Option<(f64, f64)>,
}

/// Measures the times of the calls of qdiscs, given by their texts and their traces.
pub(super) fn times(qdiscs: &[(&str, Calls)]) -> anyhow::Result<Vec<Times>> {
    let instructions = |calls: &Calls, op| {
        let of = calls.calls.iter().filter(|call| call.op == op);
        let (sum, n) = of.fold((0, 0), |(sum, n), call| (sum + call.instructions, n + 1));
        sum as f64 / f64::from(n.max(1))
    };
    let mut all: Vec<Shortest> = qdiscs
        .iter()
        .map(|(text, calls)| {
            let [enqueue, dequeue] = [Op::Enqueue, Op::Dequeue].map(|op| instructions(calls, op));
            let part = enqueue / (enqueue + dequeue);
            Shortest { text: (*text).to_owned(), part, one: f64::MAX, many: f64::MAX, full: None }
        })
        .collect();
    // To allocate, mark and free a packet without a qdisc.
    let mut around = f64::MAX;
    for _ in 0..ROUNDS {
        around = around.min(Ops::new("pfifo")?.alone()?);
        all.iter_mut().try_for_each(Shortest::round)?;
    }
    Ok(all.iter().map(|shortest| shortest.times(around)).collect())
}

impl Shortest {
    fn round(&mut self) -> anyhow::Result<()> {
        let mut ops = Ops::new(&self.text)?;
        let one = shortest(|| (0..CALLS).try_for_each(|_| single(&mut ops)))?;
        let together = CALLS / PACKETS_PER_CALL;
        let many = shortest(|| {
            (0..together).try_for_each(|_| {
                ops.enqueue_together(PACKETS_PER_CALL)?;
                ops.dequeue(PACKETS_PER_CALL, PACKETS_PER_CALL, &mut Unmarked);
                Ok(())
            })
        })?;
        self.one = self.one.min(one.as_nanos() as f64 / f64::from(CALLS));
        self.many = self.many.min(many.as_nanos() as f64 / f64::from(together * PACKETS_PER_CALL));
        if ops.fill()? {
            let (before, mut calls) = (ops.dropped(), 0);
            let time = shortest(|| {
                calls += CALLS;
                ops.enqueue(CALLS, Op::Drop, &mut Unmarked)
            })?;
            let dropped = (ops.dropped() - before) as f64 / f64::from(calls);
            let ns = time.as_nanos() as f64 / f64::from(CALLS);
            if self.full.is_none_or(|(least, _)| ns < least) {
                self.full = Some((ns, dropped));
            }
        }
        ops.end();
        Ok(())
    }

    /// Returns the times without that of the packets' buffers. A call of n packets takes `call + n * packet`.
    fn times(&self, around: f64) -> Times {
        let (one, many) = ((self.one - around).max(1.0), (self.many - around).max(0.5));
        let each = f64::from(PACKETS_PER_CALL);
        let packet = ((many * each - one) / (each - 1.0)).clamp(0.5, one);
        let drop = self
            .full
            .map_or(0.0, |(ns, dropped)| ((ns - around - one * self.part) / dropped.max(0.1)).max(0.0));
        let tenth = |ns: f64| (ns * 10.0).round() / 10.0;
        let both = |ns: f64, drop| Each::of([ns * self.part, ns * (1.0 - self.part), drop].map(tenth));
        Times { call: both(one - packet, 0.0), packet: both(packet, drop) }
    }
}

/// Enqueues a packet and dequeues it.
fn single(ops: &mut Ops) -> anyhow::Result<()> {
    ops.enqueue(1, Op::Enqueue, &mut Unmarked)?;
    ops.dequeue(1, 1, &mut Unmarked);
    Ok(())
}
