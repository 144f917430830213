//! The knowledge about each descriptor number of the program: none, that it is no UDP socket, or its socket.
//!
//! Any thread reads and writes an entry, without a lock, also in a signal handler and in a child after `fork`. An entry may be
//! wrong, because a descriptor can be closed by calls that this library does not see. So an entry is a hint: each send compares
//! the kernel's identity of the socket (`SO_COOKIE`).

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// The knowledge about a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Unknown,
    /// No UDP socket, or one whose number is too high for the table.
    Other,
    /// The UDP socket of this index.
    Socket(u32),
}

type Chunk = [AtomicU32; CHUNK];

/// The entries, in chunks that are made when an entry in them is set, and never freed.
pub(crate) struct Table([AtomicPtr<Chunk>; CHUNKS]);

impl Table {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS])
    }

    fn chunk(&self, index: usize) -> Option<&Chunk> {
        // SAFETY: a chunk is never freed. Acquire pairs with the release in `set`, so its entries are initialised.
        unsafe { self.0.get(index)?.load(Acquire).as_ref() }
    }

    /// Returns the entry of a descriptor.
    #[inline]
    pub(crate) fn get(&self, fd: c_int) -> Entry {
        let Ok(fd) = usize::try_from(fd) else { return Entry::Other };
        if fd >= CHUNK * CHUNKS {
            return Entry::Other;
        }
        let Some(chunk) = self.chunk(fd / CHUNK) else { return Entry::Unknown };
        match chunk[fd % CHUNK].load(Relaxed) {
            0 => Entry::Unknown,
            1 => Entry::Other,
            n => Entry::Socket(n - 2),
        }
    }

    /// Sets the entry of a descriptor; returns the one before.
    pub(crate) fn set(&self, fd: c_int, entry: Entry) -> Entry {
        let before = self.get(fd);
        let Some(fd) = usize::try_from(fd).ok().filter(|fd| *fd < CHUNK * CHUNKS) else { return before };
        if self.chunk(fd / CHUNK).is_none() {
            if entry == Entry::Unknown {
                return before;
            }
            let made = Box::into_raw(Box::new([const { AtomicU32::new(0) }; CHUNK]));
            let slot = &self.0[fd / CHUNK];
            if slot.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire).is_err() {
                // SAFETY: another thread was first, so nobody else has this chunk.
                drop(unsafe { Box::from_raw(made) });
            }
        }
        let word = match entry {
            Entry::Unknown => 0,
            Entry::Other => 1,
            Entry::Socket(index) => index + 2,
        };
        if let Some(chunk) = self.chunk(fd / CHUNK) {
            chunk[fd % CHUNK].store(word, Relaxed);
        }
        before
    }

    /// Forgets descriptors from `first` to `last`, and passes the index of each socket among them to `each`.
    pub(crate) fn forget(&self, first: usize, last: usize, mut each: impl FnMut(u32)) {
        for index in first / CHUNK..CHUNKS.min(last / CHUNK + 1) {
            let Some(chunk) = self.chunk(index) else { continue };
            for (n, word) in chunk.iter().enumerate() {
                if (first..=last).contains(&(index * CHUNK + n))
                    && let socket @ 2.. = word.swap(0, Relaxed)
                {
                    each(socket - 2);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_by_number() {
        let table = Table::new();
        assert_eq!(table.get(5), Entry::Unknown);
        assert_eq!(table.set(5, Entry::Socket(7)), Entry::Unknown);
        assert_eq!(table.set(5000, Entry::Other), Entry::Unknown);
        assert_eq!(
            (table.get(5), table.get(6), table.get(5000)),
            (Entry::Socket(7), Entry::Unknown, Entry::Other)
        );
        for fd in [-1, c_int::MAX] {
            table.set(fd, Entry::Socket(1));
            assert_eq!(table.get(fd), Entry::Other);
        }
        let mut found = Vec::new();
        table.forget(6, usize::MAX, |index| found.push(index));
        assert!(found.is_empty());
        assert_eq!((table.get(5), table.get(5000)), (Entry::Socket(7), Entry::Unknown));
        table.forget(0, 5, |index| found.push(index));
        assert_eq!(found, [7]);
    }
}
