//! The program's memory: whether it can be read, so that a bad pointer is EFAULT of the kernel and no SIGSEGV of this library.
//!
//! The kernel answers for each page once a call. A page that another thread unmaps during the call is not noticed.

use crate::sys;

/// The least size of a page. Where pages are larger, some are asked for more than once.
const PAGE: usize = 4096;
/// Addresses below are a program's: on 64 bits the kernel has the higher half, from bit 47 on at the lowest.
const LOW: usize = usize::MAX >> 18;
/// Pages that a call remembers.
const REMEMBERED: usize = 8;

/// Pages that can be read, as the kernel has said during one call.
pub(crate) struct Readable {
    /// Numbers of pages; 0, which no program has, for none.
    pages: [usize; REMEMBERED],
    next: usize,
}

impl Readable {
    pub(crate) const fn new() -> Self {
        Self { pages: [0; REMEMBERED], next: 0 }
    }

    /// Returns whether `len` bytes from `at` on can be read. No bytes can be read anywhere in a program's part of the addresses:
    /// beyond it the kernel returns EFAULT.
    pub(crate) fn covers<T>(&mut self, at: *const T, len: usize) -> bool {
        let first = at.addr();
        let Some(last) = first.checked_add(len.saturating_sub(1)) else { return false };
        len == 0 && first < LOW || (first / PAGE..=last / PAGE).all(|page| self.has(page))
    }

    fn has(&mut self, page: usize) -> bool {
        if page != 0 && self.pages.contains(&page) {
            return true;
        }
        // The kernel reads 8 bytes; the address 0 would be none to it.
        let is_readable = sys::is_readable(page * PAGE + 8);
        if is_readable {
            self.pages[self.next % REMEMBERED] = page;
            self.next += 1;
        }
        is_readable
    }

    /// Returns a value of the program; `None` if it cannot be read.
    ///
    /// # Safety
    /// Any bytes are a `T`.
    pub(crate) unsafe fn read<T: Copy>(&mut self, at: *const T) -> Option<T> {
        // SAFETY: the bytes can be read, and any are a value.
        self.covers(at, size_of::<T>()).then(|| unsafe { at.read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_readable_as_far_as_they_are_mapped() {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the mapping is the test's own; its second half is protected.
        let half = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 1 << 17, libc::PROT_READ, kind, -1, 0);
            assert_eq!(libc::mprotect(at.byte_add(1 << 16), 1 << 16, libc::PROT_NONE), 0);
            at.cast::<u8>().wrapping_add(1 << 16)
        };
        let mut readable = Readable::new();
        assert!(
            readable.covers(half.wrapping_sub(1), 1) && readable.covers(half.wrapping_sub(1 << 16), 1 << 16)
        );
        assert!(!readable.covers(half.wrapping_sub(1), 2) && !readable.covers(half, 1));
        assert!(readable.covers(half.wrapping_sub(1), 0) && readable.covers(std::ptr::null::<u8>(), 0));
        assert!(
            !readable.covers(half.with_addr(usize::MAX - 4), 0)
                && !readable.covers(half.wrapping_sub(1), usize::MAX)
        );
        assert!(!readable.covers(std::ptr::null::<u8>(), 1));
        // SAFETY: any bytes are an integer.
        let read = unsafe { (readable.read::<u64>(half.wrapping_sub(3).cast()), readable.read(&9u32)) };
        assert_eq!(read, (None, Some(9)));
    }
}
