//! Options of sockets.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use super::check;

/// Values that the kernel reads and writes as bytes.
///
/// # Safety
/// Every sequence of bytes of the type's size is a value of it.
pub(crate) unsafe trait Plain: Copy {}

/// Implements [`Plain`] for structs that consist of integers only.
macro_rules! plain {
    ($($of:ty),+ $(,)?) => { $(
        // SAFETY: an integer, or a struct of integers.
        unsafe impl Plain for $of {}
    )+ };
}

plain!(
    libc::c_int,
    u32,
    libc::packet_mreq,
    libc::tpacket_stats,
    libc::xdp_umem_reg,
    libc::xdp_options,
    libc::xdp_statistics,
    libc::xdp_mmap_offsets,
);

/// Sets an option.
pub(crate) fn set<T: Plain>(
    fd: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> io::Result<()> {
    let (fd, len) = (fd.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `value`.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) })
}

/// Returns an option, and the length of what the kernel wrote of it. The rest is 0.
pub(crate) fn get_prefix<T: Plain>(
    fd: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<(T, usize)> {
    let mut value = MaybeUninit::<T>::zeroed();
    let (fd, mut len) = (fd.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the number of them to `len`.
    check(unsafe { libc::getsockopt(fd, level, option, value.as_mut_ptr().cast(), &raw mut len) })?;
    // SAFETY: all its bytes are 0 or written by the kernel, and any bytes are a `T`.
    Ok((unsafe { value.assume_init() }, len as usize))
}

/// Returns an option.
pub(crate) fn get<T: Plain>(fd: impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
    get_prefix(fd, level, option).map(|(value, _)| value)
}

/// Sets the send or receive buffer to `bytes`: by `force` if the process is privileged, and otherwise by `option`, which the
/// kernel limits to `net.core.wmem_max` or `rmem_max`.
pub(crate) fn set_buffer(
    fd: impl AsFd,
    force: libc::c_int,
    option: libc::c_int,
    bytes: libc::c_int,
) -> io::Result<()> {
    set(&fd, libc::SOL_SOCKET, force, bytes).or_else(|_| set(&fd, libc::SOL_SOCKET, option, bytes))
}
