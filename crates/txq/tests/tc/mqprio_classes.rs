//! mqprio's classes and those of a prio below it, as `tc class show` lists them. The texts are tc's output on a kernel that
//! has mqprio; if this machine's kernel has it, the test compares with its output, too.

use crate::device::{Wires, pool};
use crate::netns::{DEV, Netns};
use txq::NetDev;
use txq::tc::{ParseError, Style, class_json, class_text};

const ROOT: &str = "root handle 1: mqprio num_tc 2 map 0 0 0 0 1 1 1 1 queues 1@0 2@2 hw 0";
const CHILDREN: [&str; 3] =
    ["parent 1:3 handle 30: pfifo limit 5", "parent 1:4 handle 40: prio", "parent 40:2 handle 42: pfifo"];

const SHOWN: &str = "\
class mqprio 1:ffe0 root 
class mqprio 1:ffe1 root 
class mqprio 1:1 parent 1:ffe0 
class mqprio 1:2 parent none 
class mqprio 1:3 parent 1:ffe1 leaf 30: 
class mqprio 1:4 parent 1:ffe1 leaf 40: 
class prio 40:1 parent 40: 
class prio 40:2 parent 40: leaf 42: 
class prio 40:3 parent 40: 
";

/// The text with `-s` of a class that has sent nothing.
const IDLE: &str = " Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
";

fn dev() -> (NetDev, Wires) {
    let wires = Wires::new(4, None);
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).qdisc("noqueue").build().unwrap();
    dev.tc(&format!("qdisc add {}", ROOT)).unwrap();
    CHILDREN.iter().for_each(|text| drop(dev.tc(&format!("qdisc add {text}")).unwrap()));
    (dev, wires)
}

#[test]
fn classes_are_listed_as_tc_does() {
    let (dev, _) = dev();
    let list = dev.classes(Style::default());
    assert_eq!(class_text(&list, false), SHOWN);
    let idle: String = SHOWN.lines().map(|line| format!("{line}\n{IDLE}")).collect();
    assert_eq!(class_text(&list, true), idle);
    let json = class_json(&list[3..4], false).to_string();
    assert_eq!(json, r#"[{"class":"mqprio","handle":"1:2","parent":"none"}]"#);

    let Some(netns) = Netns::new("mqprio") else { return };
    if !netns.replace(&ROOT.split(' ').collect::<Vec<_>>()) {
        return;
    }
    for text in CHILDREN {
        netns.tc(&[&["qdisc", "add", "dev", DEV], &text.split(' ').collect::<Vec<_>>()[..]].concat());
    }
    assert_eq!(netns.tc(&["class", "show", "dev", DEV]), SHOWN);
    assert_eq!(netns.tc(&["-s", "class", "show", "dev", DEV]), idle);
}

/// A traffic class counts the packets that its txqs have sent.
#[test]
fn traffic_classes_count_for_their_txqs() {
    let (dev, wires) = dev();
    let mut sender = dev.sender("test");
    for number in 0..50 {
        let mut packet = sender.alloc(100).unwrap();
        packet.set_priority(number % 8);
        packet.set_hash(number.wrapping_mul(0x9e37_79b9) | 1);
        let _ = sender.xmit(packet);
    }
    let sent = |txq| wires.at(txq).sent().len() as u64;
    let counted: Vec<_> =
        dev.classes(Style::default()).iter().map(|info| info.stats.unwrap().packets).collect();
    assert_eq!(counted[..6], [26, 24, sent(0), 0, sent(2), sent(3)]);
    assert!(sent(2) > 0 && sent(3) > 0);
}

/// The kernel's answers.
#[test]
fn its_classes_are_the_devices() {
    let (dev, _) = dev();
    let said = |done: Result<Vec<String>, ParseError>| done.unwrap_err().message().to_owned();
    let unsupported = "RTNETLINK answers: Operation not supported";
    assert_eq!(said(dev.tc("class add classid 1:1 htb rate 1mbit")), "RTNETLINK answers: File exists");
    assert_eq!(said(dev.tc("class add classid 1:9 htb rate 1mbit")), unsupported);
    assert_eq!(said(dev.tc("class add classid 1:ffe0 htb rate 1mbit")), "RTNETLINK answers: File exists");
    assert_eq!(said(dev.tc("class change classid 1:ffe1 htb rate 1mbit")), unsupported);
    assert_eq!(said(dev.tc("class del classid 1:ffe1")), unsupported);
    assert_eq!(said(dev.tc("class del classid 1:ffe2")), "RTNETLINK answers: No such file or directory");
    assert_eq!(said(dev.tc("qdisc add parent 1:ffe0 pfifo")), "Error: No device queue given.");
    assert_eq!(said(dev.tc("qdisc add parent 1:ffe2 pfifo")), "Error: Specified class not found.");
}
