//! A recording as a pcapng file, which Wireshark and tcpdump read.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use etherparse::{IpDscp, IpEcn, IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder, ip_number};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

use super::{Event, Recording, What};
use crate::packet::Direction;

/// The addresses of packets that have none.
const LEFT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 1);
const RIGHT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 2);

impl Recording {
    /// Writes the recording as a pcapng file. The packets of a direction are on four interfaces: `up` as they are sent, `up arrived`
    /// and `up lost`, with a comment on each lost packet that has the qdisc, the reason and the time in the link. They are UDP
    /// datagrams over IP, with their TOS.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_pcapng(&self, to: impl Write) -> io::Result<()> {
        let mut writer = PcapNgWriter::new(to).map_err(io::Error::other)?;
        for direction in Direction::BOTH {
            for suffix in ["", " arrived", " lost"] {
                let name = format!("{}{suffix}", direction.name());
                let options = vec![
                    InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                    InterfaceDescriptionOption::IfDescription(Cow::Borrowed(&self.link)),
                    InterfaceDescriptionOption::IfTsResol(9),
                ];
                let block = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
                writer.write_pcapng_block(block).map_err(io::Error::other)?;
            }
        }
        for (number, event) in self.events.iter().enumerate() {
            let data = frame(self.addresses[number], event, self.bytes(number));
            let kind = match event.what {
                What::Sent => 0,
                What::Arrived { .. } => 1,
                What::Lost { .. } => 2,
            };
            let block = EnhancedPacketBlock {
                interface_id: event.direction as u32 * 3 + kind,
                timestamp: Duration::from_nanos(event.at.as_nanos()),
                original_len: data.len() as u32,
                data: Cow::Owned(data),
                options: comment(event)
                    .map(|text| EnhancedPacketOption::Comment(text.into()))
                    .into_iter()
                    .collect(),
            };
            writer.write_pcapng_block(block).map_err(io::Error::other)?;
        }
        writer.into_inner().flush()
    }
}

/// Returns what a reader should know of an event.
fn comment(event: &Event) -> Option<String> {
    let ms = (event.at - event.sent).as_secs_f64() * 1e3;
    match event.what {
        What::Lost { stage, reason } => {
            Some(format!("dropped by qdisc {stage} of {} after {ms:.3} ms: {reason}", event.direction.name()))
        }
        What::Arrived { damaged: true } => Some(format!("damaged, after {ms:.3} ms")),
        What::Arrived { damaged: false } => Some(format!("after {ms:.3} ms")),
        What::Sent => None,
    }
}

/// Returns the bytes as a UDP datagram over IP.
fn frame(addresses: Option<(SocketAddr, SocketAddr)>, event: &Event, bytes: &[u8]) -> Vec<u8> {
    let (from, to) = addresses.unwrap_or(match event.direction {
        Direction::Up => (LEFT, RIGHT),
        Direction::Down => (RIGHT, LEFT),
    });
    let len = bytes.len().saturating_add(8).min(u16::MAX.into()) as u16;
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => IpHeaders::Ipv4(
            Ipv4Header {
                dscp: IpDscp::try_new(event.tos >> 2).unwrap_or_default(),
                ecn: IpEcn::try_new(event.tos & 3).unwrap_or_default(),
                time_to_live: 64,
                protocol: ip_number::UDP,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv4Header::default()
            },
            Default::default(),
        ),
        (source, destination) => IpHeaders::Ipv6(
            Ipv6Header {
                traffic_class: event.tos,
                payload_length: len,
                next_header: ip_number::UDP,
                hop_limit: 64,
                source: v6(source),
                destination: v6(destination),
                ..Ipv6Header::default()
            },
            Default::default(),
        ),
    };
    let mut frame = Vec::with_capacity(bytes.len() + 48);
    // A datagram has at most 65,507 bytes; of a longer packet the recording has as many.
    let bytes = &bytes[..bytes.len().min(65_507)];
    PacketBuilder::ip(ip)
        .udp(from.port(), to.port())
        .write(&mut frame, bytes)
        .expect("a Vec takes all bytes");
    frame
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
