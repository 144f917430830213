//! What the data plane's plain code costs: its arithmetic, branches and hits, which no access of an `Arch` stands for.

use serde::Deserialize;
use txq::arch::Work;

use crate::machine::{Picos, picos};

/// Nanoseconds for each kind of [`Work`], a packet if not said otherwise.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// A buffer from the sender's own stock.
    pub alloc: f64,
    /// A buffer to the stock or on its way home.
    pub free: f64,
    /// A call of xmit: steering and what surrounds it.
    pub xmit: f64,
    /// Into the qdisc.
    pub enqueue: f64,
    /// Out of the qdisc.
    pub dequeue: f64,
    /// A call of the driver: the doorbell.
    pub doorbell: f64,
    /// A packet in the driver: its descriptor.
    pub drive: f64,
    /// A packet that the device is done with.
    pub reap: f64,
}

impl Default for Prices {
    /// Of the order that profiles of kernels show for a queue of packets without options; a scenario says its own.
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
    /// Each with its name.
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

/// The same in picoseconds.
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
}

impl PriceList {
    pub(crate) fn new(prices: &Prices) -> Self {
        let Prices { alloc, free, xmit, enqueue, dequeue, doorbell, drive, reap } = *prices;
        let [alloc, free, xmit, enqueue] = [alloc, free, xmit, enqueue].map(picos);
        let [dequeue, doorbell, drive, reap] = [dequeue, doorbell, drive, reap].map(picos);
        Self { alloc, free, xmit, enqueue, dequeue, doorbell, drive, reap }
    }

    pub(crate) fn of(&self, work: Work) -> Picos {
        let (each, n) = match work {
            Work::Alloc(n) => (self.alloc, n),
            Work::Free(n) => (self.free, n),
            Work::Xmit => (self.xmit, 1),
            Work::Run => return 0,
            Work::Enqueue(n) => (self.enqueue, n),
            Work::Dequeue(n) => (self.dequeue, n),
            Work::Drive(n) => return self.doorbell + self.drive * n as Picos,
            Work::Reap(n) => (self.reap, n),
        };
        each * n as Picos
    }
}
