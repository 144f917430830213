//! `txq save`: the state as commands that restore it.

use super::bench::{Bench, end};

const DEVICES: &str = "\
[[device]]
name = \"a\"
[[device]]
name = \"b\"
txqs = 4
[[device]]
name = \"c\"
qdisc = \"pfifo limit 9\"
[[device]]
name = \"d\"
txqs = 4
[[device]]
name = \"e\"
txqs = 2
";

/// A change of each kind; whatever tc can do comes back.
const COMMANDS: &str = "\
qdisc replace dev a root handle 1: htb default 20 r2q 20 direct_qlen 55
class add dev a parent 1: classid 1:1 htb rate 20mbit ceil 1gbit burst 15k
class add dev a parent 1:1 classid 1:10 htb rate 5mbit ceil 20mbit prio 1 overhead 18 mpu 64 linklayer atm
class add dev a parent 1:1 classid 1:20 htb rate 1001kbit quantum 3000
class add dev a parent 1: classid 1:30 htb rate 7mbit
class add dev a parent 1:1 classid 1:40 htb rate 1mbit
class add dev a parent 1:1 classid 1:50 htb rate 1mbit
class add dev a parent 1:1 classid 1:60 htb rate 1mbit
qdisc add dev a parent 1:10 handle 10: fq_codel limit 777 noecn target 7ms interval 90ms memory_limit 3m
qdisc add dev a parent 1:20 handle 20: prio bands 4 priomap 0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3
qdisc add dev a parent 20:1 handle 21: tbf rate 3mbit burst 10001 latency 33ms peakrate 4mbit mtu 2000
qdisc add dev a parent 20:2 handle 22: cake bandwidth 9mbit diffserv4 dual-srchost nat wash ingress ack-filter rtt 30ms overhead 18 mpu 64 atm memlimit 5mb
qdisc add dev a parent 20:3 handle 23: netem delay 13ms 3ms 25% distribution normal loss 1.5% 10% corrupt 2% reorder 25% 50% gap 5 rate 5mbit 10 48 5 limit 4321
qdisc add dev a parent 20:4 handle 24: codel limit 900 target 3ms interval 50ms ecn
qdisc add dev a parent 1:30 handle 30: drr
class add dev a parent 30: classid 30:1 drr quantum 1700
class add dev a parent 30: classid 30:2 drr
qdisc add dev a parent 30:1 handle 31: bfifo limit 12345
qdisc add dev a parent 30:2 handle 32: pfifo limit 77
qdisc add dev a parent 1:40 handle 40: netem loss gemodel 1% 10% 70% 0.1% slot 800us 1ms packets 5 bytes 9000
qdisc add dev a parent 1:50 handle 50: fq limit 5000 flow_limit 50 quantum 2000 maxrate 3mbit horizon 5s horizon_cap
qdisc add dev a parent 1:60 handle 60: netem loss state 1% 2% 3% 4% 5% ecn
filter add dev a parent 1: protocol ip pref 1 handle 1 flower ip_proto tcp dst_port 80 src_ip 10.0.0.0/8 classid 1:10
filter add dev a parent 1: protocol ip pref 1 handle 2 flower ip_proto tcp tcp_flags 0x2/0x12 classid 1:10
filter add dev a parent 1: protocol ip pref 2 handle 1 flower ip_proto icmp type 8 code 0 classid 1:20
filter add dev a parent 1: protocol 802.1q pref 3 handle 1 flower vlan_id 7 vlan_prio 3 classid 1:20
filter add dev a parent 1: protocol all pref 4 handle 6 fw classid 1:10
filter add dev a parent 1: protocol all pref 4 handle 7 fw classid 1:20
filter add dev a parent 1: protocol ip pref 5 u32 match ip dst 10.1.0.0/16 match ip dport 53 0xffff flowid 1:10
filter add dev a parent 1: protocol ip pref 5 u32 match ip sport 99 0xffff flowid 1:20
filter add dev a parent 1: protocol ipv6 pref 6 handle 1 flower dst_ip 2001:db8::/32 classid 1:20
filter add dev a parent 20: protocol all pref 9 handle 1 matchall classid 20:2
qdisc replace dev c root handle 1: netem duplicate 1% 5% delay 1us
qdisc replace dev b root handle 1: mqprio num_tc 2 map 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 queues 1@0 3@1 hw 0
qdisc replace dev e root handle 1: cake_mq bandwidth 9mbit diffserv4 nat ack-filter rtt 30ms overhead 18 mpu 64 atm
qdisc replace dev d root handle 1: tbf_mq rate 100mbit burst 20001 limit 50000 overhead 18
qdisc replace dev d parent 1:2 handle 12: fq_codel limit 777
qdisc replace dev b parent 1:1 handle 11: pfifo limit 5
qdisc replace dev b parent 1:3 handle 13: etf clockid CLOCK_TAI delta 5000 deadline_mode
";

#[test]
fn a_saved_state_comes_back() {
    // The devices have no wire; the namespaces give it a socket of its own.
    let Some(bench) = Bench::new("a_saved_state_comes_back", "null", true) else { return };
    let daemon = bench.daemon(DEVICES);
    assert_eq!(bench.txq("save").good(), "qdisc replace dev c root handle 8001: pfifo limit 9\n");
    let tc = |text: &str| bench.fed(&["tc", "--socket", &bench.socket(), "-batch", "-"], text);
    tc(COMMANDS).good();
    let state = || {
        let of = |dev: &str| {
            let words = ["tc -d qdisc show dev", "tc -d class show dev"]
                .map(|show| bench.txq(&format!("{show} {dev}")).good());
            let filters = ["1:", "20:"]
                .map(|parent| bench.txq(&format!("tc filter show dev {dev} parent {parent}")).out);
            (words, filters)
        };
        (of("a"), of("b"), of("d"), of("e"))
    };
    let (saved, before) = (bench.txq("save").good(), state());
    assert!(saved.lines().count() >= COMMANDS.lines().count(), "{saved}");
    // Onto itself it changes nothing.
    tc(&saved).good();
    assert_eq!(bench.txq("save").good(), saved);
    assert_eq!(state(), before);
    drop(end(daemon));
    let daemon = bench.daemon(DEVICES);
    assert_eq!(bench.txq("save a").good(), "");
    tc(&saved).good();
    assert_eq!(bench.txq("save").good(), saved);
    assert_eq!(state(), before);
    assert_eq!(
        bench.txq("save a").good()
            + &bench.txq("save b").good()
            + &bench.txq("save c").good()
            + &bench.txq("save d").good()
            + &bench.txq("save e").good(),
        saved
    );
    let none = bench.txq("save f");
    assert!(none.rc == 1 && none.err.contains("Cannot find device \"f\""), "{none:?}");
    drop(end(daemon));
}
