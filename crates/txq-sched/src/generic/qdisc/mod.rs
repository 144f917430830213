//! Queueing disciplines: which packet is sent next, and which packets are dropped.
//!
//! A qdisc is plain data with one owner at a time, so it needs no lock, no atomic and no `Arch` of its own. The thread that
//! owns it (`enqueue/`) calls it with batches, one virtual call for each. The qdisc queues packets or drops them with a
//! reason. Dropped packets go on a list, and are freed when the owner has released every lock.
//!
//! Each kind is one file: its algorithm, its parameters, their parsing and printing. `kinds.rs` lists all kinds.
//!
//! The kernel's counterpart is `struct Qdisc_ops`.

mod ahead;
mod arrival;
pub mod bfifo;
pub mod blackhole;
mod bypass;
pub mod cake;
pub mod cake_mq;
#[doc(hidden)]
pub mod child;
pub mod choke;
pub mod codel;
#[doc(hidden)]
pub mod copying;
mod cx;
pub(crate) mod damage;
pub mod drr;
pub mod dualpi2;
mod ecn;
mod estimated;
pub mod etf;
pub mod ets;
mod fifo;
mod flows;
pub mod fq;
pub mod fq_codel;
pub mod fq_pie;
pub mod hfsc;
pub mod htb;
pub mod htb_mq;
mod idle;
mod inner;
mod kinds;
mod lateness;
mod limited;
mod minors;
pub mod mq;
pub mod mqprio;
pub mod multiq;
pub mod netem;
mod noop;
pub mod noqueue;
pub mod pfifo;
pub mod pfifo_fast;
pub mod pie;
pub mod plug;
pub mod prio;
mod priomap;
mod random;
pub(crate) mod rates;
use crate::generic::rate;
pub mod red;
mod registry;
mod runs;
mod segment;
pub mod sfq;
pub mod skbprio;
mod stab;
#[doc(hidden)]
pub use segment::{cut, cut_bytes};
pub mod tbf;
pub mod tbf_mq;
mod timed;
pub mod trace;
mod unknown;
mod wheel;

use std::time::Duration;

use txq_core::arch::{Arch, Nanos, Native};
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;
use txq_core::stats::latency::Latency;

use crate::generic::filter::Filters;
use crate::tc::{Estimator, Handle, Options, ParseError, SentRate, Stab, Style, Words};

#[doc(hidden)]
pub use arrival::{Arrival, Full, Load};
pub use child::{Child, Classes, Total};
pub(crate) use child::{fixed_classes, plain_class};
pub use cx::Cx;
#[doc(hidden)]
pub use cx::Txqs;
pub use fifo::Fifo;
pub(crate) use kinds::build_qdisc;
#[doc(hidden)]
pub use kinds::change;
pub use kinds::{Built, build, classful_kinds, default_leaf, kind_names};
#[doc(hidden)]
pub use mq::Parent;
pub use mqprio::{ClassError, MAX_CLASSES, PRIORITIES, TrafficClasses};
pub(crate) use random::mix;
pub use registry::{BuildFn, RegisterError, register};

/// The verdict on a packet, from a qdisc or from the whole transmit path (`NET_XMIT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a packet may have been dropped"]
pub enum Verdict {
    /// Accepted by the queue layer. Only the counters show a later drop (`NET_XMIT_SUCCESS`).
    Success,
    /// Accepted, but another packet was dropped to make room, or some packets of a batch were (`NET_XMIT_CN`).
    Congested,
    /// Dropped (`NET_XMIT_DROP`).
    Drop,
}

/// How much a call may dequeue. Packets are dequeued while both numbers are above 0, so at least one is, and the last one
/// may be longer than the bytes that were left (`try_bulk_dequeue_skb`).
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Packets.
    pub packets: usize,
    /// Bytes; `u64::MAX` when nothing limits them.
    pub bytes: u64,
}

impl Budget {
    /// Returns a budget of so many packets and bytes, or of 1 where a number is 0.
    #[inline]
    pub fn new(packets: usize, bytes: u64) -> Self {
        Self { packets: packets.max(1), bytes: bytes.max(1) }
    }

    /// Returns a budget of so many packets, but at least one, of any length.
    #[inline]
    pub fn packets(packets: usize) -> Self {
        Self::new(packets, u64::MAX)
    }

    /// Returns whether another packet may be dequeued.
    #[inline]
    pub fn is_left(&self) -> bool {
        self.packets > 0 && self.bytes > 0
    }

    /// Subtracts packets that were dequeued, and their bytes.
    #[inline]
    pub fn spend(&mut self, packets: usize, bytes: u64) {
        self.packets -= packets;
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Appends a packet to `out`, subtracts it from the budget and counts it as sent.
    #[inline]
    pub(crate) fn send<A: Arch>(
        &mut self,
        packet: Packet<A>,
        out: &mut PacketList<A>,
        stats: &mut QdiscStats,
    ) {
        let bytes = packet.len() as u64;
        self.spend(1, bytes);
        stats.count_sent(packet.segs().into(), bytes);
        out.push_back(packet);
    }
}

/// A queueing discipline.
///
/// The contract that every caller relies on, and every kind's tests check: a packet handed in is queued or dropped
/// through [`Cx::drop`]; `qlen` and `backlog` are exact after each call; a `dequeue` that returns nothing while `qlen` is
/// not 0 has an event pending ([`Qdisc::next_event`]), or waits for a command (plug) or for a txq (multiq).
pub trait Qdisc<A: Arch = Native>: Send {
    /// Returns the kind's name.
    fn kind(&self) -> &'static str;

    /// Sets the qdisc's handle, before its first packet. Packets' priorities may name its classes.
    fn set_handle(&mut self, _handle: Handle) {}

    /// Returns its classes, if it has any.
    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        None
    }

    /// Returns the filters that choose among its classes, if the kind uses filters: those of the class `class`, or with 0
    /// the qdisc's own (`tcf_block`).
    fn filters(&mut self, _class: u16) -> Option<&mut Filters<A>> {
        None
    }

    /// Queues or drops one packet.
    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict;

    /// Queues or drops each packet of `batch`, in order. It leaves the batch empty, or stops behind a packet that it has
    /// copied ([`Cx::duplicate`]), so that the copy is queued next.
    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        while !cx.has_copies()
            && let Some(packet) = batch.pop_front()
        {
            let _ = self.enqueue(packet, cx);
        }
    }

    /// Returns whether it copies packets ([`Cx::duplicate`]) with its present parameters; `None` for a kind that never does.
    /// A qdisc that copies packets must be the only one of its tree whose kind can.
    fn copies(&self) -> Option<bool> {
        None
    }

    /// Appends the next packets to `out` while [`Budget::is_left`].
    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>);

    /// Takes back the first packets of `batch`, which this qdisc gave up just now and the driver refused: as many as it can
    /// put back where they came from. The rest stays in `batch`, and is sent before everything else. A qdisc whose order
    /// depends only on its packets takes all, so that a later packet of a higher priority still goes first (the kernel's
    /// `gso_skb` cannot). A qdisc that has charged for the packets takes none.
    fn requeue(&mut self, _batch: &mut PacketList<A>) {}

    /// Returns the packet that the next dequeue returns first, where the qdisc can tell without dequeuing it. A parent that
    /// must know the next packet of a qdisc that cannot tell dequeues it (`qdisc/child.rs`).
    fn front(&self) -> Option<&Packet<A>> {
        None
    }

    /// Drops all queued packets as `QUEUE_PURGE`. Counters stay.
    fn reset(&mut self, cx: &mut Cx<'_, A>);

    /// Changes parameters (`tc qdisc change`). On an error nothing has changed. A kind without parameters accepts only a
    /// change that names none.
    fn change(&mut self, words: &mut Words<'_>, _env: &Env, _cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        match words.peek() {
            None => Ok(()),
            Some(_) => Err(ParseError::new("Error: Change operation not supported by specified qdisc.")),
        }
    }

    /// Tells the qdisc the device's new `tx_queue_len`, in packets (`change_tx_queue_len`). A qdisc whose limit this is
    /// adopts it, and drops the packets beyond it; others keep their limit.
    fn set_tx_queue_len(&mut self, _packets: u32, _cx: &mut Cx<'_, A>) {}

    /// Returns how many packets are queued.
    fn qlen(&self) -> usize;

    /// Returns how many packets it holds at most, if that is one number for all packets alike. Senders that wait for room
    /// are held from three quarters of it on (`Sender::wait_room`). The queue reads it when the
    /// qdisc is attached, and after each control call. A qdisc without such a number (bytes, bands, flows) returns `None`;
    /// its senders are held when their packets are dropped as `QDISC_OVERLIMIT`, `FQ_FLOW_LIMIT` or `FQ_BAND_LIMIT`.
    fn limit(&self) -> Option<usize> {
        None
    }

    /// Returns `Ok` if the packet would cost no drop for want of room, its own or that of another packet, if it arrived now. A
    /// drop by a law (RED, CoDel, a policer) is none for want of room.
    ///
    /// # Errors
    /// [`Full`] says how many packets wait where the packet would wait. If half of them have left, it is worth to ask again.
    #[doc(hidden)]
    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        self.limit().map_or(Ok(()), |limit| arrival.within(self.qlen(), limit))
    }

    /// Returns whether [`limit`](Qdisc::limit) is the one limit of room, so that a sender which knows that the queue is not full
    /// need not ask [`room_for`](Qdisc::room_for).
    #[doc(hidden)]
    fn has_one_limit(&self) -> bool {
        false
    }

    /// Returns how many packets it queues at most, all together, for the size of a pool: [`limit`](Qdisc::limit), or more if
    /// its bands have limits of their own. `None` if its limits are not counted in packets, or are those of its classes.
    fn max_packets(&self) -> Option<usize> {
        self.limit()
    }

    /// Returns the counters, with `backlog` and `qlen`.
    fn stats(&self) -> QdiscStats;

    /// Returns the sums that its ancestors count. A parent asks a class's leaf for them at each packet.
    fn total(&self) -> Total {
        let QdiscStats { backlog, drops, .. } = self.stats();
        Total { qlen: self.qlen(), backlog, drops }
    }

    /// Returns the parameters, as `tc qdisc show` prints them.
    fn options(&self, style: Style) -> Options {
        Options::new(style)
    }

    /// Returns the kind's own counters, as `tc -s qdisc show` prints them after the common ones, if it has any.
    fn xstats(&self, _style: Style) -> Option<Options> {
        None
    }

    /// Returns whether a packet that finds the queue empty may go to the driver directly (`TCQ_F_CAN_BYPASS`).
    fn can_bypass(&self) -> bool {
        false
    }

    /// Counts packets that bypassed the queue, as if they had been dequeued. Called only where
    /// [`can_bypass`](Qdisc::can_bypass) returns true.
    fn bypassed(&mut self, _packets: u64, _bytes: u64) {}

    /// Lets a batch bypass the queue: counts it and returns true. A kind may do so where enqueuing and dequeuing the whole
    /// batch, or one packet after the other, would have the same result. By default only a single packet may bypass the
    /// queue, and only while it is empty.
    fn bypass(&mut self, batch: &PacketList<A>) -> bool {
        let may = batch.len() == 1 && self.qlen() == 0 && self.can_bypass();
        if may {
            let priority = batch.front().map_or(0, Packet::priority);
            self.bypassed_by(priority, batch.segs(), batch.bytes());
        }
        may
    }

    /// The same as [`bypassed`](Qdisc::bypassed), for a kind that counts by priority.
    fn bypassed_by(&mut self, _priority: u32, packets: u64, bytes: u64) {
        self.bypassed(packets, bytes);
    }

    /// Returns its bands and their counters, if it has bands that are not classes.
    fn bands(&self) -> Vec<Band> {
        Vec::new()
    }

    /// Returns how senders may sort packets without owning the qdisc, if they may (`TCQ_F_NOLOCK`).
    fn nolock(&self) -> Option<NoLock> {
        None
    }

    /// Returns the rate at which it sends, if it has an estimator.
    #[doc(hidden)]
    fn rate(&self) -> Option<SentRate> {
        None
    }

    /// Starts the estimator anew with these options, if the qdisc has one.
    #[doc(hidden)]
    fn set_estimator(&mut self, _estimator: Estimator) {}

    /// Returns its size table, if it has one.
    #[doc(hidden)]
    fn stab(&self) -> Option<Stab> {
        None
    }

    /// Replaces its size table, for the packets that it gets from now on. Returns whether it can: a qdisc that was added without one
    /// cannot get one.
    #[doc(hidden)]
    fn set_stab(&mut self, stab: Option<Stab>) -> bool {
        stab.is_none()
    }

    /// Returns whether packets for a txq that is stopped may be overtaken by those for other txqs. Other qdiscs that serve
    /// several txqs are held up by the first packet whose txq is stopped.
    #[doc(hidden)]
    fn passes_stopped(&self) -> bool {
        false
    }

    /// Gives back memory that it would need only for further packets, if it is empty and has nothing to remember at `now`. Returns
    /// whether it has no such memory now. A parent calls this for a leaf that has been idle for some time.
    #[doc(hidden)]
    fn shrink(&mut self, _now: Nanos) -> bool {
        true
    }

    /// Returns the time of the next event at which a queued packet may leave, on the clock of the `Arch` (`qdisc_watchdog`).
    /// Called after a dequeue that returned nothing while packets are queued.
    fn next_event(&self) -> Option<Nanos> {
        None
    }
}

/// A band of a qdisc, as [`Qdisc::bands`] returns it.
#[derive(Debug, Clone, Default)]
pub struct Band {
    /// Its name: `band 0`.
    pub name: String,
    /// Its counters.
    pub stats: QdiscStats,
    /// The time from xmit to the dequeue, of packets that were sampled and queued.
    pub latency: Latency,
}

/// Number of bands into which senders sort packets for a qdisc (`PFIFO_FAST_BANDS`).
pub const BANDS: usize = 3;

/// What a sender needs to know to sort packets for a qdisc that it does not own ([`Qdisc::nolock`]).
#[derive(Debug, Clone, Copy)]
pub struct NoLock {
    /// The band of each priority modulo 16.
    pub priomap: &'static [u8; 16],
    /// Packets that each band holds at most.
    pub limit: u32,
    /// Packets that each band holds now.
    pub len: [u32; BANDS],
}

/// Properties of the device on which a qdisc's defaults depend. Write `..Env::default()` last: a later version may have more.
#[derive(Debug, Clone, Copy)]
pub struct Env {
    /// `tx_queue_len`, in packets.
    pub tx_queue_len: u32,
    /// The longest packet with its link-layer header, in bytes (`psched_mtu`).
    pub mtu: u32,
    /// Number of txqs.
    pub txqs: u16,
    /// How long before a packet's time the device takes the packet (`Driver::pacing_horizon`).
    pub pacing_horizon: Duration,
    /// The seed of the random decisions of a qdisc that is built for this device; `None` for an unpredictable one. A tree gives
    /// each of its qdiscs a seed of its own, which it derives from its seed and the qdisc's parent
    /// ([`Config::seed`](crate::scheduler::Config::seed)).
    pub seed: Option<u64>,
}

impl Default for Env {
    /// An Ethernet device with one txq and a length of 1000 packets.
    fn default() -> Self {
        Self { tx_queue_len: 1000, mtu: 1514, txqs: 1, pacing_horizon: Duration::ZERO, seed: None }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
