//! Packets into the queue layer from threads that do nothing else: `pktgen` with `xmit_mode queue_xmit`.

use txq::Sender;
use txq_core::arch::Arch;

use super::{send, work};
use crate::arch::Sim;

/// A thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pktgen {
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) private: f64,
}

impl Pktgen {
    pub(super) fn run(self, sender: &mut Sender<Sim>) {
        loop {
            work(self.private);
            while !send(sender, self.number, self.bytes) {
                Sim::relax();
            }
        }
    }
}
