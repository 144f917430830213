//! Prices of the data plane's plain code: its arithmetic, branches and cache hits, for which there is no access of an
//! `Arch`.

use serde::Deserialize;
use txq_core::arch::Work;

use crate::sim::machine::{Picos, picos};
use crate::sim::state::Times;

/// Nanoseconds for each kind of [`Work`], for a packet unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// To allocate a buffer from the sender's own stock.
    pub alloc: f64,
    /// To free a buffer, to the stock or towards its home.
    pub free: f64,
    /// A call of xmit: steering and the code around it.
    pub xmit: f64,
    /// To enqueue a packet to the qdisc.
    pub enqueue: f64,
    /// To dequeue a packet from the qdisc.
    pub dequeue: f64,
    /// A call of the driver: the doorbell.
    pub doorbell: f64,
    /// To hand a packet to the device: its descriptor.
    pub drive: f64,
    /// To reap a completed packet.
    pub reap: f64,
}

impl Default for Prices {
    /// Returns prices of the magnitude that kernel profiles show for a queue of packets without options; scenarios set their
    /// own.
    fn default() -> Self {
        Self {
            alloc: 15.0,
            free: 15.0,
            xmit: 30.0,
            enqueue: 30.0,
            dequeue: 30.0,
            doorbell: 100.0,
            drive: 40.0,
            reap: 30.0,
        }
    }
}

impl Prices {
    /// Plain code that costs nothing.
    pub const FREE: Self = Self {
        alloc: 0.0,
        free: 0.0,
        xmit: 0.0,
        enqueue: 0.0,
        dequeue: 0.0,
        doorbell: 0.0,
        drive: 0.0,
        reap: 0.0,
    };

    /// Returns each price with its name.
    pub(crate) fn all(&self) -> [(&'static str, f64); 8] {
        let Self { alloc, free, xmit, enqueue, dequeue, doorbell, drive, reap } = *self;
        [
            ("alloc", alloc),
            ("free", free),
            ("xmit", xmit),
            ("enqueue", enqueue),
            ("dequeue", dequeue),
            ("doorbell", doorbell),
            ("drive", drive),
            ("reap", reap),
        ]
    }
}

/// The same prices in picoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PriceList {
    alloc: Picos,
    free: Picos,
    xmit: Picos,
    enqueue: Picos,
    dequeue: Picos,
    doorbell: Picos,
    drive: Picos,
    reap: Picos,
    /// To enqueue in one call, and to dequeue in one, beside the packets.
    calls: [Picos; 2],
    /// To drop a packet.
    drop: Picos,
}

impl PriceList {
    pub(crate) fn new(prices: &Prices) -> Self {
        let Prices { alloc, free, xmit, enqueue, dequeue, doorbell, drive, reap } = *prices;
        let [alloc, free, xmit, enqueue] = [alloc, free, xmit, enqueue].map(picos);
        let [dequeue, doorbell, drive, reap] = [dequeue, doorbell, drive, reap].map(picos);
        Self { alloc, free, xmit, enqueue, dequeue, doorbell, drive, reap, calls: [0; 2], drop: 0 }
    }

    /// Adds what a qdisc's code takes longer than that of a plain FIFO, times `scale`.
    pub(crate) fn add(&mut self, times: &Times, plain: &Times, scale: f64) {
        let more = |price: Picos, own: f64, plain: f64| {
            (price as f64 + (own - plain) * scale * 1e3).max(0.0) as Picos
        };
        self.enqueue = more(self.enqueue, times.packet.enqueue, plain.packet.enqueue);
        self.dequeue = more(self.dequeue, times.packet.dequeue, plain.packet.dequeue);
        self.calls = [
            more(0, times.call.enqueue, plain.call.enqueue),
            more(0, times.call.dequeue, plain.call.dequeue),
        ];
        self.drop = more(0, times.packet.drop, plain.packet.drop);
    }

    pub(crate) fn of(&self, work: Work) -> Picos {
        let (each, n) = match work {
            Work::Alloc(n) => (self.alloc, n),
            Work::Free(n) => (self.free, n),
            Work::Xmit => (self.xmit, 1),
            Work::Run => return 0,
            Work::Enqueue(n) => return self.calls[0] + self.enqueue * n as Picos,
            Work::Dequeue(n) => return self.calls[1] + self.dequeue * n as Picos,
            Work::Drop(n) => (self.drop, n),
            Work::Drive(n) => return self.doorbell + self.drive * n as Picos,
            Work::Reap(n) => (self.reap, n),
        };
        each * n as Picos
    }
}
