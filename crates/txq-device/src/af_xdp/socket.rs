//! System calls: an AF_XDP socket, its options, and the mapping of its rings.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::metadata;
use super::rings::Ring;
use super::umem::Umem;
use crate::sys::{self, set};

/// Offsets at which the four rings of a socket are mapped (`XDP_PGOFF_..`).
const RX_RING: u64 = 0;
const TX_RING: u64 = 0x8000_0000;
const FILL_RING: u64 = 0x1_0000_0000;
const COMPLETION_RING: u64 = 0x1_8000_0000;
/// Frames that one call sends in copy mode (`XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17; 32 before).
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
const TX_BUDGET: u32 = 256;
/// Send buffer of a socket in copy mode, in bytes of frames with the kernel's overhead.
const COPY_SEND_BUFFER: libc::c_int = 8 << 20;

/// A frame in the rx or tx ring (`struct xdp_desc`).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Desc {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

/// How a socket is bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    /// `XDP_ZEROCOPY` or `XDP_COPY`; 0 lets the kernel choose.
    pub(super) mode: u16,
    pub(super) need_wakeup: bool,
}

/// The counters that a socket keeps (`XDP_STATISTICS`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Statistics {
    /// Frames dropped because no buffer waited for them, or because they were too long for one.
    pub(super) rx_dropped: u64,
    /// Frames dropped because the rx ring was full.
    pub(super) rx_ring_full: u64,
    /// How often the fill ring had no buffer.
    pub(super) starved: u64,
}

/// Opens a socket.
pub(super) fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Registers the memory of a pool as the socket's UMEM; returns whether frames may have metadata, which they do if `metadata` is
/// true and the kernel knows it (Linux 6.11).
pub(super) fn register(fd: &OwnedFd, umem: &Umem, headroom: usize, metadata: bool) -> io::Result<bool> {
    // SAFETY: all zeros are a valid struct of integers.
    let mut reg: libc::xdp_umem_reg = unsafe { mem::zeroed() };
    reg.addr = umem.base as u64;
    reg.len = umem.len as u64;
    reg.chunk_size = umem.chunk as u32;
    reg.headroom = headroom as u32;
    reg.flags = libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
    if metadata {
        let with = libc::xdp_umem_reg {
            flags: reg.flags | libc::XDP_UMEM_TX_METADATA_LEN,
            tx_metadata_len: metadata::LEN as u32,
            ..reg
        };
        match set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, with) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            done => return done.map(|()| true),
        }
    }
    set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, reg).map(|()| false)
}

/// Asks for the rings of a socket: a fill, a completion and a tx ring of `size` slots each, and an rx ring if it receives.
pub(super) fn create_rings(fd: &OwnedFd, size: u32, receive: bool) -> io::Result<()> {
    set(fd, libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, size)?;
    set(fd, libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, size)?;
    set(fd, libc::SOL_XDP, libc::XDP_TX_RING, size)?;
    if receive {
        set(fd, libc::SOL_XDP, libc::XDP_RX_RING, size)?;
    }
    Ok(())
}

/// Lets one call send many frames in copy mode, as far as the kernel and the permissions allow.
pub(super) fn widen(fd: &OwnedFd) {
    let _ = set(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, TX_BUDGET);
    let _ = sys::set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, COPY_SEND_BUFFER);
}

/// Binds a socket to a queue; `shared` is a bound socket whose UMEM and flags it takes over.
pub(super) fn bind(
    fd: &OwnedFd,
    ifindex: u32,
    queue: u32,
    flags: Flags,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_xdp = unsafe { mem::zeroed() };
    address.sxdp_family = AddressFamily::XDP.as_raw();
    address.sxdp_ifindex = ifindex;
    address.sxdp_queue_id = queue;
    address.sxdp_flags = match shared {
        Some(_) => libc::XDP_SHARED_UMEM,
        None if flags.need_wakeup => flags.mode | libc::XDP_USE_NEED_WAKEUP,
        None => flags.mode,
    };
    address.sxdp_shared_umem_fd = shared.map_or(0, |fd| fd.as_raw_fd() as u32);
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_xdp of `len` bytes that lives through the call.
    sys::check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Returns whether a bound socket is in zero-copy mode.
pub(super) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let options: libc::xdp_options = sys::get(fd, libc::SOL_XDP, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Returns a socket's counters.
pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<Statistics> {
    let of: libc::xdp_statistics = sys::get(fd, libc::SOL_XDP, libc::XDP_STATISTICS)?;
    let (rx_dropped, starved) = (of.rx_dropped, of.rx_fill_ring_empty_descs);
    Ok(Statistics { rx_dropped, rx_ring_full: of.rx_ring_full, starved })
}

/// Makes the kernel send what is in the tx ring.
pub(super) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a message without address and data; the kernel reads no memory.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    sys::check(sent as libc::c_int)
}

/// Makes the kernel take buffers from the fill ring. An error says that the interface is down or gone.
pub(super) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a message without address and data; the kernel writes no memory.
    let got = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    sys::check(got as libc::c_int)
}

/// The mapped memory of one ring. A drop unmaps it.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain owned memory; the rings on it say who accesses what.
unsafe impl Send for Mapping {}
// SAFETY: as above; the mapping itself accesses nothing.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `Rings::map` with this length; the owner of the rings vouches that they are no longer used.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The mapped rings of a socket. They must outlive every copy of a [`Ring`] in them. The kernel closes the socket only after
/// they are unmapped.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Ring<u64>,
    pub(super) completion: Ring<u64>,
    pub(super) tx: Ring<Desc>,
    pub(super) rx: Option<Ring<Desc>>,
    _mappings: Vec<Mapping>,
}

impl Rings {
    /// Maps the rings that [`create_rings`] has made.
    pub(super) fn map(fd: &OwnedFd, size: u32, receive: bool) -> io::Result<Self> {
        let (at, len): (libc::xdp_mmap_offsets, _) =
            sys::get_prefix(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        if len != size_of::<libc::xdp_mmap_offsets>() {
            // Linux before 5.4: its rings have no flags.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut mappings = Vec::new();
        let fill = map_ring(fd, FILL_RING, &at.fr, size, &mut mappings)?;
        let completion = map_ring(fd, COMPLETION_RING, &at.cr, size, &mut mappings)?;
        let tx = map_ring(fd, TX_RING, &at.tx, size, &mut mappings)?;
        let rx = if receive { Some(map_ring(fd, RX_RING, &at.rx, size, &mut mappings)?) } else { None };
        Ok(Self { fill, completion, tx, rx, _mappings: mappings })
    }
}

/// Maps one ring and adds its memory to `mappings`.
fn map_ring<T: Copy>(
    fd: &OwnedFd,
    offset: u64,
    at: &libc::xdp_ring_offset,
    size: u32,
    mappings: &mut Vec<Mapping>,
) -> io::Result<Ring<T>> {
    let len = at.desc as usize + size as usize * size_of::<T>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
    let base =
        unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED | MapFlags::POPULATE, fd, offset) }?;
    let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    mappings.push(Mapping { base, len });
    // SAFETY: the kernel's offsets lie within the mapping, and its fields are aligned; `Rings` keeps the mapping.
    unsafe {
        let field = |offset: u64| base.add(offset as usize);
        let (producer, consumer) = (field(at.producer).cast(), field(at.consumer).cast());
        Ok(Ring::new(producer, consumer, field(at.flags).cast(), field(at.desc).cast(), size))
    }
}
