//! [`Panics`]: control operations end what they have begun, although a program's qdisc panics meanwhile.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

/// The first panic of a program's code during an operation. It is raised again at the end of the operation: a change that
/// ended half-way would leave queues that no thread runs.
#[derive(Default)]
pub(crate) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    /// Calls `f`; returns its result, or `None` if it panics.
    #[inline]
    pub(crate) fn catch<R>(&mut self, f: impl FnOnce() -> R) -> Option<R> {
        self.note(panic::catch_unwind(AssertUnwindSafe(f)))
    }

    /// As [`catch`](Panics::catch), for what has been called already: a thread.
    pub(crate) fn note<R>(&mut self, ended: thread::Result<R>) -> Option<R> {
        ended.map_err(|panic| self.0.get_or_insert(panic)).ok()
    }

    /// Raises the first panic again, if there was one.
    #[inline]
    pub(crate) fn raise(self) {
        if let Some(panic) = self.0 {
            panic::resume_unwind(panic);
        }
    }
}
