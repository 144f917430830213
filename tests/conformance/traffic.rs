//! The packets that the cases send, and what is found at the other end.

use std::collections::BTreeMap;

use txq::driver::Link;
use txq::packet::PacketList;
use txq::{NetDev, Sender};

use crate::support::home::assert_home;
use crate::wire::LONG;

/// IPv4 and UDP.
pub(crate) const HEADERS: usize = 28;
/// A payload begins with the sender's number and the packet's.
const MARK: usize = 5;

/// Returns a UDP packet of a sender, from its first header on, with `payload` bytes of payload.
pub(crate) fn packet(link: Link, sender: u8, number: u32, payload: usize) -> Vec<u8> {
    let mut packet = match link {
        Link::Ethernet => [&[0xff; 6][..], &[2, 0, 0, 0, 0, sender], &[8, 0]].concat(),
        _ => Vec::new(),
    };
    let at = packet.len();
    let payload = payload.max(MARK);
    let total = (HEADERS + payload) as u16;
    packet.extend([0x45, 0]);
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    let words = packet[at..at + 20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    packet[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x40, sender]);
    packet.extend(PORT.to_be_bytes());
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(content(sender, number, payload));
    packet
}

/// Where packets go: a UDP device sends them there, and nobody captures elsewhere.
pub(crate) const PORT: u16 = 4789;

/// Returns the payload of a datagram as a packet that begins with IP.
pub(crate) fn wrap(payload: &[u8]) -> Vec<u8> {
    let mut whole = packet(Link::Ip, 0, 0, payload.len());
    whole.truncate(HEADERS);
    whole.extend(payload);
    whole
}

fn content(sender: u8, number: u32, payload: usize) -> Vec<u8> {
    let mut content = vec![sender];
    content.extend(number.to_be_bytes());
    content.extend((MARK..payload).map(|at| (at as u32 * 7 + number) as u8));
    content
}

/// Returns the length of the payload of packet number `number`: all lengths come up.
pub(crate) fn length(number: u32) -> usize {
    MARK + (number as usize * 37) % 1400
}

/// Sends packets of a sender in batches, each retried until there is a buffer.
pub(crate) fn send(sender: &mut Sender, link: Link, id: u8, numbers: std::ops::Range<u32>, batch: usize) {
    let mut list = PacketList::new();
    for number in numbers {
        let bytes = packet(link, id, number, length(number));
        loop {
            match sender.packet(&bytes) {
                Ok(packet) => break list.push_back(packet),
                Err(_) => {
                    let _ = sender.xmit_batch(&mut list);
                    std::thread::yield_now();
                }
            }
        }
        if list.len() >= batch {
            let _ = sender.xmit_batch(&mut list);
        }
    }
    let _ = sender.xmit_batch(&mut list);
}

/// Returns the numbers of each sender's packets in the order of their arrival. All else that a kernel sends by itself is
/// left out; a packet of ours that has another content fails the test.
#[track_caller]
pub(crate) fn numbers(link: Link, arrived: &[Vec<u8>]) -> BTreeMap<u8, Vec<u32>> {
    let mut numbers = BTreeMap::<u8, Vec<u32>>::new();
    for packet in arrived {
        if let Some(payload) = payload(link, packet) {
            let (sender, number) =
                (payload[0], u32::from_be_bytes(payload[1..MARK].try_into().expect("four bytes")));
            assert_eq!(payload, content(sender, number, payload.len()), "packet {number} of sender {sender}");
            numbers.entry(sender).or_default().push(number);
        }
    }
    numbers
}

/// Returns the payload of a packet of ours.
fn payload(link: Link, packet: &[u8]) -> Option<&[u8]> {
    let found = link.dissect(packet);
    let transport = usize::from(found.transport_offset);
    let header = packet.get(transport..transport + 8).filter(|_| transport > 0)?;
    let ours = found.ip_proto == 17 && header[2..4] == PORT.to_be_bytes();
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    packet.get(transport + 8..transport + len).filter(|payload| ours && payload.len() >= MARK)
}

/// Waits until the device has no packet left, and checks that its counters add up and that all buffers are home.
#[track_caller]
pub(crate) fn settle(dev: &NetDev) -> txq::stats::device::DeviceStats {
    assert!(dev.drain(LONG), "packets do not leave: {:?}", dev.stats());
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!((stats.queued, stats.in_flight), (0, 0), "{stats:?}");
    assert_home(dev);
    stats
}
