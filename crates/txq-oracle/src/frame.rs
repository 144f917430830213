//! The packets of a script: IPv4 and UDP with a unique number each, or TCP segments without data, whose number is their IP
//! identification.
//!
//! txq's frames are Ethernet frames, and the kernel's serial line has no link header. So that both count the same bytes, the
//! kernel's packet has as many bytes behind the IP packet as Ethernet has in front of it, like a short frame's padding. With
//! `pad=0` it has none, and both count the bytes of IP.

use crate::script::Burst;

/// Bytes of the Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of the IPv4 header.
pub(crate) const NETWORK: usize = 20;
/// Bytes of a TCP segment without data.
pub(crate) const TCP_HEADERS: usize = NETWORK + 20;
/// Bytes of the headers in front of the number.
const HEADERS: usize = NETWORK + 8;
/// First port of flows.
const PORTS: u16 = 1000;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// Returns a packet's number: its flow, and its count within the script.
pub(crate) fn cookie(flow: u32, count: u32) -> u64 {
    u64::from(flow) << 32 | u64::from(count)
}

/// Returns the flow of a packet's number.
pub(crate) fn flow(cookie: u64) -> u64 {
    cookie >> 32
}

/// Builds a packet from its IP header on: the script's packet `count`, with `before` others in front of it in its burst. Its
/// flow is its source port, and its source address if no host is named.
pub(crate) fn build(burst: &Burst, before: u32, count: u32) -> Vec<u8> {
    let (flow, len) = (burst.flow as u16, burst.len - burst.pad);
    let mut bytes = vec![0; burst.len];
    bytes[0] = 0x45;
    bytes[1] = burst.tos;
    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    bytes[4..6].copy_from_slice(&(count as u16).to_be_bytes());
    bytes[8] = 64;
    let host = burst.host.map_or(flow.to_be_bytes(), |host| [1, host]);
    bytes[12..16].copy_from_slice(&[10, 0, host[0], host[1]]);
    bytes[16..20].copy_from_slice(&[10, 1, 0, burst.to]);
    bytes[20..22].copy_from_slice(&(PORTS + flow).to_be_bytes());
    bytes[22..24].copy_from_slice(&burst.port.to_be_bytes());
    if let Some(ack) = burst.ack {
        bytes[9] = TCP;
        bytes[28..32].copy_from_slice(&(ack + before).to_be_bytes());
        // The header's length, and ACK.
        bytes[32..34].copy_from_slice(&[5 << 4, 0x10]);
    } else {
        bytes[9] = UDP;
        bytes[24..26].copy_from_slice(&((len - NETWORK) as u16).to_be_bytes());
        bytes[HEADERS..HEADERS + 8].copy_from_slice(&cookie(burst.flow, count).to_be_bytes());
    }
    let sum: u32 = bytes[..NETWORK].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Builds the same packet as an Ethernet frame.
pub(crate) fn ethernet(burst: &Burst, before: u32, count: u32) -> Vec<u8> {
    let packet = build(burst, before, count);
    let mut frame = vec![0; ETHERNET];
    frame[12..].copy_from_slice(&(libc::ETH_P_IP as u16).to_be_bytes());
    frame.extend_from_slice(&packet[..burst.len - burst.pad]);
    frame
}

/// Returns the number of a packet that [`build`] made.
pub(crate) fn read(bytes: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    if *bytes.get(9)? == TCP {
        return Some(cookie(word(20)?.checked_sub(PORTS)?.into(), word(4)?.into()));
    }
    let number = bytes.get(HEADERS..HEADERS + 8)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// Returns whether a packet is marked as having met congestion.
pub(crate) fn ce(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|tos| tos & 3 == 3)
}
