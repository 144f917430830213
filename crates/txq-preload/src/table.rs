//! The knowledge about each descriptor number of the program: none, that it is no UDP socket, or its socket.
//!
//! Any thread reads and writes an entry, without a lock, also in a signal handler and in a child after `fork`. An entry may be
//! wrong, because a descriptor can be closed by calls that this library does not see. So an entry is a hint: each send compares
//! the kernel's identity of the socket (`SO_COOKIE`).

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

const ENTRIES_PER_CHUNK: usize = 1024;
const TABLE_CHUNKS: usize = 1024;

/// The index of no socket, for descriptors of the library's own that belong to none.
pub(crate) const NO_SOCKET: u32 = (u32::MAX - 3) / 2;

/// The knowledge about a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Unknown,
    /// No UDP socket, or one whose number is too high for the table.
    Other,
    /// The UDP socket of this index.
    Socket(u32),
    /// The library's own descriptor, for the socket of this index or [`NO_SOCKET`]: the program has none of this number.
    Own(u32),
}

/// The knowledge about the process's descriptors.
pub(crate) static TABLE: Table = Table::new();

impl Entry {
    fn word(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Other => 1,
            Self::Socket(index) => index * 2 + 2,
            Self::Own(index) => index * 2 + 3,
        }
    }

    fn of(word: u32) -> Self {
        match word {
            0 => Self::Unknown,
            1 => Self::Other,
            n if n % 2 == 0 => Self::Socket(n / 2 - 1),
            n => Self::Own(n / 2 - 1),
        }
    }
}

type Chunk = [AtomicU32; ENTRIES_PER_CHUNK];

/// The entries, in chunks that are made when an entry in them is set, and never freed.
pub(crate) struct Table([AtomicPtr<Chunk>; TABLE_CHUNKS]);

impl Table {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; TABLE_CHUNKS])
    }

    fn chunk(&self, index: usize) -> Option<&Chunk> {
        // SAFETY: a chunk is never freed. Acquire pairs with the release in `set`, so its entries are initialised.
        unsafe { self.0.get(index)?.load(Acquire).as_ref() }
    }

    /// Returns the entry of a descriptor.
    #[inline]
    pub(crate) fn get(&self, fd: c_int) -> Entry {
        let Ok(fd) = usize::try_from(fd) else { return Entry::Other };
        if fd >= ENTRIES_PER_CHUNK * TABLE_CHUNKS {
            return Entry::Other;
        }
        let Some(chunk) = self.chunk(fd / ENTRIES_PER_CHUNK) else { return Entry::Unknown };
        Entry::of(chunk[fd % ENTRIES_PER_CHUNK].load(Relaxed))
    }

    /// Sets the entry of a descriptor; returns the one before.
    pub(crate) fn set(&self, fd: c_int, entry: Entry) -> Entry {
        let before = self.get(fd);
        let Some(fd) = usize::try_from(fd).ok().filter(|fd| *fd < ENTRIES_PER_CHUNK * TABLE_CHUNKS) else {
            return before;
        };
        if self.chunk(fd / ENTRIES_PER_CHUNK).is_none() {
            if entry == Entry::Unknown {
                return before;
            }
            let made = Box::into_raw(Box::new([const { AtomicU32::new(0) }; ENTRIES_PER_CHUNK]));
            let slot = &self.0[fd / ENTRIES_PER_CHUNK];
            if slot.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire).is_err() {
                // SAFETY: another thread was first, so nobody else has this chunk.
                drop(unsafe { Box::from_raw(made) });
            }
        }
        match self.chunk(fd / ENTRIES_PER_CHUNK) {
            Some(chunk) => Entry::of(chunk[fd % ENTRIES_PER_CHUNK].swap(entry.word(), Relaxed)),
            None => before,
        }
    }

    /// Passes each known descriptor from `first` to `last` to `each`, in order.
    pub(crate) fn walk(&self, first: usize, last: usize, mut each: impl FnMut(c_int, Entry)) {
        for index in first / ENTRIES_PER_CHUNK..TABLE_CHUNKS.min(last / ENTRIES_PER_CHUNK + 1) {
            let Some(chunk) = self.chunk(index) else { continue };
            for (n, word) in chunk.iter().enumerate() {
                let (fd, entry) = (index * ENTRIES_PER_CHUNK + n, Entry::of(word.load(Relaxed)));
                if (first..=last).contains(&fd) && entry != Entry::Unknown {
                    each(fd as c_int, entry);
                }
            }
        }
    }

    /// Forgets the program's descriptors from `first` to `last`, and passes the index of each socket among them to `each`. The
    /// library's own stay.
    pub(crate) fn forget(&self, first: usize, last: usize, mut each: impl FnMut(u32)) {
        self.walk(first, last, |fd, entry| {
            if !matches!(entry, Entry::Own(_))
                && let Entry::Socket(index) = self.set(fd, Entry::Unknown)
            {
                each(index);
            }
        });
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
        table.set(4, Entry::Own(NO_SOCKET));
        table.forget(0, 5, |index| found.push(index));
        assert_eq!((found, table.get(4)), (vec![7], Entry::Own(NO_SOCKET)));
    }
}
