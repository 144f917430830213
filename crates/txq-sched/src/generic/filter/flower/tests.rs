use std::time::Instant;

use proptest::prelude::*;
use txq_core::flow::{Hosts, Link};

use super::{Flower, Key, Rule, parse};
use crate::generic::filter::tests::{Bench, any_frame, ethernet, ipv4, ports, udp};
use crate::generic::filter::{Mode, filters_json};
use crate::tc::{Handle, Style, Words};

fn arp() -> Vec<u8> {
    ethernet(0x806, &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 5, 6, 7, 8])
}

#[test]
fn fields_are_where_headers_have_them() {
    let mut tcp = ports(80, 443);
    tcp[13] = 0x12;
    let tcp = ethernet(0x800, &ipv4(6, 0x28, &tcp));
    let mut fragment = udp(7, 8);
    fragment[20] = 0x20;
    let icmp = ethernet(0x800, &ipv4(1, 0, &[8, 3, 0, 0, 0, 7, 0, 0]));
    let tagged = ethernet(0x8100, &[&[0x60, 5, 8, 0], &ipv4(17, 0, &ports(7, 8))[..]].concat());
    let twice =
        ethernet(0x88a8, &[&[0x60, 5, 0x81, 0, 0x20, 6, 8, 0], &ipv4(17, 0, &ports(7, 8))[..]].concat());
    let mut v6 = vec![0x62, 0x80, 0, 0, 0, 20, 17, 9];
    v6.extend([0x20, 1, 0x0d, 0xb8]);
    v6.extend([0; 27]);
    v6.push(1);
    v6.extend(ports(7, 8));
    let v6 = ethernet(0x86dd, &v6);
    let arp = arp();
    for (rule, frame, matches) in [
        (
            "protocol ip flower src_ip 10.0.0.1 dst_ip 10.0.0.0/8 ip_proto tcp src_port 80 dst_port 443",
            &tcp,
            true,
        ),
        ("protocol ip flower src_ip 10.0.0.3", &tcp, false),
        ("protocol ip flower ip_proto tcp dst_port 444", &tcp, false),
        ("protocol ip flower ip_proto tcp dst_port 0x1b0/0xfff0", &tcp, true),
        ("protocol ip flower ip_proto tcp dst_port 443-444", &tcp, true),
        ("protocol ip flower ip_proto tcp dst_port 444-445", &tcp, false),
        ("protocol ip flower ip_proto tcp src_port 1-100 dst_port 443", &tcp, true),
        ("protocol ip flower ip_proto tcp src_port 1-100 dst_port 444", &tcp, false),
        ("protocol ip flower ip_proto tcp tcp_flags 0x2/0x3", &tcp, true),
        ("protocol ip flower ip_proto tcp tcp_flags 0x2", &tcp, false),
        ("protocol ip flower ip_tos 0x28 ip_ttl 64", &tcp, true),
        ("protocol ip flower ip_tos 0x2b/fc", &tcp, true),
        ("protocol ip flower ip_ttl 63", &tcp, false),
        ("protocol ip flower ip_flags nofrag", &tcp, true),
        ("protocol ip flower ip_flags frag/firstfrag", &fragment, true),
        ("protocol ip flower ip_flags nofrag", &fragment, false),
        ("protocol ip flower ip_proto udp dst_port 8", &fragment, false),
        ("protocol ip flower ip_proto icmp type 8 code 3", &icmp, true),
        ("protocol ip flower ip_proto icmp type 0/7", &icmp, true),
        ("protocol ip flower ip_proto icmp code 4", &icmp, false),
        (
            "protocol 802.1q flower vlan_id 5 vlan_prio 3 vlan_ethtype ip ip_proto udp dst_port 8",
            &tagged,
            true,
        ),
        ("protocol 802.1q flower vlan_id 6", &tagged, false),
        ("protocol 802.1q flower vlan_prio 0", &tagged, false),
        ("protocol 802.1q flower vlan_ethtype ipv6", &tagged, false),
        (
            "protocol 802.1ad flower vlan_id 5 vlan_ethtype 802.1q cvlan_id 6 cvlan_prio 1 cvlan_ethtype ip",
            &twice,
            true,
        ),
        ("protocol 802.1ad flower vlan_ethtype 802.1q cvlan_id 5", &twice, false),
        ("protocol ipv6 flower src_ip 2001:db8::/32 dst_ip ::1 ip_proto udp src_port 7 ip_ttl 9", &v6, true),
        ("protocol ipv6 flower ip_tos 0x28", &v6, true),
        ("protocol ipv6 flower src_ip 2001:db9::/32", &v6, false),
        (
            "protocol arp flower arp_sip 1.2.0.0/16 arp_tip 5.6.7.8 arp_op request arp_sha 2:0:0:0:0:1",
            &arp,
            true,
        ),
        ("protocol arp flower arp_op reply", &arp, false),
        ("flower dst_mac 2:0:0:0:0:2 src_mac 2:0:0:0:0:ff/40", &arp, true),
        ("flower dst_mac 2:0:0:0:0:3", &arp, false),
        ("flower", &arp, true),
    ] {
        let mut bench = Bench::with(&[&format!("{rule} classid 1:1")]);
        assert_eq!(bench.class(frame).is_some(), matches, "{rule}");
    }
}

/// The expected outputs are those of tc for the same commands.
#[test]
fn text_and_json_are_those_of_tc() {
    let bench = Bench::with(&[
        "protocol ip pref 1 flower src_ip 1.2.3.4 dst_ip 5.6.0.0/16 ip_proto tcp src_port 80 dst_port 443 classid 1:1",
        "protocol ip pref 1 flower ip_proto tcp tcp_flags 2 ip_tos 10/fc ip_ttl 64 classid 1:2",
        "protocol ip pref 1 flower ip_proto icmp type 8/8 code 0 ip_flags nofrag/firstfrag",
        "protocol ip pref 1 flower ip_proto sctp dst_port 0x50/0xf0 src_port 1-10",
        "protocol ip pref 1 flower ip_proto 2f",
        "protocol ipv6 pref 2 flower src_ip 2001:db8::5/40 ip_proto icmpv6 type 128",
        "protocol 802.1q pref 3 flower vlan_id 5 vlan_prio 3 vlan_ethtype 0x1234 skip_hw",
        "protocol arp pref 5 flower arp_tip 1.2.3.4 arp_op request arp_sha 1:2:3:4:5:6/24",
        "protocol all pref 6 flower src_mac 1:2:3:4:5:6 dst_mac a:b:c:d:e:f/ff:0:0:0:0:1",
        "protocol 0x88cc pref 7 flower",
    ]);
    let text = bench.text();
    let rule = |n: usize| text.split("filter parent 1: ").nth(n).unwrap();
    for (n, expected) in [
        (1, "protocol ip pref 1 flower chain 0 \n"),
        (
            2,
            "protocol ip pref 1 flower chain 0 handle 0x1 classid 1:1 \n  eth_type ipv4\n  ip_proto tcp\n  \
             dst_ip 5.6.0.0/16\n  src_ip 1.2.3.4\n  dst_port 443\n  src_port 80\n  not_in_hw\n",
        ),
        (
            3,
            "protocol ip pref 1 flower chain 0 handle 0x2 classid 1:2 \n  eth_type ipv4\n  ip_proto tcp\n  \
             ip_tos 10/0xfc\n  ip_ttl 64\n  tcp_flags 0x2/fff\n  not_in_hw\n",
        ),
        (
            4,
            "protocol ip pref 1 flower chain 0 handle 0x3 \n  eth_type ipv4\n  ip_proto icmp\n  icmp_type 8/8\n  \
             icmp_code 0\n  ip_flags nofrag/firstfrag\n  not_in_hw\n",
        ),
        (
            5,
            "protocol ip pref 1 flower chain 0 handle 0x4 \n  eth_type ipv4\n  ip_proto sctp\n  \
             dst_port 80/0xf0\n  src_port 1-10\n  not_in_hw\n",
        ),
        (6, "protocol ip pref 1 flower chain 0 handle 0x5 \n  eth_type ipv4\n  ip_proto 2f\n  not_in_hw\n"),
        (
            8,
            "protocol ipv6 pref 2 flower chain 0 handle 0x1 \n  eth_type ipv6\n  ip_proto icmpv6\n  \
             src_ip 2001:db8::5/40\n  icmp_type 128\n  not_in_hw\n",
        ),
        (
            10,
            "protocol 802.1Q pref 3 flower chain 0 handle 0x1 \n  vlan_id 5\n  vlan_prio 3\n  \
             vlan_ethtype [4660]\n  eth_type 1234\n  skip_hw\n  not_in_hw\n",
        ),
        (
            12,
            "protocol arp pref 5 flower chain 0 handle 0x1 \n  eth_type arp\n  arp_tip 1.2.3.4\n  \
             arp_op request\n  arp_sha 01:02:03:04:05:06/24\n  not_in_hw\n",
        ),
        (
            14,
            "protocol all pref 6 flower chain 0 handle 0x1 \n  dst_mac 0a:0b:0c:0d:0e:0f/ff:00:00:00:00:01\n  \
             src_mac 01:02:03:04:05:06\n  not_in_hw\n",
        ),
        (16, "protocol LLDP pref 7 flower chain 0 handle 0x1 \n  eth_type 88cc\n  not_in_hw\n"),
    ] {
        assert_eq!(rule(n), expected);
    }
    let info = bench.filters.info(None, Style::default());
    let options = |n: usize| filters_json(&info[n..=n], false)[0]["options"].to_string();
    assert_eq!(
        options(2),
        r#"{"handle":2,"classid":"1:2","keys":{"eth_type":"ipv4","ip_proto":"tcp","ip_tos":10,"ip_tos_mask":"fc","ip_ttl":64,"tcp_flags":"0x2/fff"},"not_in_hw":true}"#
    );
    assert_eq!(
        options(3),
        r#"{"handle":3,"keys":{"eth_type":"ipv4","ip_proto":"icmp","icmp_type":"8/8","icmp_code":"0","ip_flags":{"frag":false,"firstfrag":true}},"not_in_hw":true}"#
    );
    assert_eq!(
        options(4),
        r#"{"handle":4,"keys":{"eth_type":"ipv4","ip_proto":"sctp","dst_port":80,"dst_port_mask":"f0","src_port":{"start":1,"end":10}},"not_in_hw":true}"#
    );
}

#[test]
fn messages_are_those_of_tc() {
    let mut bench = Bench::with(&["protocol ip pref 1 handle 9 flower src_ip 1.1.1.1 classid 1:1"]);
    for (text, message) in [
        ("pref 2 flower src_ip 1.2.3.4", "Illegal \"src_ip\""),
        ("pref 2 flower ip_proto tcp", "Illegal \"eth_type\" for ip proto"),
        ("protocol ip flower ip_proto icmpv6", "Illegal \"eth_type\" for ip proto"),
        ("protocol ip flower ip_proto TCP", "Illegal \"ip_proto\""),
        ("protocol ip flower src_ip zz", "Error: inet prefix is expected rather than \"zz\"."),
        (
            "protocol ip flower src_ip 1.2.3.4/33",
            "Error: inet prefix is expected rather than \"1.2.3.4/33\".",
        ),
        ("protocol ip flower src_ip ::1", "Error: inet prefix is expected rather than \"::1\"."),
        ("protocol ip flower ip_proto tcp src_port zz", "Illegal \"src_port\""),
        ("protocol ip flower src_port 5", "Illegal \"src_port\""),
        ("protocol ip flower ip_proto icmp src_port 5", "Illegal \"src_port\""),
        ("protocol ip flower ip_proto tcp src_port 0", "Illegal \"src_port\""),
        ("protocol ip flower ip_proto tcp src_port 70000", "Illegal \"src_port\""),
        ("protocol ip flower ip_proto tcp dst_port 0x50", "Illegal \"dst_port\""),
        ("protocol ip flower ip_proto tcp src_port 9-5", "max value should be greater than min value"),
        ("protocol ip flower src_mac zz", "\"zz\" is invalid lladdr."),
        ("protocol ip flower dst_mac 1:2:3:4:5:6/zz", "\"zz\" is invalid lladdr."),
        (
            "protocol ip flower vlan_id 5",
            "Can't set \"vlan_id\" if ethertype isn't 802.1Q or 802.1AD and num_of_vlans is 0",
        ),
        ("protocol 802.1q flower vlan_id 5000", "Illegal \"vlan_id\""),
        ("protocol 802.1q flower vlan_prio 9", "Illegal \"vlan_prio\""),
        ("protocol 802.1q flower vlan_ethtype zz", "Error: argument \"zz\" is wrong: invalid vlan_ethtype"),
        ("protocol ip flower ip_tos zz", "Illegal \"ip_tos\""),
        ("protocol ip flower ip_ttl 300", "Illegal \"ip_ttl\""),
        ("protocol ip flower tcp_flags zz", "Illegal \"tcp_flags\""),
        ("protocol ip flower ip_proto tcp type 8", "Illegal \"icmp type\""),
        ("protocol ip flower ip_proto icmp type 8/0xff", "Illegal \"icmp type\""),
        ("protocol ip flower ip_flags zz", "Illegal \"ip_flags\""),
        ("protocol arp flower arp_op 7", "Illegal \"arp_op\""),
        ("protocol ip flower arp_sip 1.2.3.4", "Illegal \"arp_sip\""),
        ("protocol ip flower src_ip", "Command line is not complete. Try option \"help\""),
        ("protocol ip flower foo", "What is \"foo\"?"),
        ("protocol ip flower classid zz", "Illegal \"classid\""),
        ("handle zz flower", "Illegal \"handle\""),
        ("protocol ip pref 1 flower src_ip 1.1.1.1", "RTNETLINK answers: File exists"),
        ("protocol ip pref 1 handle 9 flower src_ip 1.1.1.2", "Error: Filter already exists."),
    ] {
        assert_eq!(bench.message(text), message, "{text}");
    }
    let text = "pref 1 handle 9 flower ip_tos 4";
    assert_eq!(
        bench.set(&format!("protocol ip {text}"), Mode::Change).unwrap_err().message(),
        "RTNETLINK answers: Invalid argument"
    );
    bench.set("protocol ip pref 1 handle 9 flower src_ip 10.0.0.1 classid 1:2", Mode::Change).unwrap();
    assert_eq!(bench.class(&udp(1, 2)), Some(2));
}

/// A model: a linear search over the rules.
#[derive(Default)]
struct Linear {
    rules: Vec<Rule>,
    /// The first rule of each set of masks, in the order of creation of the sets.
    masks: Vec<Rule>,
}

impl Linear {
    fn add(&mut self, rule: Rule) {
        if let Some(old) = self.rules.iter_mut().find(|old| old.handle == rule.handle) {
            // The rule keeps its place.
            *old = rule;
            return;
        }
        if !self.masks.iter().any(|known| known.what.same_masks(&rule.what)) {
            self.masks.push(rule.clone());
        }
        self.rules.push(rule);
    }

    fn delete(&mut self, handle: u32) {
        let rules = &mut self.rules;
        rules.retain(|rule| rule.handle != handle);
        self.masks.retain(|mask| rules.iter().any(|rule| rule.what.same_masks(&mask.what)));
    }

    fn classify(&self, key: &Key) -> Option<Handle> {
        let matches = |rule: &&Rule| {
            let what = &rule.what;
            let under = |key: &Key, at| key.word(at) & what.mask.word(at);
            let ports = [(what.src_ports, super::key::SRC_PORT), (what.dst_ports, super::key::DST_PORT)];
            (0..super::key::KEY_WORDS).all(|at| under(key, at) == under(&what.value, at))
                && ports
                    .iter()
                    .all(|(range, at)| range.is_none_or(|(a, b)| (a..=b).contains(&key.short(*at))))
        };
        let of = |mask: &Rule| {
            let mut same = self.rules.iter().filter(|rule| rule.what.same_masks(&mask.what));
            same.find(matches).map(|rule| rule.classid.unwrap())
        };
        self.masks.iter().find_map(of)
    }
}

fn rule(handle: u32, text: &str) -> Rule {
    parse(Some(&handle.to_string()), 0x800, &mut Words::split(text)).unwrap()
}

fn any_text() -> impl Strategy<Value = String> {
    let (host, port) = (0u8..6, 1u16..6);
    prop_oneof![
        (host.clone(), prop_oneof![Just(32), Just(24), Just(30)])
            .prop_map(|(host, bits)| format!("dst_ip 10.0.0.{host}/{bits}")),
        (host, port.clone())
            .prop_map(|(host, port)| format!("src_ip 10.0.0.{host} ip_proto udp dst_port {port}")),
        (port.clone(), 0u8..3).prop_map(|(port, tos)| format!("ip_proto udp src_port {port} ip_tos {tos}")),
        (port.clone(), port).prop_map(|(a, b)| format!("ip_proto udp dst_port {a}-{}", a + b)),
    ]
}

proptest! {
    /// A packet without a link layer has the fields of its frame, but for addresses and tags of the link layer.
    #[test]
    fn the_link_layer_changes_nothing_behind_it(frame in any_frame()) {
        const MACS: usize = 12;
        let found = txq_core::flow::dissect(&frame);
        if found.network_offset == 14 && matches!(found.keys.hosts, Hosts::Ipv4 { .. } | Hosts::Ipv6 { .. }) {
            let (framed, bare) = (Key::of(&frame, Link::Ethernet), Key::of(&frame[14..], Link::Ip));
            prop_assert_eq!(&framed.bytes[MACS..], &bare.bytes[MACS..]);
        }
    }

    #[test]
    fn no_bytes_without_a_link_layer_panic(packet in prop::collection::vec(any::<u8>(), 0..100)) {
        Key::of(&packet, Link::Ip);
    }

    /// The tables choose what the linear search chooses, also after rules were removed and added.
    #[test]
    fn tables_say_what_a_linear_search_does(
        script in prop::collection::vec((any_text(), 0..10, 1u32..30), 1..60),
        frames in prop::collection::vec(any_frame(), 1..30),
    ) {
        let (mut flower, mut linear) = (Flower::new(), Linear::default());
        for ((text, what, handle), class) in script.into_iter().zip(1..) {
            if what < 7 {
                let new = Rule { classid: Some(Handle::new(1, class)), ..rule(handle, &text) };
                let mode = if what < 4 { Mode::Add } else { Mode::Replace };
                if flower.set(new.clone(), mode).is_ok() {
                    linear.add(new);
                }
            } else {
                flower.delete(&rule(handle, ""));
                linear.delete(handle);
            }
            for frame in &frames {
                let key = Key::of(frame, Link::Ethernet);
                prop_assert_eq!(flower.find(&key).map(|(_, class)| class), linear.classify(&key));
            }
        }
    }
}

/// Returns the CPU time of the calling thread.
#[cfg(target_os = "linux")]
fn cpu_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Every operation takes constant time for any number of rules; a linear one would take hundreds of times as long.
#[cfg(target_os = "linux")]
#[test]
fn replacing_and_deleting_cost_no_more_than_adding() {
    use std::time::Duration;

    use crate::generic::filter::Deleted;

    const RULES: u32 = 20_000;
    let address =
        |n: u32, of: &str| format!("{of}_ip 10.{}.{}.{} ip_proto udp", n >> 16, n >> 8 & 255, n & 255);
    let plain = |n: u32| format!("{} dst_port 53", address(n, "src"));
    let changed = |n: u32| format!("{} dst_port 54", address(n, "src"));
    let range = |n: u32| format!("ip_proto udp src_port {}-{}", 1 + n / 200, 1000 + n % 200);
    let moved = |n: u32| format!("ip_proto udp src_port {}-{}", 1 + n / 200, 2000 + n % 200);
    let cases: [[&dyn Fn(u32) -> String; 2]; 2] = [[&plain, &changed], [&range, &moved]];
    let mut spent = Vec::new();
    for [first, then] in cases {
        let rules = |text: &dyn Fn(u32) -> String| -> Vec<Rule> {
            (1..=RULES).map(|n| Rule { classid: Some(Handle::new(1, 1)), ..rule(n, &text(n)) }).collect()
        };
        let (first, then, all) = (rules(first), rules(then), rules(&plain));
        let mut flower = Flower::new();
        let mut step = |what: &mut dyn FnMut(&mut Flower, Rule), rules: Vec<Rule>| {
            let start = cpu_time();
            rules.into_iter().for_each(|rule| what(&mut flower, rule));
            spent.push(cpu_time() - start);
        };
        step(&mut |flower, rule| flower.set(rule, Mode::Add).unwrap(), first);
        step(&mut |flower, rule| flower.set(rule, Mode::Replace).unwrap(), then);
        // Removed from the front, so that the next rules get the handles freed.
        let (even, odd): (Vec<_>, Vec<_>) = all.into_iter().partition(|rule| rule.handle % 2 == 0);
        step(
            &mut |flower, rule| assert_eq!(flower.delete(&rule), Deleted::Done { last: false }),
            even.clone(),
        );
        let chosen = even.into_iter().map(|rule| Rule { handle: 0, ..rule }).collect();
        step(&mut |flower, rule| flower.set(rule, Mode::Add).unwrap(), chosen);
        step(&mut |flower, rule| assert_ne!(flower.delete(&rule), Deleted::NotThere), odd);
        assert_eq!(flower.rules.len(), RULES as usize / 2);
    }
    let most = spent[0] * 10 + Duration::from_millis(20);
    assert!(
        spent.iter().all(|&time| time < most),
        "adding, replacing, deleting, adding, deleting: {spent:?}"
    );
}

/// Measures speed only: `cargo test --release -- --ignored --nocapture cost_of_a_lookup`.
#[test]
#[ignore = "measures"]
fn cost_of_a_lookup() {
    for rules in [1_u32, 10, 100, 1000, 10_000] {
        let mut flower = Flower::new();
        for n in 0..rules {
            let text = format!("src_ip 10.{}.{}.{} ip_proto udp dst_port 53", n >> 16, n >> 8 & 255, n & 255);
            flower.set(Rule { classid: Some(Handle::new(1, 1)), ..rule(n + 1, &text) }, Mode::Add).unwrap();
        }
        let frames: Vec<_> = (0..1024_u32)
            .map(|n| {
                let mut frame = udp(1, 53);
                let n = n.wrapping_mul(2_654_435_761) % rules;
                frame[26..30].copy_from_slice(&[10, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
                frame
            })
            .collect();
        let keys: Vec<_> = frames.iter().map(|frame| Key::of(frame, Link::Ethernet)).collect();
        let rounds = 2000;
        let start = Instant::now();
        let mut found = 0;
        for _ in 0..rounds {
            found += keys.iter().filter(|key| flower.find(std::hint::black_box(key)).is_some()).count();
        }
        let lookup = start.elapsed().as_nanos() as f64 / f64::from(rounds * 1024);
        assert_eq!(found, rounds as usize * 1024);
        let start = Instant::now();
        for _ in 0..rounds {
            for frame in &frames {
                std::hint::black_box(flower.find(&Key::of(std::hint::black_box(frame), Link::Ethernet)));
            }
        }
        let whole = start.elapsed().as_nanos() as f64 / f64::from(rounds * 1024);
        println!("{rules:6} rules: {lookup:5.1} ns a lookup, {whole:5.1} ns with the headers");
    }
}
