//! The calls of a qdisc, and the marks by which a trace of all accesses tells them apart.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use txq::generic::PacketScheduler;
use txq::qdisc::{Budget, Env};
use txq_cli::common::failure::refused;
use txq_core::arch::Nanos;
use txq_core::clock::Clock;
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Cache, Pool, PoolConfig};

use crate::bench::rig::{LEN, scatter};
use crate::tree::Tree;

/// Flows of the packets, as in the suite `crowd`.
pub(super) const FLOWS: u32 = 200;
/// Buffers: more than any of the qdiscs holds by its limit.
const BUFFERS: u32 = 4096;
/// The most of them in use: the others lie in the stock.
const MAX_IN_USE: u32 = BUFFERS - 1024;
/// The most packets that are queued at a time, but for the calls at the limit.
const QUEUED: u32 = 8;
/// Rounds before the measurement, and in a trace, each of up to `QUEUED` packets.
const WARM_UP_ROUNDS: u32 = 200;
const TRACED_ROUNDS: u32 = 500;
/// Calls at the limit in a trace.
const AT_LIMIT: u32 = 600;
/// Virtual time of a call: so short that no packet waits too long for an AQM.
const CALL_TIME: Nanos = 20;

/// What a marked part of the trace does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Writes to a packet's descriptor, to show where descriptors lie.
    Descriptor,
    /// Writes to a packet's data.
    Data,
    /// Enqueues a packet.
    Enqueue,
    /// Dequeues a packet.
    Dequeue,
    /// Enqueues a packet to a qdisc at its limit, which drops a packet or several.
    Drop,
}

impl Op {
    pub(super) const ALL: [Self; 5] =
        [Self::Descriptor, Self::Data, Self::Enqueue, Self::Dequeue, Self::Drop];
}

/// A store to one of these addresses begins or ends a part of the trace: the first ones begin an [`Op`], and those from [`ENDS_AT`] on
/// end it and name the flow.
static MARKS: [AtomicU8; ENDS_AT + FLOWS as usize] = [const { AtomicU8::new(0) }; ENDS_AT + FLOWS as usize];
/// Where the marks of ends begin.
pub(super) const ENDS_AT: usize = 8;

/// Receives the begin and the end of each call.
pub(super) trait Mark {
    fn begin(&mut self, op: Op);
    fn end(&mut self, flow: u32);
}

/// Marks for a trace.
struct Traced;

impl Mark for Traced {
    #[inline]
    fn begin(&mut self, op: Op) {
        MARKS[op as usize].store(1, Relaxed);
    }
    #[inline]
    fn end(&mut self, flow: u32) {
        MARKS[ENDS_AT + flow as usize].store(1, Relaxed);
    }
}

/// No marks.
pub(super) struct Unmarked;

impl Mark for Unmarked {
    #[inline]
    fn begin(&mut self, _: Op) {}
    #[inline]
    fn end(&mut self, _: u32) {}
}

/// A qdisc and its packets.
pub(super) struct Ops {
    tree: Tree,
    qdisc: PacketScheduler,
    cache: Cache,
    now: Nanos,
    /// The state of the random numbers.
    random: u64,
    out: PacketList,
}

impl Ops {
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let tree = Tree::new(name);
        let pool = Pool::new(&PoolConfig { buffers: BUFFERS, room: 256, ..PoolConfig::default() })?;
        let env = Env { mtu: 1514, txqs: 1, ..Env::default() };
        let mut qdisc = PacketScheduler::new(tree.root(), env).map_err(refused(name))?;
        let mut cache = pool.cache("state", 0);
        tree.complete(|command| qdisc.tc(command, &mut Clock::at(1), &mut cache))?;
        Ok(Self { tree, qdisc, cache, now: 1_000_000, random: 1, out: PacketList::new() })
    }

    /// Returns a number below `n`.
    fn below(&mut self, n: u32) -> u32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) % u64::from(n)) as u32
    }

    fn packet(&mut self, flow: u32) -> anyhow::Result<Packet> {
        let mut packet = self.cache.alloc(LEN)?;
        packet.set_hash(scatter(flow));
        packet.set_mark(flow);
        packet.set_priority(self.tree.class_of(flow).map_or(0, |class| class.0));
        Ok(packet)
    }

    /// Returns the time to allocate, mark and free a packet, in nanoseconds: what is not the qdisc's.
    pub(super) fn alone(mut self) -> anyhow::Result<f64> {
        const PACKETS: u32 = 2000;
        let time = shortest(|| {
            for _ in 0..PACKETS {
                let flow = self.below(FLOWS);
                let packet = self.packet(flow)?;
                self.out.push_back(packet);
                self.cache.free(&mut self.out);
            }
            Ok(())
        })?;
        self.end();
        Ok(time.as_nanos() as f64 / f64::from(PACKETS))
    }

    /// Enqueues `n` packets, each of a random flow, one at a time.
    pub(super) fn enqueue(&mut self, n: u32, op: Op, mark: &mut impl Mark) -> anyhow::Result<()> {
        for _ in 0..n {
            let flow = self.below(FLOWS);
            let packet = self.packet(flow)?;
            self.now += CALL_TIME;
            self.qdisc.with(&mut Clock::at(self.now), &mut self.cache, |qdisc, cx| {
                mark.begin(op);
                let _dropped_or_queued = qdisc.enqueue(packet, cx);
                mark.end(flow);
            });
        }
        Ok(())
    }

    /// Enqueues `n` packets in one call.
    pub(super) fn enqueue_together(&mut self, n: u32) -> anyhow::Result<()> {
        let mut batch = PacketList::new();
        for _ in 0..n {
            let flow = self.below(FLOWS);
            batch.push_back(self.packet(flow)?);
        }
        self.now += CALL_TIME;
        self.qdisc.with(&mut Clock::at(self.now), &mut self.cache, |qdisc, cx| {
            while !batch.is_empty() {
                qdisc.enqueue_batch(&mut batch, cx);
            }
        });
        Ok(())
    }

    /// Dequeues up to `n` packets, `each` at a time.
    pub(super) fn dequeue(&mut self, n: u32, each: u32, mark: &mut impl Mark) {
        for _ in 0..n.div_ceil(each) {
            self.now += CALL_TIME;
            let (out, budget) = (&mut self.out, Budget::packets(each as usize));
            self.qdisc.with(&mut Clock::at(self.now), &mut self.cache, |qdisc, cx| {
                mark.begin(Op::Dequeue);
                qdisc.dequeue_batch(budget, out, cx);
                mark.end(out.front().map_or(0, Packet::mark));
            });
            self.cache.free(&mut self.out);
        }
    }

    /// Enqueues and dequeues packets, for `rounds` rounds of random lengths.
    pub(super) fn turn(&mut self, rounds: u32, mark: &mut impl Mark) -> anyhow::Result<()> {
        for _ in 0..rounds {
            let n = 1 + self.below(QUEUED);
            self.enqueue(n, Op::Enqueue, mark)?;
            self.dequeue(n, 1, mark);
        }
        Ok(())
    }

    /// Enqueues packets until one is dropped; returns whether one is: a limit may be out of reach.
    pub(super) fn fill(&mut self) -> anyhow::Result<bool> {
        for _ in 0..MAX_IN_USE {
            self.enqueue(1, Op::Drop, &mut Unmarked)?;
            if self.dropped() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns how many packets were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.qdisc.drops().total()
    }

    /// Touches all packets.
    fn touch_packets(&mut self) -> anyhow::Result<()> {
        let mut all = PacketList::new();
        for _ in 0..MAX_IN_USE {
            let mut packet = self.cache.alloc(LEN)?;
            Traced.begin(Op::Descriptor);
            packet.set_mark(1);
            Traced.end(0);
            let data = packet.data_mut();
            Traced.begin(Op::Data);
            data[0] = 1;
            Traced.end(0);
            all.push_back(packet);
        }
        self.cache.free(&mut all);
        Ok(())
    }

    pub(super) fn end(mut self) {
        self.qdisc.with(&mut Clock::at(self.now), &mut self.cache, |qdisc, cx| qdisc.reset(cx));
    }
}

/// Runs the calls of a qdisc for a trace. It prints the address of the marks and an address of its stack, and waits for a line on
/// stdin before the first mark: so the reader of the trace knows both in time.
///
/// # Errors
/// When the qdisc is wrong, or nothing reads the addresses.
pub fn traced(name: &str) -> anyhow::Result<()> {
    let local = 0_u8;
    let (marks, stack) = (MARKS.as_ptr().addr(), std::ptr::from_ref(&local).addr());
    let mut ops = Ops::new(name)?;
    ops.turn(WARM_UP_ROUNDS, &mut Unmarked)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{marks} {stack}")?;
    stdout.flush()?;
    std::io::stdin().read_exact(&mut [0])?;
    ops.touch_packets()?;
    ops.turn(TRACED_ROUNDS, &mut Traced)?;
    if ops.fill()? {
        for _ in 0..AT_LIMIT {
            ops.enqueue(1, Op::Drop, &mut Traced)?;
            if ops.dropped() == 0 {
                break;
            }
        }
    }
    ops.end();
    Ok(())
}

/// Returns how long `work` takes, the shortest of several.
pub(super) fn shortest(mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..8 {
        let start = std::time::Instant::now();
        work()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}
