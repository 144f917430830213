//! What the task of the next event will need, brought to the host's caches while another task runs.

/// Lines of a stack that a task uses as it goes on.
const LINES: usize = 8;

/// What is known of a task that does not run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ahead {
    /// Where its stack ended when it gave its turn away.
    pub(crate) top: usize,
    /// The line of its last access or its next one.
    pub(crate) line: u32,
}

/// Has the host fetch the line at an address, if it can be told to. Any address will do.
#[inline]
pub(crate) fn fetch(at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// What is on top of a stack.
#[inline]
pub(crate) fn fetch_stack(top: usize) {
    (0..LINES).for_each(|i| fetch(top + 64 * i));
}
