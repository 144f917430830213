//! `tc class`.

use serde_json::Value;

use super::served::{Said, Served};
use crate::txq_netns::{DEV, Netns};

/// Commands about classes, one after the other.
const CLASSES: [&str; 50] = [
    "class add dev X parent 1: classid 1:1 htb rate 1mbit",
    "c a dev X parent 1:1 classid 1:2 htb rate 500kbit ceil 1mbit",
    "class add dev X parent 1:1 classid 1:2 htb rate 500kbit ceil 1mbit",
    "class show",
    "class show dev X root",
    "class show dev X parent 1:1",
    "class show dev X parent 1:",
    "class show dev X classid 1:2",
    "class show dev X qdisc 1:",
    "class show dev X parent zz",
    "class show dev X root parent 1:",
    "class show dev X parent 1: root",
    "class show dev X parent 1: parent zz",
    "class show dev X classid zz",
    "class show dev X classid 1:1 classid zz",
    "class show dev X qdisc 1: qdisc 1:",
    "class show dev X qdisc zz",
    "class show dev X foo",
    "class show dev nope",
    "class add dev nope parent 1:1 classid 1:2 htb rate 500kbit",
    "class add dev nope parent 1:1 classid 1:2 htb rate 50zz",
    "class add parent 1:1 classid 1:2 htb rate 50",
    "class add dev X parent 1:1 classid 1:2 zzz rate 50",
    "class add dev X parent 1: classid 1:7 pfifo",
    "class add dev X parent 1:1 classid zz htb rate 5",
    "class add dev X parent zz classid 1:2 htb rate 5",
    "class add dev X parent 1:1 parent 1:1 classid 1:2 htb rate 5",
    "class add dev X parent 1:1 parent zz htb rate 5",
    "class add dev X root root htb rate 5",
    "class add dev X classid 1:2 classid 1:2 htb rate 5",
    "class change dev X classid 1:9 htb rate 5kbit",
    "class replace dev X parent 1:1 classid 1:9 htb rate 5kbit",
    "class change dev X classid 1:2 htb rate 600kbit ceil 2mbit",
    "class del dev X classid 1:9",
    "class del dev X classid 1:1",
    "class del dev X",
    "class foo",
    "class",
    "class add dev X parent 1: classid ffff:ffff htb rate 5",
    "class add dev X classid ffff:ffff htb rate 5",
    "qdisc add dev X parent 1:2 handle 1: pfifo",
    "qdisc add dev X parent 1:2 handle 7: pfifo",
    "class add dev X parent 1:1 classid 1:3 htb rate 500kbit ceil 1mbit",
    "qdisc replace dev X parent 1:3 handle 7: pfifo",
    "qdisc change dev X parent 1:3 handle 7: pfifo",
    "qdisc change dev X parent 1:2 handle 8: pfifo",
    "qdisc replace dev X root handle 7: pfifo",
    "qdisc replace dev X root handle ffff: htb",
    "class add dev X parent ffff: classid ffff:ffff htb rate 5",
    "class add dev X parent ffff: classid ffff:1 htb rate 1mbit",
];

#[test]
fn classes_are_those_of_tc() {
    let Some(netns) = Netns::new("tc-classes") else { return };
    if !netns.replace(&["root", "handle", "1:", "htb", "default", "2"]) {
        return;
    }
    let daemon = Served::daemon("classes");
    daemon.dev(&format!("add {DEV}")).good();
    daemon.tc("qdisc add dev X root handle 1: htb default 2").good();
    for command in CLASSES {
        let (ours, theirs) =
            (daemon.tc(command), Said::of(netns.run("tc", &command.split(' ').collect::<Vec<_>>())));
        let about = format!("{command}: {ours:?} {theirs:?}");
        let first = |text: String| text.lines().next().map(str::to_owned);
        assert_eq!((first(ours.tc_words()), ours.rc), (first(theirs.err.clone()), theirs.rc), "{about}");
        let classes = |text: &str| -> Vec<String> {
            let mut list: Vec<_> = text.split("class ").map(str::to_owned).collect();
            list.sort_unstable();
            list
        };
        assert_eq!(classes(&ours.out), classes(&theirs.out), "{about}");
        for option in ["-s", "-d", "-iec"] {
            let show = [option, "class", "show", "dev", DEV];
            let (ours, theirs) = (daemon.tc(&show.join(" ")).good(), netns.tc(&show));
            assert_eq!(classes(&ours), classes(&theirs), "{option} after {command}");
        }
    }
    let shown: Value = serde_json::from_str(&daemon.tc("-j class show dev X").good()).expect("JSON");
    assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown}");
    daemon.end();
}
