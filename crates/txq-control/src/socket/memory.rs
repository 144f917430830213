//! The memory that a client and the server share.
//!
//! The server makes it (a memfd) and seals its size, so no access of either side is beyond its end. A client can punch holes, which read
//! as zeros: the kernel gives the next access a new page. All of it is atomics: whatever the other process writes, and whenever, a
//! load returns some value, and nothing else happens.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use txq_core::flow::Link;

use crate::socket::layout::{self, Layout, MAGIC, MAX_SIZE, VERSION, at};
use crate::socket::ring::{Cursors, Ring, Slot};

const _: () =
    assert!(at::CURSORS + size_of::<Cursors>() <= at::DESCRIPTORS && align_of::<Cursors>() == at::CURSORS);
const _: () = assert!(size_of::<Slot>() == layout::DESCRIPTOR);

/// Shared memory with a ring, mapped until it is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    size: usize,
    /// What this side believes, whatever the memory says later.
    layout: Layout,
}

// SAFETY: the memory is accessed as atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes memory with an empty ring; returns it with its descriptor.
    pub(crate) fn create(layout: &Layout) -> io::Result<(Self, OwnedFd)> {
        let make = |more| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | more;
            rustix::fs::memfd_create("txq-socket", flags)
        };
        // A kernel before 6.3 does not know the flag: its memory could be executed by a client, as any file of the client's own.
        let fd = make(MemfdFlags::NOEXEC_SEAL).or_else(|_| make(MemfdFlags::empty()))?;
        let size = layout.size();
        ftruncate(&fd, size as u64)?;
        // All pages at once: a machine without memory for them refuses the client here.
        fallocate(&fd, FallocateFlags::empty(), 0, size as u64)?;
        let memory = Self::map(&fd, size, *layout)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let words = [
            (at::MAGIC, MAGIC),
            (at::VERSION, VERSION),
            (at::SLOTS, layout.slots()),
            (at::STRIDE, layout.stride() as u32),
            (at::DATA, layout.data() as u32),
            (at::DATA_LEN, layout.data_len() as u32),
            (at::FRAME_MAX, layout.frame_max()),
            (at::PRIORITY_MAX, layout.priority_max()),
            (at::LINK, layout.link_word()),
        ];
        words.into_iter().for_each(|(at, value)| memory.word(at).store(value, Relaxed));
        Ok((memory, fd))
    }

    /// Maps memory that the server has made; an error if it is not as the protocol says.
    pub(crate) fn receive(fd: &OwnedFd, size: u32) -> io::Result<Self> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let size = size as usize;
        if !fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
            return Err(wrong("the memory is not sealed"));
        }
        if !(at::DESCRIPTORS..=MAX_SIZE).contains(&size) || fstat(fd)?.st_size != size as i64 {
            return Err(wrong("the memory has another size"));
        }
        // Replaced below; the header's words lie in any layout.
        let any = Layout::new(1, 1, 0, Link::Ethernet).expect("in range");
        let mut memory = Self::map(fd, size, any)?;
        let word = |at| memory.word(at).load(Relaxed);
        let link = match word(at::LINK) {
            1 => Link::Ethernet,
            2 => Link::Ip,
            _ => return Err(wrong("the frames begin with an unknown header")),
        };
        let layout = Layout::new(word(at::SLOTS), word(at::FRAME_MAX), word(at::PRIORITY_MAX), link);
        let layout = layout.filter(|layout| {
            let own =
                [layout.slots(), layout.stride() as u32, layout.data() as u32, layout.data_len() as u32];
            own == [at::SLOTS, at::STRIDE, at::DATA, at::DATA_LEN].map(word) && layout.size() == size
        });
        memory.layout = layout.ok_or_else(|| wrong("the header contradicts itself"))?;
        Ok(memory)
    }

    fn map(fd: impl AsFd, size: usize, layout: Layout) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), size, access, MapFlags::SHARED, fd, 0)? };
        let start = NonNull::new(start.cast()).expect("a mapping");
        Ok(Self { start, size, layout })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < at::CURSORS && at.is_multiple_of(4));
        // SAFETY: the header lies in every mapping, which is page-aligned and lives as long as `self`; both processes access it as
        // atomics, of which every bit pattern is a value.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    pub(crate) fn ring(&self) -> Ring<'_> {
        // SAFETY: as in `word`; the size of the layout, which was checked against that of the mapping, includes both. The types
        // consist of atomics.
        unsafe {
            let cursors = self.start.add(at::CURSORS).cast().as_ref();
            let slots = NonNull::slice_from_raw_parts(
                self.start.add(at::DESCRIPTORS).cast(),
                self.layout.slots() as usize,
            );
            Ring::new(cursors, slots.as_ref())
        }
    }

    /// Returns the data, in words of eight bytes.
    fn data(&self) -> &[AtomicU64] {
        let words = self.layout.data_len() / 8;
        // SAFETY: as in `ring`; the data begins at a page and its length is a multiple of eight.
        unsafe { NonNull::slice_from_raw_parts(self.start.add(self.layout.data()).cast(), words).as_ref() }
    }

    /// Copies a frame out of the data. The caller has checked that `offset` is a multiple of eight and that the frame lies in the
    /// data.
    pub(crate) fn copy_out(&self, offset: u32, frame: &mut [u8]) {
        let words = &self.data()[offset as usize / 8..];
        frame.chunks_mut(8).zip(words).for_each(|(bytes, word)| {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..bytes.len()]);
        });
    }

    /// Copies a frame into the data, as [`copy_out`](Self::copy_out).
    pub(crate) fn copy_in(&self, offset: u32, frame: &[u8]) {
        let words = &self.data()[offset as usize / 8..];
        frame.chunks(8).zip(words).for_each(|(bytes, word)| {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Relaxed);
        });
    }
}

/// Frees the pages of memory that a client has left. The client may keep the descriptor and the mapping: a page that it touches again is
/// then the client's own, in the account of its control group. With `but_header` the first page stays, for a client that the server ends:
/// it finds there that it must ring, and so hears of its end.
pub(crate) fn give_back(fd: impl AsFd, size: usize, but_header: bool) {
    let start = if but_header { layout::PAGE as u64 } else { 0 };
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // It fails for want of memory, in a kernel that has to split a large page: then the pages go with the client.
    let _ = fallocate(fd, hole, start, size as u64 - start);
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and nothing borrows it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}
