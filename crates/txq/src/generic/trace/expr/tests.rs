use proptest::prelude::*;
use txq_core::flow::{FlowKeys, dissect_ip};

use super::*;

/// Returns the headers of an IPv4 packet.
fn ipv4(proto: u8, src: [u8; 4], dst: [u8; 4], ports: (u16, u16)) -> Dissected {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, proto, 0, 0];
    packet.extend(src.iter().chain(&dst));
    packet.extend(ports.0.to_be_bytes().iter().chain(&ports.1.to_be_bytes()));
    packet.extend([0; 8]);
    dissect_ip(&packet)
}

fn matches(text: &str, found: &Dissected) -> bool {
    text.parse::<Expr>().unwrap_or_else(|error| panic!("{text}: {error}")).matches(found, 100)
}

#[test]
fn words_match_as_tcpdumps() {
    let dns = ipv4(17, [10, 0, 0, 1], [192, 0, 2, 53], (4000, 53));
    for text in [
        "udp",
        "ip",
        "udp port 53",
        "udp dst port 53",
        "src port 4000",
        "portrange 50-60",
        "host 10.0.0.1",
        "src host 10.0.0.1 and dst host 192.0.2.53",
        "net 10.0.0.0/8",
        "dst net 192.0.2.0/24",
        "net 0.0.0.0/0",
        "not tcp",
        "!tcp&&udp".replace("&&", " && ").as_str(),
        "tcp or (udp and port 53)",
        "(udp and (not(tcp)))",
        "not not udp",
        "proto 17",
        "less 100",
        "greater 100",
        "ip host 10.0.0.1",
        "tcp or udp and port 53",
    ] {
        assert!(matches(text, &dns), "{text}");
    }
    for text in [
        "tcp",
        "ip6",
        "arp",
        "icmp",
        "src port 53",
        "dst host 10.0.0.1",
        "net 11.0.0.0/8",
        "host ::1",
        "vlan",
        "less 99",
        "greater 101",
        "not udp",
        "tcp or udp and port 54",
    ] {
        assert!(!matches(text, &dns), "{text}");
    }
}

#[test]
fn an_echos_identifier_is_no_port() {
    let echo = ipv4(1, [10, 0, 0, 1], [10, 0, 0, 2], (0x0800, 0));
    assert!(matches("icmp and host 10.0.0.2", &echo) && !matches("port 0", &echo));
    let mut tagged = echo;
    tagged.keys.vlan = [5, 0];
    assert!(matches("vlan", &tagged) && matches("vlan 5 and icmp", &tagged) && !matches("vlan 6", &tagged));
    let mut arp = Dissected { ethertype: 0x0806, ..Dissected::default() };
    arp.keys = FlowKeys { ethertype: 0x0806, ..FlowKeys::default() };
    assert!(matches("arp", &arp) && !matches("proto 0", &arp));
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    let deep = "(".repeat(10_000);
    let nots = "not ".repeat(900);
    let long = "udp or ".repeat(1000);
    for (text, says) in [
        ("", "its end"),
        ("   ", "its end"),
        ("udp port", "the number of a port"),
        ("udp port 70000", "\"70000\""),
        ("10.0.0.1", "put `host` in front"),
        ("53", "put `port` in front"),
        ("udp tcp", "put `and` or `or`"),
        ("udp)", "not open"),
        ("(udp", "close the parenthesis"),
        ("host example.com", "an IPv4 or IPv6 address"),
        ("net 10.0.0.0/33", "ADDRESS/BITS"),
        ("portrange 9-1", "6000-6010"),
        ("udp and", "its end"),
        ("garbage", "use host, net, port"),
        (&deep, "words"),
        (&deep[..500], "parentheses are open"),
        (&nots, "parentheses are open"),
        (&long, "words"),
    ] {
        let error = text.parse::<Expr>().unwrap_err().to_string();
        assert!(error.contains(says), "{text:.40}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_an_expression_or_an_error(text in "([a-z0-9()!&|/. -]|and |or |not |udp |port |host ){0,80}") {
        if let Ok(expr) = text.parse::<Expr>() {
            expr.matches(&Dissected::default(), 0);
        }
    }

    #[test]
    fn a_net_has_the_hosts_of_its_prefix(host: u32, net: u32, bits in 0u8..=32) {
        let expected = bits == 0 || host >> (32 - bits) == net >> (32 - bits);
        let (host, net) = (IpAddr::V4(host.into()), IpAddr::V4(net.into()));
        prop_assert_eq!(is_in(host, net, bits), expected);
    }
}
