//! Datagrams as fast as the send buffer allows (`netperf -t UDP_STREAM`), or at a rate.

use txq_core::arch::Arch;

use super::{Done, Port, send, send_bare, send_batch, work};
use crate::sim::arch::Sim;
use crate::sim::machine::Picos;
use crate::sim::sim;

/// How much later than asked a sleep ends: Linux's default (`PR_SET_TIMERSLACK`). The packets due until then follow at once.
const TIMER_SLACK: Picos = 50_000_000;

/// A sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct Udp {
    pub(super) number: u32,
    /// Number of its flows.
    pub(super) flows: u32,
    pub(super) bytes: usize,
    /// Number of packets per call.
    pub(super) batch: usize,
    pub(super) private: f64,
    /// Whether it writes its packets' bytes.
    pub(super) write: bool,
    /// Mean time between two calls, if the sender keeps to a rate.
    pub(super) gap: Option<Picos>,
}

impl Udp {
    pub(super) fn run(self, port: &mut Port, done: &Done) {
        let mut due = sim::now();
        let mut sent = 0_u32;
        loop {
            if let Some(gap) = self.gap {
                // Uniform, so that the gaps are the same on every machine, whose logarithms differ.
                due += (sim::random() >> 11) % (2 * gap).max(1);
                if due > sim::now() {
                    done.sleep_until(due + TIMER_SLACK);
                }
            }
            work(self.private * self.batch as f64);
            if self.gap.is_some() {
                done.handed_in(sim::now().saturating_sub(due));
            }
            let mut left = self.batch;
            while left > 0 {
                let flow = |turn: u32| self.number * self.flows + sent.wrapping_add(turn) % self.flows;
                let got = match left {
                    _ if !self.write => send_bare(port, (self.flows > 1).then_some(flow), self.bytes, left),
                    1 => usize::from(send(port, flow(0), self.bytes)),
                    _ => send_batch(port, flow, self.bytes, left),
                };
                sent = sent.wrapping_add(got as u32);
                left -= got;
                if left > 0 && !port.sender.wait_credit(None) {
                    // The send buffer has room, so the pool is empty.
                    Sim::relax();
                }
            }
        }
    }
}
