//! A device's byte queue limits, as sysfs shows and takes them.

use super::NetDev;
use crate::arch::Arch;
use crate::bql::{Attr, BqlError};

impl<A: Arch> NetDev<A> {
    /// What the file `/sys/class/net/DEV/queues/tx-N/byte_queue_limits/ATTR` says of a txq, its newline included. All of
    /// them at once are in [`QueueStats`](crate::stats::device::QueueStats).
    ///
    /// # Errors
    /// [`BqlError::Absent`] where the txq has no such limits.
    pub fn show_bql(&self, txq: u16, attr: Attr) -> Result<String, BqlError> {
        self.shared.assert_outside("NetDev::show_bql");
        let state = self.shared.txqs.get(usize::from(txq)).and_then(|txq| txq.bql());
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
        let set = self.shared.txqs.get(usize::from(txq)).and_then(|txq| txq.set_bql(attr, text));
        set.unwrap_or_else(|| Err(self.no_bql(txq)))
    }

    fn no_bql(&self, txq: u16) -> BqlError {
        BqlError::Absent { device: self.shared.info.name.clone(), txq }
    }
}
