//! Raw sockets of the bare loops.
#![allow(dead_code, reason = "each example needs a part of it")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns a raw socket that receives nothing.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a socket to an interface. It receives the frames of `protocol`, such as `ETH_P_ALL`; none for 0.
pub(crate) fn bind(fd: &OwnedFd, index: u32, protocol: libc::c_int) -> io::Result<()> {
    // SAFETY: all zeros are an address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address lives through the call and has the length given.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of a socket to some words.
pub(crate) fn option(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, words: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads the words.
    let set = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, words.as_ptr().cast(), size_of_val(words) as u32)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns a raw socket that sends to an interface past its qdisc.
pub(crate) fn sending(index: u32) -> io::Result<OwnedFd> {
    let fd = socket()?;
    bind(&fd, index, 0)?;
    option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &[1])?;
    Ok(fd)
}
