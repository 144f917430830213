//! Receiving many frames by one call: `recvmmsg` into packets, with the virtio-net header and the kernel's notes on each.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr;

use txq::packet::{Packet, PacketList};

use crate::sys;
use crate::vnet::{self, Vnet};

/// Maximum number of frames per system call.
pub(super) const RECEIVE_BATCH: usize = 32;
/// The bytes of a frame that do not fit into its buffer: a packet with segments has up to 64 KiB.
const OVERFLOW: usize = 1 << 16;
/// Space for the kernel's notes on a frame: a [`libc::tpacket_auxdata`] and a time.
const NOTES: usize = 96;
/// A message consists of the virtio-net header, the buffer, and the bytes beyond it.
const MESSAGE_PARTS: usize = 3;

/// Aligned as control messages must be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; NOTES]);

/// The messages of one `recvmmsg`, and the bytes beyond the buffers.
pub(super) struct Messages {
    headers: Box<[libc::mmsghdr]>,
    parts: Box<[[libc::iovec; MESSAGE_PARTS]]>,
    vnet: Box<[[u8; vnet::LEN]]>,
    control: Box<[Control]>,
    /// [`OVERFLOW`] bytes for each message. The system provides the memory when a long frame first writes it.
    beyond: Box<[u8]>,
}

// SAFETY: the pointers in it are used only within `receive`; pointers left from an earlier call are never read.
unsafe impl Send for Messages {}

/// A frame that was received.
pub(super) struct Frame<'m> {
    pub(super) vnet: Vnet,
    /// Its length, which may exceed that of the buffer.
    pub(super) len: usize,
    /// Its bytes beyond the buffer.
    pub(super) beyond: &'m [u8],
    pub(super) notes: Notes,
}

/// The kernel's notes on a frame.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Notes {
    /// The tag protocol and the tag that the kernel has taken off.
    pub(super) vlan: Option<(u16, u16)>,
    /// When the frame came in, in nanoseconds since 1970, if the socket records it.
    pub(super) time: Option<u64>,
}

impl Messages {
    pub(super) fn new() -> Self {
        // SAFETY: all zeros are a valid message without address, data and control data.
        let header = |_| unsafe { mem::zeroed() };
        let part = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            headers: (0..RECEIVE_BATCH).map(header).collect(),
            parts: vec![[part; MESSAGE_PARTS]; RECEIVE_BATCH].into(),
            vnet: vec![[0; vnet::LEN]; RECEIVE_BATCH].into(),
            control: vec![Control([0; NOTES]); RECEIVE_BATCH].into(),
            beyond: vec![0; RECEIVE_BATCH * OVERFLOW].into(),
        }
    }

    /// Receives frames into `packets`, as many as there are and at most [`RECEIVE_BATCH`], without waiting. Returns how many. The
    /// first packets hold the frames, [`frame`](Messages::frame) describes them.
    pub(super) fn receive(&mut self, fd: &OwnedFd, packets: &mut PacketList) -> io::Result<usize> {
        let Self { headers, parts, vnet, control, beyond } = self;
        let mut n = 0;
        packets.for_each_mut(|packet| {
            let Some(parts) = parts.get_mut(n) else { return };
            let data = packet.data_mut();
            let part =
                |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            *parts = [part(&mut vnet[n]), part(data), part(&mut beyond[n * OVERFLOW..][..OVERFLOW])];
            let header = &mut headers[n].msg_hdr;
            header.msg_iov = parts.as_mut_ptr();
            header.msg_iovlen = MESSAGE_PARTS as _;
            header.msg_control = (&raw mut control[n]).cast();
            header.msg_controllen = NOTES as _;
            n += 1;
        });
        // SAFETY: each of the `n` headers points to its parts and its control bytes, which belong to this value, and one part to
        // a packet that the caller has lent; all live through the call.
        match unsafe { sys::receive_messages(fd, &mut headers[..n]) } {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            done => done,
        }
    }

    /// Describes frame number `n` of the last [`receive`](Messages::receive), which is in a buffer of `room` bytes.
    pub(super) fn frame(&self, n: usize, room: usize) -> Frame<'_> {
        let message = &self.headers[n];
        let len = (message.msg_len as usize).saturating_sub(vnet::LEN);
        let rest = len.saturating_sub(room).min(OVERFLOW);
        let vnet = Vnet::from_bytes(self.vnet[n]);
        Frame { vnet, len, beyond: &self.beyond[n * OVERFLOW..][..rest], notes: notes(&message.msg_hdr) }
    }
}

/// Returns the kernel's notes.
fn notes(header: &libc::msghdr) -> Notes {
    let mut notes = Notes::default();
    // SAFETY: the kernel has filled in the control bytes and their length.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: the macros return only headers that lie within the control bytes.
    while let Some(note) = unsafe { at.as_ref() } {
        match (note.cmsg_level, note.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: PACKET_AUXDATA holds a tpacket_auxdata, of plain integers; it may be unaligned.
                let aux: libc::tpacket_auxdata = unsafe { ptr::read_unaligned(libc::CMSG_DATA(note).cast()) };
                notes.vlan = vlan_of(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: SCM_TIMESTAMPNS holds a timespec, of plain integers; it may be unaligned.
                notes.time = Some(sys::nanos(unsafe { ptr::read_unaligned(libc::CMSG_DATA(note).cast()) }));
            }
            _ => {}
        }
        // SAFETY: `note` is a header within the control bytes.
        at = unsafe { libc::CMSG_NXTHDR(header, note) };
    }
    notes
}

/// Returns the tag protocol and the VLAN tag that the kernel has taken off, from a frame's status and the fields that it makes valid.
pub(super) fn vlan_of(status: u32, tci: u16, protocol: u16) -> Option<(u16, u16)> {
    const ETH_P_8021Q: u16 = 0x8100;
    let has = |flag| status & flag != 0;
    let protocol = if has(libc::TP_STATUS_VLAN_TPID_VALID) { protocol } else { ETH_P_8021Q };
    has(libc::TP_STATUS_VLAN_VALID).then_some((protocol, tci))
}

/// Puts a VLAN tag back behind the addresses of a frame. Returns false if the frame is shorter than its header, or has no
/// headroom.
pub(super) fn tag(packet: &mut Packet, (protocol, tci): (u16, u16)) -> bool {
    const MAC_BYTES: usize = 12;
    if packet.len() < MAC_BYTES + 2 || packet.push(4).is_none() {
        return false;
    }
    let data = packet.data_mut();
    data.copy_within(4..4 + MAC_BYTES, 0);
    data[MAC_BYTES..MAC_BYTES + 2].copy_from_slice(&protocol.to_be_bytes());
    data[MAC_BYTES + 2..MAC_BYTES + 4].copy_from_slice(&tci.to_be_bytes());
    true
}
