//! Replaces a driver under traffic: by one of another device, or of the same with a ring of another size (`ethtool -G`,
//! which closes and opens the device).
//!
//! No thread is in the driver during the exchange, and no driver is called. Afterwards no queue uses the old driver. Packets
//! that it has completed are freed as usual. Packets that it still keeps count as sent, and their buffers return home when
//! it is dropped.

use std::io;
use std::mem;
use std::sync::atomic::Ordering::{Relaxed, Release};

use txq_core::arch::{Arch, Atomic};
use txq_core::clock::Clock;
use txq_core::packet::PacketList;

use crate::generic::datapath::Ctx;
use crate::generic::driver::{Complete, DriverQueue, Transmit};
use crate::generic::txqueue::{DRV_XOFF, DoneSide, DriverBug, REAP, STACK_XOFF, TxQueue, TxSide, reapers};

/// The two halves of a driver that has been replaced.
pub(crate) struct Replaced<A: Arch> {
    tx: Box<dyn Transmit<A>>,
    done: Box<dyn Complete<A>>,
    txq: u16,
    /// Bound on the packets that it may still return.
    kept: usize,
}

impl<A: Arch> TxQueue<A> {
    /// Replaces the driver and returns the old one. The caller owns both halves
    /// ([`Datapath::with_driver`](crate::generic::netdev::Shared::with_driver)), and runs the queue afterwards.
    pub(crate) fn replace(
        &self,
        tx_side: &mut TxSide<A>,
        done_side: &mut DoneSide<A>,
        queue: DriverQueue<A>,
        clock: &mut Clock<A>,
    ) -> Replaced<A> {
        let DriverQueue { tx, done, ring } = queue;
        let inline = reapers(self.senders_reap, done.inline());
        let unsure = mem::take(&mut tx_side.unsure);
        let kept = self.in_flight() as usize + unsure as usize;
        // Packets that the old driver keeps count as complete on this txq.
        self.completed.packets.store(self.issued.packets.load(Relaxed), Release);
        if let Some(bql) = &mut done_side.bql {
            let bytes = bql.state(&self.issued.bytes).inflight;
            bql.completed(bytes, &self.issued.bytes, &self.completed.adj_limit, clock);
        }
        self.ring.store(ring.unwrap_or(u32::MAX), Relaxed);
        self.inline.store(inline, Relaxed);
        self.state.fetch_and(!(DRV_XOFF | STACK_XOFF), Release);
        self.end_deferring(done_side);
        Replaced {
            tx: mem::replace(&mut tx_side.driver, tx),
            done: mem::replace(&mut done_side.driver, done),
            txq: self.index,
            kept,
        }
    }
}

impl<A: Arch> Replaced<A> {
    /// Makes the old driver write out its packets, and frees those that it has completed. Returns the driver's error.
    pub(crate) fn finish(mut self, cx: &mut Ctx<'_, A>) -> io::Result<()> {
        let finished = self.tx.finish();
        let mut done = PacketList::new();
        let mut before = None;
        // Until it returns no more packets, or more than it can have.
        while before.replace(done.len()) != Some(done.len()) && done.len() <= self.kept {
            let _ = self.done.poll(REAP, &mut done, &mut cx.clock);
        }
        if done.len() > self.kept {
            let txq = &cx.dev.txqs[usize::from(self.txq)];
            txq.note_bug(DriverBug::NeverKept, done.len() - self.kept, cx.dev);
        }
        cx.cache.free(&mut done);
        finished
    }
}
