//! `txq tc --check`.

use std::process::Command;

use super::served::{Said, fed, txq};

#[test]
fn texts_are_checked_without_a_daemon() {
    let check = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        txq(&[&["tc", "--socket", "/nowhere/at/all", "--check"], &words[..]].concat())
    };
    for good in [
        "qdisc add dev x root handle 1: tbf rate 1mbit burst 10k latency 50ms",
        "qdisc change dev x parent 7:3 handle 9: fq_codel target 5ms",
        "qdisc del dev x root",
        "qdisc show dev x root",
        "class add dev x parent 7: classid 7:1 htb rate 1mbit",
        "filter add dev x parent 7: protocol ip pref 1 u32 match ip dport 80 0xffff flowid 7:1",
        "filter show dev x parent 7:",
        "q r dev x root mqprio num_tc 2 map 0 1 queues 2@0 2@2 hw 0",
    ] {
        assert_eq!(check(good), Said { out: String::new(), err: String::new(), rc: 0 }, "{good}");
    }
    for (bad, rc, told) in [
        ("qdisc add dev x root fq_codel tagret 5ms", 1, "What is \"tagret\"?"),
        ("qdisc add dev x root pfifo limit z", 1, "pfifo: Illegal value for \"limit\": \"z\""),
        ("qdisc add dev x root zzz", 2, "Error: Specified qdisc kind is unknown."),
        ("qdisc add root pfifo", 2, "RTNETLINK answers: No such device"),
        ("qdisc add dev x root handle zz: pfifo", 255, "Error: argument \"zz:\" is wrong: invalid qdisc ID"),
        ("class add dev x parent 7: classid 7:1 htb rate zz", 1, "Illegal \"rate\""),
        ("class add dev x parent 7: classid 7:1 pfifo", 1, "Error: Qdisc \"pfifo\" is classless."),
        ("filter add dev x parent 7: prio 2 u32 match foo", 1, "Illegal \"match\""),
        ("qdisc show foo", 255, "What is \"foo\"? Try \"tc qdisc help\"."),
    ] {
        let said = check(bad);
        assert_eq!((said.rc, said.tc_words().lines().next()), (rc, Some(told)), "{bad}: {said:?}");
        assert!(said.err.contains("\ntxq: ") || bad.ends_with("foo"), "no remedy: {said:?}");
    }
    let batch = fed(
        Command::new(env!("CARGO_BIN_EXE_txq")).args(["tc", "--check", "-batch", "-"]),
        "qdisc add dev x root pfifo # fine\nqdisc add dev x root pfifo lmit 4\n",
    );
    assert_eq!(batch.rc, 1);
    assert!(batch.err.ends_with("txq: did you mean \"limit\"?\nCommand failed -:2\n"), "{batch:?}");
}
