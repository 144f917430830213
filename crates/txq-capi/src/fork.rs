//! Detects that the process is a child after `fork`: the threads of a device, and the holders of its locks, exist only in the
//! parent.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of forks from the process that loaded the library to this process. The handler below increments it in each
/// child, before the child has a second thread, so no access needs an order.
static FORKS: AtomicU32 = AtomicU32::new(0);
static REGISTERED: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// Returns the number of forks. A handle keeps the number of its creation, and is the parent's if the number differs later.
#[inline]
pub(crate) fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Counts forks from now on. Called before the first handle for which they matter is created.
pub(crate) fn count_forks() {
    REGISTERED.call_once(|| {
        // SAFETY: the handler only increments an atomic. It stays loaded: the library is linked with `-z nodelete`. Without
        // memory for the handler, forks are not detected.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
