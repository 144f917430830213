//! System calls: a raw socket bound to one interface, and sending many frames by one call.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::interface::Control;
use crate::sys::{self, set};
use crate::vnet::{self, Vnet};

/// Maximum number of frames per system call.
pub(super) const SEND_BATCH: usize = 64;

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
        let control = Control::new()?;
        Ok(Self {
            index: control.index(name)? as libc::c_int,
            mtu: control.mtu(name)?,
            hardware: control.hardware(name)?,
            up: control.is_up(name)?,
        })
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
    sys::check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
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
            headers: (0..SEND_BATCH).map(header).collect(),
            parts: vec![[part; 2]; SEND_BATCH].into(),
            vnet: vec![[0; vnet::LEN]; SEND_BATCH].into(),
            with_vnet: false,
        }
    }

    /// Points one header at each frame, at most [`SEND_BATCH`]; returns these headers. Their pointers are valid until this value
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
        set::<libc::c_int>(&self.fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
    }

    /// Puts a virtio-net header in front of each frame, so that the kernel cuts those with segments (`PACKET_VNET_HDR`).
    pub(super) fn with_vnet(&mut self) -> io::Result<()> {
        set::<libc::c_int>(&self.fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        self.messages.with_vnet = true;
        Ok(())
    }

    /// Sets a send buffer of `bytes`, or of as much as an unprivileged process may have.
    pub(super) fn set_send_buffer(&self, bytes: libc::c_int) -> io::Result<()> {
        sys::set_buffer(&self.fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
    }

    /// Sends at most [`SEND_BATCH`] frames without waiting; returns how many the kernel took, counted from the first. An error
    /// concerns the first frame, and then none was taken.
    pub(super) fn send<'f>(&mut self, frames: impl Iterator<Item = (Vnet, &'f [u8])>) -> io::Result<usize> {
        let messages = self.messages.fill(frames);
        if messages.is_empty() {
            return Ok(0);
        }
        // SAFETY: each of the headers points to a part, which points to a frame that `'f` keeps alive through the call.
        unsafe { sys::send_messages(&self.fd, messages) }
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
            assert_eq!(headers.len(), n.min(SEND_BATCH));
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
