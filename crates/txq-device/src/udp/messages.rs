//! The messages of one `sendmmsg`: packets of one destination and one length are joined to one message, which the kernel or
//! the card cuts (`UDP_SEGMENT`).

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::ptr;

use txq::Instant;
use txq::drop::DropReason;
use txq::packet::Packet;

use super::control::{Control, Writer};
use super::datagram::Datagram;
use super::socket::Address;
use crate::sys;

/// Maximum number of messages a call.
pub(super) const MAX_MESSAGES: usize = 64;
/// Maximum number of packets a call.
const MAX_CALL_PACKETS: usize = 256;
/// Maximum number of datagrams a message: what kernels since 4.18 accept (`UDP_MAX_SEGMENTS`; newer ones accept 128).
const MAX_SEGMENTS: usize = 64;
/// Longest message of several datagrams: an IP packet of 65,535 bytes, less the longer headers. The kernel builds one packet
/// and cuts it.
const MAX_UDP_MESSAGE_BYTES: usize = 65_535 - 48;

/// What the messages of a socket need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Whether the socket is of IPv6.
    pub(super) is_v6: bool,
    /// The connected peer: a message to it has no address.
    pub(super) peer: Option<SocketAddr>,
    /// The address that the socket is bound to, if it is a single one: a message from it needs no control message.
    pub(super) local: Option<IpAddr>,
    /// The type of service that the socket gives to messages without a control message, of IPv4 and IPv6.
    pub(super) tos: [u8; 2],
    /// The interface of link-local destinations.
    pub(super) scope: u32,
    /// Whether messages have departure times.
    pub(super) txtime: bool,
    /// Whether packets are joined.
    pub(super) joins: bool,
    /// The longest datagram, in bytes of payload, into which the kernel cuts messages; 0 if it cuts none.
    pub(super) longest_segment: usize,
}

impl Rules {
    fn tos(&self, is_v4: bool) -> u8 {
        self.tos[if is_v4 { 0 } else { 1 }]
    }
}

/// The result of [`Messages::fill`].
pub(super) enum Fill<'m> {
    /// Messages to send.
    Ready(Filled<'m>),
    /// The first packet has segments, which must go out one by one.
    Apart,
    /// The first packet cannot be sent.
    Bad(DropReason),
}

/// A message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Message {
    /// Its packets, each of which is one part.
    pub(super) packets: usize,
    /// Its datagrams.
    pub(super) datagrams: usize,
    /// The length of each but the last, which may be shorter.
    pub(super) segment: usize,
}

/// The arrays of messages, of which each call fills as many as it needs.
pub(super) struct Messages {
    headers: Box<[libc::mmsghdr]>,
    addresses: Box<[Address]>,
    controls: Box<[Control]>,
    parts: Box<[libc::iovec]>,
    messages: Box<[Message]>,
}

// SAFETY: the pointers in it are used only within `fill` and the borrow that it returns; pointers left from an earlier call
// are never read.
unsafe impl Send for Messages {}

/// The message that takes further packets.
struct Open {
    datagram: Datagram,
    departure: Instant,
    bytes: usize,
    /// The length of its control messages.
    control: usize,
    closed: bool,
}

impl Messages {
    pub(super) fn new() -> Self {
        // SAFETY: all zeros are a valid message without address, data and control data.
        let header = |_| unsafe { mem::zeroed() };
        let part = |_| libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            headers: (0..MAX_MESSAGES).map(header).collect(),
            addresses: vec![Address::empty(); MAX_MESSAGES].into(),
            controls: vec![Control::EMPTY; MAX_MESSAGES].into(),
            parts: (0..MAX_CALL_PACKETS).map(part).collect(),
            messages: vec![Message::default(); MAX_MESSAGES].into(),
        }
    }

    /// Fills messages with packets, from the first, until the arrays are full or a packet needs another call.
    pub(super) fn fill<'m, 'f: 'm>(
        &'m mut self,
        packets: impl Iterator<Item = &'f Packet>,
        rules: &Rules,
    ) -> Fill<'m> {
        let (mut filled, mut open, mut parts) = (0, None::<Open>, 0);
        // The headers of the packet before.
        let mut before = &[][..];
        for packet in packets.take(MAX_CALL_PACKETS) {
            let alike = open.as_ref().and_then(|_| alike(packet, before));
            // Nearly all packets of a sender that is fast: nothing but the payload is read, copied or compared.
            if let (Some(open), Some(payload)) = (&mut open, alike)
                && self.messages[filled].has_room(open, payload.len(), departure(packet, rules), rules)
            {
                before = packet.data();
                self.messages[filled].add(open, payload.len(), 1);
                self.parts[parts] = part(payload);
                parts += 1;
                continue;
            }
            let content = match Content::of(packet, rules) {
                Ok(content) => content,
                Err(fill) if parts == 0 => return fill,
                Err(_) => break,
            };
            before = packet.data();
            let joins = |open: &Open| self.messages[filled].takes(open, &content, rules);
            if !open.as_ref().is_some_and(joins) {
                if let Some(open) = open.take() {
                    self.close(filled, open);
                    filled += 1;
                }
                if filled == MAX_MESSAGES {
                    break;
                }
                self.messages[filled] = Message { packets: 0, datagrams: 0, segment: content.segment };
                open = Some(self.begin(filled, content.datagram, content.departure, rules));
            }
            let Some(open) = &mut open else { break };
            self.messages[filled].add(open, content.payload.len(), content.datagrams);
            self.parts[parts] = part(content.payload);
            parts += 1;
        }
        if let Some(open) = open {
            self.close(filled, open);
            filled += 1;
        }
        Fill::Ready(self.filled(filled))
    }

    /// Fills messages with datagrams of `size` bytes of `payload`, one message each.
    pub(super) fn fill_apart<'m, 'f: 'm>(
        &'m mut self,
        datagram: Datagram,
        departure: Instant,
        payload: &'f [u8],
        size: usize,
        rules: &Rules,
    ) -> Filled<'m> {
        let mut filled = 0;
        for chunk in payload.chunks(size.max(1)).take(MAX_MESSAGES) {
            self.messages[filled] = Message { packets: 1, datagrams: 1, segment: chunk.len() };
            let departure = if rules.txtime { departure } else { Instant::ZERO };
            let open = self.begin(filled, datagram, departure, rules);
            self.parts[filled] = part(chunk);
            self.close(filled, open);
            filled += 1;
        }
        self.filled(filled)
    }

    /// Points the first `n` messages at their parts: one a packet, in order.
    fn filled(&mut self, n: usize) -> Filled<'_> {
        let mut parts = self.parts.as_mut_ptr();
        for (header, message) in self.headers.iter_mut().zip(&self.messages).take(n) {
            (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (parts, message.packets as _);
            parts = parts.wrapping_add(message.packets);
        }
        Filled { headers: &mut self.headers[..n], messages: &self.messages[..n] }
    }

    /// Begins a message: writes its address and those control messages that all of its packets share.
    fn begin(&mut self, index: usize, datagram: Datagram, departure: Instant, rules: &Rules) -> Open {
        let (source, destination) = (datagram.source().ip(), datagram.destination());
        let header = &mut self.headers[index].msg_hdr;
        if rules.peer == Some(destination) {
            (header.msg_name, header.msg_namelen) = (ptr::null_mut(), 0);
        } else {
            let (address, len) = Address::new(destination, rules.is_v6, rules.scope);
            self.addresses[index] = address;
            header.msg_name = (&raw mut self.addresses[index]).cast();
            header.msg_namelen = len;
        }
        let mut control = Writer::new(&mut self.controls[index], 0);
        // A control message of IP costs a connected socket a route lookup, so it is left out where it changes nothing.
        if datagram.traffic_class() != rules.tos(destination.is_ipv4()) {
            control.tos(datagram.traffic_class(), destination.is_ipv4());
        }
        if !source.is_unspecified() && rules.local != Some(source) {
            control.source(source);
        }
        if departure > Instant::ZERO {
            control.departure(departure);
        }
        let control = control.used();
        Open { datagram, departure, bytes: 0, control, closed: false }
    }

    /// Ends a message: points it at its control messages.
    fn close(&mut self, index: usize, open: Open) {
        let mut control = Writer::new(&mut self.controls[index], open.control);
        let message = self.messages[index];
        if message.datagrams > 1 {
            control.segment(message.segment as u16);
        }
        let used = control.used();
        let header = &mut self.headers[index].msg_hdr;
        header.msg_control = if used == 0 { ptr::null_mut() } else { (&raw mut self.controls[index]).cast() };
        header.msg_controllen = used as _;
    }
}

/// What a packet adds to a message.
struct Content<'f> {
    datagram: Datagram,
    payload: &'f [u8],
    departure: Instant,
    datagrams: usize,
    /// The length of each datagram but the last.
    segment: usize,
}

impl<'f> Content<'f> {
    /// Returns the content of a packet, or what to do about a packet that no message can have.
    fn of(packet: &'f Packet, rules: &Rules) -> Result<Self, Fill<'static>> {
        let (size, segs) = packet.gso();
        let parse = if segs > 1 { Datagram::parse_segments } else { Datagram::parse };
        let (datagram, payload) = parse(packet.data()).map_err(Fill::Bad)?;
        if datagram.destination().is_ipv6() && !rules.is_v6 {
            return Err(Fill::Bad(DropReason::IpOutnoroutes));
        }
        let segment = if segs > 1 && size > 0 { usize::from(size) } else { payload.len() };
        let datagrams = payload.len().div_ceil(segment.max(1)).max(1);
        let fits = segment <= rules.longest_segment
            && datagrams <= MAX_SEGMENTS
            && payload.len() <= MAX_UDP_MESSAGE_BYTES;
        if datagrams > 1 && !fits {
            return Err(Fill::Apart);
        }
        Ok(Self { datagram, payload, departure: departure(packet, rules), datagrams, segment })
    }
}

/// Returns the payload of a packet that differs from the one `before` only in its payload; `None` for others.
fn alike<'f>(packet: &'f Packet, before: &[u8]) -> Option<&'f [u8]> {
    if packet.segs() > 1 { None } else { Datagram::parse_alike(packet.data(), before) }
}

impl Message {
    /// Returns whether a packet can be one more of this open message.
    fn takes(&self, open: &Open, content: &Content<'_>, rules: &Rules) -> bool {
        content.datagrams == 1
            && self.has_room(open, content.payload.len(), content.departure, rules)
            && open.datagram == content.datagram
    }

    /// Returns whether a datagram of this payload and departure can be one more of this open message if its headers are alike.
    fn has_room(&self, open: &Open, len: usize, departure: Instant, rules: &Rules) -> bool {
        rules.joins
            && !open.closed
            && self.segment <= rules.longest_segment
            && (1..=self.segment).contains(&len)
            && self.datagrams < MAX_SEGMENTS
            && open.bytes + len <= MAX_UDP_MESSAGE_BYTES
            && open.departure == departure
    }

    /// Adds a packet of `datagrams` with `len` bytes of payload, which the message takes.
    fn add(&mut self, open: &mut Open, len: usize, datagrams: usize) {
        self.packets += 1;
        self.datagrams += datagrams;
        open.bytes += len;
        open.closed = datagrams > 1 || len < self.segment;
    }
}

fn departure(packet: &Packet, rules: &Rules) -> Instant {
    if rules.txtime { packet.departure() } else { Instant::ZERO }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Messages to send. Their pointers are valid while this value lives.
pub(super) struct Filled<'m> {
    headers: &'m mut [libc::mmsghdr],
    messages: &'m [Message],
}

impl Filled<'_> {
    /// Sends the messages without waiting; returns those that the kernel took, counted from the first. An error concerns the
    /// first message.
    pub(super) fn send(&mut self, fd: impl AsFd) -> io::Result<&[Message]> {
        // SAFETY: `fill` has pointed each message at packets, and at addresses, parts and control messages of `Messages`,
        // all of which this value borrows. The kernel only reads them.
        let sent = unsafe { sys::send_messages(fd, self.headers) }?;
        Ok(&self.messages[..sent])
    }

    /// Returns the first message.
    pub(super) fn first(&self) -> Message {
        self.messages[0]
    }
}

#[cfg(test)]
mod tests;
