//! A set of small numbers that any thread adds to and one takes whole: what waits for a worker.
//!
//! Adding is also the test whether somebody must be told: who makes a word non-zero tells the taker, and the others know that
//! it has been told. The taker takes a word with one exchange, so an addition comes before it and is taken, or after it
//! and tells anew. There is no list, and so no link that could be read after its node may be used again
//! (the kernel's run queue is a list, and must read `next_sched` before it clears `SCHED`).

use std::fmt::Display;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::arch::{Arch, Atomic};
use crate::sync::words::Words;

/// The numbers.
pub struct Bits<A: Arch>(Words<A>);

impl<A: Arch> Bits<A> {
    /// An empty set of numbers below `n`.
    pub fn new(n: usize) -> Self {
        Self(Words::new(n.div_ceil(64), 0))
    }

    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self, what: impl Display) {
        self.0.name_lines(what);
    }

    /// Adds `i`, and tells whether its word was empty. Release: what makes `i` worth a visit comes before.
    pub fn set(&self, i: usize) -> bool {
        self.0.at(i / 64).fetch_or(1 << (i % 64), AcqRel) == 0
    }

    /// Takes all, and calls `f` with each. Acquire: what made them worth a visit.
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
