//! Requests that pass the egress layer several times on their way through a proxy in containers: `wrk`.
//!
//! A task is a connection with one request in flight. The work of client, proxy and server between two passes is the task's
//! private work. Requests wait for each other as in the kernel: for CPUs, and in the egress layer.

use txq_core::arch::Arch;

use super::{Done, Port, send, work};
use crate::arch::Sim;

/// A connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proxy {
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) passes: u32,
    pub(super) private: f64,
}

impl Proxy {
    pub(super) fn run(self, port: &mut Port, done: &Done) {
        loop {
            for _ in 0..self.passes {
                work(self.private / f64::from(self.passes));
                while !send(port, self.number, self.bytes) {
                    Sim::relax();
                }
            }
            done.one();
        }
    }
}
