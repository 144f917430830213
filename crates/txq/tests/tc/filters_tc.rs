//! Filters compared with the real tc and the running kernel: both get the same commands, and after each command the answer
//! and the filters must be the same, in plain text and as JSON. Kinds that this machine's kernel lacks are left out.

use crate::device::{Wires, pool};
use crate::netns::{DEV, Netns};
use serde_json::Value;
use txq::NetDev;
use txq::filter::{filters_json, filters_text};
use txq::tc::{Handle, Style};

/// Commands to one device, in order.
const COMMANDS: [&str; 74] = [
    "add parent 1: protocol ip pref 1 u32 match ip src 1.2.3.0/24 match ip dport 80 0xffff flowid 1:1",
    "add parent 1: protocol ip pref 1 u32 match ip protocol 6 0xff match ip tos 0x10 0xff classid 1:2",
    "add protocol all pref 5 u32 match u32 0x1 0xff at 20 match u16 0x2 0xffff at 2 match u8 3 0xf at 1 flowid 1:3",
    "add parent 1: protocol ipv6 pref 6 u32 match ip6 src fe80::/10 match ip6 dst 2001:db8::1 flowid 1:3",
    "add parent 1: protocol ipv6 pref 6 u32 match ip6 priority 0x20 0xff match ip6 sport 5 0xffff flowid 1:3",
    "add parent 1: u32 match u32 0 0 flowid 1:4",
    "add parent 1: protocol ip u32 match ip dsfield 0x10 0xfc match ip ihl 5 0xf match ip icmp_type 8 0xff flowid 1:4",
    "add parent 1: protocol ip pref 1 u32 match u16 10 0xff at -14 classid 1:1",
    "add parent 1: protocol ip pref 1 u32 match u32 1 1 at nexthdr+4 classid 1:1",
    "add parent 1: protocol ip pref 1 u32 match ip nofrag match ip df skip_hw",
    "add parent 1: protocol ip pref 1 u32 match ip src any match ip dst 1.2/16 skip_hw classid 1:1",
    "add parent 1: protocol ip pref 1 handle 800::5 u32 match u32 0 0 flowid 1:7",
    "add parent 1: protocol ip pref 1 handle 800::800 u32 match u32 0 0 flowid 1:7",
    "change parent 1: protocol ip pref 1 handle 800::800 u32 match u32 0 0 flowid 1:7",
    "replace parent 1: protocol ip pref 1 handle ::801 u32 match u32 0 0 flowid 1:8",
    "replace parent 1: protocol ip pref 1 handle ::6 u32 match u32 0 0 flowid 1:8",
    "add parent 1: protocol ipv6 pref 1 u32 match u32 0 0 flowid 1:7",
    "add parent 1: protocol ip pref 1 handle 801::5 u32 match u32 0 0 classid 1:1",
    "add parent 1: protocol ip pref 1 handle 8 u32 match u32 0 0 classid 1:1",
    "add parent 1: protocol ip pref 1 handle 800:1:6 u32 match u32 0 0 classid 1:1",
    "del parent 1: protocol ip pref 1 handle 800::801 u32",
    "del parent 1: protocol ip pref 1 handle 800::999 u32",
    "del parent 1: protocol ip pref 9",
    "del parent 1: protocol arp pref 5",
    "del parent 1: pref 5",
    "del parent 1: handle 800::5 u32",
    "add parent 1: pref 7 u32 match u32 0 0 flowid 1:4",
    "add parent 1: protocol ip pref 8 nosuch",
    "add parent 1: protocol ip pref 8 nosuch x",
    "add parent 1: protocol zzz pref 1 u32",
    "add parent 1: protocol ip pref x u32",
    "add parent 1:zz u32",
    "add parent 2: u32 match u32 0 0",
    "add parent 1:9 u32 match u32 0 0",
    "add parent 1: pref 1 pref 2 u32",
    "add parent 1: parent 1: u32",
    "add parent 1: handle 1 handle 2 u32",
    "add root parent 1: u32",
    "add parent 1: prio 2 u32 match foo",
    "add parent 1: prio 2 u32 match ip foo",
    "add parent 1: prio 2 u32 match ip src zz",
    "add parent 1: prio 2 u32 match ip dport 80",
    "add parent 1: prio 2 u32 match ip dport 80 0x1ffff",
    "add parent 1: prio 2 u32 match u32 1 1 at",
    "add parent 1: prio 2 u32 match u32 1 1 at 3",
    "add parent 1: prio 2 u32 match ip src 1.2.3.4 match ip src 1.2.3.5 classid 1:1",
    "add parent 1: prio 2 u32 match u32 1 1 flowid x",
    "add parent 1: prio 2 u32 foo",
    "add parent 1: prio 2 u32 flowid 1:1",
    "add parent 1: prio 2 u32",
    "add parent 1: prio 2 handle zz u32 match u32 0 0",
    "change parent 1: prio 3 u32 match u32 0 0",
    "change parent 1: protocol all prio 3 u32 match u32 0 0",
    "change parent 1: u32 match u32 0 0",
    "change parent 1: protocol all prio 2 u32 match u32 0 0 classid 1:1",
    "add parent 1: prio 3",
    "del parent 1: pref 1 handle 5",
    "add parent 1: prio 2 handle zz fw classid 1:1",
    "add parent 1: prio 2 handle 5/6 fw foo",
    "add parent 1: prio 3 matchall classid 1:zz",
    "add parent 1: prio 3 flower src_ip 1.2.3.4 classid 1:1",
    "add parent 1: prio 3 flower ip_proto tcp classid 1:1",
    "add parent 1: protocol ip prio 3 flower src_ip 1.2.3.4/33",
    "add parent 1: protocol ip prio 3 flower ip_proto tcp src_port 9-5",
    "add parent 1: protocol ip prio 3 flower src_mac zz",
    "add parent 1: protocol ip prio 3 flower vlan_id 5",
    "add parent 1: protocol 802.1q prio 3 flower vlan_prio 9",
    "add parent 1: protocol 802.1q prio 3 flower vlan_ethtype zz",
    "add parent 1: protocol ip prio 3 flower ip_proto icmp type 300",
    "add parent 1: prio 2 matchall classid 1:1",
    "del parent 1:",
    "del parent 1: prio 1",
    "del parent 1:",
    "add parent 1: protocol 0x1234 pref 4 u32 match u32 0 0",
];

#[test]
fn filters_are_those_of_tc() {
    let Some(netns) = Netns::new("filters") else { return };
    // A kernel that has u32 may lack prio; for tc and the filters, htb is as good a parent.
    let parents = ["prio", "htb"];
    let parent = parents.iter().find(|kind| netns.replace(&["root", "handle", "1:", kind]));
    if parent.is_none() {
        return;
    }
    let dev = NetDev::builder(Wires::new(4, None)).qdisc("noqueue").pool_config(pool()).build().unwrap();
    dev.tc("qdisc add root handle 1: prio").unwrap();
    for command in COMMANDS {
        let (verb, text) = command.split_once(' ').unwrap();
        let words: Vec<_> = text.split(' ').collect();
        let output = netns.run("tc", &[&["filter", verb, "dev", DEV], &words[..]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        if said.contains("TC classifier not found") && !command.ends_with("nosuch") {
            println!("SKIP {command}: this kernel lacks the kind");
            continue;
        }
        let ours = match verb {
            "add" => dev.tc(&format!("filter add {text}")),
            "replace" => dev.tc(&format!("filter replace {text}")),
            "change" => dev.tc(&format!("filter change {text}")),
            _ => dev.tc(&format!("filter del {text}")),
        };
        let first = said.lines().next().unwrap_or_default();
        assert_eq!(ours.as_ref().err().map_or("", |error| error.message()), first, "{command}");
        for of in [None, Some(Handle::new(1, 0))] {
            let mut show = vec!["-s", "filter", "show", "dev", DEV];
            show.extend(of.map_or(&[][..], |_| &["parent", "1:"]));
            let info = dev.filters(of, Style::default());
            assert_eq!(filters_text(&info, true), netns.tc(&show), "after {command}");
            show[0] = "-j";
            // tc writes several keys of u32 under one name, of which a JSON reader keeps the last.
            let theirs: Value = serde_json::from_str(&netns.tc(&show)).unwrap();
            let mut ours = filters_json(&info, true);
            for filter in ours.as_array_mut().unwrap() {
                let keys = filter.pointer_mut("/options/match");
                if let Some(last) = keys.and_then(|keys| keys.as_array()?.last().cloned()) {
                    filter["options"]["match"] = last;
                }
            }
            assert_eq!(ours, theirs, "JSON after {command}");
        }
    }
}
