//! Linux: `sched_getcpu`, `CLOCK_MONOTONIC` (on x86-64 by `tsc`), `mmap`.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};

const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Returns the CPU that runs the caller.
#[inline]
pub(crate) fn cpu() -> u32 {
    // Miri has no such call.
    if cfg!(miri) { 0 } else { rustix::thread::sched_getcpu() as u32 }
}

/// Returns the time of `CLOCK_MONOTONIC`.
#[inline]
pub(crate) fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return super::tsc::now(monotonic);
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    monotonic()
}

/// Reads `CLOCK_MONOTONIC`.
pub(super) fn monotonic() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// An anonymous mapping, zeroed. A drop unmaps it.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps at least `len` bytes, in pages of 2 MiB if `huge`, and populates none.
    ///
    /// # Errors
    /// When the system has no memory, or not enough huge pages reserved.
    pub(crate) fn new(len: usize, huge: bool) -> io::Result<Self> {
        let (flags, unit) = if huge { (MapFlags::HUGETLB, HUGE) } else { (MapFlags::empty(), PAGE) };
        let flags = MapFlags::PRIVATE | flags;
        let len = len.checked_next_multiple_of(unit).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh anonymous mapping aliases nothing.
        let base =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Populates the pages of a part, so that their first use causes no page faults. Linux before 5.14 cannot; there the first
    /// use faults.
    pub(crate) fn populate(&self, part: Range<usize>) {
        let (start, end) = (part.start / PAGE * PAGE, part.end.min(self.len));
        // SAFETY: within the mapping.
        let start_at = unsafe { self.base.as_ptr().add(start) };
        // SAFETY: within the mapping; the call does not change its contents.
        let _ = unsafe { mm::madvise(start_at.cast(), end - start, Advice::LinuxPopulateWrite) };
    }

    /// Returns the first byte's address.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes, whole pages.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; the owner of the mapping vouches that no byte is in use.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
