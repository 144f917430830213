//! Queueing disciplines: the kinds, and how to write one.
//!
//! Each kind has a page: its algorithm, its parameters, and its differences from the kernel's. A program adds a kind of its
//! own by [`register`], or gives a device one qdisc of its own. A qdisc is plain data with one owner at a time: it needs no
//! lock and no atomic. The owner of its queue calls it with batches, one virtual call for each.
//!
//! The kernel's counterpart is `struct Qdisc_ops`.

mod child;
mod custom;
mod cx;
mod fifo;

use txq_core::stats::QdiscStats;

use crate::Instant;
use crate::filter::Filters;
use crate::packet::{Packet, PacketList};
use crate::tc::{Options, ParseError, Style, Words};

pub use child::{Child, Classes};
#[doc(hidden)]
pub use custom::Custom;
pub use custom::{BuildFn, RegisterError, register};
pub use cx::Cx;
pub use fifo::Fifo;

pub use crate::generic::qdisc::{
    BANDS, Band, Budget, ClassError, Env, MAX_CLASSES, PRIORITIES, Total, TrafficClasses, Verdict,
};
pub use crate::generic::qdisc::{
    bfifo, blackhole, cake, cake_mq, choke, codel, drr, dualpi2, etf, ets, fq, fq_codel, fq_pie, hfsc, htb,
    htb_mq, mq, mqprio, multiq, netem, noqueue, pfifo, pfifo_fast, pie, plug, prio, red, sfq, skbprio, tbf,
    tbf_mq, trace,
};

/// A queueing discipline.
///
/// The contract that every caller relies on: a packet handed in is queued or dropped through [`Cx::drop`]; `qlen` and
/// `stats` are exact after each call; a `dequeue_batch` that returns nothing while `qlen` is not 0 has an event pending
/// ([`next_event`](Qdisc::next_event)).
///
/// ```
/// use txq_sched::packet::{Packet, PacketList};
/// use txq_sched::qdisc::{Budget, Cx, Fifo, Qdisc, Shortcuts, Verdict};
/// use txq_sched::stats::QdiscStats;
///
/// /// At most ten packets, in order.
/// #[derive(Default)]
/// struct Ten(Fifo);
///
/// impl Qdisc for Ten {
///     fn kind(&self) -> &'static str {
///         "ten"
///     }
///     fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
///         if self.0.len() < 10 { self.0.push(packet) } else { self.0.refuse(packet, cx) }
///     }
///     fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
///         self.0.pop(&mut budget, out);
///     }
///     fn reset(&mut self, cx: &mut Cx<'_>) {
///         self.0.purge(cx);
///     }
///     fn qlen(&self) -> usize {
///         self.0.len()
///     }
///     fn stats(&self) -> QdiscStats {
///         self.0.stats()
///     }
/// }
///
/// impl Shortcuts for Ten {}
/// ```
pub trait Qdisc: Shortcuts + Send {
    /// Returns the kind's name.
    fn kind(&self) -> &'static str;

    /// Queues or drops one packet.
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict;

    /// Queues or drops each packet of `batch`, in order. It leaves the batch empty, or stops behind a packet that it has
    /// copied ([`Cx::duplicate`]), so that the copy is queued next.
    fn enqueue_batch(&mut self, batch: &mut PacketList, cx: &mut Cx<'_>) {
        while !cx.0.has_copies()
            && let Some(packet) = batch.pop_front()
        {
            let _ = self.enqueue(packet, cx);
        }
    }

    /// Appends the next packets to `out` while [`Budget::is_left`].
    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, cx: &mut Cx<'_>);

    /// Takes back the first packets of `batch`, which this qdisc gave up just now and the driver refused: as many as it can
    /// put back where they came from. The rest stays in `batch`, and is sent before everything else. A qdisc that has charged
    /// for the packets takes none.
    fn requeue(&mut self, _batch: &mut PacketList) {}

    /// Drops all queued packets as `QUEUE_PURGE`. Counters stay.
    fn reset(&mut self, cx: &mut Cx<'_>);

    /// Changes parameters (`tc qdisc change`). On an error nothing has changed. A kind without parameters accepts only a
    /// change that names none.
    fn change(&mut self, words: &mut Words<'_>, _env: &Env, _cx: &mut Cx<'_>) -> Result<(), ParseError> {
        match words.peek() {
            None => Ok(()),
            Some(_) => Err(ParseError::new("Error: Change operation not supported by specified qdisc.")),
        }
    }

    /// Returns how many packets are queued.
    fn qlen(&self) -> usize;

    /// Returns the counters, with `backlog` and `qlen`.
    fn stats(&self) -> QdiscStats;

    /// Returns the parameters, as `tc qdisc show` prints them.
    fn options(&self, style: Style) -> Options {
        Options::new(style)
    }

    /// Returns the kind's own counters, as `tc -s qdisc show` prints them after the common ones, if it has any.
    fn xstats(&self, _style: Style) -> Option<Options> {
        None
    }

    /// Returns the time of the next event at which a queued packet may leave (`qdisc_watchdog`). Called after a dequeue that
    /// returned nothing while packets are queued.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// Returns the filters that choose among its classes, if the kind uses filters: those of the class `class`, or with 0
    /// the qdisc's own (`tcf_block`).
    fn filters(&mut self, _class: u16) -> Option<&mut Filters> {
        None
    }

    /// Returns its classes, if it has any.
    fn classes(&mut self) -> Option<&mut dyn Classes> {
        None
    }
}

/// What a qdisc tells of itself so that packets and senders may take shorter ways: limits, and the bypass of an empty queue.
/// Each method has a default, which is right for every qdisc: `impl Shortcuts for Mine {}`.
pub trait Shortcuts {
    /// Returns how many packets it holds at most, if that is one number for all packets alike. Senders that wait for room
    /// are held from three quarters of it on (`Sender::wait_room`). Without such a number they are held when their packets are
    /// dropped as `QDISC_OVERLIMIT`, `FQ_FLOW_LIMIT` or `FQ_BAND_LIMIT`.
    fn limit(&self) -> Option<usize> {
        None
    }

    /// Returns whether the qdisc has room for `packets` packets of `bytes` bytes together, which arrive in a row; `packet` is the
    /// last of them. `Sender::send` asks before it hands a packet in, so that the packet is not lost for want of room. A qdisc
    /// whose only limit is [`limit`](Shortcuts::limit) keeps the default: that limit is checked in any case.
    fn has_room(&self, _packet: &Packet, _packets: usize, _bytes: u64) -> bool {
        true
    }

    /// Returns how many packets it queues at most, all together, for the size of a pool: [`limit`](Shortcuts::limit), or more
    /// if its bands have limits of their own.
    fn max_packets(&self) -> Option<usize> {
        self.limit()
    }

    /// Returns whether a packet that finds the queue empty may go to the driver directly (`TCQ_F_CAN_BYPASS`).
    fn can_bypass(&self) -> bool {
        false
    }

    /// Counts packets that bypassed the queue, as if they had been dequeued. Called only where
    /// [`can_bypass`](Shortcuts::can_bypass) returns true.
    fn bypassed(&mut self, _packets: u64, _bytes: u64) {}

    /// Returns the packet that the next dequeue returns first, where the qdisc can tell without dequeuing it.
    fn front(&self) -> Option<&Packet> {
        None
    }
}
