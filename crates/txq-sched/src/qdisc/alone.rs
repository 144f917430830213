//! [`Alone`]: a qdisc without a device, for a program with one thread and its own way to send, such as a simulation, an
//! event loop or a benchmark.
//!
//! ```
//! use txq_core::packet::PacketList;
//! use txq_core::pool::{Pool, PoolConfig};
//! use txq_sched::qdisc::{Alone, Budget, Env};
//!
//! let env = Env { tx_queue_len: 1000, mtu: 1514, txqs: 1, pacing_horizon: 0 };
//! let mut fq: Alone = Alone::new("handle 1: fq flow_limit 10", &env)?;
//! let mut cache = Pool::new(&PoolConfig::default())?.cache("loop", 0);
//! let mut batch = PacketList::new();
//! batch.push_back(cache.alloc(64)?);
//! fq.enqueue(&mut batch, &mut cache);
//! fq.dequeue(Budget::packets(32), &mut batch, &mut cache);
//! assert_eq!(batch.len(), 1);
//! # cache.free(&mut batch);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use txq_core::arch::{Arch, Nanos, Native};
use txq_core::clock::Clock;
use txq_core::drop::DropCounts;
use txq_core::packet::PacketList;
use txq_core::pool::Cache;

use crate::qdisc::copying::Copying;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, build};
use crate::tc::{Handle, ParseError};

/// A qdisc tree without a device: its caller enqueues, dequeues, and waits until [`next_event`](Alone::next_event).
pub struct Alone<A: Arch = Native> {
    qdisc: Box<dyn Qdisc<A>>,
    to_free: PacketList<A>,
    drops: DropCounts,
    copies: PacketList<A>,
    created: u64,
}

impl<A: Arch> Alone<A> {
    /// Builds the qdisc that `text` describes in tc's words, such as `"handle 1: fq limit 1000"`.
    ///
    /// # Errors
    /// Returns tc's error, with a remedy, for a wrong text. mq, mqprio and noqueue are refused, because they hold no
    /// packets.
    pub fn new(text: &str, env: &Env) -> Result<Self, ParseError> {
        let (header, built) = build(text, env)?;
        let Built::Qdisc(mut qdisc) = built else {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            return Err(error.with_remedy("it holds no packets: name a qdisc that does"));
        };
        qdisc.set_handle(header.handle.unwrap_or(Handle::UNSPEC));
        let (to_free, copies) = (PacketList::new(), PacketList::new());
        Ok(Self { qdisc, to_free, drops: DropCounts::default(), copies, created: 0 })
    }

    /// Queues or drops each packet of `batch`, and leaves `batch` empty. Returns the buffers of dropped packets to `cache`.
    pub fn enqueue(&mut self, batch: &mut PacketList<A>, cache: &mut Cache<A>) {
        while !batch.is_empty() {
            self.with(cache, |qdisc, cx| qdisc.enqueue_batch(batch, cx));
        }
    }

    /// Dequeues packets within `budget` and appends them to `out`. Returns the buffers of dropped packets to `cache`.
    pub fn dequeue(&mut self, budget: Budget, out: &mut PacketList<A>, cache: &mut Cache<A>) {
        self.with(cache, |qdisc, cx| qdisc.dequeue_batch(budget, out, cx));
    }

    /// Returns the time of the next dequeue, after a dequeue that returned nothing although packets are queued. The clock
    /// is that of the `Arch`.
    pub fn next_event(&self) -> Option<Nanos> {
        self.qdisc.next_event()
    }

    /// Returns the qdisc, to read its counters.
    pub fn qdisc(&self) -> &dyn Qdisc<A> {
        &*self.qdisc
    }

    /// Returns the number of dropped packets, by reason.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// Returns the number of copies that the qdisc has made of packets. A copy's buffer comes from the `cache` of the call
    /// that made it.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Calls `f` with the qdisc, to change it, and returns the result of `f`. The call reads the clock at most once, when
    /// the qdisc first asks for the time.
    pub fn with<R>(
        &mut self,
        cache: &mut Cache<A>,
        f: impl FnOnce(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> R {
        let mut clock = Clock::new();
        let copying = Copying::new(cache, &mut self.copies, &mut self.created);
        let mut cx = Cx { clock: &mut clock, to_free: &mut self.to_free, drops: &mut self.drops, copying };
        let result = f(&mut *self.qdisc, &mut cx);
        cx.enqueue_copies(&mut *self.qdisc);
        if !self.to_free.is_empty() {
            cache.free(&mut self.to_free);
        }
        result
    }
}
