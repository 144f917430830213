//! A device's byte queue limits, in the form of sysfs files.

use txq_core::arch::Arch;

use super::NetDev;
use crate::generic::bql::{Attr, BqlError, BqlState};
use crate::generic::datapath::Ctx;
use crate::generic::shared::Shared;
use crate::generic::txqueue::TxQueue;

impl<A: Arch> NetDev<A> {
    /// Returns the text of the file `/sys/class/net/DEV/queues/tx-N/byte_queue_limits/ATTR` for a txq, including its
    /// newline.
    #[inline(never)]
    pub fn show_bql(&self, txq: u16, attr: Attr) -> Result<String, BqlError> {
        self.shared.assert_outside("NetDev::show_bql");
        let state = self.shared.txqs.get(usize::from(txq)).and_then(|txq| self.shared.settle(txq));
        let state = state.ok_or_else(|| self.no_bql(txq))?;
        Ok(format!("{}\n", state.get(attr)))
    }

    /// Writes such a file, also under traffic.
    #[inline(never)]
    pub fn set_bql(&self, txq: u16, attr: Attr, text: &str) -> Result<(), BqlError> {
        self.shared.assert_outside("NetDev::set_bql");
        let txq_side = self.shared.txqs.get(usize::from(txq)).filter(|txq| txq.has_bql());
        let set = txq_side.and_then(|txq| {
            let mut cache = self.shared.cache("control", 0);
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
    /// Corrects the sums of a txq after its driver has broken a rule. Returns the txq's byte queue limits, if it has any.
    pub(super) fn settle(&self, txq: &TxQueue<A>) -> Option<BqlState> {
        if !txq.has_bql() && !txq.needs_settling() {
            return None;
        }
        let mut cache = self.cache("control", 0);
        let mut cx = Ctx::new(self, &mut cache);
        self.with_driver(txq, &mut cx, |tx, done, cx| {
            txq.settle_all(tx, done, cx.dev);
            txq.bql(done)
        })
    }
}
