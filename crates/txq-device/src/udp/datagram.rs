//! The headers of a datagram: an IP header and a UDP header, in front of the payload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::{
    IpDscp, IpEcn, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6FlowLabel, Ipv6Header, Ipv6HeaderSlice,
    UdpHeader, UdpHeaderSlice, ip_number,
};
use txq::drop::DropReason;
use txq::packet::Packet;
use txq::pool::AllocError;
use txq::{Sender, driver::Link};

/// Length of an IPv4 header without options and a UDP header.
const HEADERS_V4: usize = Ipv4Header::MIN_LEN + UdpHeader::LEN;
/// Length of an IPv6 header and a UDP header.
const HEADERS_V6: usize = Ipv6Header::LEN + UdpHeader::LEN;
/// Hops that a new header allows, as Linux's default.
const TTL: u8 = 64;

/// The addresses and the type of service of a datagram: the fields of its headers that the [device](super) uses.
///
/// ```
/// use std::net::SocketAddr;
/// use txq_device::udp::Datagram;
///
/// let to: SocketAddr = "192.0.2.1:4433".parse()?;
/// let datagram = Datagram::new(to).tos(0x02); // ECT(0)
/// let mut bytes = vec![0; datagram.header_len() + 5];
/// bytes[28..].copy_from_slice(b"hello");
/// datagram.write(&mut bytes).expect("shorter than 65,536 bytes");
/// assert_eq!(Datagram::parse(&bytes), Ok((datagram, &b"hello"[..])));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    tos: u8,
}

impl Datagram {
    /// Returns the headers of a datagram to `to`, from the unspecified address, with a type of service of 0. An IPv4 address
    /// that is mapped to IPv6 counts as the IPv4 address.
    pub fn new(to: SocketAddr) -> Self {
        let to = canonical(to);
        Self { from: SocketAddr::new(unspecified(to), 0), to, tos: 0 }
    }

    /// Sets the source. If it is of another family than the destination, only its port is used.
    #[must_use]
    pub fn from(self, from: SocketAddr) -> Self {
        let from = canonical(from);
        let ip = if from.is_ipv4() == self.to.is_ipv4() { from.ip() } else { unspecified(self.to) };
        Self { from: SocketAddr::new(ip, from.port()), ..self }
    }

    /// Sets the TOS byte of IPv4 or the traffic class of IPv6: DSCP << 2 | ECN.
    #[must_use]
    pub fn tos(self, tos: u8) -> Self {
        Self { tos, ..self }
    }

    /// Returns the source; its address is unspecified if the system chooses it.
    pub fn source(&self) -> SocketAddr {
        self.from
    }

    /// Returns the destination.
    pub fn destination(&self) -> SocketAddr {
        self.to
    }

    /// Returns the TOS byte or traffic class.
    pub fn traffic_class(&self) -> u8 {
        self.tos
    }

    /// Returns the length of the headers: 28 bytes for IPv4, 48 for IPv6.
    pub fn header_len(&self) -> usize {
        if self.to.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 }
    }

    /// Puts the headers in front of `packet`, which holds the payload. Returns `None` and leaves the packet as it was if its
    /// headroom is smaller than the headers, or the datagram longer than an IP packet can be (65,535 bytes).
    pub fn push(&self, packet: &mut Packet) -> Option<()> {
        self.lengths(packet.data().len() + self.header_len())?;
        packet.push(self.header_len())?;
        packet.set_link(Link::Ip);
        self.write(packet.data_mut())
    }

    /// Writes the headers to the first bytes of `bytes`, which hold room for them and the payload. Returns `None` if `bytes`
    /// are shorter than the headers or longer than an IP packet can be. The UDP checksum of IPv4 is 0, which means none; that
    /// of IPv6 covers the payload. The device does not need it: the system computes the checksums of the datagrams that it
    /// sends.
    pub fn write(&self, bytes: &mut [u8]) -> Option<()> {
        let (whole, udp_len) = self.lengths(bytes.len())?;
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let headers = bytes.first_chunk_mut()?;
                *headers = self.headers_v4(from, to, whole, udp_len);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (headers, payload) = bytes.split_first_chunk_mut::<HEADERS_V6>()?;
                let (ip, udp) = self.headers_v6(from, to, udp_len, payload)?;
                headers[..Ipv6Header::LEN].copy_from_slice(&ip.to_bytes());
                headers[Ipv6Header::LEN..].copy_from_slice(&udp.to_bytes());
            }
            _ => unreachable!("both addresses are of one family"),
        }
        Some(())
    }

    /// Returns the headers of IPv4, without options (RFC 791, RFC 768). Built at once: a fast sender needs one for each packet.
    fn headers_v4(&self, from: Ipv4Addr, to: Ipv4Addr, whole: u16, udp_len: u16) -> [u8; HEADERS_V4] {
        const DONT_FRAGMENT: u16 = 0x4000;
        let (from, to) = (from.to_bits(), to.to_bits());
        let ttl_and_proto = u16::from_be_bytes([TTL, ip_number::UDP.0]);
        let mut words = [
            u16::from_be_bytes([0x45, self.tos]),
            whole,
            0,
            DONT_FRAGMENT,
            ttl_and_proto,
            0,
            (from >> 16) as u16,
            from as u16,
            (to >> 16) as u16,
            to as u16,
            self.from.port(),
            self.to.port(),
            udp_len,
            0,
        ];
        let sum: u32 = words[..10].iter().map(|&word| u32::from(word)).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        words[5] = !((folded & 0xffff) + (folded >> 16)) as u16;
        let mut bytes = [0; HEADERS_V4];
        for (to, word) in bytes.chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Returns the headers of IPv6, with the checksum of `payload`.
    fn headers_v6(
        &self,
        from: Ipv6Addr,
        to: Ipv6Addr,
        udp_len: u16,
        payload: &[u8],
    ) -> Option<(Ipv6Header, UdpHeader)> {
        let mut ip = Ipv6Header {
            traffic_class: 0,
            flow_label: Ipv6FlowLabel::ZERO,
            payload_length: udp_len,
            next_header: ip_number::UDP,
            hop_limit: TTL,
            source: from.octets(),
            destination: to.octets(),
        };
        ip.set_dscp(IpDscp::try_new(self.tos >> 2).ok()?);
        ip.set_ecn(IpEcn::try_new(self.tos & 3).ok()?);
        let mut udp = UdpHeader {
            source_port: self.from.port(),
            destination_port: self.to.port(),
            length: udp_len,
            checksum: 0,
        };
        udp.checksum = udp.calc_checksum_ipv6(&ip, payload).ok()?;
        Some((ip, udp))
    }

    /// Returns the total length of the IP packet, as far as its header has a field for it, and the length of its UDP part.
    fn lengths(&self, len: usize) -> Option<(u16, u16)> {
        let udp = len.checked_sub(self.header_len())? + UdpHeader::LEN;
        let whole = if self.to.is_ipv4() { u16::try_from(len).ok()? } else { 0 };
        Some((whole, u16::try_from(udp).ok()?))
    }

    /// Reads the headers in front of a datagram. Returns them and the payload. Bytes behind the end that the UDP header states
    /// are not part of it.
    ///
    /// # Errors
    /// [`DropReason::HdrTrunc`] if a header is cut or wrong, or the payload shorter than the UDP header states;
    /// [`DropReason::UnhandledProto`] if the packet is not UDP, is a fragment, or has IPv6 extension headers.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let (datagram, rest, udp) = Self::headers(packet)?;
        let len = usize::from(udp.length()).checked_sub(UdpHeader::LEN).ok_or(DropReason::HdrTrunc)?;
        Ok((datagram, rest.get(..len).ok_or(DropReason::HdrTrunc)?))
    }

    /// As [`parse`](Datagram::parse), for a packet with segments: the payload is all that follows the headers, whatever their
    /// lengths.
    pub(super) fn parse_segments(packet: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        Self::headers(packet).map(|(datagram, payload, _)| (datagram, payload))
    }

    /// Returns the payload of `packet` if its headers are those of `parsed`, apart from lengths and checksums; `None` if they
    /// differ, or only [`parse`](Datagram::parse) can say. Much faster than that.
    pub(super) fn parse_alike<'p>(packet: &'p [u8], parsed: &[u8]) -> Option<&'p [u8]> {
        // Version, type of service, flags, protocol, addresses and ports.
        let (is_alike, head) = match packet.first()? {
            0x45 => {
                let (a, b) = (packet.first_chunk::<HEADERS_V4>()?, parsed.first_chunk::<HEADERS_V4>()?);
                (a[..2] == b[..2] && a[6..8] == b[6..8] && a[9] == b[9] && a[12..24] == b[12..24], HEADERS_V4)
            }
            0x60..0x70 => {
                let (a, b) = (packet.first_chunk::<HEADERS_V6>()?, parsed.first_chunk::<HEADERS_V6>()?);
                (a[..4] == b[..4] && a[6] == b[6] && a[8..44] == b[8..44], HEADERS_V6)
            }
            _ => return None,
        };
        let len = u16::from_be_bytes([packet[head - 4], packet[head - 3]]);
        let len = usize::from(len).checked_sub(UdpHeader::LEN).filter(|_| is_alike)?;
        packet[head..].get(..len)
    }

    fn headers(packet: &[u8]) -> Result<(Self, &[u8], UdpHeaderSlice<'_>), DropReason> {
        let truncated = |_| DropReason::HdrTrunc;
        let (from, to, tos, proto, len): (IpAddr, IpAddr, u8, IpNumber, usize) =
            match packet.first().map(|first| first >> 4) {
                Some(4) => {
                    let ip = Ipv4HeaderSlice::from_slice(packet).map_err(|_| DropReason::HdrTrunc)?;
                    if ip.is_fragmenting_payload() {
                        return Err(DropReason::UnhandledProto);
                    }
                    let (from, to) = (ip.source_addr().into(), ip.destination_addr().into());
                    (from, to, ip.slice()[1], ip.protocol(), ip.slice().len())
                }
                Some(6) => {
                    let ip = Ipv6HeaderSlice::from_slice(packet).map_err(|_| DropReason::HdrTrunc)?;
                    let (from, to) = (ip.source_addr().into(), ip.destination_addr().into());
                    (from, to, ip.traffic_class(), ip.next_header(), Ipv6Header::LEN)
                }
                Some(_) => return Err(DropReason::UnhandledProto),
                None => return Err(DropReason::HdrTrunc),
            };
        if proto != ip_number::UDP {
            return Err(DropReason::UnhandledProto);
        }
        let udp = UdpHeaderSlice::from_slice(&packet[len..]).map_err(truncated)?;
        let (from, to) =
            (SocketAddr::new(from, udp.source_port()), SocketAddr::new(to, udp.destination_port()));
        Ok((Self { from, to, tos }, &packet[len + UdpHeader::LEN..], udp))
    }
}

/// Returns a packet with `payload` and the headers for `to`, from a buffer of `sender`: a packet for a [`Udp`](super::Udp)
/// device, or another device whose packets begin with IP. [`Datagram::push`] is for a payload that is in a packet already, and for a
/// source or a type of service.
///
/// # Errors
/// As [`Sender::alloc`]; also [`AllocError::TooLong`] if the datagram is longer than an IP packet can be.
pub fn packet(sender: &mut Sender, to: SocketAddr, payload: &[u8]) -> Result<Packet, AllocError> {
    let datagram = Datagram::new(to);
    let head = datagram.header_len();
    let mut packet = sender.alloc(head + payload.len())?;
    packet.set_link(Link::Ip);
    let bytes = packet.data_mut();
    bytes[head..].copy_from_slice(payload);
    match datagram.write(bytes) {
        Some(()) => Ok(packet),
        None => Err(AllocError::TooLong { pool: "IP".into(), len: head + payload.len(), room: 65_535 }),
    }
}

/// Returns the IPv4 address in an IPv6 address, if it is one; else the address without scope and flow label.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn unspecified(like: SocketAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests;
