//! htb and its classes compared with the real tc and the running kernel: both get the same commands, and after each command
//! the answer, the warnings and the classes must be the same. And packets through a real device.

use crate::device::{Wires, assert_conserved, pool};
use crate::netns::{DEV, Netns};
use txq::NetDev;
use txq::drop::DropReason;
use txq::tc::{ClassInfo, Style, class_text, show_text};

/// Commands to one device, in order.
const COMMANDS: [&str; 75] = [
    "qdisc add root handle 1: htb offload",
    "qdisc add root handle 1: htb default zz",
    "qdisc add root handle 1: htb r2q x",
    "qdisc add root handle 1: htb foo",
    "qdisc add root handle 1: htb r2q 0 default 1ffff direct_qlen 7",
    "qdisc replace root handle 2: htb default 0x20 r2q 5",
    "qdisc replace root handle 1: htb default 30",
    "qdisc change root handle 1: htb r2q 5",
    "class add parent 1: classid 1:1 htb",
    "class add parent 1: classid 1:1 htb rate 7bit",
    "class add parent 1: classid 1:1 htb rate 10mbit foo",
    "class add parent 1: classid 1:1 htb rate 10mbit",
    "class add parent 1: classid 1:1 htb rate 10mbit",
    "class replace parent 1: classid 1:1 htb rate 8mbit ceil 100mbit",
    "class change parent 1: classid 1:5 htb rate 8mbit",
    "class change classid 1:1 htb rate 8mbit ceil 90mbit",
    "class add parent 1:1 classid 1:10 htb rate 500kbit ceil 2mbit prio 1",
    "class add parent 1:1 classid 1:11 htb rate 1gbit prio 9 quantum 100",
    "class add parent 1:10 classid 1:100 htb rate 1kbit ceil 10gbit prio 3 burst 10k/8 cburst 3k/16 mtu 9000 mpu 64 \
     overhead 20 linklayer atm quantum 5000",
    "class change parent 1:1 classid 1:11 htb rate 2gbit",
    "class change parent 1:1 classid 1:10 htb rate 100kbit",
    "class replace parent 1:10 classid 1:11 htb rate 3gbit",
    "class replace parent 1: classid 1:12 htb rate 3gbit",
    "class add parent 1:77 classid 1:13 htb rate 3gbit",
    "class add parent 1:1 classid 2:13 htb rate 3gbit",
    "class add parent 2:1 classid 1:13 htb rate 3gbit",
    "class add parent 1: htb rate 3gbit",
    "class add classid 1:50 htb rate 3gbit",
    "class add root classid 1:51 htb rate 3gbit",
    "class add classid 1:52 root parent 1: htb rate 3gbit",
    "class add classid zz parent 1: htb rate 3gbit",
    "class add parent zz classid 1:1 htb rate 3gbit",
    "class add parent 1: classid 1:54",
    "class add parent 1: classid 1:54 tbf rate 10",
    "class add parent 7: classid 7:1 htb rate 1mbit",
    "class del classid 1:1",
    "class del classid 1:99",
    "class del classid 1:11",
    "class del classid 3:1",
    "qdisc add parent 1:10 pfifo",
    "qdisc add parent 1:12 handle 12: pfifo limit 5",
    "qdisc add parent 1:100 handle 13: tbf rate 1mbit burst 10k limit 5",
    "class add parent 13: classid 13:1 htb rate 1mbit",
    "class change parent 13: classid 13:1 htb rate 1mbit",
    "class del classid 13:1",
    "class add parent 12: classid 12:1 htb rate 1mbit",
    "qdisc del parent 1:12",
    "qdisc del parent 1:12",
    "class del classid 1:100",
    "class add parent 1:10 classid 1:20 htb rate 1mbit",
    "class add parent 1:20 classid 1:21 htb rate 1mbit quantum 0",
    "class add parent 1:21 classid 1:22 htb rate 1mbit ceil 0 burst 0",
    "class add parent 1:22 classid 1:23 htb rate 1mbit burst 1",
    "class add parent 1:23 classid 1:24 htb rate 1mbit mtu 0",
    "class add parent 1:24 classid 1:25 htb rate 1mbit mtu 9000",
    "class add parent 1:25 classid 1:26 htb rate 1mbit",
    "class add parent 1:26 classid 1:27 htb rate 1mbit",
    "class replace parent 1:25 classid 1:26 htb rate 1000gbit ceil 1kbit maxburst 4k cbuffer 5k",
    "class replace parent 1:25 classid 1:26 htb rate 8bit",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit rate 2mbit",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit ceil 2mbit ceil 3mbit",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit cburst 10k/3",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit mpu 0x10",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit overhead 70000",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit linklayer x",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit linklayer adsl",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit quantum 1k",
    "class replace parent 1:25 classid 1:26 htb rate 1mbit prio -1",
    "qdisc replace root handle 3: mq",
    "qdisc replace parent 3:1 handle 7: htb",
    "class add parent 7: classid 7:1 htb rate 1mbit",
    "class add parent 3: classid 3:1 htb rate 1mbit",
    "class add parent 3: classid 3:9 htb rate 1mbit",
    "class del classid 3:1",
    "class add parent 7:1 classid 7:2 classid 7:3 htb rate 1mbit",
];

#[test]
fn classes_are_those_of_tc() {
    let Some(netns) = Netns::new("htb") else { return };
    if !netns.replace(&["root", "htb"]) {
        return;
    }
    netns.delete();
    let dev = NetDev::builder(Wires::new(4, None)).qdisc("noqueue").pool_config(pool()).build().unwrap();
    for command in COMMANDS {
        let ours = dev.tc(command);
        let words: Vec<_> = command.split_whitespace().collect();
        let output = netns.run("tc", &[&words[..2], &["dev", DEV], &words[2..]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        let message = match &ours {
            Err(error) => error.message().lines().next().unwrap_or_default().to_owned(),
            // Hints are txq's own.
            Ok(warnings) => warnings.iter().filter(|line| !line.starts_with("txq: ")).cloned().collect(),
        };
        assert_eq!(message, said.lines().next().unwrap_or_default(), "{command}");
        for (flags, style) in [("-s", Style::default()), ("-d", Style { details: true, ..Style::default() })]
        {
            let theirs = netns.tc(&[flags, "class", "show", "dev", DEV]);
            let ours = class_text(&dev.classes(style), flags == "-s");
            assert_eq!(sorted(&ours, "class "), sorted(&theirs, "class "), "{flags} after {command}");
            let theirs = netns.tc(&[flags, "qdisc", "show", "dev", DEV]);
            let mut ours = dev.qdiscs(style);
            ours.iter_mut().for_each(|info| info.dev = None);
            let ours = show_text(&ours, flags == "-s");
            assert_eq!(sorted(&ours, "qdisc "), sorted(&theirs, "qdisc "), "{flags} after {command}");
        }
    }
}

/// Returns the text of each object, sorted; the kernel lists them in the order of a hash.
fn sorted<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let mut parts: Vec<_> = text.split(word).collect();
    parts.sort_unstable();
    parts
}

/// A filter names a class in full: the same minor number under another qdisc's handle is no class of htb, and its packets
/// follow the default, of which only the last 16 bits count.
#[test]
fn filters_name_whole_classes() {
    let Some(netns) = Netns::new("whole") else { return };
    if !netns.replace(&["root", "htb"]) {
        return;
    }
    netns.delete();
    let wires = Wires::new(1, None);
    let dev = NetDev::builder(wires.clone()).qdisc("noqueue").pool_config(pool()).build().unwrap();
    let mut sender = dev.sender("test");
    let both = |command: &str| {
        let words: Vec<_> = command.split_whitespace().collect();
        let output = netns.run("tc", &[&words[..2], &["dev", DEV], &words[2..]].concat());
        dev.tc(command).unwrap();
        output.status.success()
    };
    both("qdisc add root handle 1: htb default 10020");
    for minor in [10, 20, 30] {
        both(&format!("class add parent 1: classid 1:{minor} htb rate 1gbit quantum 2000"));
    }
    for flow in ["1:20", "2:10", ":10", "1:10", "1:99", "1:0", "1:30"] {
        if !both(&format!(
            "filter replace parent 1: protocol all pref 1 handle 800::800 u32 match u32 0 0 flowid {flow}"
        )) {
            println!("SKIP filters_name_whole_classes: this kernel lacks u32");
            return;
        }
        if netns.run("ping", &["-c", "1", "-W", "0.1", "192.0.2.2"]).stdout.is_empty() {
            println!("SKIP filters_name_whole_classes: no ping");
            return;
        }
        let packet = sender.alloc(98).unwrap();
        let _ = sender.xmit(packet);
        let theirs =
            sent(&netns.tc(&["-s", "class", "show", "dev", DEV]), &netns.tc(&["qdisc", "show", "dev", DEV]));
        let style = Style::default();
        let ours = sent(&class_text(&dev.classes(style), true), &show_text(&dev.qdiscs(style), false));
        assert_eq!(ours, theirs, "{flow}");
    }
}

/// Returns how many packets each class has sent, and how many were sent directly.
fn sent(classes: &str, qdisc: &str) -> Vec<String> {
    let packets = |class: &str| {
        let words: Vec<_> = class.split_whitespace().collect();
        let at = words.iter().position(|&word| word == "pkt").unwrap();
        format!("{} {}", words[0], words[at - 1])
    };
    let mut sent: Vec<_> = classes.split("class htb ").skip(1).map(packets).collect();
    sent.sort_unstable();
    let direct = qdisc.split_once("direct_packets_stat ").unwrap().1;
    sent.push(direct.split_whitespace().next().unwrap().to_owned());
    sent
}

fn class<'a>(list: &'a [ClassInfo], name: &str) -> &'a ClassInfo {
    list.iter().find(|info| info.handle.to_string() == name).unwrap()
}

#[test]
fn packets_go_through_classes_of_a_device() {
    let wires = Wires::new(1, None);
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).build().unwrap();
    dev.tc("qdisc add root handle 1: htb default 20").unwrap();
    dev.tc("class add parent 1: classid 1:1 htb rate 8mbit").unwrap();
    dev.tc("class add parent 1:1 classid 1:10 htb rate 8mbit").unwrap();
    let warnings = dev.tc("class add parent 1:1 classid 1:20 htb rate 8bit burst 150 cburst 150").unwrap();
    assert_eq!(warnings.len(), 1);
    let mut sender = dev.sender("test");
    for (number, priority) in [(0, 0x1_0010), (1, 0), (2, 0), (3, 0), (4, 0x1_0010), (5, 0x1_0000)] {
        let mut packet = sender.alloc(100).unwrap();
        packet.set_priority(priority);
        packet.set_cookie(number);
        let _ = sender.xmit(packet);
    }
    // Two packets use up the burst of 1:20; the third waits for more than a minute.
    assert_eq!(sorted_numbers(&wires), [0, 1, 2, 4, 5]);
    let list = dev.classes(Style::default());
    let stats = class(&list, "1:20").stats.unwrap();
    assert_eq!((stats.packets, stats.backlog, stats.qlen), (2, 100, 1));
    assert_eq!(class(&list, "1:1").stats.unwrap().packets, 4);
    // A class with tokens sends at once.
    dev.tc("class change classid 1:10 htb rate 4mbit").unwrap();
    dev.tc("class del classid 1:20").unwrap();
    assert_eq!(dev.stats().dropped.get(DropReason::QueuePurge), 1);
    assert_eq!(dev.qdiscs(Style::default())[0].stats.drops, 1);
    drop(sender);
    assert_conserved(&dev);
}

fn sorted_numbers(wires: &Wires) -> Vec<u64> {
    let mut sent = wires.at(0).sent();
    sent.sort_unstable();
    sent
}

#[test]
fn json_has_the_keys_of_the_text() {
    let dev = NetDev::builder(Wires::new(1, None)).pool_config(pool()).build().unwrap();
    dev.tc("qdisc add root handle 1: htb").unwrap();
    dev.tc("class add parent 1: classid 1:1 htb rate 8mbit").unwrap();
    dev.tc("class add parent 1:1 classid 1:10 htb rate 1mbit prio 2").unwrap();
    dev.tc("qdisc add parent 1:10 handle 10: pfifo limit 5").unwrap();
    let json = txq::tc::class_json(&dev.classes(Style::default()), true).to_string();
    let expected = r#"[{"class":"htb","handle":"1:1","root":true,"rate":1000000,"ceil":1000000,"burst":1600,"cburst":1600,"stats":{"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0,"lended":0,"borrowed":0,"giants":0,"tokens":25000,"ctokens":25000}},{"class":"htb","handle":"1:10","parent":"1:1","leaf":"10:","prio":2,"rate":125000,"ceil":125000,"burst":1600,"cburst":1600,"stats":{"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0,"lended":0,"borrowed":0,"giants":0,"tokens":200000,"ctokens":200000}}]"#;
    assert_eq!(json, expected);
}
