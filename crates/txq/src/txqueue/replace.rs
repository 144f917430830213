//! A driver takes the place of another under traffic: another device, or the same with a ring of another size
//! (`ethtool -G`, which closes and opens the device).
//!
//! Both locks are held for the exchange, so nobody is in the driver, and no driver is called. Afterwards the old one is
//! alone: what it has completed goes home as ever. What it still keeps goes with it: those packets were sent, as far as
//! it said, and their buffers come home when it is dropped.

use std::io;
use std::mem;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{DRV_XOFF, REAP, STACK_XOFF, TxQueue};
use crate::arch::{Arch, Atomic};
use crate::ctx::Ctx;
use crate::driver::{Complete, DriverQueue, Transmit};
use crate::packet::PacketList;

/// The two halves of a driver that has been replaced.
pub(crate) struct Replaced<A: Arch> {
    tx: Box<dyn Transmit<A>>,
    done: Box<dyn Complete<A>>,
}

impl<A: Arch> TxQueue<A> {
    /// Exchanges the driver, and has the queue run.
    pub(crate) fn replace(&self, queue: DriverQueue<A>, cx: &mut Ctx<'_, A>) -> Replaced<A> {
        let DriverQueue { tx, done, ring } = queue;
        let inline = done.inline();
        let replaced = self.tx.with(|tx_side| {
            self.done.with(|done_side| {
                // All that the old one keeps is complete, as far as this txq is concerned.
                self.completed.packets.store(self.issued.packets.load(Relaxed), Release);
                if let Some(bql) = &mut done_side.data().bql {
                    let bytes = bql.state(&self.issued.bytes).inflight;
                    bql.completed(bytes, &self.issued.bytes, &self.completed.adj_limit, &mut cx.clock);
                }
                self.ring.store(ring.unwrap_or(u32::MAX), Relaxed);
                self.inline.store(inline.into(), Relaxed);
                self.state.fetch_and(!(DRV_XOFF | STACK_XOFF), Release);
                Replaced {
                    tx: mem::replace(&mut tx_side.data().driver, tx),
                    done: mem::replace(&mut done_side.data().driver, done),
                }
            })
        });
        cx.dev.hand_over(cx.dev.root_of(self.index));
        replaced
    }
}

impl<A: Arch> Replaced<A> {
    /// Has the old driver write out what it has, and takes back what it has completed.
    pub(crate) fn finish(mut self, cx: &mut Ctx<'_, A>) -> io::Result<()> {
        let finished = self.tx.finish();
        let mut done = PacketList::new();
        let mut before = None;
        while before.replace(done.len()) != Some(done.len()) {
            let _ = self.done.poll(REAP, &mut done, &mut cx.clock);
        }
        cx.cache.free(&mut done);
        finished
    }
}
