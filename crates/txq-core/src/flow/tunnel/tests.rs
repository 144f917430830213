//! The same inner packet in each encapsulation: its keys are those of the packet alone, and the rest is the outer packet's.

use proptest::prelude::*;

use super::*;
use crate::flow::layout::Layout;
use crate::flow::{dissect, dissect_ip, dissect_outer};

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

fn ethernet_of(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&MACS[..], &ethertype.to_be_bytes(), payload].concat()
}

fn tagged(tags: u16, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut inside = (ethertype, payload.to_vec());
    for tag in (1..=tags).rev() {
        inside = (0x8100, [&tag.to_be_bytes()[..], &inside.0.to_be_bytes(), &inside.1].concat());
    }
    ethernet_of(inside.0, &inside.1)
}

fn v4(host: u8, proto: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let [fragment0, fragment1] = fragment.to_be_bytes();
    let addresses = [10, 0, 0, host, 10, 0, 1, host];
    [&[0x45, 0xb8, high, low, 0, 1, fragment0, fragment1, 64, proto, 0, 0][..], &addresses, payload].concat()
}

fn v6(host: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let address = |last| [&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host][..], &[last]].concat();
    [&[0x60, 0, 0, 0, high, low, next, 64][..], &address(1), &address(2), payload].concat()
}

fn udp(src: u16) -> Vec<u8> {
    [&src.to_be_bytes()[..], &[0x13, 0x88, 0, 12, 0, 0, 1, 2, 3, 4]].concat()
}

fn gre(flags: u16, fields: usize, proto: u16, payload: &[u8]) -> Vec<u8> {
    [&flags.to_be_bytes()[..], &proto.to_be_bytes(), &vec![7; fields * 4], payload].concat()
}

fn pppoe(proto: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16 + 2).to_be_bytes();
    [&[0x11, 0, 0, 7, high, low][..], &proto.to_be_bytes(), payload].concat()
}

/// Each encapsulation of an IP packet, with the name of the outer packet's ethertype.
fn wrapped(ip: &[u8]) -> Vec<(&'static str, u16, Vec<u8>)> {
    let is_v4 = ip[0] >> 4 == 4;
    let (ethertype, ppp, proto) = if is_v4 { (0x800, 0x21, 4) } else { (0x86dd, 0x57, 41) };
    let pptp = [&[0xff, 3][..], &u16::to_be_bytes(ppp), ip].concat();
    vec![
        ("PPPoE", 0x8864, pppoe(ppp, ip)),
        ("GRE", 0x800, v4(200, 47, 0, &gre(0, 0, ethertype, ip))),
        ("GRE with checksum, key and number", 0x800, v4(200, 47, 0, &gre(0xb000, 3, ethertype, ip))),
        ("GRE in IPv6", 0x86dd, v6(200, 47, &gre(0x2000, 1, ethertype, ip))),
        ("Ethernet in GRE", 0x800, v4(200, 47, 0, &gre(0, 0, 0x6558, &ethernet_of(ethertype, ip)))),
        ("tagged Ethernet in GRE", 0x800, v4(200, 47, 0, &gre(0, 0, 0x6558, &tagged(2, ethertype, ip)))),
        ("PPTP", 0x800, v4(200, 47, 0, &gre(0x3081, 3, 0x880b, &pptp))),
        ("IP in IPv4", 0x800, v4(200, proto, 0, ip)),
        ("IP in IPv6", 0x86dd, v6(200, proto, ip)),
        (
            "IP in IPv4 in GRE in PPPoE",
            0x8864,
            pppoe(0x21, &v4(201, 47, 0, &gre(0, 0, 0x800, &v4(200, proto, 0, ip)))),
        ),
    ]
}

#[test]
fn a_flow_in_a_tunnel_is_the_flow_inside() {
    for ip in [v4(1, 17, 0, &udp(4000)), v6(1, 17, &udp(4000)), v4(1, 50, 0, &[0, 1, 2, 3, 9, 9, 9, 9])] {
        let alone = dissect_ip(&ip).keys;
        for (name, ethertype, payload) in wrapped(&ip) {
            for tags in 0..=3 {
                let frame = tagged(tags, ethertype, &payload);
                let (found, outer) = (dissect(&frame), dissect_outer(&frame));
                let vlan = [1, 2].map(|id| if id <= tags { id } else { 0 });
                let expected = FlowKeys { vlan, ethertype, ..alone };
                assert_eq!(found.keys, expected, "{name}, {tags} tags");
                assert_eq!(
                    Dissected { keys: outer.keys, ..found },
                    outer,
                    "{name}: all but the keys is the outer packet's"
                );
                assert_eq!(found.network_offset, 14 + 4 * tags, "{name}");
                assert_eq!(
                    Layout::of(&frame, &found),
                    None,
                    "{name}: the inner packet is no segment of the frame"
                );
            }
            if ethertype != 0x8864 {
                assert_eq!(dissect_ip(&payload).keys, FlowKeys { ethertype, ..alone }, "{name}");
            }
        }
    }
}

#[test]
fn two_flows_in_a_tunnel_are_two() {
    let wraps = |ip: Vec<u8>| {
        wrapped(&ip)
            .into_iter()
            .map(|(_, ethertype, payload)| dissect(&ethernet_of(ethertype, &payload)).keys)
    };
    for (one, other) in wraps(v4(1, 17, 0, &udp(4000))).zip(wraps(v4(1, 17, 0, &udp(4444)))) {
        assert_ne!(one, other);
    }
    let esp = |spi| dissect(&ethernet_of(0x800, &v4(1, 50, 0, &[0, 0, 0, spi, 0, 0, 0, 1]))).keys;
    assert_ne!(esp(1), esp(2));
}

#[test]
fn what_is_cut_or_unknown_inside_leaves_the_outer_flow() {
    let inner = v4(1, 17, 0, &udp(4000));
    for (name, payload) in [
        ("a first fragment", v4(200, 4, 0x2000, &inner)),
        ("a later fragment", v4(200, 4, 0x0010, &inner)),
        ("a cut IP header", v4(200, 4, 0, &inner[..19])),
        ("another version", v4(200, 4, 0, &v6(1, 17, &udp(4000)))),
        ("GRE with routing", v4(200, 47, 0, &gre(0x4000, 0, 0x800, &inner))),
        ("GRE of version 2", v4(200, 47, 0, &gre(0x0002, 0, 0x800, &inner))),
        ("PPTP without a key", v4(200, 47, 0, &gre(0x0001, 0, 0x880b, &inner))),
        ("a cut GRE header", v4(200, 47, 0, &gre(0xb000, 2, 0x800, &[]))),
        ("ARP in GRE", v4(200, 47, 0, &gre(0, 0, 0x6558, &ethernet_of(0x806, &inner)))),
        ("MPLS in GRE", v4(200, 47, 0, &gre(0, 0, 0x8847, &inner))),
        (
            "VXLAN",
            v4(
                200,
                17,
                0,
                &[
                    &[0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0][..],
                    &ethernet_of(0x800, &inner),
                ]
                .concat(),
            ),
        ),
    ] {
        let frame = ethernet_of(0x800, &payload);
        assert_eq!(dissect(&frame), dissect_outer(&frame), "{name}");
    }
    for (name, payload) in [
        ("LCP", pppoe(0xc021, &inner)),
        ("a code", [&[0x11, 9][..], &pppoe(0x21, &inner)[2..]].concat()),
        ("a cut session", pppoe(0x21, &inner)[..7].to_vec()),
    ] {
        let found = dissect(&ethernet_of(0x8864, &payload));
        assert!(matches!(found.keys.hosts, Hosts::Mac { .. }), "{name}: {found:?}");
    }
}

#[test]
fn encapsulations_without_end_are_followed_for_a_while() {
    let mut packet = v4(1, 17, 0, &udp(4000));
    let alone = dissect_ip(&packet).keys;
    for depth in 1..=12u8 {
        packet = v4(100 + depth, 4, 0, &packet);
        let keys = dissect_ip(&packet).keys;
        assert_eq!(keys == alone, usize::from(depth) <= MAX_ENCAPSULATIONS, "{depth}");
    }
}

proptest! {
    /// No bytes make it panic, and what is inside changes nothing but the keys.
    #[test]
    fn any_bytes_are_dissected(
        kind in 0usize..10,
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let (_, ethertype, payload) = wrapped(&v4(1, 17, 0, &udp(4000))).swap_remove(kind);
        let mut frame = ethernet_of(ethertype, &payload);
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(cut.index(frame.len() + 1));
        let (found, outer) = (dissect(&frame), dissect_outer(&frame));
        prop_assert_eq!(Dissected { keys: outer.keys, ..found }, outer);
        let _ = dissect_ip(&frame);
    }
}
