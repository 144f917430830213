use std::collections::BTreeSet;

use txq_core::clock::Clock;

use crate::generic::filter::Mode;
use crate::generic::filter::tests::{Bench, ethernet, ipv4, ports, udp};
use crate::tc::Style;

fn mapped(rule: &str, frame: &[u8]) -> Option<u16> {
    Bench::with(&[&format!("pref 1 handle 1 flow {rule}")]).class(frame)
}

#[test]
fn a_key_is_the_class() {
    let frame = udp(7, 300);
    for (rule, minor) in [
        ("map key dst and 0xff", 1 + 2),
        ("map key dst and 0xff xor 0xff", 1 + 0xfd),
        ("map key dst and 0xff or 0x10", 1 + 0x12),
        ("map key dst addend -10.0.0.0 divisor 256", 1 + 2),
        ("map key src addend 5 divisor 16", 1 + 6),
        ("map key src rshift 24 baseclass :20", 0x20 + 10),
        ("map key proto", 1 + 17),
        ("map key proto-src", 1 + 7),
        ("map key proto-dst divisor 256", 1 + 44),
        ("map key priority", 1),
        ("map key mark baseclass 1:7", 7),
        ("map key vlan-tag", 1),
        ("map key nfct-dst and 3", 1 + 2),
        ("map key proto-dst match cmp(u8 at 9 eq 17)", 301),
    ] {
        assert_eq!(mapped(rule, &frame), Some(minor), "{rule}");
    }
    assert_eq!(mapped("map key proto-dst match cmp(u8 at 9 eq 6)", &frame), None);
    let tagged = ethernet(0x8100, &[&[0x20, 5, 8, 0], &ipv4(17, 0, &ports(7, 8))[..]].concat());
    assert_eq!(mapped("map key vlan-tag", &tagged), Some(6));
    assert_eq!(mapped("map key dst", &ethernet(0x806, &[0; 28])), Some(1), "no address");
}

#[test]
fn a_hash_spreads_flows_and_keeps_each_together() {
    let mut bench =
        Bench::with(&["pref 1 handle 1 flow hash keys src,dst,proto,proto-src,proto-dst divisor 64"]);
    let mut classes = BTreeSet::new();
    for port in 0..2000 {
        let class = bench.class(&udp(port, 9)).unwrap();
        assert_eq!(bench.class(&udp(port, 9)), Some(class));
        assert!((1..=64).contains(&class));
        classes.insert(class);
    }
    // 2000 flows miss one of 64 classes with a probability of 64 e^-31.
    assert_eq!(classes.len(), 64);
    let mut bench = Bench::with(&["pref 1 handle 1 flow hash keys dst divisor 64"]);
    assert_eq!(bench.class(&udp(1, 9)), bench.class(&udp(2, 9)), "the port is no key");
    // Another period, another hash.
    let mut bench = Bench::with(&["pref 1 handle 1 flow hash keys proto-src divisor 60000 perturb 10"]);
    let packet = bench.packet(&udp(1, 2));
    let class = |at: u64| bench.filters.class_of(&packet, &mut Clock::at(at * 1_000_000_000));
    assert_eq!(class(11), class(19));
    assert_ne!(class(11), class(21));
}

/// The texts are those of tc 6.1 with Linux 6.1.
#[test]
fn text_is_that_of_tc() {
    let rules = [
        (
            "hash keys src,dst,proto,proto-src,proto-dst divisor 1024",
            "hash keys src,dst,proto,proto-src,proto-dst divisor 1024 baseclass 1:1 ",
        ),
        (
            "map key dst addend -192.168.0.0 divisor 256",
            "map keys dst addend 0x3f580000 divisor 256 baseclass 1:1 ",
        ),
        ("map key dst and 0xff", "map keys dst and 0x000000ff baseclass 1:1 "),
        ("map key dst and 0xff xor 0xff", "map keys dst and 0x000000ff xor 0x000000ff baseclass 1:1 "),
        (
            "map key dst or 0xff rshift 4 addend 5 baseclass 1:3",
            "map keys dst and 0xffffff00 or 0x000000ff rshift 4 addend 0x5 baseclass 1:3 ",
        ),
        (
            "hash keys src perturb 10 divisor 16 baseclass 1:1",
            "hash keys src divisor 16 baseclass 1:1 perturb 10sec ",
        ),
        ("map key rxhash divisor 7", "map keys rxhash divisor 7 baseclass 1:1 "),
        ("hash keys proto-dst,src,nfct-src,src", "hash keys src,proto-dst,nfct-src baseclass 1:1 "),
        ("map key dst xor 5 and 3", "map keys dst and 0x00000003 xor 0x00000001 baseclass 1:1 "),
        ("map key dst xor 5 or 3", "map keys dst and 0xfffffffc xor 0x00000004 or 0x00000003 baseclass 1:1 "),
        ("map key dst or 3 xor 5", "map keys dst and 0xfffffffc xor 0x00000004 or 0x00000002 baseclass 1:1 "),
        ("map key dst or 3 and 1", "map keys dst and 0x00000000 or 0x00000001 baseclass 1:1 "),
        ("map key priority addend -3", "map keys priority addend 0xfffffffd baseclass 1:1 "),
        ("hash keys src baseclass 2:1", "hash keys src baseclass 2:1 "),
        ("map key dst baseclass root", "map keys dst baseclass root "),
        (
            "map key vlan-tag match cmp(u8 at 0 eq 1) and cmp(u8 at 0 eq 1) divisor 3",
            "map keys vlan-tag divisor 3 baseclass 1:1 \n  cmp(u8 at 0 layer 1 eq 1)\n  AND cmp(u8 at 0 layer 1 eq 1)\n",
        ),
        (
            "map key src action drop",
            "map keys src baseclass 1:1 \n\n\taction order 1: gact action drop\n\t random type none pass val 0\n\t index 1 ref 1 bind 1\n",
        ),
        (
            "map key src police rate 1mbit burst 10k drop",
            "map keys src baseclass 1:1  police 0x1 rate 1Mbit burst 10Kb mtu 2Kb action drop overhead 0b \n\tref 1 bind 1 \n",
        ),
    ];
    for (rule, shown) in rules {
        let bench = Bench::with(&[&format!("pref 1 handle 1 flow {rule}")]);
        let head = "filter parent 1: protocol all pref 1 flow chain 0 ";
        assert_eq!(bench.text(), format!("{head}\n{head}handle 0x1 {shown}\n"), "{rule}");
        let info = bench.filters.info(None, Style { input: true, ..Style::default() }).remove(1);
        let text = info.options.unwrap().text().to_owned();
        let (_, words) = text.split_once("handle 0x1").unwrap();
        let again = Bench::with(&[&format!("pref 1 handle 1 flow {words}")]);
        assert_eq!(again.text(), bench.text(), "{words}");
    }
}

#[test]
fn messages_are_those_of_tc() {
    let mut bench = Bench::with(&["pref 1 handle 3 flow map key dst and 0xff"]);
    let invalid = "RTNETLINK answers: Invalid argument";
    for (text, message) in [
        ("flow", invalid),
        ("flow hash", invalid),
        ("flow hash keys src", invalid),
        ("handle 3 flow hash keys src", "Error: Filter already exists."),
        ("handle 6 flow map key src,dst", "Invalid mode \"map\" for multiple keys"),
        ("handle 8 flow hash keys foo", "Unknown flow key \"foo\""),
        ("handle 8 flow map key src,", "Unknown flow key \"\""),
        ("handle 10 flow map key priority rshift 40", "RTNETLINK answers: Numerical result out of range"),
        ("handle 17 flow map key sk-uid", "RTNETLINK answers: Operation not supported"),
        ("handle 23 flow map key src addend zz", "Error: any valid address is expected rather than \"zz\"."),
        ("handle 24 flow map key src and zz", "Illegal \"mask\""),
        ("handle 26 flow map key proto addend 1.2.3.4", "Illegal \"addend\""),
        ("handle 29 flow hash keys src divisor x", "Illegal \"divisor\""),
        ("handle 31 flow hash keys src baseclass zz", "Illegal \"baseclass\""),
        ("handle 33 flow hash keys src baseclass 1:0", "Illegal \"baseclass\""),
        ("handle 35 flow hash keys src perturb x", "Illegal \"perturb\""),
        ("handle 37 flow hash keys src foo", "What is \"foo\"?"),
        ("handle zz flow hash keys src", "Illegal \"handle\""),
        ("handle 38 flow map", invalid),
        ("handle 40 flow map key", "Command line is not complete. Try option \"help\""),
        ("handle 47 flow map key dst perturb 5", invalid),
    ] {
        assert_eq!(bench.message(&format!("pref 1 {text}")), message, "{text}");
    }
    // A change keeps what it does not name.
    bench.set("pref 1 handle 3 flow map key dst and 0x7", Mode::Change).unwrap();
    bench.set("pref 1 handle 3 flow divisor 5", Mode::Change).unwrap();
    bench.set("pref 1 handle 3 flow hash keys dst", Mode::Change).unwrap();
    assert!(bench.text().ends_with("handle 0x3 hash keys dst and 0x00000007 divisor 5 baseclass 1:1 \n"));
    bench.delete("pref 1 handle 3 flow").unwrap();
    assert!(bench.filters.is_empty());
}
