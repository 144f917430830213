//! Checks between the frames of a file and the frames that arrived, without any code of the library.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use std::collections::HashMap;
use std::net::IpAddr;

/// The flow of a frame, by its addresses and ports. Direction matters, so a connection is two flows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Flow {
    Ip { source: IpAddr, destination: IpAddr, protocol: u8, ports: Option<(u16, u16)> },
    Other { addresses: Vec<u8> },
}

impl Flow {
    pub(crate) fn of(frame: &[u8]) -> Self {
        let sliced = SlicedPacket::from_ethernet(frame).ok();
        let ports = sliced.as_ref().and_then(|sliced| match sliced.transport.as_ref()? {
            TransportSlice::Tcp(tcp) => Some((tcp.source_port(), tcp.destination_port())),
            TransportSlice::Udp(udp) => Some((udp.source_port(), udp.destination_port())),
            _ => None,
        });
        let (source, destination, protocol) = match sliced.as_ref().and_then(|sliced| sliced.net.as_ref()) {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), header.protocol().0)
            }
            Some(NetSlice::Ipv6(ip)) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), header.next_header().0)
            }
            _ => return Self::Other { addresses: frame[..frame.len().min(14)].to_vec() },
        };
        Self::Ip { source, destination, protocol, ports }
    }
}

/// Checks that every frame arrived as often as it was sent, byte for byte, and that no other frame did.
pub(crate) fn same_frames(sent: &[Vec<u8>], arrived: &[Vec<u8>]) -> Result<(), String> {
    let missing = surplus(sent, arrived);
    let unexpected = surplus(arrived, sent);
    if missing.is_empty() && unexpected.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {} frames are missing (first: {:?}), {} are unexpected (first: {:?})",
        missing.len(),
        sent.len(),
        missing.first().map(|frame| Flow::of(frame)),
        unexpected.len(),
        unexpected.first().map(|frame| Flow::of(frame)),
    ))
}

/// Checks that all arrived frames were sent, and that no frame overtook an earlier one of its flow. Frames may be missing.
pub(crate) fn in_order(sent: &[Vec<u8>], arrived: &[Vec<u8>]) -> Result<(), String> {
    let (sent, arrived) = (by_flow(sent), by_flow(arrived));
    for (flow, arrived) in arrived {
        let mut ahead = sent.get(&flow).into_iter().flatten();
        for (position, frame) in arrived.iter().enumerate() {
            if !ahead.any(|sent| sent == frame) {
                return Err(format!(
                    "frame {position} of {flow:?} is not among the frames after its predecessor"
                ));
            }
        }
    }
    Ok(())
}

pub(crate) fn flows(frames: &[Vec<u8>]) -> usize {
    by_flow(frames).len()
}

/// Returns the frames that `some` holds more often than `others`.
fn surplus<'a>(some: &'a [Vec<u8>], others: &[Vec<u8>]) -> Vec<&'a [u8]> {
    let mut left: HashMap<&[u8], usize> = HashMap::new();
    for frame in others {
        *left.entry(frame).or_default() += 1;
    }
    some.iter()
        .map(Vec::as_slice)
        .filter(|frame| match left.get_mut(frame) {
            Some(count @ 1..) => {
                *count -= 1;
                false
            }
            _ => true,
        })
        .collect()
}

fn by_flow(frames: &[Vec<u8>]) -> HashMap<Flow, Vec<&[u8]>> {
    let mut flows: HashMap<Flow, Vec<&[u8]>> = HashMap::new();
    for frame in frames {
        flows.entry(Flow::of(frame)).or_default().push(frame);
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// Returns four frames each of a TCP flow, its reverse and a UDP flow, and one that is no IP, all different.
    fn frames() -> Vec<Vec<u8>> {
        let mut frames = vec![[[0xff; 6], [2; 6]].concat()];
        frames[0].extend([0x88, 0xb5, 1, 2, 3]);
        let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for number in 0..4 {
            for (source, destination, ports) in [(here, there, (1000, 80)), (there, here, (80, 1000))] {
                let packet = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64);
                let packet = packet.tcp(ports.0, ports.1, number, 512);
                frames.push(Vec::new());
                packet.write(frames.last_mut().expect("just pushed"), &[7; 40]).expect("fits");
            }
            let packet = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(here, there, 64).udp(1000, 53);
            frames.push(Vec::new());
            packet.write(frames.last_mut().expect("just pushed"), &number.to_be_bytes()).expect("fits");
        }
        frames
    }

    #[test]
    fn flows_have_a_direction_and_ports() {
        assert_eq!(flows(&frames()), 4);
    }

    #[test]
    fn equal_frames_pass() {
        same_frames(&frames(), &frames()).expect("the same");
        in_order(&frames(), &frames()).expect("in order");
    }

    #[test]
    fn flows_may_mix_in_any_way() {
        let mut arrived = frames();
        arrived.sort_by_key(|frame| format!("{:?}", Flow::of(frame)));
        assert_ne!(arrived, frames());
        same_frames(&frames(), &arrived).expect("the same");
        in_order(&frames(), &arrived).expect("in order");
    }

    #[test]
    fn a_lost_frame_is_found() {
        let mut arrived = frames();
        arrived.remove(5);
        let error = same_frames(&frames(), &arrived).expect_err("one is missing");
        assert!(error.starts_with("1 of 13 frames are missing"), "{error}");
        in_order(&frames(), &arrived).expect("a loss is not a change of order");
    }

    #[test]
    fn a_frame_too_many_is_found() {
        let mut arrived = frames();
        arrived.push(arrived[12].clone());
        let error = same_frames(&frames(), &arrived).expect_err("one is too many");
        assert!(error.contains("1 are unexpected"), "{error}");
        in_order(&frames(), &arrived).expect_err("the second one was not sent");
    }

    #[test]
    fn an_altered_byte_is_found() {
        let last = frames()[7].len() - 1;
        for byte in [0, 30, last] {
            let mut arrived = frames();
            arrived[7][byte] ^= 1;
            same_frames(&frames(), &arrived).expect_err("altered");
        }
    }

    #[test]
    fn a_frame_that_overtook_its_flow_is_found() {
        let mut arrived = frames();
        arrived.swap(1, 4);
        same_frames(&frames(), &arrived).expect("nothing is lost");
        in_order(&frames(), &arrived).expect_err("4 is of the same flow as 1");
        arrived.swap(1, 4);
        arrived.swap(1, 2);
        in_order(&frames(), &arrived).expect("2 is of another flow than 1");
    }
}
