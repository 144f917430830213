//! COBALT: CoDel for flows that listen, BLUE for those that do not.
//!
//! CoDel's law is that of `codel/law.rs`. BLUE (Feng, Kandlur, Saha, Shin, 1999) drops with a probability that grows while
//! the queue overflows and falls while it is empty, so a flow that answers no signal ends with what it can send. What
//! it drops is dropped, never marked.

use crate::arch::{Arch, Nanos};
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};
use crate::qdisc::codel::law::{Counts, Goal, Head, Law};
use crate::qdisc::random::Rng;

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

/// The packet of `queue` that is to be sent at `now`; those that are not go to `drop`.
#[inline]
pub(super) fn dequeue<A: Arch>(
    queue: &mut PacketList<A>,
    (law, blue): (&mut Law, Blue),
    (goal, now): (&Goal, Nanos),
    counts: &mut Counts,
    random: &mut Rng,
    drop: &mut impl FnMut(Packet<A>, DropReason),
) -> Option<Packet<A>> {
    loop {
        let mut head = Head { queue, drop: |packet| drop(packet, DropReason::QdiscCongested) };
        let packet = law.dequeue(&mut head, goal, now, counts)?;
        if !blue.is_active() || queue.is_empty() || random.next() >= blue.chance {
            return Some(packet);
        }
        drop(packet, DropReason::CakeFlood);
    }
}
