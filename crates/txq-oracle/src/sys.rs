//! System calls that no crate wraps: a packet socket with a priority and a mark, and a terminal's line discipline.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// The line discipline that turns a serial line into a network device (`N_SLIP`).
const N_SLIP: libc::c_int = 1;

/// Turns a terminal into a network device, while the terminal is open.
pub(crate) fn make_slip(terminal: impl AsFd) -> io::Result<()> {
    let discipline = N_SLIP;
    // SAFETY: TIOCSETD reads one int, which `discipline` is.
    check(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSETD, &raw const discipline) })
}

/// A socket that sends whole packets through one device's qdisc.
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    to: libc::sockaddr_ll,
}

impl PacketSocket {
    pub(crate) fn open(device: &str) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&fd, device)?;
        // SAFETY: all zeros are a valid address: it holds integers.
        let mut to: libc::sockaddr_ll = unsafe { mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        to.sll_ifindex = index as libc::c_int;
        let socket = Self { fd, to };
        // Queued packets must not block the sender.
        socket.set(libc::SO_SNDBUFFORCE, 1 << 28)?;
        Ok(socket)
    }

    /// Sets the priority and mark of later packets.
    pub(crate) fn mark(&self, priority: u32, mark: u32) -> io::Result<()> {
        self.set(libc::SO_PRIORITY, priority as libc::c_int)?;
        self.set(libc::SO_MARK, mark as libc::c_int)
    }

    fn set(&self, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let (ptr, len) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
        // SAFETY: `ptr` and `len` are those of one int, which all options used here take.
        check(unsafe { libc::setsockopt(self.fd.as_raw_fd(), libc::SOL_SOCKET, option, ptr, len) })
    }

    /// Sends a packet; returns false if the qdisc dropped it.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<bool> {
        let (to, len) = ((&raw const self.to).cast(), size_of_val(&self.to) as libc::socklen_t);
        let fd = self.fd.as_raw_fd();
        // SAFETY: `bytes` is memory to be read, and `to` and `len` are those of an address.
        let sent = unsafe { libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), 0, to, len) };
        match io::Error::last_os_error() {
            _ if sent >= 0 => Ok(true),
            error if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(false),
            error => Err(error),
        }
    }
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
