//! Messages to the kernel: interfaces, addresses and routes (rtnetlink), and rules of nftables.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
/// NLM_F_EXCL and NLM_F_CREATE.
pub(super) const NEW: u16 = 0x600;
/// The type of an answer with an error number, 0 for an acknowledgement.
const ERROR: u16 = 2;
const NESTED: u16 = 0x8000;

const NEWLINK: u16 = 16;
const NEWADDR: u16 = 20;
const NEWROUTE: u16 = 24;

/// A socket to the kernel.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    pub(super) fn route() -> io::Result<Self> {
        Self::open(None)
    }

    pub(super) fn netfilter() -> io::Result<Self> {
        Self::open(Some(netlink::NETFILTER))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        Ok(Self(socket))
    }

    /// Sends messages, `acks` of which ask for an answer; returns the first error.
    pub(super) fn send(&self, messages: &[u8], acks: usize) -> io::Result<()> {
        send(&self.0, messages, SendFlags::empty())?;
        let (mut seen, mut buffer) = (0, [0; 8192]);
        while seen < acks {
            let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..length.min(buffer.len())];
            while let Some(size) = rest.first_chunk().map(|size| u32::from_ne_bytes(*size) as usize) {
                let Some(message) = rest.get(..size.max(20)) else { break };
                if u16::from_ne_bytes([message[4], message[5]]) == ERROR {
                    let number = i32::from_ne_bytes([message[16], message[17], message[18], message[19]]);
                    if number != 0 {
                        return Err(io::Error::from_raw_os_error(-number));
                    }
                    seen += 1;
                }
                rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Brings an interface up.
    pub(super) fn bring_up(&self, index: u32) -> io::Result<()> {
        // struct ifinfomsg with IFF_UP, and the mask of what changes.
        let words = [0, index, 1, 1].map(u32::to_ne_bytes);
        self.send(&message(NEWLINK, ACK, words.as_flattened(), |_| ()), 1)
    }

    /// Gives an interface an address.
    pub(super) fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        // struct ifaddrmsg; IFA_F_NODAD: nobody else is on the link.
        let mut header = vec![family(address), prefix, 0x02, 0];
        header.extend(index.to_ne_bytes());
        let attributes = |out: &mut Vec<u8>| {
            // IFA_LOCAL and IFA_ADDRESS.
            attribute(out, 2, &octets(address));
            attribute(out, 1, &octets(address));
        };
        self.send(&message(NEWADDR, ACK | NEW, &header, attributes), 1)
    }

    /// Adds the default route by way of a gateway.
    pub(super) fn add_default_route(&self, index: u32, gateway: IpAddr) -> io::Result<()> {
        // struct rtmsg: RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNICAST.
        let header = [family(gateway), 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        let attributes = |out: &mut Vec<u8>| {
            // RTA_GATEWAY and RTA_OIF.
            attribute(out, 5, &octets(gateway));
            attribute(out, 4, &index.to_ne_bytes());
        };
        self.send(&message(NEWROUTE, ACK | NEW, &header, attributes), 1)
    }
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    family.as_raw() as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns a message: struct nlmsghdr, the header of its kind, and attributes.
pub(super) fn message(
    kind: u16,
    flags: u16,
    header: &[u8],
    attributes: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(kind.to_ne_bytes());
    out.extend((flags | REQUEST).to_ne_bytes());
    out.extend([0; 8]);
    out.extend(header);
    attributes(&mut out);
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_ne_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Appends an attribute: struct nlattr, and its value.
pub(super) fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((4 + value.len() as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends an attribute that consists of attributes.
pub(super) fn nested(out: &mut Vec<u8>, kind: u16, attributes: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    attributes(&mut inner);
    attribute(out, kind | NESTED, &inner);
}

/// Returns the flag of a message that asks for an answer.
pub(super) const fn ack() -> u16 {
    ACK
}
