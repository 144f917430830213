//! A qdisc on its own, for a program with one thread that has its own way to send: a simulation, an event loop, a
//! benchmark.
//!
//! ```
//! use txq::packet::PacketList;
//! use txq::pool::{Pool, PoolConfig};
//! use txq::qdisc::{Alone, Budget, Env};
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

use crate::arch::{Arch, Nanos, Native};
use crate::driver::Clock;
use crate::drop::DropCounts;
use crate::packet::PacketList;
use crate::pool::Cache;
use crate::qdisc::copying::Copying;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, build};
use crate::tc::{Handle, ParseError};

/// A qdisc that one thread calls.
pub struct Alone<A: Arch = Native> {
    qdisc: Box<dyn Qdisc<A>>,
    to_free: PacketList<A>,
    drops: DropCounts,
    copies: PacketList<A>,
    created: u64,
}

impl<A: Arch> Alone<A> {
    /// The qdisc that a text such as `"handle 1: fq limit 1000"` describes.
    ///
    /// # Errors
    /// tc's, with a remedy; and for mq, mqprio and noqueue, which are no queue.
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

    /// Queues or drops each of `batch`. What is dropped goes back to `cache`.
    pub fn enqueue(&mut self, batch: &mut PacketList<A>, cache: &mut Cache<A>) {
        while !batch.is_empty() {
            self.with(cache, |qdisc, cx| qdisc.enqueue_batch(batch, cx));
        }
    }

    /// Appends the packets that are next to `out`. What is dropped instead goes back to `cache`.
    pub fn dequeue(&mut self, budget: Budget, out: &mut PacketList<A>, cache: &mut Cache<A>) {
        self.with(cache, |qdisc, cx| qdisc.dequeue_batch(budget, out, cx));
    }

    /// When to dequeue again, after a dequeue that gave nothing though packets are queued.
    pub fn next_event(&self) -> Option<Nanos> {
        self.qdisc.next_event()
    }

    /// The qdisc, to read its counters.
    pub fn qdisc(&self) -> &dyn Qdisc<A> {
        &*self.qdisc
    }

    /// What has been dropped, by reason.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// Copies that it has had made of packets, from the cache of who called it.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Calls `f` with the qdisc, to change it. The clock is read anew, once, if anybody asks.
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
