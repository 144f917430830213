//! Datagrams as fast as the send buffer allows: `netperf -t UDP_STREAM`.

use txq::Sender;
use txq_core::arch::Arch;

use super::{send, send_batch, work};
use crate::arch::Sim;

/// A sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct Udp {
    pub(super) number: u32,
    pub(super) bytes: usize,
    /// Number of packets per call.
    pub(super) batch: usize,
    pub(super) private: f64,
}

impl Udp {
    pub(super) fn run(self, sender: &mut Sender<Sim>) {
        loop {
            work(self.private * self.batch as f64);
            let mut left = self.batch;
            while left > 0 {
                left -= match left {
                    1 => usize::from(send(sender, self.number, self.bytes)),
                    _ => send_batch(sender, self.number, self.bytes, left),
                };
                if left > 0 && !sender.wait_credit(None) {
                    // The send buffer has room, so the pool is empty.
                    Sim::relax();
                }
            }
        }
    }
}
