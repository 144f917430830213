//! Datagrams as fast as the send buffer allows: `netperf -t UDP_STREAM`.

use txq::Sender;
use txq::arch::Arch;

use super::{send, work};
use crate::arch::Sim;

/// A sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct Udp {
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) private: f64,
}

impl Udp {
    pub(super) fn run(self, sender: &mut Sender<Sim>) {
        loop {
            work(self.private);
            while !send(sender, self.number, self.bytes) {
                if !sender.wait_credit(None) {
                    // The send buffer has room, so it is the pool that has none.
                    Sim::relax();
                }
            }
        }
    }
}
