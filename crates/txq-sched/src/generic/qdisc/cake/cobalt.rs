//! COBALT: CoDel for flows that respond to signals, BLUE for flows that do not.
//!
//! CoDel's law is that of `codel/law.rs`. BLUE (Feng, Kandlur, Saha, Shin, 1999) drops with a probability that grows while
//! the queue overflows and falls while it is empty, so the drops rise until an unresponsive flow fits its share. BLUE never
//! marks; it drops as `CAKE_FLOOD`.

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::codel::law::{Counts, Goal, Head, Law};
use crate::generic::qdisc::random::Rng;

/// Increment of BLUE's probability, in units of 2^-32: 1/256.
const GROWS: u32 = 1 << 24;
/// Decrement of BLUE's probability, in units of 2^-32: 1/4096.
const FALLS: u32 = 1 << 20;

/// BLUE's state for one queue.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Blue {
    /// The drop probability, in units of 2^-32.
    chance: u32,
    /// When `chance` last grew, or when the queue last was or became empty.
    at: Nanos,
}

impl Blue {
    /// Returns the drop probability, in units of 2^-32.
    pub(super) fn chance(self) -> u32 {
        self.chance
    }

    /// Returns whether BLUE drops packets of the flow: it did not respond to signals.
    pub(super) fn is_active(self) -> bool {
        self.chance > 0
    }

    /// Raises the probability because the queue overflows, at most once in each `target`.
    pub(super) fn overflow(&mut self, now: Nanos, target: Nanos) {
        if self.chance == 0 || now.saturating_sub(self.at) > target {
            self.chance = self.chance.saturating_add(GROWS);
            self.at = now;
        }
    }

    /// Lowers the probability because the queue became empty, at most once in each `target`.
    pub(super) fn emptied(&mut self, now: Nanos, target: Nanos) {
        if self.chance > 0 {
            if now.saturating_sub(self.at) > target {
                self.chance = self.chance.saturating_sub(FALLS);
            }
            self.at = now;
        }
    }

    /// Lowers the probability once for each `target` that the queue has been empty.
    pub(super) fn idle(&mut self, now: Nanos, target: Nanos) {
        if self.chance > 0 {
            let times = now.saturating_sub(self.at) / target.max(1);
            let falls = times.saturating_mul(FALLS.into());
            self.chance = self.chance.saturating_sub(u32::try_from(falls).unwrap_or(u32::MAX));
            self.at = now;
        }
    }
}

/// Takes and returns the packet of `queue` to send at `now`. Gives the packets that CoDel or BLUE drops to `drop`.
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
