//! A packet's header fields side by side in an array of bytes, which masks apply to.

use std::net::IpAddr;

use txq_core::flow::{Hosts, Link};

use crate::generic::filter::proto::is_vlan;

const KEY_BYTES: usize = 96;
/// Number of 64-bit words in a key.
pub(super) const KEY_WORDS: usize = KEY_BYTES / 8;

/// The place of a field in the key, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    at: usize,
    len: usize,
}

const fn field(at: usize, len: usize) -> Field {
    Field { at, len }
}

pub(super) const DST_MAC: Field = field(0, 6);
pub(super) const SRC_MAC: Field = field(6, 6);
/// The ethertype behind all VLAN tags.
pub(super) const ETH_TYPE: Field = field(12, 2);
pub(super) const IP_PROTO: Field = field(14, 1);
pub(super) const IP_TOS: Field = field(15, 1);
pub(super) const IP_TTL: Field = field(16, 1);
pub(super) const IP_FLAGS: Field = field(17, 1);
pub(super) const SRC_PORT: Field = field(18, 2);
pub(super) const DST_PORT: Field = field(20, 2);
pub(super) const TCP_FLAGS: Field = field(22, 2);
pub(super) const ICMP_TYPE: Field = field(24, 1);
pub(super) const ICMP_CODE: Field = field(25, 1);
pub(super) const VLAN_ID: Field = field(26, 2);
pub(super) const VLAN_PRIO: Field = field(28, 1);
pub(super) const CVLAN_PRIO: Field = field(29, 1);
/// The ethertype behind the outer tag.
pub(super) const VLAN_TYPE: Field = field(30, 2);
pub(super) const CVLAN_ID: Field = field(32, 2);
/// The ethertype behind the inner tag.
pub(super) const CVLAN_TYPE: Field = field(34, 2);
pub(super) const ARP_OP: Field = field(36, 1);
/// An IPv4 address takes the first four bytes.
pub(super) const DST_IP: Field = field(40, 16);
pub(super) const SRC_IP: Field = field(56, 16);
pub(super) const ARP_SIP: Field = field(72, 4);
pub(super) const ARP_TIP: Field = field(76, 4);
pub(super) const ARP_SHA: Field = field(80, 6);
pub(super) const ARP_THA: Field = field(86, 6);

/// Bits of [`IP_FLAGS`].
pub(super) const FRAG: u8 = 1;
pub(super) const FIRST_FRAG: u8 = 2;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const SCTP: u8 = 132;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMPV6: u8 = 58;

/// The fields of a packet, or the values or masks of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(super) bytes: [u8; KEY_BYTES],
}

impl Key {
    pub(super) const ZERO: Self = Self { bytes: [0; KEY_BYTES] };

    pub(super) fn set(&mut self, field: Field, value: &[u8]) {
        self.bytes[field.at..][..value.len().min(field.len)]
            .copy_from_slice(&value[..value.len().min(field.len)]);
    }

    pub(super) fn get(&self, field: Field) -> &[u8] {
        &self.bytes[field.at..][..field.len]
    }

    pub(super) fn byte(&self, field: Field) -> u8 {
        self.bytes[field.at]
    }

    pub(super) fn short(&self, field: Field) -> u16 {
        u16::from_be_bytes([self.bytes[field.at], self.bytes[field.at + 1]])
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[index * 8..][..8]);
        u64::from_ne_bytes(word)
    }

    /// Extracts the fields of a packet. A field whose header is missing or cut is 0.
    pub(crate) fn of(data: &[u8], link: Link) -> Self {
        let mut key = Self::ZERO;
        if data.len() < link.header_len() as usize {
            return key;
        }
        if link == Link::Ethernet {
            key.bytes[..12].copy_from_slice(&data[..12]);
            key.vlans(data);
        }
        let found = link.dissect(data);
        let network = usize::from(found.network_offset);
        key.set(ETH_TYPE, &found.ethertype.to_be_bytes());
        let ip = match found.keys.hosts {
            Hosts::Ipv4 { src, dst } => {
                key.set(SRC_IP, &src);
                key.set(DST_IP, &dst);
                let fragment = u16::from_be_bytes([data[network + 6], data[network + 7]]);
                if fragment & 0x3fff != 0 {
                    let first = if fragment & 0x1fff == 0 { FIRST_FRAG } else { 0 };
                    key.set(IP_FLAGS, &[FRAG | first]);
                }
                key.set(IP_TTL, &data[network + 8..][..1]);
                true
            }
            Hosts::Ipv6 { src, dst } => {
                key.set(SRC_IP, &src);
                key.set(DST_IP, &dst);
                const FRAGMENT: u8 = 44;
                if found.keys.ip_proto == FRAGMENT {
                    let first = if found.transport_offset != 0 { FIRST_FRAG } else { 0 };
                    key.set(IP_FLAGS, &[FRAG | first]);
                }
                key.set(IP_TTL, &data[network + 7..][..1]);
                true
            }
            Hosts::Mac { .. } | Hosts::Unknown => false,
        };
        if ip {
            key.set(IP_PROTO, &[found.ip_proto]);
            key.set(IP_TOS, &[found.tos]);
            if key.byte(IP_FLAGS) == 0 && found.transport_offset != 0 {
                key.transport(found.ip_proto, &data[found.transport_offset.into()..]);
            }
        } else if found.ethertype == 0x806 {
            key.arp(&data[network..]);
        }
        key
    }

    /// Sets the fields of up to two VLAN tags.
    fn vlans(&mut self, data: &[u8]) {
        let mut at = 12;
        for (id, prio, next) in [(VLAN_ID, VLAN_PRIO, VLAN_TYPE), (CVLAN_ID, CVLAN_PRIO, CVLAN_TYPE)] {
            let Some(&[high, low, tci_high, tci_low, next_high, next_low]) = data.get(at..at + 6) else {
                return;
            };
            if !is_vlan(u16::from_be_bytes([high, low])) {
                return;
            }
            self.set(id, &[tci_high & 0xf, tci_low]);
            self.set(prio, &[tci_high >> 5]);
            self.set(next, &[next_high, next_low]);
            at += 4;
        }
    }

    /// Sets ports, TCP flags, or ICMP type and code.
    fn transport(&mut self, proto: u8, header: &[u8]) {
        const WITH_PORTS: [u8; 5] = [TCP, UDP, SCTP, 33, 136];
        match (proto, header) {
            (ICMP | ICMPV6, [kind, code, ..]) => {
                self.set(ICMP_TYPE, &[*kind]);
                self.set(ICMP_CODE, &[*code]);
            }
            (proto, [_, _, _, _, ..]) if WITH_PORTS.contains(&proto) => {
                self.set(SRC_PORT, &header[..2]);
                self.set(DST_PORT, &header[2..4]);
                if let (TCP, Some(&[high, low])) = (proto, header.get(12..14)) {
                    self.set(TCP_FLAGS, &[high & 0xf, low]);
                }
            }
            _ => {}
        }
    }

    /// Sets the fields of an ARP request or reply for Ethernet and IPv4. Other ARP packets have none.
    fn arp(&mut self, arp: &[u8]) {
        let Some(arp) =
            arp.get(..28).filter(|arp| arp[..7] == [0, 1, 8, 0, 6, 4, 0] && [1, 2].contains(&arp[7]))
        else {
            return;
        };
        self.set(ARP_OP, &arp[7..8]);
        self.set(ARP_SHA, &arp[8..14]);
        self.set(ARP_SIP, &arp[14..18]);
        self.set(ARP_THA, &arp[18..24]);
        self.set(ARP_TIP, &arp[24..28]);
    }
}

/// A range of ports, from the first to the second inclusive; `None` for any port.
pub(super) type Range = Option<(u16, u16)>;

/// The packets that a rule matches: value, mask and port ranges.
#[derive(Debug, Clone)]
pub(super) struct Match {
    /// The value as the text gives it: bits outside the mask may be set.
    pub(super) value: Key,
    pub(super) mask: Key,
    pub(super) src_ports: Range,
    pub(super) dst_ports: Range,
}

impl Match {
    /// Returns the match for every packet.
    pub(super) fn everything() -> Self {
        Self { value: Key::ZERO, mask: Key::ZERO, src_ports: None, dst_ports: None }
    }

    /// Sets a field's value and mask.
    pub(super) fn put(&mut self, field: Field, value: &[u8], mask: &[u8]) {
        self.value.set(field, value);
        self.mask.set(field, mask);
    }

    /// Sets a field's value, to match exactly.
    pub(super) fn exact(&mut self, field: Field, value: &[u8]) {
        self.put(field, value, &[0xff; 16][..value.len().min(16)]);
    }

    /// Sets an address of which the first `bits` bits must match.
    pub(super) fn prefix(&mut self, field: Field, address: IpAddr, bits: u8) {
        let mut mask = [0; 16];
        for (at, byte) in mask.iter_mut().enumerate() {
            let of_this = usize::from(bits).saturating_sub(at * 8).min(8);
            *byte = !(0xff_u16 >> of_this) as u8;
        }
        match address {
            IpAddr::V4(address) => self.put(field, &address.octets(), &mask[..4]),
            IpAddr::V6(address) => self.put(field, &address.octets(), &mask),
        }
    }

    /// Whether the rule compares any bit of the field.
    pub(super) fn is_masked(&self, field: Field) -> bool {
        self.mask.get(field).iter().any(|&byte| byte != 0)
    }

    /// Whether both compare the same bits.
    pub(super) fn same_masks(&self, other: &Self) -> bool {
        self.mask == other.mask
            && self.src_ports.is_some() == other.src_ports.is_some()
            && self.dst_ports.is_some() == other.dst_ports.is_some()
    }
}
