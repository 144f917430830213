//! The ioctls of `/dev/net/tun`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};

use crate::sys::check;
use crate::sys::interface::named;

/// The device file that each queue opens.
pub(super) const DEVICE: &str = "/dev/net/tun";

/// Opens a queue that belongs to no interface yet. It belongs to the calling thread's network namespace.
pub(super) fn open_queue() -> io::Result<OwnedFd> {
    Ok(open(DEVICE, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

/// Attaches a queue to the interface `name`, which is created if there is none (`TUNSETIFF`). Returns the interface's name.
pub(super) fn attach(queue: &OwnedFd, name: &str, flags: libc::c_int) -> io::Result<String> {
    let mut query = named(name);
    query.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `query` is.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETIFF, &raw mut query) })?;
    let name = query.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    String::from_utf8(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Calls an ioctl of a queue that takes an integer by value.
pub(super) fn set(queue: &OwnedFd, request: Value, value: u32) -> io::Result<()> {
    let request = match request {
        Value::Persist => libc::TUNSETPERSIST,
        Value::Owner => libc::TUNSETOWNER,
        Value::Group => libc::TUNSETGROUP,
        Value::Offload => libc::TUNSETOFFLOAD,
    };
    // SAFETY: these requests take their argument by value and access no memory of the caller.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), request, value as libc::c_ulong) })
}

/// The ioctls that take an integer by value.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Persist,
    Owner,
    Group,
    Offload,
}

/// Makes headers of `bytes` bytes, in the machine's byte order, precede the packets of the interface. Both outlive the
/// program that set them, so a persistent interface may have other values.
pub(super) fn set_header(queue: &OwnedFd, bytes: usize) -> io::Result<()> {
    for (request, value) in [(libc::TUNSETVNETHDRSZ, bytes as libc::c_int), (libc::TUNSETVNETLE, 0)] {
        // SAFETY: both requests read one int, which `value` is.
        check(unsafe { libc::ioctl(queue.as_raw_fd(), request, &raw const value) })?;
    }
    Ok(())
}
