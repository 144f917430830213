//! How many lines the data plane's plain state has: what is used under a lock and moves with it from CPU to CPU.

use serde::Deserialize;
use txq::arch::Memory;

use crate::keys;

/// Lines of each kind of state that a use of it reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Footprint {
    /// Of a queue itself: its lengths, its statistics, what waits for another try (`struct Qdisc`).
    pub queue: u32,
    /// Of the qdisc's own state (`qdisc_priv`).
    pub qdisc: u32,
    /// Of what the qdisc keeps of a packet's flow (`struct fq_flow`).
    pub flow: u32,
    /// Of its sender, that the qdisc reads when it takes the packet (`struct sock`).
    pub sender: u32,
    /// Of the driver's state of a ring, on either side, its descriptors included.
    pub driver: u32,
    /// Of a packet, that the driver reads beside what is on the queue layer's way: the rest of its descriptor, the data's header.
    pub packet: u32,
}

/// The most lines of each.
pub const MOST: u32 = 1 << keys::LINES;

impl Default for Footprint {
    /// What txq's own have.
    fn default() -> Self {
        Self { queue: 2, qdisc: 2, flow: 0, sender: 0, driver: 2, packet: 0 }
    }
}

impl Footprint {
    /// Each with its name.
    pub(crate) fn all(&self) -> [(&'static str, u32); 6] {
        let Self { queue, qdisc, flow, sender, driver, packet } = *self;
        [
            ("queue", queue),
            ("qdisc", qdisc),
            ("flow", flow),
            ("sender", sender),
            ("driver", driver),
            ("packet", packet),
        ]
    }

    pub(crate) fn of(&self, memory: Memory) -> u32 {
        match memory {
            Memory::Queue => self.queue,
            Memory::Qdisc => self.qdisc,
            Memory::Driver => self.driver,
        }
    }
}
