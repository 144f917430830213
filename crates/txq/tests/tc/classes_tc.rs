//! Qdiscs below classes compared with the real tc and the running kernel: both get the same commands, and after each command
//! the answer and the tree must be the same, in plain text, with details and as JSON.

use crate::device::{Wires, pool};
use crate::netns::{DEV, Netns};
use serde_json::Value;
use txq::NetDev;
use txq::tc::{QdiscInfo, Style, show_json, show_text};

/// Commands to one device, in order. This machine's kernel may lack other kinds.
const COMMANDS: [&str; 30] = [
    "add root handle 1: tbf rate 8kbit burst 200 limit 400",
    "add root handle 1: tbf rate 8kbit burst 200 limit 400",
    "add root handle 2: tbf rate 8kbit burst 200 limit 400",
    "add parent 1:1 handle 10: pfifo limit 5",
    "add parent 1:1 handle 11: pfifo limit 5",
    "add parent 2:1 handle 11: pfifo limit 5",
    "add parent 10:1 handle 11: pfifo limit 5",
    "change parent 1:1 handle 10: pfifo limit 7",
    "change parent 1:1 handle 10: bfifo limit 7",
    "replace parent 1:1 handle 12: bfifo limit 700",
    "del parent 1:1 handle 13:",
    "del parent 1:1",
    "del parent 1:1",
    "replace parent 1:1 handle 20: tbf rate 1mbit burst 10k latency 50ms",
    "replace parent 20:1 handle 30: pfifo limit 3",
    "replace parent 20:1 pfifo limit 4",
    "change root handle 1: tbf rate 1mbit burst 10k latency 50ms peakrate 2mbit mtu 1540",
    "change root handle 1: tbf rate 1mbit burst 10k limit 10k overhead 10 mpu 64",
    "change root handle 1: tbf rate 10gbit burst 1m limit 10m linklayer atm",
    "change root handle 1: tbf rate 1kbit burst 1500 latency 1s mpu 200",
    "replace root handle 1: tbf rate 40gbit burst 10m latency 1ms",
    "replace root handle 1: tbf rate 1mbit burst 10k latency 1ms peakrate 100kbit mtu 1500",
    "replace root handle 1: tbf rate 1mbit latency 50ms",
    "replace root handle 1: tbf rate 1mbit burst 10k limit 3000 latency 5ms",
    "replace root handle 1: tbf rate 1mbit burst 10k/3 limit 5",
    "replace root handle 1: tbf rate 1mbit burst 10k limit 5 linklayer foo",
    "replace root handle 3: mq",
    "replace parent 3:2 handle 40: tbf rate 1mbit burst 10k latency 50ms",
    "replace parent 40:1 handle 41: pfifo limit 9",
    "del root",
];

#[test]
fn classes_are_those_of_tc() {
    let Some(netns) = Netns::new("classes") else { return };
    // The default qdisc of a veth is none.
    let dev = NetDev::builder(Wires::new(4, None)).qdisc("noqueue").pool_config(pool()).build().unwrap();
    for command in COMMANDS {
        let (verb, text) = command.split_once(' ').unwrap();
        let ours = match verb {
            "add" => dev.tc(&format!("qdisc add {text}")),
            "replace" => dev.tc(&format!("qdisc replace {text}")),
            "change" => dev.tc(&format!("qdisc change {text}")),
            _ => dev.tc(&format!("qdisc del {text}")),
        };
        let words: Vec<_> = text.split(' ').collect();
        let output = netns.run("tc", &[&["qdisc", verb, "dev", DEV], &words[..]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        let first = said.lines().next().unwrap_or_default();
        let message = ours.as_ref().err().map_or("", |error| error.message());
        if command == "del root" {
            // Without a root of the user's, the kernel's qdiscs depend on the kind of the device.
            continue;
        }
        assert_eq!(message, first, "{command}");
        for (flags, style) in [("-s", Style::default()), ("-d", Style { details: true, ..Style::default() })]
        {
            let theirs = netns.tc(&[flags, "qdisc", "show", "dev", DEV]);
            let ours = show_text(&shown(&dev, style), flags == "-s");
            assert_eq!(sorted(&ours), sorted(&theirs), "{flags} after {command}");
        }
        let theirs: Value =
            serde_json::from_str(&netns.tc(&["-j", "-s", "qdisc", "show", "dev", DEV])).unwrap();
        let ours = show_json(&shown(&dev, Style::default()), true);
        let by_name = |list: &Value| {
            let mut list = list.as_array().unwrap().clone();
            list.sort_by_key(Value::to_string);
            list
        };
        assert_eq!(by_name(&ours), by_name(&theirs), "after {command}");
    }
}

/// Returns the text of each qdisc, sorted. The kernel lists all but the root in the order of a hash of their handles; txq
/// lists each after its parent.
fn sorted(text: &str) -> Vec<&str> {
    let mut parts: Vec<_> = text.split("qdisc ").collect();
    parts.sort_unstable();
    parts
}

/// Returns the qdiscs without the device's name, as tc prints them when it is asked for one device.
fn shown(dev: &NetDev, style: Style) -> Vec<QdiscInfo> {
    let mut list = dev.qdiscs(style);
    list.iter_mut().for_each(|info| info.dev = None);
    list
}
