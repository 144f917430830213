//! Parsing of flower's options.

use super::key::*;
use super::mask::{mac, prefix};
use super::{Rule, WORDS};
use crate::generic::action::Actions;
use crate::generic::filter::header::{classid, unknown_word};
use crate::generic::filter::{ALL, proto};
use crate::tc::{ParseError, Words, c_number, full, radix_number};

const IP: u16 = 0x800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x806;

const USAGE: &str = "Usage: ... flower [ MATCH-LIST ] [ skip_hw ] [ classid CLASSID ]
MATCH := { dst_mac|src_mac LLADDR[/MASK] | vlan_id VID | vlan_prio PRIORITY | vlan_ethtype ETH-TYPE |
           cvlan_id VID | cvlan_prio PRIORITY | cvlan_ethtype ETH-TYPE |
           ip_proto tcp|udp|sctp|icmp|icmpv6|IP-PROTO | ip_tos|ip_ttl NUMBER[/MASK] |
           src_ip|dst_ip PREFIX | src_port|dst_port PORT[/MASK]|MIN-MAX | tcp_flags FLAGS[/MASK] |
           type|code NUMBER[/MASK] | ip_flags IP-FLAGS | arp_sip|arp_tip PREFIX | arp_op request|reply |
           arp_sha|arp_tha LLADDR[/MASK] }";

/// The options that may be abbreviated, in tc's order.
const SHORT: [&str; 31] = [
    "classid",
    "flowid",
    "ip_flags",
    "verbose",
    "skip_hw",
    "skip_sw",
    "indev",
    "vlan_id",
    "vlan_prio",
    "vlan_ethtype",
    "cvlan_id",
    "cvlan_prio",
    "cvlan_ethtype",
    "dst_mac",
    "src_mac",
    "ip_proto",
    "ip_tos",
    "ip_ttl",
    "dst_ip",
    "src_ip",
    "dst_port",
    "src_port",
    "tcp_flags",
    "type",
    "code",
    "arp_tip",
    "arp_sip",
    "arp_op",
    "arp_tha",
    "arp_sha",
    "action",
];

fn illegal(name: &str, remedy: impl Into<String>) -> ParseError {
    ParseError::new(format!("Illegal \"{name}\"")).with_remedy(remedy)
}

/// The ethertypes that the text has given so far.
struct Types {
    outer: u16,
    vlan: Option<u16>,
    cvlan: Option<u16>,
}

impl Types {
    /// Returns the innermost ethertype given.
    fn inner(&self) -> u16 {
        self.cvlan.or(self.vlan).unwrap_or(self.outer)
    }

    fn is_ip(&self) -> bool {
        matches!(self.inner(), IP | IPV6)
    }
}

pub(in crate::generic::filter) fn parse(
    handle: Option<&str>,
    protocol: u16,
    words: &mut Words<'_>,
) -> Result<Rule, ParseError> {
    let number =
        |word: &str| c_number(word).ok_or_else(|| illegal("handle", format!("\"{word}\" is no number")));
    let handle = handle.map_or(Ok(0), number)?;
    let (what, actions) = (Match::everything(), Actions::default());
    let mut rule = Rule { handle, what, classid: None, skip_hw: false, actions };
    let mut types = Types { outer: protocol, vlan: None, cvlan: None };
    let mut ip_proto = None;
    while let Some(word) = words.next_word() {
        let what = &mut rule.what;
        let word = full(word, &SHORT);
        match word {
            "classid" | "flowid" => rule.classid = Some(classid(words, USAGE)?),
            "skip_hw" => rule.skip_hw = true,
            "action" => rule.actions.parse(words)?,
            "verbose" => {}
            "vlan_id" | "vlan_prio" | "vlan_ethtype" | "cvlan_id" | "cvlan_prio" | "cvlan_ethtype" => {
                vlan(word, words.value(word)?, &mut types, what)?;
            }
            "dst_mac" | "src_mac" | "arp_sha" | "arp_tha" => {
                let value = words.value(word)?;
                let field = match word {
                    "dst_mac" => DST_MAC,
                    "src_mac" => SRC_MAC,
                    _ if types.inner() != ARP => return Err(illegal(word, "it wants protocol arp")),
                    "arp_sha" => ARP_SHA,
                    _ => ARP_THA,
                };
                let (address, mask) = mac(value)?;
                what.put(field, &address, &mask);
            }
            "ip_proto" => {
                let proto = ip_protocol(words.value(word)?, &types)?;
                what.exact(IP_PROTO, &[proto]);
                ip_proto = Some(proto);
            }
            "ip_tos" | "ip_ttl" => {
                let (value, mask) = byte_of_ip(word, words.value(word)?, &types)?;
                what.put(if word == "ip_tos" { IP_TOS } else { IP_TTL }, &[value], &[mask]);
            }
            "ip_flags" => ip_flags(words.value(word)?, what)?,
            "src_ip" | "dst_ip" | "arp_sip" | "arp_tip" => {
                let value = words.value(word)?;
                let (field, right) = match word {
                    "src_ip" => (SRC_IP, types.is_ip()),
                    "dst_ip" => (DST_IP, types.is_ip()),
                    "arp_sip" => (ARP_SIP, types.inner() == ARP),
                    _ => (ARP_TIP, types.inner() == ARP),
                };
                if !right {
                    let wants = if word.starts_with("arp") { "arp" } else { "ip or ipv6" };
                    return Err(illegal(word, format!("it wants protocol {wants} before it")));
                }
                let v6 = types.inner() == IPV6;
                let (address, bits) = prefix(value, v6).ok_or_else(|| {
                    let error =
                        ParseError::new(format!("Error: inet prefix is expected rather than \"{value}\"."));
                    error.with_remedy(format!("use {}", if v6 { "2001:db8::/32" } else { "192.0.2.0/24" }))
                })?;
                what.prefix(field, address, bits);
            }
            "src_port" | "dst_port" => {
                if !matches!(ip_proto, Some(TCP | UDP | SCTP)) {
                    return Err(illegal(word, "it wants ip_proto tcp, udp or sctp before it"));
                }
                port(word, words.value(word)?, what)?;
            }
            "tcp_flags" => {
                let value = words.value(word)?;
                let (flags, mask) =
                    masked(value, 16, 16, 0xfff).filter(|&(flags, _)| flags <= 0xfff).ok_or_else(|| {
                        illegal(word, format!("\"{value}\" is no hexadecimal FLAGS or FLAGS/MASK up to fff"))
                    })?;
                // tc accepts them for other protocols, too, where they have no effect.
                if ip_proto == Some(TCP) {
                    what.put(TCP_FLAGS, &(flags as u16).to_be_bytes(), &(mask as u16).to_be_bytes());
                }
            }
            "type" | "code" => {
                let value = words.value(word)?;
                let found = match ip_proto {
                    Some(ICMP | ICMPV6) => masked(value, 10, 10, 0xff),
                    _ => None,
                };
                let (number, mask) = found.filter(|&(number, _)| number <= 0xff).ok_or_else(|| {
                    let remedy =
                        format!("it wants ip_proto icmp or icmpv6 before it, and 0 to 255: got \"{value}\"");
                    illegal(&format!("icmp {word}"), remedy)
                })?;
                what.put(if word == "type" { ICMP_TYPE } else { ICMP_CODE }, &[number as u8], &[mask as u8]);
            }
            "arp_op" => {
                let op = match words.value(word)? {
                    _ if types.inner() != ARP => return Err(illegal(word, "it wants protocol arp")),
                    "request" | "1" => 1,
                    "reply" | "2" => 2,
                    other => return Err(illegal(word, format!("use request or reply, not \"{other}\""))),
                };
                what.exact(ARP_OP, &[op]);
            }
            _ => return Err(unknown_word(word, &WORDS, USAGE)),
        }
    }
    let (inner, what) = (types.inner(), &mut rule.what);
    if inner != ALL && !proto::is_vlan(inner) {
        what.exact(ETH_TYPE, &inner.to_be_bytes());
    }
    Ok(rule)
}

fn vlan(name: &str, word: &str, types: &mut Types, what: &mut Match) -> Result<(), ParseError> {
    let inner = name.starts_with('c');
    if !inner && !proto::is_vlan(types.outer) {
        let error =
            format!("Can't set \"{name}\" if ethertype isn't 802.1Q or 802.1AD and num_of_vlans is 0");
        return Err(ParseError::new(error).with_remedy("it wants protocol 802.1Q or 802.1ad"));
    }
    if inner && !types.vlan.is_some_and(proto::is_vlan) {
        let error = format!(
            "Can't set \"{name}\" if inner vlan ethertype isn't 802.1Q or 802.1AD \
             and num_of_vlans is less than 2"
        );
        return Err(ParseError::new(error).with_remedy("it wants vlan_ethtype 802.1Q before it"));
    }
    let number = |most: u32| c_number(word).filter(|&number| number <= most);
    let wrong = |range: &str| illegal(name, format!("use {range}, not \"{word}\""));
    match name.trim_start_matches('c') {
        "vlan_id" => {
            let id = number(0xfff).ok_or_else(|| wrong("0 to 4095"))? as u16;
            what.put(if inner { CVLAN_ID } else { VLAN_ID }, &id.to_be_bytes(), &[0xf, 0xff]);
        }
        "vlan_prio" => {
            let prio = number(7).ok_or_else(|| wrong("0 to 7"))? as u8;
            what.exact(if inner { CVLAN_PRIO } else { VLAN_PRIO }, &[prio]);
        }
        _ => {
            let wrong = || {
                ParseError::argument(word, &format!("invalid {name}"), "use ip, ipv6 or a number as 0x800")
            };
            let next = proto::parse(word).ok_or_else(wrong)?;
            what.exact(if inner { CVLAN_TYPE } else { VLAN_TYPE }, &next.to_be_bytes());
            *(if inner { &mut types.cvlan } else { &mut types.vlan }) = Some(next);
        }
    }
    Ok(())
}

fn ip_protocol(word: &str, types: &Types) -> Result<u8, ParseError> {
    let proto = match full(word, &["tcp", "udp", "sctp", "icmp", "icmpv6"]) {
        "tcp" => TCP,
        "udp" => UDP,
        "sctp" => SCTP,
        "icmp" => ICMP,
        "icmpv6" => ICMPV6,
        _ => {
            let hex = word.strip_prefix("0x").unwrap_or(word);
            let number = radix_number(hex, 16).and_then(|number| u8::try_from(number).ok());
            let names =
                format!("\"{word}\" is none of tcp, udp, sctp, icmp, icmpv6 and no hexadecimal number");
            match number.filter(|_| types.is_ip()) {
                Some(number) => return Ok(number),
                None if types.is_ip() => return Err(illegal("ip_proto", names)),
                None => 0,
            }
        }
    };
    let right = match proto {
        ICMP => types.inner() == IP,
        ICMPV6 => types.inner() == IPV6,
        _ => types.is_ip(),
    };
    if !right {
        let error = ParseError::new("Illegal \"eth_type\" for ip proto");
        return Err(error.with_remedy("it wants protocol ip or ipv6"));
    }
    Ok(proto)
}

/// Parses a number and an optional mask after a slash, each in its radix; radix 0 means as C reads numbers. Without a mask,
/// the mask is `all`.
fn masked(word: &str, radix: u32, mask_radix: u32, all: u32) -> Option<(u32, u32)> {
    let number = |word: &str, radix| match radix {
        0 => c_number(word),
        16 => radix_number(word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word), 16),
        _ => radix_number(word, radix),
    };
    match word.split_once('/') {
        None => Some((number(word, radix)?, all)),
        Some((value, mask)) => {
            Some((number(value, radix)?, number(mask, mask_radix).filter(|&mask| mask <= all)?))
        }
    }
}

fn byte_of_ip(name: &str, word: &str, types: &Types) -> Result<(u8, u8), ParseError> {
    let found = masked(word, 0, 16, 0xff).filter(|&(value, _)| types.is_ip() && value <= 0xff);
    let (value, mask) = found.ok_or_else(|| {
        illegal(
            name,
            format!("it wants protocol ip or ipv6, and 0 to 255, alone or with /MASK: got \"{word}\""),
        )
    })?;
    Ok((value as u8, mask as u8))
}

fn ip_flags(word: &str, what: &mut Match) -> Result<(), ParseError> {
    let (mut value, mut mask) = (0, 0);
    for flag in word.split('/') {
        let (name, on) = flag.strip_prefix("no").map_or((flag, true), |name| (name, false));
        let bit = match name {
            "frag" => FRAG,
            "firstfrag" => FIRST_FRAG,
            _ => {
                return Err(illegal("ip_flags", format!("\"{flag}\" is none of [no]frag and [no]firstfrag")));
            }
        };
        mask |= bit;
        value |= if on { bit } else { 0 };
    }
    what.put(IP_FLAGS, &[value], &[mask]);
    Ok(())
}

fn port(name: &str, word: &str, what: &mut Match) -> Result<(), ParseError> {
    let (field, range) = match name {
        "src_port" => (SRC_PORT, &mut what.src_ports),
        _ => (DST_PORT, &mut what.dst_ports),
    };
    let wrong = || illegal(name, format!("use 1 to 65535, PORT/MASK or MIN-MAX, not \"{word}\""));
    let number = |word: &str| {
        radix_number(word, 10).and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0)
    };
    if let Some((first, last)) = word.split_once('-') {
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        if first >= last {
            let error = ParseError::new("max value should be greater than min value");
            return Err(error.with_remedy(format!("{name} got \"{word}\"")));
        }
        *range = Some((first, last));
    } else if word.contains('/') {
        let (port, mask) =
            masked(word, 0, 0, 0xffff).filter(|&(port, _)| port <= 0xffff).ok_or_else(wrong)?;
        what.put(field, &(port as u16).to_be_bytes(), &(mask as u16).to_be_bytes());
    } else {
        what.exact(field, &number(word).ok_or_else(wrong)?.to_be_bytes());
    }
    Ok(())
}
