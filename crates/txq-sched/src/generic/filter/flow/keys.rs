//! The keys of flow: fields of a packet as numbers.

use txq_core::arch::Arch;
use txq_core::flow::{Hosts, public_hash};

use crate::generic::filter::flower::mask_prefix;
use crate::generic::filter::frame::Frame;
use crate::tc::{ParseError, c_number};

/// A field of a packet, in the order in which tc prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Src,
    Dst,
    Proto,
    ProtoSrc,
    ProtoDst,
    Priority,
    Mark,
    NfctSrc,
    NfctDst,
    NfctProtoSrc,
    NfctProtoDst,
    VlanTag,
    RxHash,
}

const NAMES: [(Key, &str); 13] = [
    (Key::Src, "src"),
    (Key::Dst, "dst"),
    (Key::Proto, "proto"),
    (Key::ProtoSrc, "proto-src"),
    (Key::ProtoDst, "proto-dst"),
    (Key::Priority, "priority"),
    (Key::Mark, "mark"),
    (Key::NfctSrc, "nfct-src"),
    (Key::NfctDst, "nfct-dst"),
    (Key::NfctProtoSrc, "nfct-proto-src"),
    (Key::NfctProtoDst, "nfct-proto-dst"),
    (Key::VlanTag, "vlan-tag"),
    (Key::RxHash, "rxhash"),
];

/// All keys, in tc's order: any beginning of a key means the first one that has it.
const SHORT: [&str; 18] = [
    "src",
    "dst",
    "proto",
    "proto-src",
    "proto-dst",
    "iif",
    "priority",
    "mark",
    "nfct",
    "nfct-src",
    "nfct-dst",
    "nfct-proto-src",
    "nfct-proto-dst",
    "rt-classid",
    "sk-uid",
    "sk-gid",
    "vlan-tag",
    "rxhash",
];

/// Keys of Linux that no packet here has.
const ABSENT: [&str; 5] = ["iif", "nfct", "rt-classid", "sk-uid", "sk-gid"];

impl Key {
    /// Parses `src,dst,proto`; returns each key once, in the order of printing.
    pub(super) fn list(text: &str) -> Result<Vec<Self>, ParseError> {
        // As in tc, the first key that begins like the name is meant.
        let short = |name: &str| SHORT.into_iter().find(|known| !name.is_empty() && known.starts_with(name));
        let parse = |word: &str| match short(word) {
            Some(name) if ABSENT.contains(&name) => {
                let error = ParseError::new("RTNETLINK answers: Operation not supported");
                Err(error.with_remedy(format!(
                    "{name} belongs to the kernel's sockets, routes and interfaces: use src, dst, mark or priority"
                )))
            }
            name => {
                NAMES.iter().find(|(_, known)| Some(*known) == name).map(|(key, _)| *key).ok_or_else(|| {
                    let names: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
                    let error = ParseError::new(format!("Unknown flow key \"{word}\""));
                    error.with_remedy(format!("keys are {}", names.join(", ")))
                })
            }
        };
        let mut keys = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(key, _)| *key == self).map_or("", |(_, name)| name)
    }

    /// Whether its values are addresses.
    fn is_address(self) -> bool {
        matches!(self, Self::Src | Self::Dst | Self::NfctSrc | Self::NfctDst)
    }

    /// Returns the packet's value; 0 if it has none.
    pub(super) fn value<A: Arch>(self, frame: &Frame<'_, A>) -> u32 {
        let keys = || frame.packet.dissect().keys;
        match self {
            Self::Src | Self::NfctSrc => match keys().hosts {
                Hosts::Ipv4 { src, .. } => u32::from_be_bytes(src),
                Hosts::Ipv6 { src, .. } => folded(src),
                _ => 0,
            },
            Self::Dst | Self::NfctDst => match keys().hosts {
                Hosts::Ipv4 { dst, .. } => u32::from_be_bytes(dst),
                Hosts::Ipv6 { dst, .. } => folded(dst),
                _ => 0,
            },
            Self::Proto => keys().ip_proto.into(),
            Self::ProtoSrc | Self::NfctProtoSrc => keys().src_port.into(),
            Self::ProtoDst | Self::NfctProtoDst => keys().dst_port.into(),
            Self::Priority => frame.packet.priority(),
            Self::Mark => frame.mark(),
            Self::VlanTag => (frame.vlan_tag().unwrap_or(0) & 0xfff).into(),
            Self::RxHash => match frame.packet.hash() {
                0 => public_hash(&keys()),
                hash => hash,
            },
        }
    }
}

/// Returns the exclusive or of an IPv6 address's words.
fn folded(address: [u8; 16]) -> u32 {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
    address.chunks_exact(4).map(word).fold(0, |all, word| all ^ word)
}

/// Parses the number after `addend`. It may be negative, and for addresses an address.
pub(super) fn addend(word: &str, keys: &[Key]) -> Result<u32, ParseError> {
    let (negative, digits) = word.strip_prefix('-').map_or((false, word), |digits| (true, digits));
    let number = match (c_number(digits), keys.iter().any(|key| key.is_address())) {
        (Some(number), _) => number,
        (None, false) => {
            let error = ParseError::new("Illegal \"addend\"");
            return Err(error.with_remedy(format!("\"{word}\" is no number")));
        }
        (None, true) => match mask_prefix(digits, false) {
            Some((std::net::IpAddr::V4(address), 32)) => address.into(),
            _ => {
                let message = format!("Error: any valid address is expected rather than \"{digits}\".");
                return Err(ParseError::new(message).with_remedy("use a number, or an address as 192.0.2.1"));
            }
        },
    };
    Ok(if negative { number.wrapping_neg() } else { number })
}
