//! Packets into the queue layer from threads that do nothing else: `pktgen` with `xmit_mode queue_xmit`.

use txq_core::arch::Arch;

use super::{Port, send, work};
use crate::sim::arch::Sim;

/// A thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pktgen {
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) private: f64,
}

impl Pktgen {
    pub(super) fn run(self, port: &mut Port) {
        loop {
            work(self.private);
            while !send(port, self.number, self.bytes) {
                Sim::relax();
            }
        }
    }
}
