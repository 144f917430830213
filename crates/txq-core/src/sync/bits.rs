//! A set of small numbers that any thread adds to and one thread takes: the queues and txqs scheduled for a worker.
//!
//! An addition also says whether the taker must be notified: the thread that makes a word non-zero notifies it, and later
//! threads know that it has been notified. The taker takes a word with one exchange. An addition before the exchange is
//! taken by it; an addition after it finds an empty word and notifies again. There is no list, so no link is read after its
//! node may be reused (the kernel's run queue is a list, and must read `next_sched` before it clears `SCHED`).

use std::fmt::Display;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::arch::{Arch, Atomic};
use crate::sync::words::AtomicWords;

/// The set: a bit for each number, 64 a word. Any thread sets bits (`fetch_or`, AcqRel); the taker swaps a word for 0
/// (AcqRel). The taker thereby acquires the writes made before each number was added.
pub struct Bits<A: Arch>(AtomicWords<A>);

impl<A: Arch> Bits<A> {
    /// Creates an empty set for numbers below `n`.
    pub fn new(n: usize) -> Self {
        Self(AtomicWords::new(n.div_ceil(64), 0))
    }

    /// Names its lines ([`Arch::name`]).
    pub fn name_lines(&self, what: impl Display) {
        self.0.name_lines(what);
    }

    /// Adds `i`; returns whether its word was empty, so that the caller must notify the taker. Release: the caller's earlier
    /// writes, to the thread that takes `i`.
    pub fn set(&self, i: usize) -> bool {
        self.0.at(i / 64).fetch_or(1 << (i % 64), AcqRel) == 0
    }

    /// Takes all numbers, and calls `f` with each. Acquire: the writes made before each was added.
    pub fn take(&self, mut f: impl FnMut(usize)) {
        for (w, word) in self.0.iter().enumerate() {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                f(w * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}
