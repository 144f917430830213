//! Leases: busy senders that meet at a `combine` queue take turns. The disciplines know nothing of this.
//!
//! A packet that one CPU hands to another moves cache lines there and back: its descriptor, its headers, the account and inbox of
//! its home. A queue that two CPUs run by turns moves its state too: of a qdisc with many flows, several lines for each. A
//! sender that does little else between its calls gains nothing by handing over. So where busy senders meet, one of them at a
//! time uses the queues: its packets and their state stay in one cache, and the others sleep. A sender that does other work
//! between its calls hands its packets to the owner, and both work at the same time.
//!
//! | fact | how the sender knows it |
//! |---|---|
//! | it is busy | in one of its last two windows of [`BUSY_WINDOW`] packets it spent less than [`HAND_OVER_COST`] a packet on other work: outside the data path, and not without buffers, credit or room |
//! | it meets another | the queue's last busy sender was another one ([`Usage`]) |
//! | the lease is free | its time is over |
//!
//! There is one lease for all queues of a device, because senders that need several queues by turns would otherwise each hold
//! what the others wait for. Senders that meet at no queue never read it. A lease is advice: the discipline's own word still
//! decides the ownership of the queue. A holder keeps the lease beyond its time until another sender takes it. A sender that has
//! waited for [`LONGEST_TURN_WAIT`] hands its packets over.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, Nanos};

use crate::generic::datapath::{Datapath, InHand, Root};
use crate::generic::tuning::{BUSY_WINDOW, HAND_OVER_COST, LONGEST_TURN_WAIT, TURN_OF_SENDER};

/// The lease of all queues of a device.
pub(crate) struct Lease<A: Arch> {
    /// A [`PackedTurn`]. Written by a sender that takes the lease, read by senders that wait. Relaxed: advice that orders nothing.
    turn: A::AtomicU64,
    /// Senders that wait. Each adds itself while it sleeps. Relaxed: it only sets how long they sleep.
    waiting: A::AtomicU32,
}

/// The holder of a lease and the end of its turn, as they were at some moment.
///
/// | bits | |
/// |---|---|
/// | 63..16 | the end of the turn, in units of 1024 ns |
/// | 15..0 | the holder's number; 0 for none |
#[derive(Clone, Copy)]
struct PackedTurn(u64);

impl PackedTurn {
    fn new(holder: u32, end: Nanos) -> Self {
        Self(end >> 10 << 16 | u64::from(holder & 0xffff))
    }

    fn holder(self) -> u32 {
        self.0 as u32 & 0xffff
    }

    /// Whether the turn is over at `now`.
    fn is_over(self, now: Nanos) -> bool {
        now >> 10 >= self.0 >> 16
    }

    /// Returns the time from `now` to the end of the turn.
    fn left(self, now: Nanos) -> Nanos {
        (self.0 >> 16 << 10).saturating_sub(now)
    }
}

impl<A: Arch> Lease<A> {
    pub(crate) fn new() -> Self {
        Self { turn: A::AtomicU64::new(0), waiting: A::AtomicU32::new(0) }
    }

    /// Gives the lease to sender `number` from `now` on, if `turn` still holds; returns whether it did.
    fn take(&self, turn: PackedTurn, number: u32, now: Nanos) -> bool {
        let new = PackedTurn::new(number, now + TURN_OF_SENDER);
        self.turn.compare_exchange(turn.0, new.0, Relaxed, Relaxed).is_ok()
    }
}

/// The number of the busy sender that used a queue last; 0 before the first. Written by a busy sender that begins to use the queue, and
/// read by busy senders at each call. Relaxed: a hint.
pub(crate) struct Usage<A: Arch>(CachePadded<A::AtomicU32>);

impl<A: Arch> Usage<A> {
    pub(crate) fn new() -> Self {
        Self(CachePadded::new(A::AtomicU32::new(0)))
    }
}

/// What a sender knows of itself.
pub(crate) struct SendWindows {
    /// The sender's number, never 0.
    number: u32,
    /// Packets until its next window begins.
    left: u32,
    /// Whether it was busy in its last window.
    is_busy: bool,
    /// When the window began, and the packets handed in before.
    began: Nanos,
    packets: u64,
    /// The time that it has waited for its turn, a buffer, credit or room on a list in this window.
    waited: Nanos,
    /// When it found no buffer or credit; 0 if it has got one since.
    blocked: Nanos,
    /// The time a packet inside the data path, in the first call of this window and of the last one.
    inside: [Nanos; 2],
    /// Whether the last window alone was busy.
    was_busy: bool,
}

impl SendWindows {
    /// Returns the pace of the sender with this serial number.
    pub(crate) fn new(serial: u64) -> Self {
        Self {
            // One sender in 65,535 has the same number: the two do not wait for each other.
            number: (serial % 0xffff) as u32 + 1,
            left: BUSY_WINDOW,
            is_busy: false,
            began: 0,
            packets: u64::MAX,
            waited: 0,
            blocked: 0,
            inside: [0; 2],
            was_busy: false,
        }
    }

    /// Notes that the sender has no buffer or credit.
    pub(crate) fn block(&mut self, now: Nanos) {
        if self.blocked == 0 {
            self.blocked = now;
        }
    }

    /// Notes that the sender has a buffer and credit again.
    #[cold]
    pub(crate) fn unblock(&mut self, now: Nanos) {
        if self.blocked != 0 {
            self.waited += now.saturating_sub(std::mem::take(&mut self.blocked));
        }
    }

    /// Notes that the sender has waited in a call for room on a list.
    #[cold]
    pub(crate) fn note_wait(&mut self, waited: Nanos) {
        self.waited += waited;
    }

    /// Counts a call with `packets` packets; returns whether it is the first of a window.
    #[inline]
    pub(crate) fn count<A: Arch>(&mut self, packets: usize) -> bool {
        if self.blocked != 0 {
            self.unblock(A::now());
        }
        self.left = self.left.saturating_sub(packets as u32);
        self.left == 0
    }

    /// Begins a window at `now` with `packets` handed in before, and decides whether the sender was busy in the last one.
    #[cold]
    pub(crate) fn begin(&mut self, now: Nanos, packets: u64) {
        let sent = packets.saturating_sub(self.packets);
        // The shorter one: a preemption makes the other one long.
        let inside = self.inside[0].min(self.inside[1]).saturating_mul(sent);
        let outside = now.saturating_sub(self.began).saturating_sub(self.waited).saturating_sub(inside);
        let is_busy = sent > 0 && outside < sent * HAND_OVER_COST;
        // A thread that was preempted in one window is still busy.
        self.is_busy = is_busy || self.was_busy;
        self.was_busy = is_busy;
        (self.began, self.packets, self.waited) = (now, packets, 0);
        self.left = BUSY_WINDOW;
    }

    /// Notes when the first call of the window, which handed in `packets` packets, ended.
    pub(crate) fn first_call_ended(&mut self, now: Nanos, packets: usize) {
        let inside = now.saturating_sub(self.began).saturating_sub(self.waited);
        self.inside = [inside / packets.max(1) as u64, self.inside[0]];
    }

    #[cfg(test)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[cfg(test)]
    pub(crate) fn waited(&self) -> Nanos {
        self.waited
    }

    /// Whether the sender is the last busy user of `root`, for tests.
    pub(crate) fn uses<A: Arch>(&self, root: &Root<A>) -> bool {
        root.usage.0.load(Relaxed) == self.number
    }

    /// Makes the sender busy until its next window, for tests.
    #[doc(hidden)]
    pub(crate) fn assume_busy(&mut self) {
        self.is_busy = true;
    }

    /// Waits for the sender's turn before a call with `packets` packets that enters `root`, if the sender is busy and meets
    /// another busy one there.
    #[inline]
    pub(crate) fn wait_for_turn<A: Arch>(&mut self, packets: usize, root: &Root<A>, dev: &Datapath<A>) {
        if self.is_busy && root.usage.0.load(Relaxed) != self.number {
            InHand::during(dev, packets, || self.meet(root, dev));
        }
    }

    /// Takes the lease when it is free and makes the sender the user of `root`. Gives up after [`LONGEST_TURN_WAIT`].
    #[cold]
    fn meet<A: Arch>(&mut self, root: &Root<A>, dev: &Datapath<A>) {
        // The holder may wait for a call that is made inside a data path.
        let Some(lease) = dev.lease.as_ref().filter(|_| A::inside(|inside| inside.depth()) == 0) else {
            return;
        };
        let user = &*root.usage.0;
        let start = A::now();
        let mut now = start;
        loop {
            let turn = PackedTurn(lease.turn.load(Relaxed));
            let is_own = turn.holder() == self.number && !turn.is_over(now);
            let is_free = user.load(Relaxed) == 0 || turn.holder() == 0 || turn.is_over(now);
            if is_own || (is_free && lease.take(turn, self.number, now)) {
                user.store(self.number, Relaxed);
                break;
            }
            let waited = now.saturating_sub(start);
            if waited >= LONGEST_TURN_WAIT || dev.is_stopping() {
                break;
            }
            // Those that wait wake one after the other, one at the end of each turn.
            let others = lease.waiting.fetch_add(1, Relaxed);
            let wait = turn.left(now) + TURN_OF_SENDER * u64::from(others);
            A::sleep(wait.min(LONGEST_TURN_WAIT - waited));
            lease.waiting.fetch_add(u32::MAX, Relaxed);
            now = A::now();
        }
        self.waited += now.saturating_sub(start);
    }
}

#[cfg(test)]
mod tests;
