//! What the driver of an interface offers to AF_XDP sockets: a query of generic netlink's family "netdev", of Linux 6.8.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// The driver computes checksums of frames sent in zero-copy mode (`NETDEV_XSK_FLAGS_TX_CHECKSUM`).
pub(crate) const TX_CHECKSUM: u64 = 1 << 1;
/// The driver keeps such frames until their time (`NETDEV_XSK_FLAGS_TX_LAUNCH_TIME_FIFO`).
pub(crate) const TX_LAUNCH_TIME: u64 = 1 << 2;

/// Message types: an error, and the family that knows the others.
const ERROR: u16 = 2;
const CONTROLLER: u16 = 16;
const REQUEST: u16 = 1;
/// `CTRL_CMD_GETFAMILY`, with the family's name and its number.
const GET_FAMILY: u8 = 3;
const FAMILY_NAME: u16 = 2;
const FAMILY_ID: u16 = 1;
/// `NETDEV_CMD_DEV_GET`, with the interface's number and the features for AF_XDP.
const GET_DEVICE: u8 = 1;
const IFINDEX: u16 = 1;
const XSK_FEATURES: u16 = 6;
/// Lengths of a message's header, of that of generic netlink, and of an attribute's.
const NLMSG_HEADER: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;

/// Returns the features that the driver of an interface offers to AF_XDP sockets, in the calling thread's network namespace:
/// [`TX_CHECKSUM`], [`TX_LAUNCH_TIME`]. 0 if the kernel does not know.
///
/// # Errors
/// When the kernel has no such query, or no such interface.
pub(crate) fn xsk_features(ifindex: u32) -> io::Result<u64> {
    let fd =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
    let family = ask(&fd, CONTROLLER, GET_FAMILY, (FAMILY_NAME, b"netdev\0"), FAMILY_ID)?;
    let family = number(&family).ok_or(io::ErrorKind::Unsupported)?;
    let features = ask(&fd, family as u16, GET_DEVICE, (IFINDEX, &ifindex.to_ne_bytes()), XSK_FEATURES)?;
    Ok(number(&features).unwrap_or(0))
}

/// Sends a command with one attribute; returns the content of attribute `kind` of the answer, which is empty without it.
fn ask(fd: &OwnedFd, family: u16, command: u8, attribute: (u16, &[u8]), kind: u16) -> io::Result<Vec<u8>> {
    send(fd, &request(family, command, attribute), SendFlags::empty())?;
    let mut answer = vec![0; 8192];
    let (len, _) = recv(fd, &mut answer[..], RecvFlags::empty())?;
    let answer = &answer[..len.min(8192)];
    let cut = || io::Error::from(io::ErrorKind::InvalidData);
    if number(answer.get(4..6).ok_or_else(cut)?) == Some(ERROR.into()) {
        let errno = answer
            .get(NLMSG_HEADER..NLMSG_HEADER + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(cut)?;
        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(errno)));
    }
    Ok(find(answer.get(NLMSG_HEADER + GENERIC..).ok_or_else(cut)?, kind).unwrap_or_default().to_vec())
}

/// Returns a message: a command with one attribute.
fn request(family: u16, command: u8, (kind, content): (u16, &[u8])) -> Vec<u8> {
    let len = NLMSG_HEADER + GENERIC + (ATTRIBUTE + content.len()).next_multiple_of(4);
    let mut message = (len as u32).to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Number of the message, and of the socket.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(((ATTRIBUTE + content.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(content);
    message.resize(len, 0);
    message
}

/// Returns the content of the first attribute of a kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (head, _) = attributes.split_at_checked(ATTRIBUTE)?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        // The two upper bits are flags.
        let is = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        let content = attributes.get(ATTRIBUTE..len)?;
        if is == kind {
            return Some(content);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

/// Returns a number of 2, 4 or 8 bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => bytes.try_into().ok().map(u64::from_ne_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_cut_ones_are_not() {
        let message = request(20, 1, (5, &[1, 2, 3, 4, 5]));
        assert_eq!(message.len(), 16 + 4 + 12);
        let mut attributes = message[20..].to_vec();
        attributes.extend([12, 0, 6, 0x80, 7, 0, 0, 0, 0, 0, 0, 0]);
        if cfg!(target_endian = "little") {
            assert_eq!(find(&attributes, 5), Some(&[1, 2, 3, 4, 5][..]));
            assert_eq!(find(&attributes, 6).and_then(number), Some(7));
        }
        assert_eq!(find(&attributes, 7), None);
        for len in 0..attributes.len() {
            assert_eq!(find(&attributes[..len], 6), None);
        }
        // A length that leads nowhere ends the search.
        assert_eq!(find(&[0, 0, 1, 0, 0, 0, 2, 0], 2), None);
    }

    #[cfg(not(miri))]
    #[test]
    fn the_loopback_interface_offers_nothing() {
        match xsk_features(1) {
            Ok(features) => assert_eq!(features & (TX_CHECKSUM | TX_LAUNCH_TIME), 0),
            // Linux before 6.8.
            Err(error) => {
                assert!(matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)), "{error}")
            }
        }
        assert!(xsk_features(u32::MAX - 1).is_err());
    }
}
