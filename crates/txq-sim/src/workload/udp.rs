//! Datagrams as fast as the send buffer allows: `netperf -t UDP_STREAM`.

use txq::NetDev;
use txq::arch::Arch;

use super::{send, work};
use crate::arch::Sim;

/// A sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct Udp {
    pub(super) bytes: usize,
    pub(super) credit: u64,
    pub(super) private: f64,
}

impl Udp {
    pub(super) fn run(self, dev: &NetDev<Sim>, number: u32) {
        let mut sender = dev.sender(&format!("udp {number}"));
        sender.set_limit(self.credit);
        loop {
            work(self.private);
            while !send(&mut sender, number, self.bytes) {
                if !sender.wait_credit(None) {
                    // The send buffer has room, so it is the pool that has none.
                    Sim::relax();
                }
            }
        }
    }
}
