//! System calls: a raw socket bound to one interface, and sending many frames by one call.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::vnet::{self, Vnet};

/// Maximum number of frames per system call.
pub(super) const BATCH: usize = 64;

/// The kernel's description of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface {
    pub(super) index: libc::c_int,
    pub(super) mtu: u32,
    /// `ARPHRD_ETHER` and others.
    pub(super) hardware: u16,
    /// Whether it was up (`IFF_UP`).
    pub(super) up: bool,
}

/// Opens a raw socket that receives nothing, because it asks for no protocol.
pub(super) fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

impl Interface {
    pub(super) fn find(name: &str) -> io::Result<Self> {
        // A query needs a socket of any kind; this one needs no permission.
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&socket, name)? as libc::c_int;
        let mtu = ask(&socket, name, libc::SIOCGIFMTU as libc::Ioctl)?;
        let hardware = ask(&socket, name, libc::SIOCGIFHWADDR as libc::Ioctl)?;
        let flags = ask(&socket, name, libc::SIOCGIFFLAGS as libc::Ioctl)?;
        // SAFETY: SIOCGIFFLAGS fills in `ifru_flags`, a plain integer.
        let up = unsafe { flags.ifr_ifru.ifru_flags } as libc::c_int & libc::IFF_UP != 0;
        // SAFETY: SIOCGIFMTU fills in `ifru_mtu`, and SIOCGIFHWADDR `ifru_hwaddr`; both are plain integers.
        let (mtu, hardware) = unsafe { (mtu.ifr_ifru.ifru_mtu, hardware.ifr_ifru.ifru_hwaddr.sa_family) };
        Ok(Self { index, mtu: mtu.max(0) as u32, hardware, up })
    }
}

fn ask(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros are a valid ifreq: an empty name and integers.
    let mut query: libc::ifreq = unsafe { mem::zeroed() };
    // A name that was found fits with its terminating zero.
    for (to, from) in query.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request reads and writes one ifreq, which `query` is.
    match unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut query) } {
        0 => Ok(query),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Binds a socket to the interface, for frames of `protocol`; 0 receives none.
pub(super) fn bind(fd: &OwnedFd, interface: Interface, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.index;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_ll of `len` bytes that lives through the call.
    match unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets a socket option whose value is of a plain type.
pub(super) fn set<T: Copy>(
    fd: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads a socket option whose value is of a plain type, for which all zeros are a value.
///
/// # Safety
/// All zeros, and whatever the kernel writes for this option, are values of `T`.
pub(super) unsafe fn get<T: Copy>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
    // SAFETY: the caller says so.
    let mut value: T = unsafe { mem::zeroed() };
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The messages of one `sendmmsg`.
struct Messages {
    headers: Box<[libc::mmsghdr]>,
    /// Two for each message: the virtio-net header and the frame.
    parts: Box<[[libc::iovec; 2]]>,
    vnet: Box<[[u8; vnet::LEN]]>,
    /// Whether each frame has a virtio-net header in front.
    with_vnet: bool,
}

// SAFETY: the pointers in it are used only within `fill` and the borrow that it returns; pointers left from an earlier call
// are never read.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Self {
        // SAFETY: all zeros are a valid message without address, data and control data.
        let header = |_| unsafe { mem::zeroed() };
        let part = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            headers: (0..BATCH).map(header).collect(),
            parts: vec![[part; 2]; BATCH].into(),
            vnet: vec![[0; vnet::LEN]; BATCH].into(),
            with_vnet: false,
        }
    }

    /// Points one header at each frame, at most [`BATCH`]; returns these headers. Their pointers are valid until this value
    /// or a frame is used again.
    fn fill<'m, 'f: 'm>(
        &'m mut self,
        frames: impl Iterator<Item = (Vnet, &'f [u8])>,
    ) -> &'m mut [libc::mmsghdr] {
        let mut n = 0;
        let places = self.headers.iter_mut().zip(&mut self.parts).zip(&mut self.vnet);
        for (((header, parts), bytes), (vnet, frame)) in places.zip(frames) {
            let part = |at: *const u8, len| libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len };
            parts[1] = part(frame.as_ptr(), frame.len());
            if self.with_vnet {
                *bytes = vnet.to_bytes();
                parts[0] = part(bytes.as_mut_ptr(), vnet::LEN);
                (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (parts.as_mut_ptr(), 2);
            } else {
                (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (&raw mut parts[1], 1);
            }
            n += 1;
        }
        &mut self.headers[..n]
    }
}

/// A socket that sends to one interface.
pub(super) struct Socket {
    fd: OwnedFd,
    messages: Messages,
}

impl Socket {
    /// Binds a socket to the interface.
    pub(super) fn bind(fd: OwnedFd, interface: Interface) -> io::Result<Self> {
        bind(&fd, interface, 0)?;
        Ok(Self { fd, messages: Messages::new() })
    }

    /// Makes sends bypass the interface's qdisc (`PACKET_QDISC_BYPASS`).
    pub(super) fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
    }

    /// Puts a virtio-net header in front of each frame, so that the kernel cuts those with segments (`PACKET_VNET_HDR`).
    pub(super) fn with_vnet(&mut self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        self.messages.with_vnet = true;
        Ok(())
    }

    /// Sets a send buffer of `bytes`, or of as much as an unprivileged process may have.
    pub(super) fn set_send_buffer(&self, bytes: libc::c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        set(&self.fd, level, option, value)
    }

    /// Sends at most [`BATCH`] frames without waiting; returns how many the kernel took, counted from the first. An error
    /// concerns the first frame, and then none was taken.
    pub(super) fn send<'f>(&mut self, frames: impl Iterator<Item = (Vnet, &'f [u8])>) -> io::Result<usize> {
        let messages = self.messages.fill(frames);
        if messages.is_empty() {
            return Ok(0);
        }
        let n = messages.len() as libc::c_uint;
        loop {
            // SAFETY: each of the `n` headers points to a part, which points to a frame that `'f` keeps alive through the
            // call; the kernel only reads the frames, and writes the headers' `msg_len`.
            let sent = unsafe {
                libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), n, libc::MSG_DONTWAIT as _)
            };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages move, from the stack to a box and to another thread, and are filled several times: each header still points
    /// to its frame. Under Miri a pointer that the move invalidated is an error.
    #[test]
    fn headers_lead_to_the_frames_wherever_the_messages_lie() {
        let frames: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n)]).collect();
        let mut messages = Box::new(Messages::new());
        for (n, with_vnet) in [(3, false), (100, true), (1, true), (0, false)] {
            messages = std::thread::spawn(move || messages).join().unwrap();
            messages.with_vnet = with_vnet;
            let frames = frames.iter().take(n);
            let headers = messages.fill(frames.clone().map(|frame| (Vnet::default(), &frame[..])));
            assert_eq!(headers.len(), n.min(BATCH));
            for (header, frame) in headers.iter().zip(frames) {
                assert_eq!(header.msg_hdr.msg_iovlen, if with_vnet { 2 } else { 1 });
                // SAFETY: just filled, with one part or two.
                let part = unsafe { &*header.msg_hdr.msg_iov.add(usize::from(with_vnet)) };
                // SAFETY: the part is that of a frame, which is alive.
                let bytes = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
                assert_eq!(bytes, frame);
            }
        }
    }
}
