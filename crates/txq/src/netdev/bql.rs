//! A device's byte queue limits, as sysfs shows and takes them.

use super::{NetDev, Shared};
use crate::arch::Arch;
use crate::bql::{Attr, BqlError, BqlState};
use crate::ctx::Ctx;
use crate::txqueue::TxQueue;

impl<A: Arch> NetDev<A> {
    /// What the file `/sys/class/net/DEV/queues/tx-N/byte_queue_limits/ATTR` says of a txq, its newline included. All of
    /// them at once are in [`QueueStats`](crate::stats::device::QueueStats).
    ///
    /// # Errors
    /// [`BqlError::Absent`] where the txq has no such limits.
    pub fn show_bql(&self, txq: u16, attr: Attr) -> Result<String, BqlError> {
        self.shared.assert_outside("NetDev::show_bql");
        let state = self.shared.txqs.get(usize::from(txq)).and_then(|txq| self.shared.settle(txq));
        let state = state.ok_or_else(|| self.no_bql(txq))?;
        Ok(format!("{}\n", state.get(attr)))
    }

    /// Writes that file, under traffic if you like. A limit holds from the txq's next completion on; until then
    /// `limit` may be above `limit_max`.
    ///
    /// # Errors
    /// What the kernel refuses, with its error, and [`BqlError::Absent`]. Nothing has changed then.
    pub fn set_bql(&self, txq: u16, attr: Attr, text: &str) -> Result<(), BqlError> {
        self.shared.assert_outside("NetDev::set_bql");
        let txq_side = self.shared.txqs.get(usize::from(txq)).filter(|txq| txq.has_bql());
        let set = txq_side.and_then(|txq| {
            let mut cache = self.shared.pool.cache("control", 0);
            let mut cx = Ctx::new(&self.shared, &mut cache);
            self.shared.with_driver(txq, &mut cx, |_, done, _| txq.set_bql(done, attr, text))
        });
        set.unwrap_or_else(|| Err(self.no_bql(txq)))
    }

    fn no_bql(&self, txq: u16) -> BqlError {
        BqlError::Absent { device: self.shared.info.name.clone(), txq }
    }
}

impl<A: Arch> Shared<A> {
    /// Settles what a driver that breaks the rules has left in the sums of a txq, and returns its byte queue limits, where it
    /// has some.
    pub(super) fn settle(&self, txq: &TxQueue<A>) -> Option<BqlState> {
        if !txq.has_bql() && !txq.needs_settling() {
            return None;
        }
        let mut cache = self.pool.cache("control", 0);
        let mut cx = Ctx::new(self, &mut cache);
        self.with_driver(txq, &mut cx, |tx, done, cx| {
            txq.settle_all(tx, done, cx.dev);
            txq.bql(done)
        })
    }
}
