//! flower's rules as `tc filter show` prints them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::json::{Map, Value, json};

use super::key::*;
use super::mask::{bits, mac_text};
use super::{Field, Rule};
use crate::generic::filter::proto;
use crate::tc::{Handle, Options, Style};

/// The fields of a rule: lines of text, and the object `keys` of the JSON.
struct Keys<'a> {
    what: &'a Match,
    text: String,
    json: Map<String, Value>,
}

pub(super) fn rule(rule: &Rule, style: Style) -> Options {
    let mut options = Options::new(style);
    options.put("handle", rule.handle, format_args!("handle {:#x}", rule.handle));
    if let Some(class) = rule.classid.filter(|&class| class != Handle::UNSPEC) {
        options.put("classid", class.to_string(), format_args!("classid {class}"));
    }
    options.end_blank();
    let mut keys = Keys { what: &rule.what, text: String::new(), json: Map::new() };
    keys.all();
    options.json_only("keys", keys.json);
    if style.input {
        options.text_only(input(&keys.text));
        if rule.skip_hw {
            options.flag("skip_hw");
        }
        return options;
    }
    if !keys.text.is_empty() {
        options.text_only(keys.text);
    }
    if rule.skip_hw {
        options.put("skip_hw", true, "\n  skip_hw");
    }
    options.put("not_in_hw", true, "\n  not_in_hw");
    options
}

/// Returns the words of keys as a command has them.
fn input(text: &str) -> String {
    let key = |line: &str| {
        let (name, value) = line.trim().split_once(' ')?;
        Some(match name {
            // The protocol of the filter says so.
            "eth_type" => return None,
            "icmp_type" => format!("type {value}"),
            "icmp_code" => format!("code {value}"),
            // The mask is hexadecimal.
            "tcp_flags" => format!("tcp_flags {}", value.replacen('/', "/0x", 1)),
            name => format!("{name} {value}"),
        })
    };
    text.lines().filter_map(key).collect::<Vec<_>>().join(" ")
}

impl Keys<'_> {
    fn put(&mut self, name: &str, json: impl Into<Value>, text: &str) {
        self.text.push_str(&format!("\n  {name} {text}"));
        self.json.insert(name.to_owned(), json.into());
    }

    fn same(&mut self, name: &str, text: &str) {
        self.put(name, text, text);
    }

    fn has(&self, field: Field) -> bool {
        self.what.is_masked(field)
    }

    fn all(&mut self) {
        let value = self.what.value;
        for (prefix, id, prio, next) in
            [("", VLAN_ID, VLAN_PRIO, VLAN_TYPE), ("c", CVLAN_ID, CVLAN_PRIO, CVLAN_TYPE)]
        {
            if self.has(id) {
                let id = value.short(id);
                self.put(&format!("{prefix}vlan_id"), id, &id.to_string());
            }
            if self.has(prio) {
                let prio = value.byte(prio);
                self.put(&format!("{prefix}vlan_prio"), prio, &prio.to_string());
            }
            if self.has(next) {
                self.same(&format!("{prefix}vlan_ethtype"), &proto::name(value.short(next)));
            }
        }
        self.mac("dst_mac", DST_MAC);
        self.mac("src_mac", SRC_MAC);
        if self.has(ETH_TYPE) {
            let name = match value.short(ETH_TYPE) {
                0x800 => "ipv4".to_owned(),
                0x86dd => "ipv6".to_owned(),
                0x806 => "arp".to_owned(),
                other => format!("{other:x}"),
            };
            self.same("eth_type", &name);
        }
        if self.has(IP_PROTO) {
            let name = match value.byte(IP_PROTO) {
                TCP => "tcp".to_owned(),
                UDP => "udp".to_owned(),
                SCTP => "sctp".to_owned(),
                ICMP => "icmp".to_owned(),
                ICMPV6 => "icmpv6".to_owned(),
                other => format!("{other:02x}"),
            };
            self.same("ip_proto", &name);
        }
        self.byte_of_ip("ip_tos", IP_TOS);
        self.byte_of_ip("ip_ttl", IP_TTL);
        self.address("dst_ip", DST_IP);
        self.address("src_ip", SRC_IP);
        self.port("dst_port", DST_PORT);
        self.port("src_port", SRC_PORT);
        self.range("dst_port", self.what.dst_ports);
        self.range("src_port", self.what.src_ports);
        if self.has(TCP_FLAGS) {
            let mask = self.what.mask.short(TCP_FLAGS);
            self.same("tcp_flags", &format!("{:#x}/{mask:x}", value.short(TCP_FLAGS)));
        }
        for (name, field) in [("icmp_type", ICMP_TYPE), ("icmp_code", ICMP_CODE)] {
            if self.has(field) {
                let text = match (value.byte(field), self.what.mask.byte(field)) {
                    (number, 0xff) => number.to_string(),
                    (number, mask) => format!("{number}/{mask}"),
                };
                self.same(name, &text);
            }
        }
        self.address("arp_sip", ARP_SIP);
        self.address("arp_tip", ARP_TIP);
        if self.has(ARP_OP) {
            self.same("arp_op", if value.byte(ARP_OP) == 1 { "request" } else { "reply" });
        }
        self.mac("arp_sha", ARP_SHA);
        self.mac("arp_tha", ARP_THA);
        self.ip_flags();
    }

    fn mac(&mut self, name: &str, field: Field) {
        if !self.has(field) {
            return;
        }
        let (value, mask) = (mac_text(self.what.value.get(field)), self.what.mask.get(field));
        let text = match bits(mask) {
            Some(48) => value,
            Some(bits) => format!("{value}/{bits}"),
            None => format!("{value}/{}", mac_text(mask)),
        };
        self.same(name, &text);
    }

    fn byte_of_ip(&mut self, name: &str, field: Field) {
        let (value, mask) = (self.what.value.byte(field), self.what.mask.byte(field));
        match mask {
            0 => {}
            0xff => self.put(name, value, &value.to_string()),
            _ => {
                self.put(name, value, &format!("{value}/{mask:#x}"));
                self.json.insert(format!("{name}_mask"), json!(format!("{mask:x}")));
            }
        }
    }

    fn address(&mut self, name: &str, field: Field) {
        if !self.has(field) {
            return;
        }
        let (value, mask) = (self.what.value.get(field), self.what.mask.get(field));
        let v6 = self.what.value.short(ETH_TYPE) == 0x86dd && value.len() == 16;
        let (text, all) = match (v6, <[u8; 16]>::try_from(value)) {
            (true, Ok(octets)) => (Ipv6Addr::from(octets).to_string(), 128),
            _ => (Ipv4Addr::new(value[0], value[1], value[2], value[3]).to_string(), 32),
        };
        let bits = bits(mask).unwrap_or(all);
        match bits == all {
            true => self.same(name, &text),
            false => self.same(name, &format!("{text}/{bits}")),
        }
    }

    fn range(&mut self, name: &str, range: Range) {
        if let Some((start, end)) = range {
            self.put(name, json!({"start": start, "end": end}), &format!("{start}-{end}"));
        }
    }

    fn port(&mut self, name: &str, field: Field) {
        let (value, mask) = (self.what.value.short(field), self.what.mask.short(field));
        match mask {
            0 => {}
            0xffff => self.put(name, value, &value.to_string()),
            _ => {
                self.put(name, value, &format!("{value}/{mask:#x}"));
                self.json.insert(format!("{name}_mask"), json!(format!("{mask:x}")));
            }
        }
    }

    fn ip_flags(&mut self) {
        let (value, mask) = (self.what.value.byte(IP_FLAGS), self.what.mask.byte(IP_FLAGS));
        if mask == 0 {
            return;
        }
        let flags = [("frag", FRAG), ("firstfrag", FIRST_FRAG)];
        let asked =
            flags.iter().filter(|(_, bit)| mask & bit != 0).map(|&(name, bit)| (name, value & bit != 0));
        let json: Map<_, _> = asked.clone().map(|(name, on)| (name.to_owned(), json!(on))).collect();
        let names: Vec<_> = asked.map(|(name, on)| format!("{}{name}", if on { "" } else { "no" })).collect();
        self.put("ip_flags", json, &names.join("/"));
    }
}
