use etherparse::{
    ArpEthIpv4Packet, Ethernet2Header, IpFragOffset, IpHeaders, Ipv4Extensions, Ipv4Header, Ipv6Extensions,
    Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, PacketBuilder, PacketBuilderStep,
    VlanId,
};
use proptest::prelude::*;

use super::*;
use crate::flow::hash_to_txq;

const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 2];
const MACS: Hosts = Hosts::Mac { src: MAC_A, dst: MAC_B };
const V4_A: [u8; 4] = [10, 0, 0, 1];
const V4_B: [u8; 4] = [10, 0, 0, 2];
const V4: Hosts = Hosts::Ipv4 { src: V4_A, dst: V4_B };
const V6_A: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const V6_B: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const V6: Hosts = Hosts::Ipv6 { src: V6_A, dst: V6_B };
const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

fn ethernet() -> PacketBuilderStep<Ethernet2Header> {
    PacketBuilder::ethernet2(MAC_A, MAC_B)
}

fn v4() -> PacketBuilderStep<IpHeaders> {
    ethernet().ipv4(V4_A, V4_B, 64)
}

fn v6() -> PacketBuilderStep<IpHeaders> {
    ethernet().ipv6(V6_A, V6_B, 64)
}

fn udp(ip: PacketBuilderStep<IpHeaders>) -> Vec<u8> {
    let mut frame = Vec::new();
    ip.udp(1000, 2000).write(&mut frame, b"payload").unwrap();
    frame
}

fn tcp(ip: PacketBuilderStep<IpHeaders>) -> Vec<u8> {
    let mut frame = Vec::new();
    ip.tcp(1000, 2000, 1, 1024).write(&mut frame, b"payload").unwrap();
    frame
}

fn other(ip: PacketBuilderStep<IpHeaders>, proto: IpNumber, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    ip.write(&mut frame, proto, payload).unwrap();
    frame
}

/// An Ethernet frame made by hand.
fn raw(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&MAC_B[..], &MAC_A, &ethertype.to_be_bytes(), payload].concat()
}

/// An IPv6 packet whose headers behind the first are made by hand.
fn v6_with(next: IpNumber, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Header { next_header: next, source: V6_A, destination: V6_B, ..Default::default() };
    raw(0x86dd, &[&header.to_bytes(), payload].concat())
}

fn keys(hosts: Hosts, ethertype: u16, proto: IpNumber, ports: (u16, u16)) -> FlowKeys {
    FlowKeys { hosts, src_port: ports.0, dst_port: ports.1, ethertype, vlan: [0, 0], ip_proto: proto.0 }
}

#[test]
fn a_packet_without_a_link_layer_is_the_flow_of_its_frame() {
    for frame in [udp(v4()), tcp(v4()), udp(v6()), tcp(v6())] {
        let (found, bare) = (dissect(&frame), dissect_ip(&frame[14..]));
        assert_eq!(found.keys, bare.keys);
        assert_eq!((bare.network_offset, bare.transport_offset + 14), (0, found.transport_offset));
    }
    assert_eq!(dissect_ip(&[]), Dissected::default());
    assert_eq!(dissect_ip(&[0x55; 40]), Dissected::default());
}

#[test]
fn ports_of_every_protocol_that_has_them() {
    let ports = [3, 232, 7, 208, 0, 0, 0, 0];
    for proto in [ip_number::TCP, ip_number::UDP, ip_number::SCTP, UDP_LITE, DCCP] {
        let found = dissect(&other(v4(), proto, &ports));
        assert_eq!(found.keys, keys(V4, 0x800, proto, (1000, 2000)));
        assert_eq!((found.network_offset, found.transport_offset, found.ip_proto), (14, 34, proto.0));
        let found = dissect(&other(v6(), proto, &ports));
        assert_eq!(found.keys, keys(V6, 0x86dd, proto, (1000, 2000)));
        assert_eq!((found.network_offset, found.transport_offset, found.ip_proto), (14, 54, proto.0));
    }
    assert_eq!(dissect(&udp(v4())).keys.src_port, 1000);
    assert_eq!(dissect(&tcp(v6())).keys.dst_port, 2000);
}

#[test]
fn other_protocols_are_keyed_by_outer_addresses() {
    let payload = tcp(v4());
    for proto in [ip_number::GRE, ip_number::IPV4, ip_number::IPV6, IpNumber(253)] {
        let found = dissect(&other(v4(), proto, &payload));
        assert_eq!((found.keys, found.transport_offset), (keys(V4, 0x800, proto, (0, 0)), 34));
    }
}

#[test]
fn echoes_are_told_apart_by_their_identifier_and_answers_match() {
    let echo =
        |icmp_type, id| dissect(&other(v4(), ip_number::ICMP, &[icmp_type, 0, 0, 0, 0, id, 0, 9])).keys;
    assert_eq!(echo(8, 5), keys(V4, 0x800, ip_number::ICMP, (5, 5)));
    assert_eq!(echo(0, 5), echo(8, 5));
    assert_eq!(echo(3, 5), keys(V4, 0x800, ip_number::ICMP, (0, 0)), "an error has no identifier");
    let mut frame = Vec::new();
    v6().icmpv6_echo_request(5, 1).write(&mut frame, b"").unwrap();
    assert_eq!(dissect(&frame).keys, keys(V6, 0x86dd, ip_number::IPV6_ICMP, (5, 5)));
}

#[test]
fn tos_is_the_whole_byte() {
    let mut header = Ipv4Header::new(0, 64, ip_number::UDP, V4_A, V4_B).unwrap();
    (header.dscp, header.ecn) = (46.try_into().unwrap(), 1.try_into().unwrap());
    assert_eq!(dissect(&udp(ethernet().ip(IpHeaders::Ipv4(header, Ipv4Extensions::default())))).tos, 0xb9);
    let header = Ipv6Header { traffic_class: 0xb9, source: V6_A, destination: V6_B, ..Default::default() };
    assert_eq!(dissect(&udp(ethernet().ip(IpHeaders::Ipv6(header, Ipv6Extensions::default())))).tos, 0xb9);
}

#[test]
fn what_changes_within_a_flow_is_not_in_its_keys() {
    let header = |class, label: u32| Ipv6Header {
        traffic_class: class,
        flow_label: Ipv6FlowLabel::try_new(label).unwrap(),
        source: V6_A,
        destination: V6_B,
        ..Default::default()
    };
    let frame = |header| udp(ethernet().ip(IpHeaders::Ipv6(header, Ipv6Extensions::default())));
    assert_eq!(dissect(&frame(header(0, 1))).keys, dissect(&frame(header(3, 2))).keys);
    let mut padded = udp(v4());
    padded.resize(100, 0);
    assert_eq!(dissect(&padded), dissect(&udp(v4())));
}

#[test]
fn vlan_ids_are_keys() {
    let id = |id: u16| VlanId::try_new(id).unwrap();
    let one = dissect(&udp(ethernet().single_vlan(id(5)).ipv4(V4_A, V4_B, 64)));
    let untagged = keys(V4, 0x800, ip_number::UDP, (1000, 2000));
    assert_eq!(one.keys, FlowKeys { vlan: [5, 0], ..untagged });
    assert_eq!((one.network_offset, one.transport_offset, one.ethertype), (18, 38, 0x800));
    let two = dissect(&udp(ethernet().double_vlan(id(5), id(7)).ipv4(V4_A, V4_B, 64)));
    assert_eq!(two.keys, FlowKeys { vlan: [5, 7], ..untagged });
    assert_eq!((two.network_offset, two.transport_offset), (22, 42));
    let priority = dissect(&udp(ethernet().single_vlan(id(0)).ipv4(V4_A, V4_B, 64)));
    assert_eq!(priority.keys, untagged);
}

#[test]
fn more_vlan_tags_are_followed_and_too_many_end_the_search() {
    let found = dissect(&raw(0x9100, &[0, 5, 0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0, 0x45]));
    assert_eq!(found.keys, FlowKeys { vlan: [5, 7], ..keys(MACS, 0x800, IpNumber(0), (0, 0)) });
    assert_eq!((found.network_offset, found.transport_offset), (26, 0));
    let nine = dissect(&raw(0x8100, &[&[0, 5, 0x81, 0].repeat(8)[..], &[0, 5, 8, 0], &[0x45; 20]].concat()));
    assert_eq!((nine.keys.hosts, nine.ethertype, nine.network_offset), (MACS, 0x8100, 14 + 4 * 8));
}

#[test]
fn what_is_not_ip_is_keyed_by_mac_addresses() {
    let mut arp = Vec::new();
    let request = ArpEthIpv4Packet {
        operation: etherparse::ArpOperation::REQUEST,
        sender_mac: MAC_A,
        sender_ipv4: V4_A,
        target_mac: [0; 6],
        target_ipv4: V4_B,
    };
    ethernet().arp(request.into()).write(&mut arp).unwrap();
    assert_eq!(dissect(&arp).keys, keys(MACS, 0x806, IpNumber(0), (0, 0)));
    for ethertype in [0x8847, 0x8864, 0x88b5, 0xffff] {
        let found = dissect(&raw(ethertype, &[0x45; 60]));
        assert_eq!((found.keys, found.ethertype), (keys(MACS, ethertype, IpNumber(0), (0, 0)), ethertype));
    }
    let lengths = [0, 38, 1500, 1535].map(|length| dissect(&raw(length, &[0x42; 38])));
    assert!(lengths.iter().all(|found| *found == lengths[0] && found.ethertype == ETHERTYPE_802_2));
}

#[test]
fn fragments_of_an_ipv4_datagram_are_one_flow() {
    let fragment = |offset: u16, more, payload: &[u8]| {
        let mut header = Ipv4Header::new(0, 64, ip_number::UDP, V4_A, V4_B).unwrap();
        header.dont_fragment = false;
        (header.fragment_offset, header.more_fragments) = (IpFragOffset::try_new(offset).unwrap(), more);
        let ip = ethernet().ip(IpHeaders::Ipv4(header, Ipv4Extensions::default()));
        dissect(&other(ip, ip_number::UDP, payload))
    };
    let (first, later, last) =
        (fragment(0, true, &[1; 8]), fragment(1, true, &[2; 8]), fragment(2, false, &[3; 3]));
    assert_eq!(first.keys, keys(V4, 0x800, ip_number::UDP, (0, 0)));
    assert!(later.keys == first.keys && last.keys == first.keys);
    assert_eq!((first.transport_offset, later.transport_offset, last.transport_offset), (34, 0, 0));
}

#[test]
fn fragments_of_an_ipv6_datagram_are_one_flow() {
    let fragment = |offset: u16, more, next: IpNumber, payload: &[u8]| {
        let header =
            Ipv6FragmentHeader::new(next, IpFragOffset::try_new(offset).unwrap(), more, 7).to_bytes();
        dissect(&v6_with(ip_number::IPV6_FRAG, &[&header, payload].concat()))
    };
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    let first = fragment(0, true, ip_number::IPV6_DEST_OPTIONS, &[options, [9; 8]].concat());
    // The bytes in the place of the options are the middle of the datagram.
    let later = fragment(2, false, ip_number::IPV6_DEST_OPTIONS, &[options, [8; 8]].concat());
    assert_eq!(first.keys, keys(V6, 0x86dd, ip_number::IPV6_FRAG, (0, 0)));
    assert_eq!(later.keys, first.keys);
    assert_eq!((first.ip_proto, first.transport_offset), (17, 54 + 16));
    assert_eq!((later.ip_proto, later.transport_offset), (60, 0));

    let whole = fragment(0, false, ip_number::UDP, &[3, 232, 7, 208, 0, 0, 0, 0]);
    assert_eq!(whole.keys, keys(V6, 0x86dd, ip_number::UDP, (1000, 2000)), "an atomic fragment, RFC 6946");
}

#[test]
fn extension_headers_are_followed() {
    let header = Ipv6Header { source: V6_A, destination: V6_B, ..Default::default() };
    let options = |len| Ipv6RawExtHeader::new_raw(ip_number::UDP, &vec![0; len]).unwrap();
    let mut extensions = Ipv6Extensions { hop_by_hop_options: Some(options(6)), ..Default::default() };
    extensions.destination_options = Some(options(14));
    extensions.auth = Some(etherparse::IpAuthHeader::new(ip_number::UDP, 1, 2, &[0; 12]).unwrap());
    let found = dissect(&udp(ethernet().ip(IpHeaders::Ipv6(header, extensions))));
    assert_eq!(found.keys, dissect(&udp(v6())).keys);
    assert_eq!(usize::from(found.transport_offset), 54 + 8 + 16 + 24);
}

#[test]
fn too_many_extension_headers_end_the_search() {
    let chain = |headers: usize| {
        let mut payload = Vec::new();
        for n in 1..=headers {
            payload.extend([if n == headers { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        payload.extend([3, 232, 7, 208]);
        dissect(&v6_with(ip_number::IPV6_DEST_OPTIONS, &payload))
    };
    assert_eq!(chain(8).keys, keys(V6, 0x86dd, ip_number::UDP, (1000, 2000)));
    let nine = chain(9);
    assert_eq!(nine.keys, keys(V6, 0x86dd, ip_number::IPV6_DEST_OPTIONS, (0, 0)));
    assert_eq!(nine.transport_offset, 0);
}

#[test]
fn a_cut_frame_is_keyed_by_its_whole_headers() {
    let id = VlanId::try_new(5).unwrap();
    let whole = udp(ethernet().single_vlan(id).ipv4(V4_A, V4_B, 64));
    for len in 0..=whole.len() {
        let found = dissect(&whole[..len]);
        let mac = FlowKeys { vlan: [5, 0], ..keys(MACS, 0x800, IpNumber(0), (0, 0)) };
        let ip = FlowKeys { vlan: [5, 0], ..keys(V4, 0x800, ip_number::UDP, (0, 0)) };
        let (expected, network, transport) = match len {
            0..14 => (FlowKeys::default(), 0, 0),
            14..18 => (keys(MACS, 0x8100, IpNumber(0), (0, 0)), 14, 0),
            18..38 => (mac, 18, 0),
            38..42 => (ip, 18, 38),
            _ => (FlowKeys { src_port: 1000, dst_port: 2000, ..ip }, 18, 38),
        };
        assert_eq!(
            (found.keys, found.network_offset, found.transport_offset),
            (expected, network, transport),
            "{len}"
        );
    }
}

#[test]
fn a_malformed_ip_header_is_none() {
    for (ethertype, first) in [(0x800, 0x65), (0x800, 0x44), (0x86dd, 0x45)] {
        let mut frame = raw(ethertype, &[0; 60]);
        frame[14] = first;
        assert_eq!(dissect(&frame).keys, keys(MACS, ethertype, IpNumber(0), (0, 0)), "{first:#x}");
    }
}

/// From an independent SipHash-1-3 over the documented bytes.
#[test]
fn hashes_are_the_same_on_every_machine() {
    let hasher = FlowHasher::new(KEY, false);
    let udp = keys(V4, 0x800, ip_number::UDP, (1000, 2000));
    for (keys, expected) in [
        (FlowKeys::default(), 0xa2a4_fcfc),
        (keys(MACS, 0x806, IpNumber(0), (0, 0)), 0x0c52_ff82),
        (FlowKeys { vlan: [5, 7], ..udp }, 0xaf6c_d1ec),
        (keys(V6, 0x86dd, ip_number::TCP, (1000, 2000)), 0x865d_91e8),
    ] {
        assert_eq!(hasher.hash(&keys), expected, "{keys:?}");
    }
}

#[test]
fn the_key_is_not_shown() {
    assert_eq!(format!("{:?}", FlowHasher::new([77, 77], true)), "FlowHasher { symmetric: true, .. }");
}

#[test]
fn results_stay_within_a_cache_line() {
    assert!(size_of::<Dissected>() <= 64, "{}", size_of::<Dissected>());
}

/// Chi-square with 3 degrees of freedom: 16.3 is exceeded by chance once in 1000 keys, and the key is fixed.
#[test]
fn flows_spread_evenly_over_queues() {
    let hasher = FlowHasher::new(KEY, false);
    let spread = |keys: &dyn Fn(u16) -> FlowKeys| {
        let mut flows = [0; 4];
        (0..4096).for_each(|n| flows[usize::from(hash_to_txq(hasher.hash(&keys(n)), 4))] += 1);
        flows.iter().map(|&flows| (f64::from(flows) - 1024.0).powi(2) / 1024.0).sum::<f64>()
    };
    let udp = keys(V4, 0x800, ip_number::UDP, (1000, 2000));
    let by_port = spread(&|n| FlowKeys { src_port: n, ..udp });
    let by_host = spread(&|n| {
        let [high, low] = n.to_be_bytes();
        FlowKeys { hosts: Hosts::Ipv4 { src: [10, 0, high, low], dst: V4_B }, ..udp }
    });
    let by_vlan = spread(&|n| FlowKeys { vlan: [n, 0], ..udp });
    assert!(by_port < 16.3 && by_host < 16.3 && by_vlan < 16.3, "{by_port} {by_host} {by_vlan}");
}

fn any_hosts() -> impl Strategy<Value = Hosts> {
    prop_oneof![
        Just(Hosts::Unknown),
        any::<([u8; 6], [u8; 6])>().prop_map(|(src, dst)| Hosts::Mac { src, dst }),
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| Hosts::Ipv4 { src, dst }),
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| Hosts::Ipv6 { src, dst }),
    ]
}

fn reversed(keys: &FlowKeys) -> FlowKeys {
    let hosts = match keys.hosts {
        Hosts::Unknown => Hosts::Unknown,
        Hosts::Mac { src, dst } => Hosts::Mac { src: dst, dst: src },
        Hosts::Ipv4 { src, dst } => Hosts::Ipv4 { src: dst, dst: src },
        Hosts::Ipv6 { src, dst } => Hosts::Ipv6 { src: dst, dst: src },
    };
    FlowKeys { hosts, src_port: keys.dst_port, dst_port: keys.src_port, ..*keys }
}

proptest! {
    #[test]
    fn directions_are_one_flow_only_if_symmetric(hosts in any_hosts(), ports: (u16, u16), key: [u64; 2]) {
        let ports = if matches!(hosts, Hosts::Unknown | Hosts::Mac { .. }) { (0, 0) } else { ports };
        let keys = keys(hosts, 0x800, ip_number::UDP, ports);
        let back = reversed(&keys);
        let hash = |symmetric, keys| FlowHasher::new(key, symmetric).hash(keys);
        prop_assert_eq!(hash(true, &keys), hash(true, &back));
        prop_assert!(keys == back || hash(false, &keys) != hash(false, &back));
        prop_assert!(hash(false, &keys) != 0);
    }

    #[test]
    fn payload_does_not_matter(a: [u8; 24], b: [u8; 24]) {
        let frame = |payload: &[u8]| {
            let mut frame = Vec::new();
            v4().udp(1, 2).write(&mut frame, payload).unwrap();
            frame
        };
        prop_assert_eq!(flow_hash(&frame(&a)), flow_hash(&frame(&b)));
    }

    #[test]
    fn no_bytes_panic(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        flow_hash(&frame);
    }

    #[test]
    fn no_mangled_frame_panics(
        which in 0usize..4, at in 0usize..90, byte: u8, cut in 0usize..90, ethertype in prop::sample::select(vec![0x8100, 0x800, 0x86dd]),
    ) {
        let options = [44, 0, 0, 0, 0, 0, 0, 0, 51, 0, 0, 1, 0, 0, 0, 0, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut frame = match which {
            0 => udp(v4()),
            1 => tcp(v6()),
            2 => v6_with(ip_number::IPV6_HOP_BY_HOP, &options),
            _ => raw(ethertype, &[0x45; 80]),
        };
        if let Some(place) = frame.get_mut(at) {
            *place = byte;
        }
        frame.truncate(frame.len() - cut.min(frame.len()));
        let found = dissect(&frame);
        prop_assert!(usize::from(found.network_offset) <= frame.len());
        prop_assert!(usize::from(found.transport_offset) <= frame.len());
        // The same packet without its Ethernet header is the same flow.
        let bare = dissect_ip(frame.get(14..).unwrap_or_default());
        if found.network_offset == 14 && found.ethertype == bare.ethertype && bare.keys.hosts != Hosts::Unknown {
            let transport_offset = found.transport_offset.saturating_sub(14);
            prop_assert_eq!(bare, Dissected { network_offset: 0, transport_offset, ..found });
        }
    }

    #[test]
    fn no_bytes_without_a_link_layer_panic(packet in prop::collection::vec(any::<u8>(), 0..200)) {
        let found = dissect_ip(&packet);
        prop_assert_eq!(found.network_offset, 0);
        prop_assert!(usize::from(found.transport_offset) <= packet.len());
    }
}
