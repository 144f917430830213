//! [`Clock`]: the time of a batch of packets.

use std::fmt;

use crate::arch::{Arch, Nanos, Native};

/// The time of a batch: read on first use, and at most once per batch.
#[derive(Clone)]
pub struct Clock<A: Arch = Native> {
    now: Option<Nanos>,
    arch: std::marker::PhantomData<A>,
}

impl<A: Arch> fmt::Debug for Clock<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<A: Arch> Clock<A> {
    /// Creates a clock that has not been read.
    pub fn new() -> Self {
        Self { now: None, arch: std::marker::PhantomData }
    }

    /// Creates a clock that stands at `now`.
    pub fn at(now: Nanos) -> Self {
        Self { now: Some(now), arch: std::marker::PhantomData }
    }

    /// Returns the time of this batch; reads it on the first call.
    #[inline]
    pub fn now(&mut self) -> Nanos {
        *self.now.get_or_insert_with(A::now)
    }

    /// Makes the next call of [`now`](Self::now) read the time again.
    #[inline]
    pub fn advance(&mut self) {
        self.now = None;
    }
}

impl<A: Arch> Default for Clock<A> {
    fn default() -> Self {
        Self::new()
    }
}
