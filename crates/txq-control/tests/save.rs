//! `tc::save` onto another device, without a server.

mod device;

use std::io;

use device::Sink;
use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue};
use txq_control::tc;

/// A device gives a handle to a qdisc that a command does not name, and may give the same one to another qdisc.
#[test]
fn a_handle_that_the_device_chose_comes_back() {
    let empty = || NetDev::builder(Sink("d0".to_owned())).qdisc("noqueue").start().expect("a device");
    for kind in ["htb", "prio", "cake"] {
        let (from, to) = (empty(), empty());
        tc::apply(&from, &format!("qdisc add root {kind}")).unwrap();
        let saved = tc::save(&from);
        assert!(saved.contains(&format!("root handle 8002: {kind}")), "{saved}");
        saved.lines().for_each(|command| tc::apply(&to, command).unwrap());
        assert_eq!(tc::save(&to), saved);
    }
}

/// The commands of kinds with many parameters restore them, and their classes.
#[test]
fn commands_restore_parameters_and_classes() {
    let empty = || NetDev::builder(Sink("d0".to_owned())).qdisc("noqueue").start().expect("a device");
    let (from, to) = (empty(), empty());
    for command in [
        "qdisc add root handle 1: stab overhead -4 mpu 64 linklayer atm hfsc default 20",
        "class add parent 1: classid 1:1 hfsc sc rate 10mbit ul rate 10mbit",
        "class add parent 1:1 classid 1:10 hfsc rt umax 1500b dmax 5ms rate 2mbit ls rate 3mbit",
        "class add parent 1:1 classid 1:20 hfsc ls m1 5mbit d 20ms m2 1mbit",
        "qdisc add parent 1:10 handle 10: sfq perturb 9 limit 500 flows 60 headdrop",
        "qdisc add parent 1:20 handle 20: ets strict 1 quanta 3000 2000 priomap 0 1 2 1",
        "class change classid 20:3 ets quantum 2500",
        "qdisc add parent 20:1 handle 21: red limit 400k min 30k max 90k avpkt 1000 burst 55 ecn adaptive bandwidth 9mbit",
        "qdisc add parent 20:2 handle 22: estimator 1s 8s pie limit 77 target 7ms tupdate 9ms alpha 3 beta 21 ecn bytemode",
        "qdisc add parent 20:3 handle 23: sfq redflowlimit 90000 min 8000 max 30000 probability 0.1 ecn",
        "filter add parent 1: protocol ip pref 1 handle 6 fw classid 1:10",
        "filter add parent 1: protocol ip pref 3 handle 2: u32 divisor 16",
        "filter add parent 1: protocol ip pref 3 u32 ht 2:5: match udp dst 53 ffff flowid 1:10",
        "filter add parent 1: protocol ip pref 2 u32 match mark 5 ff hashkey mask f at 12 offset at 0 mask f00 shift 6 eat link 2:",
        "filter add parent 1: pref 4 basic match ( cmp(u8 at 9 eq 17) or nbyte(\"a\\n\" at 2) ) and not meta(nf_mark gt 2) flowid 1:20",
        "filter add parent 1: pref 4 basic flowid 1:10",
        "filter add parent 1: pref 5 handle 7 flow hash keys src,dst divisor 8 baseclass 1:10 perturb 9",
        "qdisc add ingress",
        "filter add ingress protocol ip pref 9 u32 divisor 4",
        "filter add ingress protocol ip pref 9 u32 match u32 0 0 link 801: police rate 1mbit burst 10k drop",
    ] {
        tc::apply(&from, command).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
    let saved = tc::save(&from);
    // A second time they meet what they have made.
    for _ in 0..2 {
        for command in saved.lines() {
            tc::apply(&to, command).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
        assert_eq!(tc::save(&to), saved);
    }
    for part in [
        "hfsc default 20",
        "classid 1:10 hfsc rt",
        "perturb 9",
        "strict 1 quanta 3000 2500",
        "estimator 1000000us",
        "stab linklayer atm overhead -4 mpu 64 mtu 2047 tsize 512 hfsc",
        "burst 55",
    ] {
        assert!(saved.contains(part), "{part}: {saved}");
    }
}

/// A device with two txqs.
struct Two;

impl Driver for Two {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("d0").txqs(2)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        Sink("d0".to_owned()).open(txq)
    }
}

/// Every kind at the root, with the options that it must have.
const ROOTS: [&str; 30] = [
    "pfifo limit 7",
    "bfifo limit 9000",
    "pfifo_fast",
    "prio bands 4 priomap 3 2 1 0",
    "multiq",
    "htb default 5 r2q 7",
    "htb_mq default 5 r2q 7",
    "hfsc default 5",
    "drr",
    "ets bands 3 quanta 3000 2000 1000",
    "sfq perturb 9 limit 100",
    "red limit 400k min 30k max 90k avpkt 1000 burst 55 ecn",
    "choke limit 1000 bandwidth 10mbit min 30 max 90 ecn",
    "codel limit 77 ecn",
    "fq_codel flows 64 noecn",
    "pie limit 77 ecn",
    "fq_pie flows 64 ecn",
    "fq nopacing maxrate 1mbit",
    "cake bandwidth 1mbit nat wash",
    "cake_mq bandwidth 1mbit",
    "netem delay 10ms loss 5% corrupt 1% rate 1mbit",
    "etf clockid CLOCK_TAI delta 100000 deadline_mode",
    "tbf rate 1mbit burst 10k limit 10k peakrate 2mbit mtu 2000",
    "tbf_mq rate 1mbit burst 10k limit 10k",
    "skbprio limit 7",
    "plug limit 7",
    "dualpi2 limit 77",
    "mq",
    "mqprio hw 0 num_tc 2 map 0 1 queues 1@0 1@1",
    "blackhole",
];

/// What a kind is like without most of these options, where it then can be at the root.
fn other(kind: &str) -> &str {
    match kind {
        "red" => "red limit 300k avpkt 1000",
        "choke" => "choke limit 900 bandwidth 10mbit",
        "ets" => "ets bands 2",
        "etf" => "etf clockid CLOCK_TAI delta 5",
        "tbf" => "tbf rate 2mbit burst 20k limit 20k",
        "tbf_mq" => "tbf_mq rate 2mbit burst 20k limit 20k",
        "mqprio" => "mqprio hw 0 num_tc 1 map 0 queues 2@0",
        "netem" => "netem delay 5ms duplicate 5% slot 1ms",
        "fq" => "fq quantum 3000",
        "cake" => "cake ack-filter ingress",
        kind => kind,
    }
}

/// The commands restore each kind into a device with another default, into one that has the same, and into one that has the same kind
/// with the same handle and other options.
#[test]
fn commands_restore_every_kind_whatever_the_device_has() {
    let device = |default: &str| {
        let builder = NetDev::builder(Two).default_qdisc(default);
        builder.start().expect("a device")
    };
    let restore = |to: &NetDev, saved: &str| {
        for command in saved.lines() {
            tc::apply(to, command).unwrap_or_else(|error| panic!("{command}: {error}\n{saved}"));
        }
        assert_eq!(tc::save(to), saved);
    };
    for root in ROOTS {
        let from = device("pfifo_fast");
        tc::apply(&from, &format!("qdisc replace root handle 1: {root}"))
            .unwrap_or_else(|e| panic!("{root}: {e}"));
        let saved = tc::save(&from);
        let kind = root.split(' ').next().unwrap_or_default();
        assert!(saved.contains(&format!(" handle 1: {kind}")), "{saved}");
        restore(&from, &saved);
        for default in ["pfifo_fast", "fq_codel"] {
            let to = device(default);
            restore(&to, &saved);
            tc::apply(
                &to,
                &format!("qdisc replace root {}", if kind == "pfifo" { "bfifo" } else { "pfifo" }),
            )
            .unwrap();
            tc::apply(&to, &format!("qdisc replace root handle 1: {}", other(kind))).unwrap();
            restore(&to, &saved);
        }
    }
}

/// A qdisc may have the hook's major number: the hook is not below it.
#[test]
fn the_hooks_number_may_be_a_qdiscs() {
    let empty = || NetDev::builder(Sink("d0".to_owned())).qdisc("noqueue").start().expect("a device");
    let (from, to) = (empty(), empty());
    for command in [
        "qdisc add root handle ffff: prio",
        "qdisc add parent ffff:1 handle 2: tbf rate 1mbit burst 2k limit 3k",
    ] {
        tc::apply(&from, command).unwrap();
    }
    // Whether the device takes a hook beside it, is the device's affair.
    let _ = tc::apply(&from, "qdisc add ingress");
    let saved = tc::save(&from);
    assert!(saved.contains("parent ffff:1 handle 2: tbf"), "{saved}");
    saved.lines().for_each(|command| tc::apply(&to, command).unwrap());
    assert_eq!(tc::save(&to), saved);
}

/// hfsc has classes below classes without end, and every walk ends: a save, the lists, the tree, and the end of the device.
#[test]
fn a_chain_of_many_classes_is_saved() {
    const MANY: u32 = 4000;
    let empty = || NetDev::builder(Sink("d0".to_owned())).qdisc("noqueue").start().expect("a device");
    let (from, to) = (empty(), empty());
    tc::apply(&from, "qdisc add root handle 1: hfsc").unwrap();
    for minor in 1..=MANY {
        let parent = if minor == 1 { String::new() } else { format!("{:x}", minor - 1) };
        tc::apply(&from, &format!("class add parent 1:{parent} classid 1:{minor:x} hfsc sc rate 1mbit"))
            .unwrap();
    }
    let saved = tc::save(&from);
    assert_eq!(saved.lines().filter(|line| line.starts_with("class ")).count(), MANY as usize);
    saved.lines().for_each(|command| tc::apply(&to, command).unwrap());
    assert_eq!(tc::save(&to), saved);
    // From the last to the first, since a class with others below it stays.
    (1..=MANY).rev().for_each(|minor| tc::apply(&to, &format!("class del classid 1:{minor:x}")).unwrap());
    assert_eq!(to.classes(Default::default()).iter().filter(|class| class.handle.minor() > 0).count(), 0);
}
