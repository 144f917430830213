//! The lines of a trace.

use serde::{Deserialize, Serialize};
use txq::flow::{Hosts, Link};
use txq::trace::Event;

/// A device that is traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TracedDevice {
    /// Its name.
    pub name: String,
    /// Whether its packets begin with an Ethernet header, and not with an IP header.
    pub ethernet: bool,
}

impl TracedDevice {
    pub(super) fn of(info: &txq::driver::DeviceInfo) -> Self {
        Self { name: info.name.clone(), ethernet: info.link == Link::Ethernet }
    }
}

/// A step of a packet of a running program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TraceEvent {
    /// When it happened, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The device.
    pub dev: String,
    /// The txq; `None` for a packet that was dropped before it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txq: Option<u16>,
    /// The handle of the queue's qdisc, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// The place of that qdisc: `root`, or a class of mq.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The event, by the kernel's name.
    pub event: String,
    /// The packet's buffer: the same in all events of one packet.
    pub packet: String,
    /// The packet's length, in bytes.
    pub len: u32,
    /// The packet's priority.
    pub priority: u32,
    /// The protocol: `tcp`, `udp`, a number of an IP protocol, or an ethertype as `0x0806`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// The source: an IP address, or a MAC address of other packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<String>,
    /// The destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<String>,
    /// The source port, if the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// The destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// How long the packet was in the qdisc, in nanoseconds, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sojourn_ns: Option<u64>,
    /// Why the packet was dropped, by the kernel's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The packet's first bytes in hexadecimal, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

impl TraceEvent {
    /// Converts an event; `epoch` is the time since 1970 at which the device's clock was 0.
    pub(super) fn of(event: &Event, dev: &str, epoch: u64, data: bool) -> Self {
        let found = event.dissect();
        let (src, dst) = match found.keys.hosts {
            Hosts::Ipv4 { src, dst } => (Some(ip(src)), Some(ip(dst))),
            Hosts::Ipv6 { src, dst } => (Some(ip(src)), Some(ip(dst))),
            Hosts::Mac { src, dst } => (Some(mac(src)), Some(mac(dst))),
            Hosts::Unknown => (None, None),
        };
        let proto = match (found.keys.hosts, found.ip_proto) {
            (Hosts::Unknown, _) => None,
            (Hosts::Mac { .. }, _) => Some(format!("{:#06x}", found.ethertype)),
            (_, proto) => Some(ip_proto(proto)),
        };
        let ports = Some((found.keys.src_port, found.keys.dst_port))
            .filter(|&ports| ports != (0, 0) && matches!(found.keys.ip_proto, 6 | 17 | 33 | 132 | 136));
        Self {
            time_ns: epoch.saturating_add(event.time.as_nanos()),
            dev: dev.to_owned(),
            txq: event.txq,
            handle: event.queue.map(|(handle, _)| handle.to_string()),
            parent: event.queue.map(|(_, parent)| parent.to_string()),
            event: event.kind.name().to_owned(),
            packet: format!("{:#x}", event.packet),
            len: event.len,
            priority: event.priority,
            proto,
            src,
            dst,
            sport: ports.map(|ports| ports.0),
            dport: ports.map(|ports| ports.1),
            sojourn_ns: event.sojourn.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            reason: event.reason.map(|reason| reason.name().to_owned()),
            data: data.then(|| hex(event.data())),
        }
    }

    /// Returns the packet's first bytes; none if they were not asked for.
    pub fn bytes(&self) -> Vec<u8> {
        let digits = self.data.as_deref().unwrap_or_default().as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
        digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }
}

fn ip(address: impl Into<std::net::IpAddr>) -> String {
    address.into().to_string()
}

fn mac(address: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = address;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Returns the name of an IP protocol, as tcpdump's expressions have it, or its number.
fn ip_proto(proto: u8) -> String {
    let name = match proto {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        58 => "icmp6",
        132 => "sctp",
        _ => return proto.to_string(),
    };
    name.to_owned()
}

/// The first line of a trace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) tracing: Vec<TracedDevice>,
}

/// A line of a trace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) event: TraceEvent,
}

/// The result in the answer that ends a trace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// The events that were sent.
    pub(crate) events: u64,
    /// The events that were lost.
    pub(crate) lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_their_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        let event = TraceEvent { data: Some(hex(&bytes)), ..TraceEvent::default() };
        assert_eq!(event.bytes(), bytes);
        assert!(TraceEvent::default().bytes().is_empty());
    }
}
