//! Receiving through memory that the kernel shares: a ring of blocks, each with many frames (TPACKET_V3).
//!
//! The kernel copies frames into a block until it is full or a millisecond old, and gives the block to the program by its status. The
//! program reads the frames and gives the block back. It takes no system call while blocks are there.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::recv::{Notes, vlan_of};
use crate::sys::{self, Plain, set};
use crate::vnet::{self, Vnet};

/// Bytes of a block, which has room for the longest frame, and number of blocks: as much as the receive buffer of a socket.
const BLOCK_BYTES: usize = 128 << 10;
const BLOCK_COUNT: usize = 64;
/// Time after which a block that is not full is the program's, in milliseconds: the shortest.
const RETIRE: u32 = 1;
/// `TPACKET_V3`.
const VERSION: libc::c_int = 2;

/// Statuses of a block: the kernel's, or the program's (`TP_STATUS_USER`).
const KERNEL: u32 = 0;
const USER: u32 = 1;

/// Offsets in `struct tpacket_block_desc`.
const STATUS_AT: usize = 8;
const NUM_FRAMES_AT: usize = 12;
const FIRST_FRAME_AT: usize = 16;
/// Offsets in `struct tpacket3_hdr`, and its length.
const NEXT_AT: usize = 0;
const SECONDS_AT: usize = 4;
const NANOSECONDS_AT: usize = 8;
const SNAPLEN_AT: usize = 12;
const LEN_AT: usize = 16;
const FLAGS_AT: usize = 20;
const MAC_AT: usize = 24;
const VLAN_TCI_AT: usize = 32;
const VLAN_TPID_AT: usize = 36;
const FRAME_HEADER_BYTES: usize = 48;

/// `struct tpacket_req3`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    block_size: u32,
    blocks: u32,
    frame_size: u32,
    frames: u32,
    retire: u32,
    private: u32,
    features: u32,
}

// SAFETY: a struct of integers.
unsafe impl Plain for Request {}

/// A frame in a block.
pub(super) struct Frame<'b> {
    pub(super) vnet: Vnet,
    /// Its bytes, without those that did not fit into a block.
    pub(super) data: &'b [u8],
    /// Its length.
    pub(super) len: usize,
    pub(super) notes: Notes,
}

/// The reading side of a ring of blocks.
///
/// A block's status is written by the kernel (Release: its frames) and read by the program (Acquire), and back. Everything else in the
/// block is the kernel's while the status is [`KERNEL`], and the program's otherwise.
#[derive(Debug)]
struct Ring {
    base: NonNull<u8>,
    size: usize,
    count: usize,
    /// The block that is read, or the next one.
    block: usize,
    /// Frames of it that are not read, and where the first begins.
    left: u32,
    at: usize,
}

impl Ring {
    /// # Safety
    /// `base` is aligned to 16 bytes and valid for `size * count` bytes of initialised memory while the ring is used, and the other
    /// side keeps to the protocol; `size` is a multiple of 16.
    unsafe fn new(base: NonNull<u8>, size: usize, count: usize) -> Self {
        Self { base, size, count, block: 0, left: 0, at: 0 }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: within the block by the contract of `new`, and aligned; both sides access it atomically.
        unsafe { self.base.add(self.block * self.size + STATUS_AT).cast().as_ref() }
    }

    /// Returns `N` bytes of the block, which is the program's; `None` outside of it.
    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.slice(at, N)?.try_into().ok()
    }

    /// Returns bytes of the block, which is the program's.
    fn slice(&self, at: usize, len: usize) -> Option<&[u8]> {
        if at.checked_add(len)? > self.size {
            return None;
        }
        // SAFETY: within the block, which the kernel does not write until the status returns it.
        Some(unsafe { slice::from_raw_parts(self.base.add(self.block * self.size + at).as_ptr(), len) })
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_ne_bytes)
    }

    fn half(&self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_ne_bytes)
    }

    /// Returns whether the next block has become the program's, with a frame to read.
    fn is_filled(&mut self) -> bool {
        while self.left == 0 {
            if self.status().load(Acquire) & USER == 0 {
                return false;
            }
            (self.left, self.at) =
                (self.word(NUM_FRAMES_AT).unwrap_or(0), self.word(FIRST_FRAME_AT).unwrap_or(0) as usize);
            if self.left == 0 {
                self.give_back();
            }
        }
        true
    }

    fn give_back(&mut self) {
        self.left = 0;
        self.status().store(KERNEL, Release);
        self.block = (self.block + 1) % self.count;
    }

    /// Returns the next frame; `None` if there is none.
    fn peek(&mut self) -> Option<Frame<'_>> {
        while self.is_filled() {
            if self.read().is_some() {
                return self.read();
            }
            // The kernel writes no such block; nothing in it can be trusted.
            self.give_back();
        }
        None
    }

    fn read(&self) -> Option<Frame<'_>> {
        let word = |offset| self.word(self.at + offset);
        self.slice(self.at, FRAME_HEADER_BYTES)?;
        let begin = self.at + usize::from(self.half(self.at + MAC_AT)?);
        let status = word(FLAGS_AT)?;
        let time = u64::from(word(SECONDS_AT)?) * 1_000_000_000 + u64::from(word(NANOSECONDS_AT)?);
        Some(Frame {
            vnet: Vnet::from_bytes(self.bytes(begin.checked_sub(vnet::LEN)?)?),
            data: self.slice(begin, word(SNAPLEN_AT)? as usize)?,
            len: word(LEN_AT)? as usize,
            notes: Notes {
                vlan: vlan_of(status, word(VLAN_TCI_AT)? as u16, self.half(self.at + VLAN_TPID_AT)?),
                time: Some(time),
            },
        })
    }

    /// Goes on behind the frame that [`peek`](Ring::peek) has returned.
    fn pop(&mut self) {
        let next = self.word(self.at + NEXT_AT).unwrap_or(0) as usize;
        self.left = self.left.saturating_sub(1);
        self.at = self.at.saturating_add(next);
        // Only the last frame has no next one.
        if self.left == 0 || next < FRAME_HEADER_BYTES {
            self.give_back();
        }
    }
}

/// The mapped blocks of a socket.
#[derive(Debug)]
pub(super) struct Blocks(Ring);

// SAFETY: the mapping is owned memory, which any one thread may use.
unsafe impl Send for Blocks {}

impl Blocks {
    /// Makes the socket hand frames over in blocks. It must not be bound yet, and have virtio-net headers.
    pub(super) fn map(fd: &OwnedFd) -> io::Result<Self> {
        // Frames may be longer than these.
        let frame_size = 2048;
        let frames = (BLOCK_BYTES * BLOCK_COUNT / frame_size) as u32;
        let request = Request {
            block_size: BLOCK_BYTES as u32,
            blocks: BLOCK_COUNT as u32,
            frame_size: frame_size as u32,
            frames,
            retire: RETIRE,
            private: 0,
            features: 0,
        };
        set(fd, libc::SOL_PACKET, libc::PACKET_VERSION, VERSION)?;
        set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base =
            unsafe { mmap(ptr::null_mut(), BLOCK_BYTES * BLOCK_COUNT, access, MapFlags::SHARED, fd, 0) };
        let Some(base) = base.ok().and_then(|base| NonNull::new(base.cast::<u8>())) else {
            // The socket receives by messages again.
            let none = Request { block_size: 0, blocks: 0, frame_size: 0, frames: 0, retire: 0, ..request };
            set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, none)?;
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        // SAFETY: a whole mapping, of pages that the kernel has zeroed, which a drop unmaps; the kernel is the other side.
        Ok(Self(unsafe { Ring::new(base, BLOCK_BYTES, BLOCK_COUNT) }))
    }

    /// Returns whether there is a frame.
    pub(super) fn has_frames(&mut self) -> bool {
        self.0.is_filled()
    }

    /// Returns the next frame without taking it.
    pub(super) fn peek(&mut self) -> Option<Frame<'_>> {
        self.0.peek()
    }

    /// Takes the frame that [`peek`](Blocks::peek) has returned.
    pub(super) fn pop(&mut self) {
        self.0.pop();
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; frames borrow `self`.
        let _ = unsafe { munmap(self.0.base.as_ptr().cast(), BLOCK_BYTES * BLOCK_COUNT) };
    }
}

/// Returns the error of a socket that has one, such as that of an interface that is down.
pub(super) fn error_of(fd: &OwnedFd) -> io::Result<()> {
    match sys::get::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests;
