//! Slots: packets whose times have come wait for the next slot, in which several may leave, as on a medium that is granted
//! in turns.

use std::sync::Arc;

use txq_core::arch::Nanos;

use super::delay;
use super::table::Table;
use crate::generic::qdisc::random::Rng;
use crate::tc;

/// When slots come, and how much leaves in one.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) wait: Wait,
    /// Packets in one slot, 0 for any number.
    pub(super) packets: u32,
    /// Bytes in one slot, 0 for any number.
    pub(super) bytes: u32,
}

/// The time until the next slot.
#[derive(Clone, Debug)]
pub(super) enum Wait {
    Between(tc::Nanos, tc::Nanos),
    Distributed { mean: tc::Nanos, deviation: tc::Nanos, table: Option<Arc<Table>> },
}

impl Wait {
    fn draw(&self, rng: &mut Rng) -> Nanos {
        match self {
            Self::Between(min, max) => min.0 + rng.below((max.0 - min.0).saturating_add(1)),
            Self::Distributed { mean, deviation, table } => {
                delay(mean.0, deviation.0, table.as_deref(), rng.next())
            }
        }
    }
}

/// The present slot, or the next one.
#[derive(Default)]
pub(super) struct Opening {
    pub(super) at: Nanos,
    packets: u64,
    bytes: u64,
}

impl Opening {
    /// Returns when a packet whose time is `due` may leave: with the first slot from then on.
    pub(super) fn of(&mut self, due: Nanos, slot: &Slot, rng: &mut Rng) -> Nanos {
        if self.at < due {
            self.next(due, slot, rng);
        }
        self.at
    }

    /// Counts a packet that leaves; where the slot is then full, draws the next one from `now` on.
    pub(super) fn spend(&mut self, bytes: u64, now: Nanos, slot: &Slot, rng: &mut Rng) {
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.packets == 0 || self.bytes == 0 {
            self.next(now, slot, rng);
        }
    }

    fn next(&mut self, from: Nanos, slot: &Slot, rng: &mut Rng) {
        let any = |n: u32| if n == 0 { u64::MAX } else { n.into() };
        *self = Self {
            at: from.saturating_add(slot.wait.draw(rng)),
            packets: any(slot.packets),
            bytes: any(slot.bytes),
        };
    }
}
