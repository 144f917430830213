//! Scripts that people have used for long, command by command, with the sides that receive.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::served::{Said, Served};

/// The Linux Advanced Routing and Traffic Control HOWTO, sections 9.2.2.2, 9.2.3.1, 9.5.3.2, 9.5.5.1, 12.4 and 15.2.
const LARTC: [&str; 6] = [
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
    "qdisc add dev X root handle 1: prio
filter add dev X parent 1:0 prio 5 protocol ip u32
filter add dev X parent 1:0 prio 5 handle 2: protocol ip u32 divisor 256
filter add dev X protocol ip parent 1:0 prio 5 u32 ht 2:7b: match ip src 1.2.0.123 flowid 1:1
filter add dev X protocol ip parent 1:0 prio 5 u32 ht 2:7b: match ip src 1.2.1.123 flowid 1:2
filter add dev X protocol ip parent 1:0 prio 5 u32 ht 2:7b: match ip src 1.2.3.123 flowid 1:3
filter add dev X protocol ip parent 1:0 prio 5 u32 ht 2:7c: match ip src 1.2.3.124 flowid 1:2
filter add dev X protocol ip parent 1:0 prio 5 u32 ht 800:: match ip src 1.2.0.0/16 \\
  hashkey mask 0x000000ff at 12 link 2:
",
    "qdisc add dev X handle ffff: ingress
filter add dev X parent ffff: protocol ip prio 50 handle 1 fw police rate 1kbit burst 40 mtu 9k drop flowid :1
",
];

/// wondershaper 1.1a, at 800 kbit/s down and 220 kbit/s up, with a host and a port of low priority.
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
filter add dev X parent 1: protocol ip prio 10 u32 \\
  match ip protocol 6 0xff \\
  match u8 0x05 0x0f at 0 \\
  match u16 0x0000 0xffc0 at 2 \\
  match u8 0x10 0xff at 33 \\
  flowid 1:10
filter add dev X parent 1: protocol ip prio 14 u32 match ip dst 192.0.2.7 flowid 1:30
filter add dev X parent 1: protocol ip prio 15 u32 match ip src 192.0.2.8 flowid 1:30
filter add dev X parent 1: protocol ip prio 16 u32 match ip dport 6346 0xffff flowid 1:30
filter add dev X parent 1: protocol ip prio 17 u32 match ip sport 6346 0xffff flowid 1:30
filter add dev X parent 1: protocol ip prio 18 u32 match ip dst 0.0.0.0/0 flowid 1:20
qdisc add dev X handle ffff: ingress
filter add dev X parent ffff: protocol ip prio 50 u32 match ip src 0.0.0.0/0 police rate 800kbit burst 10k drop flowid :1
";

/// wondershaper 1.4, at 1024 kbit/s down and 512 kbit/s up: what arrives goes through a device of its own.
const WONDERSHAPER_IFB: &str = "\
qdisc add dev X root handle 1: htb default 20
class add dev X parent 1: classid 1:1 htb rate 512kbit prio 5
class add dev X parent 1:1 classid 1:10 htb rate 102kbit ceil 486kbit prio 1
class add dev X parent 1:1 classid 1:20 htb rate 204kbit ceil 486kbit prio 2
class add dev X parent 1:1 classid 1:30 htb rate 102kbit ceil 460kbit prio 3
qdisc add dev X parent 1:10 handle 10: sfq perturb 10 quantum 6000
qdisc add dev X parent 1:20 handle 20: sfq perturb 10 quantum 6000
qdisc add dev X parent 1:30 handle 30: sfq perturb 10 quantum 6000
filter add dev X parent 1: protocol ip prio 10 u32 match ip tos 0x10 0xff flowid 1:10
filter add dev X parent 1: protocol ip prio 11 u32 match ip protocol 1 0xff flowid 1:10
filter add dev X parent 1: protocol ip prio 12 u32 match ip protocol 6 0xff match u8 0x05 0x0f at 0 \\
  match u16 0x0000 0xffc0 at 2 flowid 1:10
filter add dev X parent 1: protocol ip prio 18 u32 match ip dst 0.0.0.0/0 flowid 1:20
qdisc add dev X handle ffff: ingress
filter add dev X parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev IFB
filter add dev X parent ffff: protocol ipv6 u32 match u32 0 0 action mirred egress redirect dev IFB
qdisc add dev IFB root handle 2: htb
class add dev IFB parent 2: classid 2:1 htb rate 1024kbit
filter add dev IFB protocol ip parent 2: prio 1 u32 match ip src 0.0.0.0/0 flowid 2:1
filter add dev IFB protocol ipv6 parent 2: prio 2 u32 match ip6 src ::/0 flowid 2:1
";

/// sqm-scripts' simple.qos at 10 Mbit/s up and 50 Mbit/s down: three tiers by marks on the way out, by DSCPs on the way in.
const SQM_SIMPLE: &str = "\
qdisc add dev X root handle 1: htb default 12
class add dev X parent 1: classid 1:1 htb quantum 1514 rate 10000kbit ceil 10000kbit
class add dev X parent 1:1 classid 1:10 htb quantum 1514 rate 10000kbit ceil 10000kbit prio 0
class add dev X parent 1:1 classid 1:11 htb quantum 1514 rate 128kbit ceil 3333kbit prio 1
class add dev X parent 1:1 classid 1:12 htb quantum 1514 rate 1666kbit ceil 9984kbit prio 2
class add dev X parent 1:1 classid 1:13 htb quantum 1514 rate 1666kbit ceil 9984kbit prio 3
qdisc add dev X parent 1:11 handle 110: fq_codel limit 1001 target 5ms noecn quantum 300
qdisc add dev X parent 1:12 handle 120: fq_codel limit 1001 target 5ms noecn quantum 300
qdisc add dev X parent 1:13 handle 130: fq_codel limit 1001 target 5ms noecn quantum 300
filter add dev X parent 1:0 protocol all prio 999 u32 \\
  match ip protocol 0 0x00 flowid 1:12
filter add dev X parent 1:0 protocol ip prio 1 handle 1 fw classid 1:11
filter add dev X parent 1:0 protocol ip prio 2 handle 2 fw classid 1:12
filter add dev X parent 1:0 protocol ip prio 3 handle 3 fw classid 1:13
filter add dev X parent 1:0 protocol ipv6 prio 4 handle 1 fw classid 1:11
filter add dev X parent 1:0 protocol ipv6 prio 5 handle 2 fw classid 1:12
filter add dev X parent 1:0 protocol ipv6 prio 6 handle 3 fw classid 1:13
filter add dev X parent 1:0 protocol arp prio 7 handle 1 fw classid 1:11
filter add dev X parent 1:0 protocol ip prio 8 u32 match ip protocol 1 0xff flowid 1:13
filter add dev X parent 1:0 protocol ipv6 prio 9 u32 match ip protocol 1 0xff flowid 1:13
qdisc add dev X handle ffff: ingress
qdisc add dev IFB root handle 1: htb default 12
class add dev IFB parent 1: classid 1:1 htb quantum 6056 rate 50000kbit ceil 50000kbit
class add dev IFB parent 1:1 classid 1:10 htb quantum 6056 rate 50000kbit ceil 50000kbit prio 0
class add dev IFB parent 1:1 classid 1:11 htb quantum 6056 rate 32kbit ceil 16666kbit prio 1
class add dev IFB parent 1:1 classid 1:12 htb quantum 6056 rate 8333kbit ceil 49984kbit prio 2
class add dev IFB parent 1:1 classid 1:13 htb quantum 6056 rate 8333kbit ceil 49984kbit prio 3
qdisc add dev IFB parent 1:11 handle 110: fq_codel limit 1001 target 5ms ecn quantum 500
qdisc add dev IFB parent 1:12 handle 120: fq_codel limit 1001 target 5ms ecn quantum 1500
qdisc add dev IFB parent 1:13 handle 130: fq_codel limit 1001 target 5ms ecn quantum 300
filter add dev IFB parent 1:0 protocol all prio 999 u32 match ip protocol 0 0x00 flowid 1:12
filter add dev IFB parent 1:0 protocol ip prio 1 u32 match ip tos 0x00 0xfc classid 1:12
filter add dev IFB parent 1:0 protocol ipv6 prio 2 u32 match ip6 priority 0x00 0xfc classid 1:12
filter add dev IFB parent 1:0 protocol ip prio 3 u32 match ip tos 0x20 0xfc classid 1:13
filter add dev IFB parent 1:0 protocol ipv6 prio 4 u32 match ip6 priority 0x20 0xfc classid 1:13
filter add dev IFB parent 1:0 protocol ip prio 5 u32 match ip tos 0x10 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ipv6 prio 6 u32 match ip6 priority 0x10 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ip prio 7 u32 match ip tos 0xb8 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ipv6 prio 8 u32 match ip6 priority 0xb8 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ip prio 9 u32 match ip tos 0xc0 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ipv6 prio 10 u32 match ip6 priority 0xc0 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ip prio 11 u32 match ip tos 0xe0 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ipv6 prio 12 u32 match ip6 priority 0xe0 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ip prio 13 u32 match ip tos 0x90 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol ipv6 prio 14 u32 match ip6 priority 0x90 0xfc classid 1:11
filter add dev IFB parent 1:0 protocol arp prio 15 handle 1 fw classid 1:11
filter add dev X parent ffff: protocol all prio 10 u32 \\
  match u32 0 0 flowid 1:1 action mirred egress redirect dev IFB
";

/// sqm-scripts' layer_cake.qos.
const SQM_CAKE: &str = "\
qdisc add dev X root cake bandwidth 10000kbit overhead 44 mpu 64 besteffort dual-srchost nat ack-filter
qdisc add dev X handle ffff: ingress
qdisc add dev IFB root cake bandwidth 50000kbit overhead 44 mpu 64 besteffort dual-dsthost nat wash ingress
filter add dev X parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev IFB
";

/// The filters of tc's manual pages: u32's hash tables and links, flow's examples, basic's matches.
const MANUALS: [&str; 3] = [
    "qdisc add dev X root handle 1: prio
filter add dev X parent 1: prio 99 handle 1: u32 divisor 256
filter add dev X parent 1: prio 1 u32 link 1: hashkey mask 0x0000ff00 at 12 match ip src 192.168.0.0/16
filter add dev X parent 1: prio 99 u32 ht 1: sample u32 0x00000800 0x0000ff00 at 12 \\
  match ip src 192.168.8.0/24 classid 1:1
filter add dev X parent 1:0 protocol ip prio 7 handle 2: u32 divisor 1
filter add dev X parent 1:0 protocol ip prio 7 u32 ht 2: match tcp src 22 FFFF classid 1:2
filter add dev X parent 1:0 protocol ip prio 7 u32 match ip protocol 6 FF match u16 0 1fff at 6 \\
  offset at 0 mask 0f00 shift 6 link 2:
",
    "qdisc add dev X root handle 1: sfq
filter add dev X parent 1: prio 1 handle 1 flow hash keys src,dst,proto,proto-src,proto-dst divisor 1024
filter add dev X parent 1: prio 2 handle 1 flow hash keys src,dst perturb 30 divisor 1024
filter add dev X parent 1: prio 3 handle 1 flow map key dst addend -192.168.0.0 divisor 256
filter add dev X parent 1: prio 4 handle 1 flow map key dst and 0xff
filter add dev X parent 1: prio 5 handle 1 flow map key dst and 0xff xor 0xff
",
    "qdisc add dev X root handle 1: prio
filter add dev X parent 1: basic match 'cmp(u16 at 3 layer 2 mask 0xff00 gt 20)' classid 1:1
filter add dev X parent 1: basic match 'meta(nf_mark gt 24)' and 'meta(priority mask 0xf0 eq 0xf0)' classid 1:2
filter add dev X parent 1: basic match 'nbyte(\"ababa\" at 12 layer 1)' classid 1:3
filter add dev X parent 1: basic match 'u32(u16 0x1122 0xffff at nexthdr+4)' classid 1:1
",
];

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

/// Returns device, parent, pref and protocol of a command.
fn pref(command: &str) -> Vec<String> {
    let words: Vec<_> = command.split_whitespace().collect();
    let after = |name: &str| words.iter().position(|word| *word == name).map_or("", |at| words[at + 1]);
    let names = ["dev", "parent", "prio", "protocol"];
    names.map(|name| after(name).replace(":0", ":")).to_vec()
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
    scripts.extend(MANUALS);
    scripts.extend([WONDERSHAPER, WONDERSHAPER_IFB, SQM_SIMPLE, SQM_CAKE, CNI]);
    for script in scripts {
        run(&daemon, script);
        let adds = |what: &str| script.lines().filter(|line| line.starts_with(what)).count();
        assert_eq!(count(daemon.tc("class show dev X"), "class htb"), adds("class add dev X"), "{script}");
        assert_eq!(
            count(daemon.tc("class show dev IFB"), "class htb"),
            adds("class add dev IFB"),
            "{script}"
        );
        // Each filter's rule, and each hash table.
        let mut rules = 0;
        for (dev, parent) in [("X", "1:"), ("X", "ffff:"), ("IFB", "1:"), ("IFB", "2:")] {
            let shown = daemon.tc(&format!("filter show dev {dev} parent {parent}"));
            let lines = shown.out.lines().filter(|line| line.starts_with("filter "));
            rules += lines.filter(|line| line.contains(" fh ") || line.contains(" handle ")).count();
        }
        // Each pref of u32 has a table of its own.
        let added = script.lines().filter(|line| line.starts_with("filter add") && line.contains(" u32"));
        let tables: BTreeSet<_> = added.map(pref).collect();
        let empty = script.lines().filter(|line| line.ends_with(" u32")).count();
        assert_eq!(rules, adds("filter add") - empty + tables.len(), "{script}");
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
