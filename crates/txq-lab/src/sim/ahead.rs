//! Prefetches into the host's caches the memory that the next event's task needs, while another task runs.

/// Number of stack lines that a task uses when it resumes.
const STACK_LINES: usize = 8;

/// The host memory that a suspended task will need.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ahead {
    /// Top of its stack when it yielded its turn.
    pub(crate) top: usize,
    /// Line of its last or next access.
    pub(crate) line: u32,
}

/// Prefetches the line at an address where the host has an instruction for it. Any address is allowed.
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

/// Prefetches the memory of a line of this program, which the caller uses next; meanwhile the engine finds the line's state.
#[inline]
pub(crate) fn fetch_line(key: u64) {
    fetch((key << 6) as usize);
}

/// Prefetches the top of a stack.
#[inline]
pub(crate) fn fetch_stack(top: usize) {
    (0..STACK_LINES).for_each(|i| fetch(top + 64 * i));
}
