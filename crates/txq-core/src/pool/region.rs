//! The one contiguous region that a pool's buffers lie in.
//!
//! Contiguous, because AF_XDP (a UMEM) and DMA require it. In huge pages where the system has them, because almost every
//! buffer lies in another small page.

use std::alloc::{Layout, alloc, dealloc};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use super::LentMemory;
use crate::os::Mapping;

/// Where a pool's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Backing {
    /// Huge pages of 2 MiB if the system has enough reserved, else `Mmap`; `Heap` on a system other than Linux.
    #[default]
    Auto,
    /// The global allocator.
    Heap,
    /// An anonymous mapping of ordinary pages. An error on a system other than Linux.
    Mmap,
    /// Huge pages of 2 MiB (`vm.nr_hugepages`), or an error.
    HugePages,
    /// Memory of someone else. Only [`Pool::on`](super::Pool::on) makes such a pool.
    Lent,
}

const PAGE: usize = 4096;
const LINE: usize = 64;

/// Memory, aligned to a page if it is the region's own, or to a cache line if its buffers are too short for a UMEM. A part of it may be read from its call of [`Region::populate`] on.
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
    owned: Owned,
}

/// What a region gives back when it is dropped.
enum Owned {
    /// The address that the allocator returned.
    Heap(NonNull<u8>),
    Mapping(Mapping),
    /// The owner of the memory.
    #[expect(dead_code, reason = "only dropped")]
    Lent(Box<dyn Send + Sync>),
}

// SAFETY: a region is plain memory, its own or lent to every thread.
unsafe impl Send for Region {}
// SAFETY: a region gives no access to its bytes through itself; holders of pointers into it answer for their accesses.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates `len` bytes, at least one, for buffers at each multiple of `stride`.
    pub(super) fn new(len: usize, stride: usize, backing: Backing) -> io::Result<Self> {
        match backing {
            Backing::Auto => Self::map(len, Backing::HugePages)
                .or_else(|_| Self::map(len, Backing::Mmap))
                .or_else(|error| match error.kind() {
                    io::ErrorKind::Unsupported => Self::heap(len, stride),
                    _ => Err(error),
                }),
            Backing::Heap => Self::heap(len, stride),
            Backing::Mmap | Backing::HugePages => Self::map(len, backing),
            Backing::Lent => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "memory of someone else needs Pool::on"))
            }
        }
    }

    /// Returns the region of memory that belongs to someone else.
    pub(super) fn lent(memory: LentMemory) -> Self {
        let LentMemory { base, len, owner, .. } = memory;
        Self { base, len, backing: Backing::Lent, owned: Owned::Lent(owner) }
    }

    /// Populates the pages of a part of a mapping, so that its first packets cause no page faults, or writes zeros to a part
    /// of memory of the allocator. The caller alone has the buffers that lie there.
    pub(super) fn populate(&self, part: Range<usize>) {
        match &self.owned {
            Owned::Mapping(mapping) => mapping.populate(part),
            Owned::Heap(_) => {
                let part = part.start..part.end.min(self.len);
                // SAFETY: within the region; no other thread accesses the part, by the caller's promise.
                unsafe { self.base.as_ptr().add(part.start).write_bytes(0, part.len()) }
            }
            Owned::Lent(_) => {}
        }
    }

    fn heap(len: usize, stride: usize) -> io::Result<Self> {
        // SAFETY: the layout has a size.
        let raw = NonNull::new(unsafe { alloc(heap_layout(len)?) }).ok_or(io::ErrorKind::OutOfMemory)?;
        // Short buffers begin in the page that holds the allocator's header: a UMEM's are of half a page at least.
        let align = if stride < PAGE / 2 { LINE } else { PAGE };
        // SAFETY: the layout is a page longer than the region.
        let base = unsafe { raw.add(raw.align_offset(align)) };
        Ok(Self { base, len, backing: Backing::Heap, owned: Owned::Heap(raw) })
    }

    fn map(len: usize, backing: Backing) -> io::Result<Self> {
        let mapping = Mapping::new(len, backing == Backing::HugePages)?;
        Ok(Self { base: mapping.base(), len: mapping.len(), backing, owned: Owned::Mapping(mapping) })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the region's bytes, without a read of them.
    pub(super) fn bytes(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: the bytes live as long as the region, and at least `len` of them are mapped or allocated.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.len) }
    }

    /// Returns the backing in use: never `Auto`.
    pub(super) fn backing(&self) -> Backing {
        self.backing
    }
}

/// Layout of the allocation for `len` bytes, one page longer: the region aligns to a page itself.
fn heap_layout(len: usize) -> io::Result<Layout> {
    let len = len.checked_add(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    Layout::from_size_align(len, 16).map_err(io::Error::other)
}

impl Drop for Region {
    fn drop(&mut self) {
        // A mapping unmaps itself.
        if let Owned::Heap(raw) = self.owned {
            let layout = heap_layout(self.len).expect("it was valid in `heap`");
            // SAFETY: allocated in `heap` with this very layout.
            unsafe { dealloc(raw.as_ptr(), layout) }
        }
    }
}
