//! The clock of a model: it stands still but for sleeps, each of which is longer than any bound on a wait.

use std::cell::Cell;

use txq_core::arch::Nanos;

/// The shortest sleep.
const SLEEP: Nanos = 5_000_000;

// All threads of a model run on one thread of the system.
thread_local! {
    static NOW: Cell<Nanos> = const { Cell::new(0) };
}

/// Sets the clock to 0: an execution begins.
pub(crate) fn begin() {
    NOW.set(0);
}

/// Returns the time.
pub(crate) fn now() -> Nanos {
    NOW.get()
}

/// Advances the time by that of a sleep.
pub(crate) fn pass(time: Nanos) {
    NOW.set(NOW.get() + time.max(SLEEP));
}
