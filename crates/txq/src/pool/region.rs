//! The one contiguous region that a pool's buffers lie in.
//!
//! Contiguous, because AF_XDP (a UMEM) and DMA want it so; in huge pages where the system has them, because a packet
//! touches a new page at almost every buffer.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{self, MapFlags, ProtFlags};

/// Where a pool's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backing {
    /// Huge pages of 2 MiB if the system has enough reserved, else `Mmap`.
    #[default]
    Auto,
    /// The global allocator.
    Heap,
    /// An anonymous mapping of ordinary pages, touched once at creation.
    Mmap,
    /// Huge pages of 2 MiB (`vm.nr_hugepages`), or an error.
    HugePages,
}

const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Owned memory, zeroed, aligned to a page.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
}

// SAFETY: a region is plain owned memory.
unsafe impl Send for Region {}
// SAFETY: it has no interior access of its own; those who hold parts of it answer for them.
unsafe impl Sync for Region {}

impl Region {
    /// `len` bytes, at least one.
    pub(super) fn new(len: usize, backing: Backing) -> io::Result<Self> {
        match backing {
            Backing::Auto => Self::map(len, Backing::HugePages).or_else(|_| Self::map(len, Backing::Mmap)),
            Backing::Heap => Self::heap(len),
            Backing::Mmap | Backing::HugePages => Self::map(len, backing),
        }
    }

    fn heap(len: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len, PAGE).map_err(io::Error::other)?;
        // SAFETY: the layout has a size, for pools hold at least one buffer.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, backing: Backing::Heap })
    }

    fn map(len: usize, backing: Backing) -> io::Result<Self> {
        let (flags, unit) = match backing {
            Backing::HugePages => (MapFlags::HUGETLB, HUGE),
            _ => (MapFlags::empty(), PAGE),
        };
        let len = len.next_multiple_of(unit);
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE | flags;
        // SAFETY: a fresh anonymous mapping aliases nothing.
        let base =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, backing })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// What it really lies in: never `Auto`.
    pub(super) fn backing(&self) -> Backing {
        self.backing
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.backing {
            Backing::Heap => {
                // SAFETY: allocated in `heap` with this very layout, which was valid there.
                unsafe { dealloc(self.base.as_ptr(), Layout::from_size_align_unchecked(self.len, PAGE)) }
            }
            // SAFETY: mapped in `map` with this length; the owner of the region vouches that no buffer is in use.
            _ => drop(unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) }),
        }
    }
}
