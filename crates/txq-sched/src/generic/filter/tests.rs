use proptest::prelude::*;

use txq_core::drop::DropReason;
use txq_core::packet::Packet;
use txq_core::pool::{Backing, Cache, Pool, PoolConfig};

use super::*;
use crate::generic::qdisc::Verdict;
use crate::generic::qdisc::testing::Virtual;

/// The filters of qdisc 1:, and buffers for packets.
pub(super) struct Bench {
    pub(super) filters: Filters,
    pub(super) indexes: Indexes,
    cache: Cache,
}

impl Bench {
    pub(super) fn new() -> Self {
        let config = PoolConfig { buffers: 64, room: 2048, backing: Backing::Heap, ..PoolConfig::default() };
        Self {
            filters: Filters::new(),
            indexes: Indexes::default(),
            cache: Pool::new(&config).unwrap().cache("test", 0),
        }
    }

    pub(super) fn with(rules: &[&str]) -> Self {
        let mut bench = Self::new();
        rules.iter().for_each(|rule| bench.add(rule).unwrap_or_else(|error| panic!("{rule}: {error}")));
        bench
    }

    pub(super) fn set(&mut self, text: &str, mode: Mode) -> Result<(), ParseError> {
        let request = Request::parse(text)?;
        self.filters.set(&request, Handle::new(1, 0), mode)
    }

    pub(super) fn add(&mut self, text: &str) -> Result<(), ParseError> {
        self.set(text, Mode::Add)
    }

    pub(super) fn delete(&mut self, text: &str) -> Result<(), ParseError> {
        self.filters.delete(&Request::parse(text)?)
    }

    pub(super) fn packet(&mut self, frame: &[u8]) -> Packet {
        let mut packet = self.cache.alloc(frame.len()).unwrap();
        packet.data_mut().copy_from_slice(frame);
        packet
    }

    /// Returns the minor number of a frame's class, or `None`.
    pub(super) fn class(&mut self, frame: &[u8]) -> Option<u16> {
        let packet = self.packet(frame);
        self.filters.class_of(&packet, &mut Clock::new()).map(Handle::minor)
    }

    pub(super) fn text(&self) -> String {
        filters_text(&self.filters.info(Some(Handle::new(1, 0)), Style::default()), false)
    }

    pub(super) fn message(&mut self, text: &str) -> String {
        self.add(text).err().map_or(String::new(), |error| error.message().to_owned())
    }
}

pub(super) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// IPv4 from 10.0.0.1 to 10.0.0.2.
pub(super) fn ipv4(proto: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, tos, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, proto, 0, 0];
    ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    ip.extend(payload);
    ip
}

pub(super) fn ports(src: u16, dst: u16) -> Vec<u8> {
    [src.to_be_bytes(), dst.to_be_bytes()].concat().into_iter().chain([0; 16]).collect()
}

pub(super) fn udp(src: u16, dst: u16) -> Vec<u8> {
    ethernet(0x800, &ipv4(17, 0, &ports(src, dst)))
}

#[test]
fn the_lowest_pref_that_knows_the_packet_says_the_class() {
    let mut bench = Bench::with(&[
        "pref 3 matchall classid 1:3",
        "protocol ip pref 2 flower ip_proto udp dst_port 53 classid 1:2",
        "protocol ipv6 pref 1 matchall classid 1:1",
    ]);
    assert_eq!(bench.class(&udp(1, 53)), Some(2));
    assert_eq!(bench.class(&udp(1, 54)), Some(3));
    assert_eq!(bench.class(&ethernet(0x86dd, &[])), Some(1));
    // A tag hides the protocol behind it.
    assert_eq!(bench.class(&ethernet(0x8100, &[0, 5, 8, 0])), Some(3));
    bench.delete("pref 3").unwrap();
    assert_eq!(bench.class(&udp(1, 54)), None);
    bench.delete("").unwrap();
    assert!(bench.filters.is_empty() && bench.class(&udp(1, 53)).is_none());
}

#[test]
fn marks_choose_by_fw() {
    let mut bench = Bench::with(&["pref 1 handle 0x100/0xff00 fw classid 1:1", "pref 2 fw"]);
    let mut class = |mark| {
        let mut packet = bench.packet(&udp(1, 2));
        packet.set_mark(mark);
        bench.filters.class_of(&packet, &mut Clock::new())
    };
    assert_eq!(class(0x1ff), Some(Handle::new(1, 1)));
    assert_eq!(class(0x200), Some(Handle(0x200)), "a mark is a class where there are no rules");
    assert_eq!(class(0x1_0005), Some(Handle::new(1, 5)));
    assert_eq!(class(0x2_0005), None, "and of this qdisc");
    assert_eq!(class(0), None);
}

#[test]
fn a_program_decides_itself() {
    let mut bench = Bench::with(&["pref 2 matchall classid 1:9"]);
    let long = |packet: &Packet| (packet.len() > 60).then_some(Handle::new(1, 1));
    bench.filters.add_closure(1, Box::new(long)).unwrap();
    assert_eq!(bench.class(&[0; 61]), Some(1));
    assert_eq!(bench.class(&[0; 60]), Some(9));
    assert!(bench.filters.add_closure(1, Box::new(long)).is_err());
    assert!(bench.text().starts_with("filter parent 1: protocol all pref 1 closure chain 0 \n"));
    bench.delete("pref 1 closure").unwrap();
    assert_eq!(bench.class(&[0; 61]), Some(9));
}

#[test]
fn prefs_that_nobody_named_count_down() {
    let mut bench = Bench::with(&["pref 7 fw", "u32 match u32 0 0", "protocol ip fw", "fw"]);
    let prefs: Vec<_> = bench.filters.protos.iter().map(|proto| proto.pref).collect();
    assert_eq!(prefs, [7, 49150, 49151, 49152]);
    bench.add("pref 32768 fw").unwrap();
    assert_eq!(bench.message("fw"), "RTNETLINK answers: No space left on device");
}

/// The expected outputs are those of tc and Linux for the same commands.
#[test]
fn messages_are_those_of_tc() {
    let rules = ["protocol ip pref 1 handle 5/0xff fw classid 1:1", "pref 4 matchall classid 1:2"];
    let mut bench = Bench::with(&rules);
    for (text, message) in [
        ("pref 1 pref 2 u32", "Error: duplicate \"priority\": \"2\" is the second value."),
        ("protocol ip protocol ip u32", "Error: duplicate \"protocol\": \"ip\" is the second value."),
        ("parent 1: parent 1: u32", "Error: duplicate \"parent\": \"1:\" is the second value."),
        ("handle 1 handle 2 u32", "Error: duplicate \"handle\": \"2\" is the second value."),
        ("root parent 1: u32", "Error: duplicate \"parent\": \"1:\" is the second value."),
        ("protocol zzz u32", "Error: argument \"zzz\" is wrong: invalid protocol"),
        ("pref 70000 u32", "Error: argument \"70000\" is wrong: invalid priority value"),
        ("parent 1:zz u32", "Error: argument \"1:zz\" is wrong: Invalid parent ID"),
        ("pref 9", "Error: Filter kind and protocol must be specified."),
        ("pref 9 nosuch", "Error: TC classifier not found."),
        ("pref 9 nosuch x", "Unknown filter \"nosuch\", hence option \"x\" is unparsable"),
        ("protocol ipv6 pref 1 fw", "Error: Protocol mismatch for filter with specified priority."),
        (
            "protocol ip pref 1 matchall classid 1:1",
            "Error: Specified filter kind does not match existing one.",
        ),
        ("protocol ip pref 1 handle 5/0xff fw classid 1:1", "Error: Filter already exists."),
        ("protocol ip pref 1 handle 6 fw classid 1:1", "RTNETLINK answers: Invalid argument"),
        ("protocol ip pref 2 handle 6 fw", "RTNETLINK answers: Invalid argument"),
        ("protocol ip pref 2 handle 0 fw classid 1:1", "RTNETLINK answers: Invalid argument"),
        ("pref 2 handle zz fw classid 1:1", "Illegal \"handle\""),
        ("pref 2 handle 5/zz fw classid 1:1", "Illegal \"handle\" mask"),
        ("pref 2 handle 5 fw classid zz", "Illegal \"classid\""),
        ("pref 2 handle 5 fw classid", "Command line is not complete. Try option \"help\""),
        ("pref 2 handle 5 fw foo", "What is \"foo\"?"),
        ("pref 4 matchall classid 1:2", "RTNETLINK answers: File exists"),
        ("pref 5 matchall", "RTNETLINK answers: Invalid argument"),
        ("pref 5 matchall foo", "What is \"foo\"?"),
        ("pref 5 handle 7", "Must specify filter type when using \"handle\""),
    ] {
        assert_eq!(bench.message(text), message, "{text}");
    }
    for (text, message) in [
        ("pref 9 matchall classid 1:1", "Error: Filter kind and protocol must be specified."),
        (
            "protocol all pref 9 matchall classid 1:1",
            "Error: Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter.",
        ),
        (
            "pref 1 handle 9/0xff fw classid 1:1",
            "Error: Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter.",
        ),
        ("pref 1 handle 5 fw classid 1:3", "RTNETLINK answers: Invalid argument"),
        ("pref 4 handle 1 matchall classid 1:3", "RTNETLINK answers: File exists"),
    ] {
        assert_eq!(bench.set(text, Mode::Change).unwrap_err().message(), message, "change {text}");
    }
    for (text, message) in [
        ("pref 9", "Error: Filter with specified priority/protocol not found."),
        ("protocol arp pref 1", "Error: Protocol mismatch for filter with specified priority."),
        ("handle 5 fw", "Error: Cannot flush filters with protocol, handle or kind set."),
        ("pref 1 handle 6 fw", "Error: Specified filter handle not found."),
        ("pref 1 handle 1 matchall", "Error: Specified filter kind does not match existing one."),
        ("pref 1 handle 5", "Must specify filter type when using \"handle\""),
    ] {
        assert_eq!(bench.delete(text).unwrap_err().message(), message, "del {text}");
    }
    bench.set("pref 1 handle 5/0xff fw classid 1:3", Mode::Change).unwrap();
    assert!(bench.text().contains("handle 0x5/0xff classid 1:3 \n"));
    bench.delete("pref 1 handle 5 fw").unwrap();
    bench.delete("pref 4 handle 1 matchall").unwrap();
    assert!(bench.filters.is_empty(), "a pref goes with its last rule");
    assert_eq!(bench.delete("pref 1").unwrap_err().message(), "Error: Cannot find specified filter chain.");
    bench.delete("").unwrap();
}

#[test]
fn text_and_json_are_those_of_tc() {
    let mut bench = Bench::with(&[
        "protocol ip pref 1 matchall classid 1:1 skip_hw",
        "pref 2 handle 5/0xff fw classid 1:1",
        "pref 3 matchall classid none",
        "protocol 0x1234 pref 4 handle 8 fw classid none",
    ]);
    assert_eq!(bench.class(&udp(1, 2)), Some(1));
    let info = bench.filters.info(None, Style::default());
    assert_eq!(
        filters_text(&info, true),
        "filter protocol ip pref 1 matchall chain 0 \n\
         filter protocol ip pref 1 matchall chain 0 handle 0x1 flowid 1:1 \n  skip_hw\n  not_in_hw (rule hit 1)\n\
         filter protocol all pref 2 fw chain 0 \n\
         filter protocol all pref 2 fw chain 0 handle 0x5/0xff classid 1:1 \n\
         filter protocol all pref 3 matchall chain 0 \n\
         filter protocol all pref 3 matchall chain 0 handle 0x1 \n  not_in_hw (rule hit 0)\n\
         filter protocol [4660] pref 4 fw chain 0 \n\
         filter protocol [4660] pref 4 fw chain 0 \n"
    );
    let info = bench.filters.info(Some(Handle::new(1, 0)), Style::default());
    assert_eq!(
        filters_json(&info[1..2], true).to_string(),
        r#"[{"parent":"1:","protocol":"ip","pref":1,"kind":"matchall","chain":0,"options":{"handle":1,"flowid":"1:1","skip_hw":true,"not_in_hw":true,"rule_hit":1}}]"#
    );
    let fw = info.iter().find(|info| info.kind == "fw" && info.options.is_some()).cloned().unwrap();
    assert_eq!(
        filters_json(&[fw], true)[0]["options"].to_string(),
        r#"{"fw":{"mark":"0x5","mask":"0xff"},"classid":"1:1"}"#
    );
}

fn add(virt: &mut Virtual, text: &str) {
    let request = Request::parse(text).unwrap();
    virt.with(|qdisc, _| qdisc.filters(0).unwrap().set(&request, Handle::new(1, 0), Mode::Add)).unwrap();
}

/// A priority that names a class takes precedence over the filters, and the filters over the priomap.
#[test]
fn prio_asks_its_filters() {
    let mut prio = Virtual::new("prio");
    add(&mut prio, "handle 1 fw classid 1:3");
    add(&mut prio, "handle 2 fw classid 1:1");
    for (priority, mark) in [(6, 1), (2, 2), (0x1_0002, 1), (0, 9), (0, 0)] {
        let mut packet = prio.packet(100, priority);
        packet.set_mark(mark);
        assert_eq!(prio.with(|qdisc, cx| qdisc.enqueue(packet, cx)), Verdict::Success);
    }
    let order: Vec<_> = prio.dequeue(64).into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, [1, 2, 3, 4, 0]);
}

#[test]
fn fq_codel_drops_what_its_filters_do_not_know() {
    let mut fq = Virtual::new("fq_codel flows 4");
    assert!(fq.qdisc.can_bypass());
    add(&mut fq, "handle 1 fw classid 1:4");
    add(&mut fq, "handle 2 fw classid 1:5");
    assert!(!fq.qdisc.can_bypass(), "no packet may pass the filters by");
    let class = Handle::new(1, 2).0;
    for (mark, priority, kept) in [(1, 0, 1), (0, 0, 1), (2, 0, 1), (0, class, 2)] {
        let mut packet = fq.packet(100, priority);
        packet.set_mark(mark);
        assert_eq!(fq.with(|qdisc, cx| qdisc.enqueue(packet, cx)), Verdict::Success);
        assert_eq!(fq.qdisc.qlen(), kept);
    }
    assert_eq!((fq.qdisc.stats().drops, fq.drops.get(DropReason::QdiscDrop)), (2, 2));
}

/// Rules of all kinds. Nearly every packet matches some of them.
fn any_rule() -> impl Strategy<Value = String> {
    let flower = prop_oneof![
        (0u8..4, 8u8..33).prop_map(|(host, bits)| format!("flower src_ip 10.0.0.{host}/{bits}")),
        (1u16..5).prop_map(|port| format!("flower ip_proto udp dst_port {port}")),
        (1u16..5, 1u16..5)
            .prop_map(|(a, b)| format!("flower ip_proto udp dst_port {a}-{} src_port 1-3", a + b)),
        (0u8..4).prop_map(|tos| format!("flower ip_tos {tos}/3 ip_flags nofrag")),
    ];
    let u32 = (0u32..8, 0u32..8, -16i32..64)
        .prop_map(|(value, mask, at)| format!("u32 match u8 {value} {mask:x} at {at}"));
    let protocol = prop_oneof!["ip", "ipv6"];
    let flower = (protocol, flower).prop_filter_map("addresses", |(protocol, flower)| {
        (protocol == "ip" || !flower.contains("src_ip")).then(|| format!("protocol {protocol} {flower}"))
    });
    let vlan = (0u16..4).prop_map(|id| format!("protocol 802.1q flower vlan_id {id} vlan_ethtype ip"));
    prop_oneof![5 => flower, 2 => u32, 1 => vlan, 1 => Just("matchall".to_owned()), 1 => Just("fw".to_owned())]
}

/// Frames that are valid, cut anywhere, or altered anywhere.
pub(super) fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let v6 = {
        let mut ip = vec![0x60, 0, 0, 0, 0, 20, 17, 64];
        ip.extend([0; 32]);
        ip.extend(ports(1, 2));
        ip
    };
    let right = prop_oneof![
        (0u16..8, 0u16..8).prop_map(|(src, dst)| ethernet(0x800, &ipv4(17, 1, &ports(src, dst)))),
        Just(ethernet(0x800, &ipv4(1, 0, &[8, 0, 1, 2, 3, 4]))),
        Just(ethernet(0x800, &ipv4(6, 0, &[0; 20]))),
        Just(ethernet(0x86dd, &v6)),
        (0u8..4).prop_map(|id| {
            let tag = [&[0x60, id, 8, 0], &ipv4(17, 0, &ports(1, 2))[..]].concat();
            ethernet(0x8100, &tag)
        }),
        Just(ethernet(0x88a8, &[0, 1, 0x81, 0, 0, 2, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 9, 9, 9, 9, 9])),
        prop::collection::vec(any::<u8>(), 1..64),
    ];
    let change = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (right, change, prop::option::weighted(0.3, any::<prop::sample::Index>())).prop_map(
        |(mut frame, changes, cut)| {
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len()).max(1));
            }
            frame
        },
    )
}

proptest! {
    /// A lookup ends for any frame. It finds the class of the lowest pref whose rule matches the frame when it is the only
    /// rule.
    #[test]
    fn each_packet_finds_what_rules_alone_would(
        rules in prop::collection::vec(any_rule(), 1..12),
        frames in prop::collection::vec(any_frame(), 1..20),
    ) {
        let (mut all, mut alone) = (Bench::new(), Vec::new());
        for (pref, rule) in (1..).zip(&rules) {
            let text = format!("pref {pref} {rule} classid 1:{pref:x}");
            let text = text.replace("fw", "handle 0 fw");
            if all.add(&text).is_ok() {
                alone.push(Bench::with(&[&text]));
            }
        }
        for frame in frames {
            let expected = alone.iter_mut().find_map(|bench| bench.class(&frame));
            prop_assert_eq!(all.class(&frame), expected);
        }
    }

    #[test]
    fn no_text_panics(words in prop::collection::vec(prop_oneof![
        Just("flower"), Just("u32"), Just("fw"), Just("matchall"), Just("match"), Just("ip"), Just("ip6"),
        Just("src"), Just("src_ip"), Just("1.2.3.4/8"), Just("at"), Just("-2147483648"), Just("nexthdr+4"),
        Just("0xffffffff"), Just("handle"), Just("pref"), Just("9"), Just("::1/7"), Just("protocol"), Just("802.1q"),
        Just("ipv6"), Just("vlan_id"), Just("dst_port"), Just("ip_proto"), Just("tcp"), Just("1-2"), Just("5/5"),
        Just("classid"), Just("1:1"), Just("u16"), Just("u8"), Just("arp_sha"), Just("a:b:c:d:e:f/48"),
        Just("ip_flags"), Just("nofrag/firstfrag"), Just("ffff:ff:fff"), Just("/"), Just("dst_mac"), Just("type"),
    ], 1..12)) {
        let mut bench = Bench::new();
        let text = words.join(" ");
        if bench.add(&text).is_ok() {
            bench.text();
        }
        let _ = bench.delete(&text);
    }
}

#[test]
fn rules_name_their_classes() {
    for rule in [
        "protocol ip handle 7 fw classid 1:5",
        "protocol all matchall classid 1:5",
        "protocol ip flower ip_proto udp classid 1:5",
        "protocol ip u32 match u32 0 0 flowid 1:5",
        "protocol ip basic flowid 1:5",
    ] {
        let mut bench = Bench::with(&[&format!("pref 1 {rule}")]);
        assert!(bench.filters.names(Handle::new(1, 5)) && !bench.filters.names(Handle::new(1, 6)), "{rule}");
        bench.delete("pref 1").unwrap();
        assert!(!bench.filters.names(Handle::new(1, 5)), "{rule}");
    }
}

#[test]
fn one_rule_is_found_by_its_handle() {
    let mut bench = Bench::with(&[
        "protocol ip pref 1 u32 match u32 0 0 flowid 1:1",
        "protocol ip pref 1 handle 2: u32 divisor 4",
        "pref 2 handle 5/0xff fw classid 1:2",
        "pref 3 matchall classid 1:3",
        "pref 4 flower classid 1:4",
        "pref 5 basic classid 1:5",
        "pref 6 handle 9 flow map key src",
    ]);
    let get = |text: &str| {
        let request = Request::parse(text)?;
        bench.filters.get(&request, Handle::new(1, 0), Style::default())
    };
    for (text, shown) in [
        ("protocol ip pref 1 handle 800::800 u32", "fh 800::800 order"),
        ("protocol ip pref 1 handle 2: u32", "fh 2: ht divisor 4"),
        ("protocol all pref 2 handle 5 fw", "handle 0x5/0xff classid 1:2"),
        ("protocol all pref 3 handle 1 matchall", "handle 0x1 flowid 1:3"),
        ("protocol all pref 4 handle 1 flower", "handle 0x1 classid 1:4"),
        ("protocol all pref 5 handle 1 basic", "handle 0x1 flowid 1:5"),
        ("protocol all pref 6 handle 9 flow", "handle 0x9 map keys src"),
    ] {
        let info = get(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let options = info.options.unwrap();
        assert!(options.text().starts_with(shown), "{text}: {}", options.text());
    }
    for (text, message) in [
        ("protocol all pref 9 handle 1 fw", "Error: Filter with specified priority/protocol not found."),
        (
            "protocol ipv6 pref 1 handle 2: u32",
            "Error: Protocol mismatch for filter with specified priority.",
        ),
        ("protocol ip pref 1 handle 2 fw", "Error: Specified filter kind does not match existing one."),
        ("protocol ip pref 1 handle 3: u32", "Error: Specified filter handle not found."),
    ] {
        assert_eq!(get(text).unwrap_err().message(), message, "{text}");
    }
    bench.delete("").unwrap();
    let request = Request::parse("protocol ip pref 1 handle 2: u32").unwrap();
    let error = bench.filters.get(&request, Handle::new(1, 0), Style::default()).unwrap_err();
    assert_eq!(error.message(), "Error: Cannot find specified filter chain.");
}
