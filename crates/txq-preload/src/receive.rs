//! The thread that receives in the program's place: each datagram goes through the qdisc of `--down` (`arrive.rs` has what follows).

use std::ffi::c_int;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;
use std::thread::{self, JoinHandle};

use txq::driver::Link;
use txq::packet::PacketList;
use txq::{NetDev, Sender};
use txq_device::udp::Datagram;

use crate::arrive::{Arrived, Kinds};
use crate::message::{Place, place, unspecified};
use crate::socket::{Sockets, Watched};
use crate::sys::{self, Address, Answer};

/// Messages of one call.
const MESSAGES: usize = 32;
/// Calls for one socket before another one's turn.
const CALLS: usize = 8;
/// The longest message, in bytes: several datagrams that the kernel has joined are no longer. A page takes memory at its first use.
const AREA_BYTES: usize = 65_536;

/// Space for the control messages of one message.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 512]);

/// What the kernel says of a message beside its source.
#[derive(Default)]
struct Said {
    kinds: Kinds,
    to: Option<IpAddr>,
    interface: u32,
    ttl: u8,
    tos: [Option<u8>; 2],
    /// The length of the datagrams that are joined in it.
    segment: Option<usize>,
}

/// Starts the thread.
///
/// # Errors
/// If the system gives no thread or no descriptors.
pub(crate) fn start(sockets: &'static Sockets, dev: &NetDev) -> Result<JoinHandle<()>, String> {
    if !sockets.can_wait() {
        return Err("the system gives no descriptors to receive with".to_owned());
    }
    let mut receiver = Receiver::new(sockets, dev.sender("network"));
    let run = move || {
        while sockets.wait(|socket, is_ended| receiver.receive(socket, is_ended)) {}
        sockets.give_back();
    };
    thread::Builder::new().name("txq-receive".into()).spawn(run).map_err(|error| error.to_string())
}

struct Receiver {
    sockets: &'static Sockets,
    sender: Sender,
    headers: Box<[libc::mmsghdr]>,
    addresses: Box<[Address]>,
    controls: Box<[Control]>,
    parts: Box<[libc::iovec]>,
    data: Box<[u8]>,
}

// SAFETY: the pointers in it lead to its own boxes, and are written anew before each call that uses them.
unsafe impl Send for Receiver {}

impl Receiver {
    fn new(sockets: &'static Sockets, sender: Sender) -> Self {
        // SAFETY: all zeros are a valid message without address, data and control data.
        let header = |_| unsafe { mem::zeroed() };
        let part = |_| libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            sockets,
            sender,
            headers: (0..MESSAGES).map(header).collect(),
            addresses: vec![Address::empty(); MESSAGES].into(),
            controls: vec![Control([0; 512]); MESSAGES].into(),
            parts: (0..MESSAGES).map(part).collect(),
            data: vec![0; MESSAGES * AREA_BYTES].into(),
        }
    }

    /// Receives what a socket has, and hands it to the device.
    fn receive(&mut self, from: Watched, is_ended: bool) {
        for _ in 0..CALLS {
            match self.receive_some(from) {
                Some(Ok(())) => {}
                Some(Err(libc::EAGAIN)) if is_ended => return self.sockets.end_receiving(from),
                None | Some(Err(libc::EAGAIN)) => return,
                Some(Err(libc::EINTR)) => {}
                Some(Err(error)) => self.sockets.tell_error(from, error),
            }
        }
        // Other sockets come first.
        self.sockets.wait_again(from);
    }

    /// Receives by one call; `None` if the program has closed the socket.
    fn receive_some(&mut self, from: Watched) -> Option<Answer<()>> {
        self.offer();
        let headers = &mut self.headers;
        let received = self.sockets.with_watched(from, |socket, fd| {
            // SAFETY: `offer` has pointed each message at an address, a part, an area and a space of its own.
            let n = unsafe { sys::receive_messages(fd, headers) }?;
            let local = sys::address(fd, libc::SYS_getsockname).ok().and_then(|local| place(&local));
            Ok((n, local, socket.hides_tos()))
        });
        let (n, local, hides) = match received? {
            Ok(received) => received,
            Err(error) => return Some(Err(error)),
        };
        let mut list = PacketList::new();
        for i in 0..n {
            self.cut(i, from, local, hides, &mut list);
        }
        // A qdisc's drop is counted by the device.
        let _verdict = self.sender.xmit_batch(&mut list);
        Some(Ok(()))
    }

    /// Points all messages at their places.
    fn offer(&mut self) {
        let places = self.addresses.iter_mut().zip(&mut self.controls).zip(&mut self.parts);
        let areas = self.data.chunks_exact_mut(AREA_BYTES);
        for (header, (((address, control), part), area)) in self.headers.iter_mut().zip(places.zip(areas)) {
            *part = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: AREA_BYTES };
            let header = &mut header.msg_hdr;
            header.msg_name = ptr::from_mut(address).cast();
            header.msg_namelen = size_of::<Address>() as _;
            (header.msg_iov, header.msg_iovlen, header.msg_flags) = (part, 1, 0);
            header.msg_control = ptr::from_mut(control).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
    }

    /// Appends the datagrams of a message to `list`. Waits for buffers: the kernel's socket holds what comes meanwhile.
    fn cut(
        &mut self,
        i: usize,
        socket: Watched,
        local: Option<Place>,
        hides: [bool; 2],
        list: &mut PacketList,
    ) {
        let len = (self.headers[i].msg_len as usize).min(AREA_BYTES);
        let mut address = self.addresses[i];
        address.clear_flow_label();
        let Some(from) = place(&address) else { return };
        // SAFETY: the kernel has filled this message, and nothing has changed it since.
        let mut said = unsafe { Said::read(&self.headers[i].msg_hdr) };
        said.kinds.hide(hides);
        let is_like = |ip: &IpAddr| ip.is_ipv4() == from.address.is_ipv4();
        let local = local.map(|local| local.address);
        let ip = said.to.or(local.map(|local| local.ip())).filter(is_like);
        let ip = ip.unwrap_or_else(|| unspecified(from.address.is_ipv4()));
        let to = SocketAddr::new(ip, local.map_or(0, |local| local.port()));
        let tos = said.tos[usize::from(from.address.is_ipv6())].unwrap_or(0);
        let datagram = Datagram::new(to).from(from.address).tos(tos);
        let interface = if from.interface > 0 { from.interface } else { said.interface };
        let arrived = Arrived::new(socket, said.kinds, said.ttl, interface);
        let (head, area) = (datagram.header_len(), i * AREA_BYTES);
        let segment = said.segment.filter(|&segment| segment > 0).unwrap_or(len).min(len);
        let mut at = 0;
        loop {
            let n = segment.min(len - at);
            // Only a device that has ended gives none.
            let Ok(mut packet) = self.sender.alloc(head + n).or_else(|_| {
                let _verdict = self.sender.xmit_batch(list);
                self.sender.wait_buffer(head + n, None)
            }) else {
                return;
            };
            packet.set_link(Link::Ip);
            let bytes = packet.data_mut();
            bytes[head..].copy_from_slice(&self.data[area + at..area + at + n]);
            let written = datagram.write(bytes);
            debug_assert!(written.is_some(), "the system has received a datagram that IP can carry");
            packet.set_cookie(arrived.cookie());
            list.push_back(packet);
            at += n;
            if at >= len {
                return;
            }
        }
    }
}

impl Said {
    /// Reads the control messages of a message.
    ///
    /// # Safety
    /// The kernel has filled the message.
    unsafe fn read(message: &libc::msghdr) -> Self {
        let mut said = Self::default();
        // SAFETY: the control messages are the kernel's, within the space that the message names.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(message);
            while let Some(header) = at.as_ref() {
                let head = libc::CMSG_LEN(0) as usize;
                #[allow(clippy::unnecessary_cast, reason = "musl has another type")]
                let len = (header.cmsg_len as usize).saturating_sub(head);
                let data = std::slice::from_raw_parts(libc::CMSG_DATA(at), len);
                said.take(header.cmsg_level, header.cmsg_type, data);
                at = libc::CMSG_NXTHDR(message, at);
            }
        }
        said
    }

    /// Takes one control message; one that is unknown is lost.
    fn take(&mut self, level: c_int, kind: c_int, data: &[u8]) -> Option<()> {
        const UDP_GRO: c_int = 104;
        let int = || data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info: &[u8; 12] = data.try_into().ok()?;
                self.interface = u32::from_ne_bytes(*info.first_chunk()?);
                self.to = Some(Ipv4Addr::from(*info.last_chunk::<4>()?).into());
                self.kinds |= Kinds::PKTINFO_V4;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let to = Ipv6Addr::from(*data.first_chunk::<16>()?);
                self.interface = u32::from_ne_bytes(data.get(16..)?.try_into().ok()?);
                self.to = Some(to.to_canonical());
                self.kinds |= Kinds::PKTINFO_V6;
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.tos[0] = data.first().copied();
                self.kinds |= Kinds::TOS;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.tos[1] = Some(int()? as u8);
                self.kinds |= Kinds::TCLASS;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) => {
                self.ttl = int()? as u8;
                self.kinds |= Kinds::TTL;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.ttl = int()? as u8;
                self.kinds |= Kinds::HOPLIMIT;
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMP) => self.kinds |= Kinds::TIMESTAMP,
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => self.kinds |= Kinds::TIMESTAMPNS,
            (libc::SOL_UDP, UDP_GRO) => self.segment = Some(int()? as usize),
            _ => return None,
        }
        Some(())
    }
}
