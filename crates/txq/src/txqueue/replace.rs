//! A driver takes the place of another under traffic: another device, or the same with a ring of another size
//! (`ethtool -G`, which closes and opens the device).
//!
//! Both locks are held for the exchange, so nobody is in the driver. What the old one has completed goes home as ever. What it
//! still keeps goes with it: those packets were sent, as far as it said, and their buffers come home when it is dropped.

use std::io;
use std::mem;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{REAP, TxQueue, XOFF};
use crate::arch::{Arch, Atomic};
use crate::ctx::Ctx;
use crate::driver::DriverQueue;
use crate::packet::PacketList;

impl<A: Arch> TxQueue<A> {
    /// Exchanges the driver, and has the queue run. Returns how the old one finished.
    pub(crate) fn replace(&self, queue: DriverQueue<A>, cx: &mut Ctx<'_, A>) -> io::Result<()> {
        let mut done = PacketList::new();
        let inline = queue.done.inline();
        let (tx, complete, finished) = self.tx.with(|tx| {
            let tx = tx.data();
            let finished = tx.driver.finish();
            let old = mem::replace(&mut tx.driver, queue.tx);
            let complete = self.done.with(|side| {
                let side = side.data();
                let mut before = None;
                while before.replace(done.len()) != Some(done.len()) {
                    let _ = side.driver.poll(REAP, &mut done, &mut cx.clock);
                }
                if done.stamped() {
                    side.to_completion.record_all(&done, A::now());
                }
                self.completed.store(self.issued.load(Relaxed), Release);
                self.ring.store(queue.ring.unwrap_or(u32::MAX), Relaxed);
                self.inline.store(inline.into(), Relaxed);
                self.state.fetch_and(!XOFF, Release);
                mem::replace(&mut side.driver, queue.done)
            });
            (old, complete, finished)
        });
        cx.cache.free(&mut done);
        drop((tx, complete));
        cx.dev.hand_over(cx.dev.root_of(self.index));
        finished
    }
}
