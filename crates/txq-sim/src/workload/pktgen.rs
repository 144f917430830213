//! Packets into the queue layer from threads that do nothing else: `pktgen` with `xmit_mode queue_xmit`.

use txq::NetDev;
use txq::arch::Arch;

use super::{send, work};
use crate::arch::Sim;

/// A thread's life.
pub(super) fn run(dev: &NetDev<Sim>, number: u32, bytes: usize, private: f64) {
    let mut sender = dev.sender(&format!("pktgen {number}"));
    loop {
        work(private);
        while !send(&mut sender, number, bytes) {
            Sim::relax();
        }
    }
}
