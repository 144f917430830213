//! `tc filter`.

use super::served::{Said, Served};
use crate::txq_netns::{DEV, Netns};

/// Commands about filters, one after the other. On a kernel without prio the parent is htb, with the same filters.
const FILTERS: [&str; 56] = [
    "filter add dev X parent 1: protocol ip pref 1 u32 match ip src 1.2.3.0/24 match ip dport 80 0xffff flowid 1:1",
    "f a dev X protocol all pref 5 u32 match u32 0x1 0xff at 20 flowid 1:3",
    "filter add dev X parent 1: protocol ip pref 8 nosuch x",
    "filter add dev X parent 1: protocol ip pref 8 nosuch",
    "filter add dev X parent 1: protocol zzz pref 1 u32",
    "filter add dev X parent 1: protocol ip pref x u32",
    "filter add dev X parent 1:zz u32",
    "filter add dev X parent 2: u32 match u32 0 0",
    "filter add dev X parent 1: pref 1 pref 2 u32",
    "filter add dev X root parent 1: u32",
    "filter add dev X parent 1: prio 2 u32 match foo",
    "filter add dev X parent 1: prio 2 u32 match ip src zz",
    "filter add dev X parent 1: prio 2 u32 foo",
    "filter change dev X parent 1: prio 3 u32 match u32 0 0",
    "filter add dev nope parent 1: prio 2 u32 foo",
    "filter add dev nope parent 1: prio 2 u32 match u32 0 0",
    "filter add dev X",
    "filter show dev nope",
    "filter show dev X foo",
    "filter show dev X parent zz",
    "filter show dev X root parent 1:",
    "filter show dev X parent 1: parent zz",
    "filter show dev X root root",
    "filter show dev X pref 5",
    "filter show",
    "filter foo",
    "filter",
    "f d dev X pref 5",
    "filter replace dev X parent 1: protocol ip pref 1 handle 800::800 u32 match u32 0 0 flowid 1:8",
    "filter add dev X parent 1: protocol ip pref 20 handle 2: u32 divisor 16",
    "filter add dev X parent 1: protocol ip pref 20 u32 ht 2:3: match ip src 1.2.3.4 flowid 1:1",
    "filter add dev X parent 1: protocol ip pref 20 u32 ht 2: sample ip src 1.2.3.7 divisor 16 match ip src 1.2.3.7 flowid 1:2",
    "filter add dev X parent 1: protocol ip pref 20 u32 ht 2:1f: match ip src 1.2.3.4 flowid 1:1",
    "filter add dev X parent 1: protocol ip pref 20 u32 match ip src 1.0.0.0/8 link 2: hashkey mask f at 12 offset at 0 mask f00 shift 6 eat",
    "filter add dev X parent 1: protocol ip pref 20 u32 match tcp dst 22 ffff order 5 flowid 1:3",
    "filter add dev X parent 1: protocol ip pref 20 handle 2: u32 divisor 16",
    "filter add dev X parent 1: protocol ip pref 21 u32 link 77: match u32 0 0",
    "filter add dev X parent 1: protocol ip pref 21 u32 divisor 3",
    "filter add dev X parent 1: protocol ip pref 21 u32 offset at 3 link 2:",
    "filter del dev X parent 1: protocol ip pref 20 handle 2: u32",
    "filter get dev X parent 1: protocol ip pref 20 handle 2:3:800 u32",
    "filter get dev X parent 1: protocol ip pref 20 handle 2: u32",
    "filter get dev X parent 1: protocol ip pref 20 handle 2:4:800 u32",
    "filter get dev X parent 1: protocol ip pref 77 handle 2: u32",
    "filter get dev X parent 1: protocol ipv6 pref 20 handle 2: u32",
    "filter get dev X parent 7: protocol ip pref 20 handle 2: u32",
    "filter get dev nope parent 1: protocol ip pref 20 handle 2: u32",
    "filter get dev X parent 1: protocol ip pref 20 handle zz u32",
    "filter get dev X parent 1: protocol ip pref 20 handle 2: nosuch",
    "filter get dev X parent 1: protocol ip pref 20 handle 2:",
    "filter get dev X parent 1: protocol ip pref 20 u32",
    "filter get dev X protocol ip pref 20 handle 2: u32",
    "filter get dev X parent 1: protocol ip handle 2: u32",
    "filter get dev X",
    "filter get",
    "monitor foo",
];

#[test]
fn filters_are_those_of_tc() {
    let Some(netns) = Netns::new("filters") else { return };
    if !["prio", "htb"].iter().any(|kind| netns.replace(&["root", "handle", "1:", kind])) {
        return;
    }
    let daemon = Served::daemon("filters");
    daemon.dev(&format!("add {DEV}")).good();
    daemon.tc("qdisc add dev X root handle 1: prio").good();
    for command in FILTERS {
        let (ours, theirs) =
            (daemon.tc(command), Said::of(netns.run("tc", &command.split(' ').collect::<Vec<_>>())));
        let about = format!("{command}: {ours:?} {theirs:?}");
        let told = |text: &str| {
            text.lines().take(2).filter(|l| !l.starts_with("Usage")).collect::<Vec<_>>().join("|")
        };
        assert_eq!((told(&ours.tc_words()), ours.rc), (told(&theirs.err), theirs.rc), "{about}");
        assert_eq!(ours.out, theirs.out, "{about}");
        if command.starts_with("filter get") {
            continue;
        }
        let shows = [
            "-s filter show dev X",
            "filter show dev X parent 1:",
            "-j -p filter show dev X prio 5",
            "-o -N filter show dev X",
            "-r -color=never filter show dev X",
        ];
        for show in shows {
            let theirs = netns.tc(&show.split(' ').collect::<Vec<_>>());
            assert_eq!(daemon.tc(show).good(), theirs, "{show} after {command}");
        }
    }
    daemon.end();
}
