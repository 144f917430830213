//! COBALT: CoDel for flows that listen, BLUE for those that do not.
//!
//! CoDel's law is that of `codel/law.rs`. BLUE (Feng, Kandlur, Saha, Shin, 1999) drops with a probability that grows while
//! the queue overflows and falls while it is empty, so a flow that answers no signal ends with what it can send. What
//! it drops is dropped, never marked.

use crate::arch::{Arch, Nanos};
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};
use crate::qdisc::codel::law::{self, Counts, Goal, Law};

/// What BLUE's probability grows by, of 2^32: 1/256.
const GROWS: u32 = 1 << 24;
/// What it falls by: 1/4096.
const FALLS: u32 = 1 << 20;

/// BLUE's state of one queue.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Blue {
    /// Of 2^32.
    chance: u32,
    /// When that changed, or when the queue was found empty.
    at: Nanos,
}

impl Blue {
    /// The probability, of 2^32.
    pub(super) fn chance(self) -> u32 {
        self.chance
    }

    /// Whether the flow is known not to listen.
    pub(super) fn is_active(self) -> bool {
        self.chance > 0
    }

    /// The queue is too long; once in a `target` that counts.
    pub(super) fn overflow(&mut self, now: Nanos, target: Nanos) {
        if self.chance == 0 || now.saturating_sub(self.at) > target {
            self.chance = self.chance.saturating_add(GROWS);
            self.at = now;
        }
    }

    /// The queue has become empty.
    pub(super) fn emptied(&mut self, now: Nanos, target: Nanos) {
        if self.chance > 0 {
            if now.saturating_sub(self.at) > target {
                self.chance = self.chance.saturating_sub(FALLS);
            }
            self.at = now;
        }
    }

    /// The queue has been empty until now: as often as a `target` has passed.
    pub(super) fn idle(&mut self, now: Nanos, target: Nanos) {
        if self.chance > 0 {
            let times = now.saturating_sub(self.at) / target.max(1);
            let falls = times.saturating_mul(FALLS.into());
            self.chance = self.chance.saturating_sub(u32::try_from(falls).unwrap_or(u32::MAX));
            self.at = now;
        }
    }
}

/// Random numbers for BLUE (Marsaglia's xorshift). Who learns them learns which of his own packets are lost.
pub(super) struct Random(pub(super) u32);

impl Random {
    pub(super) const fn new() -> Self {
        Self(0x9e37_79b9)
    }

    #[inline]
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// A flow's queue while the law is applied to it.
struct Head<'a, A: Arch, D> {
    queue: &'a mut PacketList<A>,
    drop: &'a mut D,
}

impl<A: Arch, D: FnMut(Packet<A>, DropReason)> law::Queue<A> for Head<'_, A, D> {
    #[inline]
    fn pop(&mut self) -> Option<Packet<A>> {
        self.queue.pop_front()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn drop(&mut self, packet: Packet<A>) {
        (self.drop)(packet, DropReason::QdiscCongested);
    }
}

/// The packet of `queue` that is to be sent at `now`; those that are not go to `drop`.
#[inline]
pub(super) fn dequeue<A: Arch>(
    queue: &mut PacketList<A>,
    (law, blue): (&mut Law, Blue),
    (goal, now): (&Goal, Nanos),
    counts: &mut Counts,
    random: &mut Random,
    drop: &mut impl FnMut(Packet<A>, DropReason),
) -> Option<Packet<A>> {
    loop {
        let packet = law.dequeue(&mut Head { queue, drop: &mut *drop }, goal, now, counts)?;
        if !blue.is_active() || queue.is_empty() || random.next() >= blue.chance {
            return Some(packet);
        }
        drop(packet, DropReason::CakeFlood);
    }
}
