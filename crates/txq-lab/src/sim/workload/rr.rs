//! Pairs that send a request and wait for its answer: `netperf -t TCP_RR`.

use super::{Done, Port, answers, send, work};

/// The part of a transaction's work that the answer's interrupt does: the receive path, and the wake-up.
pub(super) const ANSWER_PART: f64 = 0.4;

/// A pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) private: f64,
}

impl Pair {
    pub(super) fn run(self, port: &mut Port, done: &Done) {
        loop {
            work(self.private * (1.0 - ANSWER_PART));
            if send(port, self.number, self.bytes) {
                answers::wait(self.number);
                done.one();
            }
        }
    }
}
