//! Number of lines of the data plane's plain state: the state that a lock guards and that moves with it from CPU to CPU.

use serde::Deserialize;
use txq_core::arch::Memory;

use crate::sim::keys;

/// Number of lines that one use of each kind of state reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Footprint {
    /// A queue itself: its lengths, its statistics, its requeued packets (`struct Qdisc`).
    pub queue: u32,
    /// The qdisc's own state that enqueue and dequeue use (`qdisc_priv`).
    pub qdisc: u32,
    /// The qdisc's own state that only dequeue uses.
    pub dequeue: u32,
    /// The qdisc's state of a packet's flow that enqueue and dequeue use (`struct fq_flow`).
    pub flow: u32,
    /// The packet's sender, which the qdisc reads when it enqueues the packet (`struct sock`).
    pub sender: u32,
    /// The driver's state of a ring, on either side, its descriptors included.
    pub driver: u32,
    /// A packet's lines that the driver reads and the queue layer does not: the rest of its descriptor, the data's header.
    pub packet: u32,
    /// Those of them that dequeue reads before, while the queue is locked (`skb_shared_info`, for the number of segments).
    pub peek: u32,
}

/// Maximum of each number.
pub const MAX_LINES: u32 = 1 << keys::LINES_LOG2;

impl Default for Footprint {
    /// Returns the numbers of txq's own structures.
    fn default() -> Self {
        Self { queue: 2, qdisc: 2, dequeue: 0, flow: 0, sender: 0, driver: 2, packet: 0, peek: 0 }
    }
}

impl Footprint {
    /// Returns each number with its name.
    pub(crate) fn all(&self) -> [(&'static str, u32); 8] {
        let Self { queue, qdisc, dequeue, flow, sender, driver, packet, peek } = *self;
        [
            ("queue", queue),
            ("qdisc", qdisc),
            ("dequeue", dequeue),
            ("flow", flow),
            ("sender", sender),
            ("driver", driver),
            ("packet", packet),
            ("peek", peek),
        ]
    }

    pub(crate) fn of(&self, memory: Memory) -> u32 {
        match memory {
            Memory::Queue => self.queue,
            Memory::Enqueue => self.qdisc,
            Memory::Dequeue => self.qdisc + self.dequeue,
            Memory::Drop(_) => 0,
            Memory::Driver => self.driver,
        }
    }
}
