//! The one contiguous region that a pool's buffers lie in.
//!
//! Contiguous, because AF_XDP (a UMEM) and DMA want it so; in huge pages where the system has them, because a packet
//! touches a new page at almost every buffer.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// Where a pool's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backing {
    /// Huge pages of 2 MiB if the system has enough reserved, else `Mmap`.
    #[default]
    Auto,
    /// The global allocator.
    Heap,
    /// An anonymous mapping of ordinary pages, touched once at creation, as far as it is used.
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
    /// What the allocator gave.
    raw: NonNull<u8>,
    len: usize,
    backing: Backing,
}

// SAFETY: a region is plain owned memory.
unsafe impl Send for Region {}
// SAFETY: it has no interior access of its own; those who hold parts of it answer for them.
unsafe impl Sync for Region {}

impl Region {
    /// `len` bytes, at least one, of which the first `now` will be used soon.
    pub(super) fn new(len: usize, now: usize, backing: Backing) -> io::Result<Self> {
        let region = match backing {
            Backing::Auto => {
                Self::map(len, now, Backing::HugePages).or_else(|_| Self::map(len, now, Backing::Mmap))
            }
            Backing::Heap => Self::heap(len),
            Backing::Mmap | Backing::HugePages => Self::map(len, now, backing),
        }?;
        if now < len {
            region.populate(now);
        }
        Ok(region)
    }

    /// Has the kernel back the first `len` bytes, so that the first packets need not fault them in. Kernels before Linux
    /// 5.14 do not know how; then they fault.
    pub(super) fn populate(&self, len: usize) {
        if self.backing != Backing::Heap {
            // SAFETY: within the mapping, whose contents this leaves as they are.
            let _ = unsafe { mm::madvise(self.base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) };
        }
    }

    fn heap(len: usize) -> io::Result<Self> {
        // SAFETY: the layout has a size.
        let raw =
            NonNull::new(unsafe { alloc_zeroed(heap_layout(len)?) }).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the layout is a page longer than the region.
        let base = unsafe { raw.add(raw.align_offset(PAGE)) };
        Ok(Self { base, raw, len, backing: Backing::Heap })
    }

    fn map(len: usize, now: usize, backing: Backing) -> io::Result<Self> {
        let (flags, unit) = match backing {
            Backing::HugePages => (MapFlags::HUGETLB, HUGE),
            _ => (MapFlags::empty(), PAGE),
        };
        let populate = if now < len { MapFlags::empty() } else { MapFlags::POPULATE };
        let flags = MapFlags::PRIVATE | populate | flags;
        let len = len.checked_next_multiple_of(unit).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh anonymous mapping aliases nothing.
        let base =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, raw: base, len, backing })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// All of it, without a look at what is in it.
    pub(super) fn bytes(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: as long as the region, and mapped or allocated to this length at least.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.len) }
    }

    /// What it really lies in: never `Auto`.
    pub(super) fn backing(&self) -> Backing {
        self.backing
    }
}

/// Aligned by us: asked for a page's alignment, the system's allocator writes the zeros that the pages are anyway.
fn heap_layout(len: usize) -> io::Result<Layout> {
    let len = len.checked_add(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    Layout::from_size_align(len, 16).map_err(io::Error::other)
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.backing {
            Backing::Heap => {
                let layout = heap_layout(self.len).expect("it was valid in `heap`");
                // SAFETY: allocated in `heap` with this very layout.
                unsafe { dealloc(self.raw.as_ptr(), layout) }
            }
            // SAFETY: mapped in `map` with this length; the owner of the region vouches that no buffer is in use.
            _ => drop(unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) }),
        }
    }
}
