//! Scripts that people have used for long, command by command, with the sides that receive.

use std::fmt::Write;

use crate::served::{Said, Served};

/// The Linux Advanced Routing and Traffic Control HOWTO, sections 9.2.2.2, 9.2.3.1, 9.5.3.2 and 9.5.5.1.
const LARTC: [&str; 4] = [
    "qdisc add dev X root tbf rate 220kbit latency 50ms burst 1540\n",
    "qdisc add dev X root sfq perturb 10\n",
    "qdisc add dev X root handle 1: prio
## This *instantly* creates classes 1:1, 1:2, 1:3
qdisc add dev X parent 1:1 handle 10: sfq
qdisc add dev X parent 1:2 handle 20: tbf rate 20kbit buffer 1600 limit 3000
qdisc add dev X parent 1:3 handle 30: sfq
",
    "qdisc add dev X root handle 1: htb default 30
class add dev X parent 1: classid 1:1 htb rate 6mbit burst 15k
class add dev X parent 1:1 classid 1:10 htb rate 5mbit burst 15k
class add dev X parent 1:1 classid 1:20 htb rate 3mbit ceil 6mbit burst 15k
class add dev X parent 1:1 classid 1:30 htb rate 1kbit ceil 6mbit burst 15k
qdisc add dev X parent 1:10 handle 10: sfq perturb 10
qdisc add dev X parent 1:20 handle 20: sfq perturb 10
qdisc add dev X parent 1:30 handle 30: sfq perturb 10
filter add dev X protocol ip parent 1:0 prio 1 u32 match ip dport 80 0xffff flowid 1:10
filter add dev X protocol ip parent 1:0 prio 1 u32 match ip sport 25 0xffff flowid 1:20
",
];

/// wondershaper 1.1a with htb, at 800 kbit/s down and 220 kbit/s up, with a host and two ports of low priority.
const WONDERSHAPER: &str = "\
qdisc add dev X root handle 1: htb default 20
class add dev X parent 1: classid 1:1 htb rate 220kbit burst 6k
class add dev X parent 1:1 classid 1:10 htb rate 220kbit burst 6k prio 1
class add dev X parent 1:1 classid 1:20 htb rate 198kbit burst 6k prio 2
class add dev X parent 1:1 classid 1:30 htb rate 176kbit burst 6k prio 2
qdisc add dev X parent 1:10 handle 10: sfq perturb 10
qdisc add dev X parent 1:20 handle 20: sfq perturb 10
qdisc add dev X parent 1:30 handle 30: sfq perturb 10
filter add dev X parent 1:0 protocol ip prio 10 u32 match ip tos 0x10 0xff flowid 1:10
filter add dev X parent 1:0 protocol ip prio 11 u32 match ip protocol 1 0xff flowid 1:10
filter add dev X parent 1: protocol ip prio 12 u32 match ip protocol 6 0xff match u8 0x05 0x0f at 0 \
match u16 0x0000 0xffc0 at 2 match u8 0x10 0xff at 33 flowid 1:10
filter add dev X parent 1: protocol ip prio 14 u32 match ip dst 192.0.2.7 flowid 1:30
filter add dev X parent 1: protocol ip prio 15 u32 match ip src 192.0.2.8 flowid 1:30
filter add dev X parent 1: protocol ip prio 16 u32 match ip dport 6346 0xffff flowid 1:30
filter add dev X parent 1: protocol ip prio 17 u32 match ip sport 6346 0xffff flowid 1:30
filter add dev X parent 1: protocol ip prio 18 u32 match ip dst 0.0.0.0/0 flowid 1:20
qdisc add dev X handle ffff: ingress
filter add dev X parent ffff: protocol ip prio 50 u32 match ip src 0.0.0.0/0 police rate 800kbit burst 10k drop flowid :1
";

/// sqm-scripts' simple.qos on the side that sends: three tiers of htb, fq_codel in each.
const SQM_SIMPLE: &str = "\
qdisc add dev X root handle 1: htb default 12
class add dev X parent 1: classid 1:1 htb quantum 1500 rate 10000kbit ceil 10000kbit
class add dev X parent 1:1 classid 1:10 htb quantum 1500 rate 10000kbit ceil 10000kbit prio 0
class add dev X parent 1:1 classid 1:11 htb quantum 1500 rate 128kbit ceil 3333kbit prio 1
class add dev X parent 1:1 classid 1:12 htb quantum 1500 rate 1666kbit ceil 9984kbit prio 2
class add dev X parent 1:1 classid 1:13 htb quantum 1500 rate 1666kbit ceil 9984kbit prio 3
qdisc add dev X parent 1:11 handle 110: fq_codel quantum 300 limit 1001 noecn
qdisc add dev X parent 1:12 handle 120: fq_codel quantum 300 limit 1001 noecn
qdisc add dev X parent 1:13 handle 130: fq_codel quantum 300 limit 1001 noecn
filter add dev X parent 1:0 protocol all prio 999 u32 match ip protocol 0 0x00 flowid 1:12
filter add dev X parent 1:0 protocol ip prio 1 u32 match ip tos 0x00 0xfc classid 1:12
filter add dev X parent 1:0 protocol ipv6 prio 2 u32 match ip6 priority 0x00 0xfc classid 1:12
filter add dev X parent 1:0 protocol ip prio 3 u32 match ip tos 0x20 0xfc classid 1:13
filter add dev X parent 1:0 protocol ip prio 5 u32 match ip tos 0x10 0xfc classid 1:11
filter add dev X parent 1:0 protocol ip prio 7 u32 match ip tos 0xb8 0xfc classid 1:11
filter add dev X parent 1:0 protocol ipv6 prio 4 u32 match ip6 priority 0x20 0xfc classid 1:13
filter add dev X parent 1:0 protocol ipv6 prio 6 u32 match ip6 priority 0x10 0xfc classid 1:11
filter add dev X parent 1:0 protocol ipv6 prio 8 u32 match ip6 priority 0xb8 0xfc classid 1:11
filter add dev X parent 1:0 protocol ip prio 9 u32 match ip tos 0xc0 0xfc classid 1:11
filter add dev X parent 1:0 protocol ipv6 prio 10 u32 match ip6 priority 0xc0 0xfc classid 1:11
filter add dev X parent 1:0 protocol ip prio 11 u32 match ip tos 0xe0 0xfc classid 1:11
filter add dev X parent 1:0 protocol ipv6 prio 12 u32 match ip6 priority 0xe0 0xfc classid 1:11
filter add dev X parent 1:0 protocol ip prio 13 u32 match ip tos 0x90 0xfc classid 1:11
filter add dev X parent 1:0 protocol ipv6 prio 14 u32 match ip6 priority 0x90 0xfc classid 1:11
filter add dev X parent 1:0 protocol arp prio 15 handle 1 fw classid 1:11
qdisc add dev X handle ffff: ingress
qdisc add dev IFB root handle 1: htb default 10
class add dev IFB parent 1: classid 1:1 htb quantum 1500 rate 50000kbit ceil 50000kbit
class add dev IFB parent 1:1 classid 1:10 htb quantum 1500 rate 50000kbit ceil 50000kbit prio 0
qdisc add dev IFB parent 1:10 handle 110: fq_codel quantum 300 limit 1001 ecn
filter add dev X parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev IFB
";

/// sqm-scripts' layer_cake.qos.
const SQM_CAKE: &str = "\
qdisc add dev X root cake bandwidth 10000kbit overhead 44 mpu 64 besteffort dual-srchost nat ack-filter
qdisc add dev X handle ffff: ingress
qdisc add dev IFB root cake bandwidth 50000kbit overhead 44 mpu 64 besteffort dual-dsthost nat wash ingress
filter add dev X parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev IFB
";

/// The plugin `bandwidth` of Kubernetes' CNI: what a pod receives, and what it sends.
const CNI: &str = "\
qdisc add dev X root handle 1: tbf rate 8mbit burst 1048576 latency 25ms
qdisc add dev X handle ffff: ingress
filter add dev X parent ffff: protocol all prio 1 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev IFB
qdisc add dev IFB root handle 1: tbf rate 4mbit burst 524288 latency 25ms
";

/// Returns LibreQoS's tree of so many customers: mq, an htb for each txq, a class for each site and customer, cake in each.
fn libreqos(customers: usize, txqs: usize) -> String {
    let mut text = "qdisc replace dev X root handle 7FFF: mq\n".to_owned();
    for txq in 1..=txqs {
        let _ = write!(
            text,
            "qdisc add dev X parent 7FFF:{txq:x} handle {txq:x}: htb default 2
class add dev X parent {txq:x}: classid {txq:x}:1 htb rate 1000mbit ceil 1000mbit
qdisc add dev X parent {txq:x}:1 cake diffserv4
class add dev X parent {txq:x}:1 classid {txq:x}:2 htb rate 250mbit ceil 250mbit prio 5
qdisc add dev X parent {txq:x}:2 cake diffserv4
class add dev X parent {txq:x}:1 classid {txq:x}:3 htb rate 500mbit ceil 1000mbit prio 3
"
        );
    }
    for customer in 0..customers {
        let (txq, minor) = (customer % txqs + 1, customer / txqs + 4);
        let _ = write!(
            text,
            "class add dev X parent {txq:x}:3 classid {txq:x}:{minor:x} htb rate 5mbit ceil 25mbit prio 3
qdisc add dev X parent {txq:x}:{minor:x} cake diffserv4
"
        );
    }
    text
}

/// Runs a script as its document has it, twice: what it deletes first is there the second time.
fn run(daemon: &Served, script: &str) {
    for _ in 0..2 {
        daemon.tc("qdisc del dev X root");
        daemon.tc("qdisc del dev X ingress");
        daemon.tc("qdisc del dev IFB root");
        let said = daemon.batch(&[], script);
        // tc warns about a quantum that r2q makes too small or big.
        let wrong = said.err.lines().find(|line| !line.starts_with("Warning: sch_htb: quantum of class"));
        assert_eq!((said.rc, wrong), (0, None), "{script}");
    }
}

fn count(said: Said, start: &str) -> usize {
    said.good().lines().filter(|line| line.starts_with(start)).count()
}

#[test]
fn old_scripts_run() {
    let daemon = Served::daemon("scripts");
    daemon.dev("add X numtxqueues 4").good();
    daemon.dev("add IFB").good();
    let mut scripts = LARTC.to_vec();
    scripts.extend([WONDERSHAPER, SQM_SIMPLE, SQM_CAKE, CNI]);
    for script in scripts {
        run(&daemon, script);
        let adds = |what: &str| script.lines().filter(|line| line.starts_with(what)).count();
        assert_eq!(count(daemon.tc("class show dev X"), "class htb"), adds("class add dev X"), "{script}");
        assert_eq!(
            count(daemon.tc("class show dev IFB"), "class htb"),
            adds("class add dev IFB"),
            "{script}"
        );
        let mut rules = 0;
        for parent in
            ["1:", "ffff:"].into_iter().filter(|parent| script.contains(&format!("parent {parent}")))
        {
            let shown = daemon.tc(&format!("filter show dev X parent {parent}")).good();
            rules += shown.lines().filter(|line| line.contains("flowid") || line.contains("classid")).count();
        }
        assert_eq!(rules, adds("filter add"), "{script}");
        let hooks = count(daemon.tc("qdisc show dev X ingress"), "qdisc ingress ffff: parent ffff:fff1 ");
        assert_eq!(hooks, usize::from(script.contains("ingress")), "{script}");
    }
    daemon.end();
}

/// LibreQoS's tree, of 1,000 customers. Each command searches the tree, so this takes minutes if a search walks through the
/// flows of each cake.
#[test]
fn a_tree_of_customers() {
    let customers = 1000;
    let daemon = Served::daemon("libreqos");
    daemon.dev("add X numtxqueues 4").good();
    let said = daemon.batch(&[], &libreqos(customers, 4));
    // The qdisc of a class goes with the class's first child, as in Linux.
    assert_eq!(said.rc, 0, "{}", said.err);
    assert_eq!(count(daemon.tc("class show dev X"), "class htb"), customers + 4 * 3);
    assert_eq!(count(daemon.tc("qdisc show dev X"), "qdisc cake"), customers + 4);
    daemon.tc("qdisc del dev X root").good();
    daemon.end();
}
