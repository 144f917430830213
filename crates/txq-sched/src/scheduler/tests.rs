use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::tc::{class_text, show_text};

mod bare;
mod late;

const MS: u64 = 1_000_000;

fn scheduler<T>(text: &str) -> Scheduler<T> {
    Scheduler::new(text).unwrap()
}

/// Returns an Ethernet frame with an IPv4 header and the ports of a UDP header, as long as its headers.
fn frame(tos: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, tos, 5, 0xdc - 14, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
    bytes.extend([5, 0xb4, 0, 0]);
    bytes
}

#[test]
fn values_leave_in_order_and_dropped_ones_return_with_a_reason() {
    let mut queue = scheduler("handle 1: pfifo limit 2");
    assert_eq!(queue.next_event(), None);
    assert_eq!(queue.enqueue(5, Item::new(1500, "a".to_owned())), Verdict::Success);
    assert_eq!(queue.enqueue(5, Item::new(60, "b".to_owned())), Verdict::Success);
    assert_eq!(queue.dropped().count(), 0);
    assert_eq!(queue.enqueue(6, Item::new(60, "c".to_owned())), Verdict::Drop);
    let dropped: Vec<_> = queue.dropped().map(|packet| (packet.value, packet.reason)).collect();
    assert_eq!(dropped, [("c".to_owned(), DropReason::QdiscOverlimit)]);
    assert_eq!((queue.len(), queue.next_event()), (2, Some(Instant::ZERO)));
    let first = queue.dequeue(7).unwrap();
    assert_eq!((first.value.as_str(), first.len, first.tos), ("a", 1500, None));
    let mut out = Vec::new();
    assert_eq!(queue.dequeue_batch(7, Budget::packets(8), &mut out), 1);
    assert_eq!(out[0].value, "b");
    assert_eq!(queue.dequeue(7), None);
    let stats = queue.stats();
    assert_eq!((stats.packets, stats.bytes, stats.drops, stats.qlen), (2, 1560, 1, 0));
    assert_eq!(queue.drops().get(DropReason::QdiscOverlimit), 1);
}

/// Packets far longer than the pool's buffers are charged whole, and the time is the program's.
#[test]
fn a_shaper_charges_the_whole_length_and_names_the_next_time() {
    let mut link = scheduler("tbf rate 8mbit burst 64kb latency 10s");
    for number in 0..4 {
        let _ = link.enqueue(0, Item::new(60_000, number).segments(40));
    }
    assert_eq!(link.dequeue(0).map(|packet| packet.value), Some(0));
    assert_eq!(link.dequeue(0), None, "5,536 bytes of the burst are left");
    // 8 Mbit/s are a byte each microsecond.
    assert_eq!(link.next_event(), Some(Instant::from_nanos(54_464_000)));
    assert_eq!(link.dequeue(54_463_999), None);
    let packet = link.dequeue(54_464_000).unwrap();
    assert_eq!((packet.value, packet.len), (1, 60_000));
    assert_eq!((link.stats().packets, link.stats().bytes), (80, 120_000));
}

#[test]
fn tcs_commands_build_a_tree_and_tcs_errors_change_nothing() {
    let mut link = scheduler("handle 1: htb default 20");
    for command in [
        "class add parent 1: classid 1:1 htb rate 10mbit",
        "tc class add dev eth0 parent 1:1 classid 1:10 htb rate 8mbit ceil 10mbit prio 0",
        "class add parent 1:1 classid 1:20 htb rate 2mbit ceil 10mbit prio 1",
        "qdisc add parent 1:10 handle 10: fq_codel limit 300",
        "qdisc add parent 1:20 pfifo limit 3",
        "filter add parent 1: protocol ip pref 1 flower ip_proto udp dst_port 53 classid 1:10",
    ] {
        link.tc(0, command).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
    let header = frame(0, [1000, 53]);
    let _ = link.enqueue(0, Item::new(1500, "dns").header(&header));
    let _ = link.enqueue(0, Item::new(1500, "other").header(&frame(0, [1000, 54])));
    let shown = show_text(&link.qdiscs(Style::default()), true);
    assert!(shown.contains("qdisc htb 1: root r2q 10 default 0x20"), "{shown}");
    assert!(shown.contains("qdisc fq_codel 10: parent 1:10 limit 300p"), "{shown}");
    assert!(shown.contains("qdisc pfifo 8001: parent 1:20 limit 3p"), "{shown}");
    let classes = link.classes(Style::default());
    let names: Vec<_> = classes.iter().map(|class| class.handle.to_string()).collect();
    assert_eq!(names, ["1:1", "1:10", "1:20"]);
    assert!(class_text(&classes[1..2], true).contains("leaf 10:"), "{}", class_text(&classes[1..2], true));
    assert_eq!(classes[1].stats.unwrap().qlen, 1);
    assert_eq!(link.filters(None, Style::default()).len(), 2, "the pref and its rule");

    for (command, message) in [
        ("class add parent 1: classid 1:10 htb rate 1mbit", "RTNETLINK answers: File exists"),
        ("class change classid 1:99 htb rate 1mbit", "RTNETLINK answers: No such file or directory"),
        ("qdisc add parent 1:10 fq", "Error: Exclusivity flag on, cannot modify."),
        ("qdisc add parent 3:1 fq", "Error: Failed to find specified qdisc."),
        ("qdisc del parent 1:20 handle 7:", "Error: Invalid handle."),
        ("qdisc add root handle 1: pfifo", "Error: Exclusivity flag on, cannot modify."),
        (
            "qdisc replace parent 1:20 handle 10: pfifo",
            "Error: Cannot move an existing qdisc to a different parent.",
        ),
        (
            "qdisc change parent 1:20 handle 10: pfifo",
            "Error: Cannot move an existing qdisc to a different parent.",
        ),
        ("qdisc change parent 1:10 handle 7: fq_codel", "Error: NLM_F_REPLACE needed to override."),
        (
            "qdisc replace parent 1:10 handle 1: htb",
            "Error: Cannot move an existing qdisc to a different parent.",
        ),
        ("filter add parent 1: protocol ip flower dst_prt 1 classid 1:10", "What is \"dst_prt\"?"),
        ("qdisk add root fq", "Object \"qdisk\" is unknown, try \"tc help\"."),
        ("class show", "Command \"show\" is unknown, try \"tc class help\"."),
    ] {
        assert_eq!(link.tc(0, command).unwrap_err().message(), message, "{command}");
    }
    assert_eq!(link.len(), 2);

    link.tc(0, "qdisc replace parent 1:20 handle 7: pfifo limit 9").unwrap();
    let purged: Vec<_> = link.dropped().map(|packet| (packet.value, packet.reason)).collect();
    assert_eq!(purged, [("other", DropReason::QueuePurge)]);
    link.tc(0, "qdisc replace root handle 2: fq").unwrap();
    assert_eq!(link.dropped().map(|packet| packet.value).collect::<Vec<_>>(), ["dns"]);
    link.tc(0, "qdisc del root").unwrap();
    assert_eq!(link.qdiscs(Style::default())[0].kind, "pfifo_fast");
}

#[test]
fn headers_may_begin_with_ip() {
    let mut link = scheduler("handle 1: prio bands 3 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1");
    for filter in [
        "pref 1 u32 match ip tos 0x20 0xff classid 1:1",
        "pref 2 flower ip_proto udp dst_port 53 classid 1:3",
    ] {
        link.tc(0, &format!("filter add parent 1: protocol ip {filter}")).unwrap();
    }
    for (value, tos, port) in [("last", 0, 53), ("middle", 0, 54), ("first", 0x20, 53)] {
        let header = frame(tos, [1000, port]);
        let _ = link.enqueue(0, Item::new(1500, value).ip_header(&header[14..]));
    }
    let order: Vec<_> = std::iter::from_fn(|| link.dequeue(0)).map(|departed| departed.value).collect();
    assert_eq!(order, ["first", "middle", "last"]);
}

#[test]
fn congestion_marks_return_as_a_tos() {
    let mut queue = scheduler("fq_codel ecn ce_threshold 1us");
    let (ect, not_ect) = (frame(0xb8 | 2, [1, 2]), frame(0xb8, [1, 2]));
    let _ = queue.enqueue(0, Item::new(1500, "ect").header(&ect));
    let _ = queue.enqueue(0, Item::new(1500, "not ect").header(&not_ect));
    let (first, second) = (queue.dequeue(MS).unwrap(), queue.dequeue(MS).unwrap());
    assert_eq!((first.value, first.tos), ("ect", Some(0xb8 | 3)));
    assert_eq!((second.value, second.tos), ("not ect", None));
}

#[test]
fn a_duplicate_needs_a_clone_of_the_value() {
    let mut queue = scheduler("netem duplicate 100%").cloning();
    let _ = queue.enqueue(0, Item::new(100, vec![1, 2]).header(&frame(0, [1, 2])));
    let mut out = Vec::new();
    queue.dequeue_batch(MS, Budget::packets(8), &mut out);
    assert_eq!(out.iter().map(|p| (&p.value[..], p.len)).collect::<Vec<_>>(), [(&[1, 2][..], 100); 2]);

    let mut queue = scheduler("netem duplicate 100%");
    let _ = queue.enqueue(0, Item::new(100, "only"));
    assert_eq!(queue.dequeue(MS).map(|packet| packet.value), Some("only"));
    assert_eq!(queue.dequeue(MS), None);
    assert_eq!(queue.drops().get(DropReason::NoMem), 1);
}

#[test]
fn more_packets_than_it_was_made_for_are_dropped() {
    let config = Config { packets: 4, ..Config::default() };
    let mut queue = Scheduler::with_config("pfifo limit 100", &config).unwrap();
    for number in 0..6 {
        let _ = queue.enqueue(0, Item::new(100, number));
    }
    assert_eq!(queue.dropped().map(|p| (p.value, p.reason)).collect::<Vec<_>>(), [(5, DropReason::NoMem)]);
    assert_eq!(queue.len(), 4);
    assert_eq!(queue.dequeue(0).map(|packet| packet.value), Some(0));
    assert_eq!(queue.enqueue(0, Item::new(100, 6)), Verdict::Success);
}

/// A scheduler holds what the limit of its qdisc allows, and uses its memory again.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn packets_fit_as_far_as_the_limit() {
    const LIMIT: u32 = 150_000;
    let mut queue = Scheduler::new(&format!("pfifo limit {LIMIT}")).unwrap();
    for round in 0..2 {
        for number in 0..=LIMIT {
            let _ = queue.enqueue(0, Item::new(100, number));
        }
        let dropped = queue.dropped().map(|p| (p.value, p.reason)).collect::<Vec<_>>();
        assert_eq!(
            (queue.len(), dropped),
            (LIMIT as usize, vec![(LIMIT, DropReason::QdiscOverlimit)]),
            "{round}"
        );
        let mut out = Vec::new();
        queue.dequeue_batch(0, Budget::packets(usize::MAX), &mut out);
        assert!(out.iter().map(|packet| packet.value).eq(0..LIMIT), "{round}");
    }
    assert_eq!(queue.tree.buffers, 4 * 65_536);
}

#[test]
fn a_limit_above_the_bound_has_a_warning() {
    let config = Config { packets: 100, ..Config::default() };
    let mut queue = Scheduler::<u8>::with_config("handle 1: prio", &config).unwrap();
    for minor in 1..=3 {
        assert_eq!(queue.tc(0, &format!("qdisc add parent 1:{minor} pfifo limit 10")), Ok(Vec::new()));
    }
    assert_eq!(queue.warning(), None);
    let warnings = queue.tc(0, "qdisc replace parent 1:1 pfifo limit 101").unwrap();
    let text = "Warning: the qdiscs may queue 121 packets, and the scheduler holds 100: give Config::packets a greater \
                number, or the qdiscs lower limits.";
    assert_eq!(warnings, [text]);
    assert_eq!(queue.warning().as_deref(), Some(text));
}

/// The values of packets that a batch's first command drops are not lost to the next one.
#[test]
fn a_batch_returns_the_packets_that_any_of_its_commands_drops() {
    let mut queue = Scheduler::new("handle 1: prio").unwrap();
    queue.tc_batch(0, "qdisc add parent 1:1 pfifo limit 9\nqdisc add parent 1:2 pfifo limit 9").unwrap();
    for (value, minor) in [(7, 1), (8, 2)] {
        let _ = queue.enqueue(0, Item::new(100, value).class(Handle::new(1, minor)));
    }
    let batch = "qdisc del parent 1:1\nqdisc del parent 1:2\nqdisc change root prio";
    assert_eq!(queue.tc_batch(0, batch), Ok(Vec::new()));
    let dropped: Vec<_> = queue.dropped().map(|dropped| (dropped.value, dropped.reason)).collect();
    assert_eq!(dropped, [(7, DropReason::QueuePurge), (8, DropReason::QueuePurge)]);
    assert!(queue.is_empty());
}

#[test]
fn kinds_without_packets_and_wrong_words_are_refused() {
    for (text, message) in [
        ("mq", "RTNETLINK answers: Operation not supported"),
        ("noqueue", "RTNETLINK answers: Operation not supported"),
        ("fq_codell", "Unknown qdisc \"fq_codell\", hence option \"\" is unparsable"),
    ] {
        match Scheduler::<u8>::new(text) {
            Err(SchedulerError::Parse(error)) if text != "fq_codell" => {
                assert_eq!(error.message(), message, "{text}");
            }
            Err(SchedulerError::Parse(_)) => {}
            other => panic!("{text}: {:?}", other.map(|_| ()).map_err(|error| error.to_string())),
        }
    }
}

/// What a test does with a scheduler.
#[derive(Clone, Copy, Debug)]
enum Op {
    Enqueue { len: u32, flow: u16, priority: u32, header: bool, segments: u16 },
    Dequeue(usize),
    Wait(u64),
    Tc(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1..70_000_u32, 0..5_u16, 0..8_u32, any::<bool>(), 0..50_u16).prop_map(
            |(len, flow, priority, header, segments)| Op::Enqueue { len, flow, priority, header, segments }
        ),
        3 => (1..9_usize).prop_map(Op::Dequeue),
        2 => (0..200 * MS).prop_map(Op::Wait),
        1 => any::<usize>().prop_map(Op::Tc),
    ]
}

const TEXTS: [&str; 13] = [
    "pfifo limit 20",
    "bfifo limit 200000",
    "pfifo_fast",
    "prio",
    "tbf rate 100mbit burst 100kb limit 500000",
    "codel limit 30 ecn",
    "fq_codel limit 30 flows 8 memory_limit 300000",
    "fq limit 30 flow_limit 9",
    "cake bandwidth 100mbit wash ack-filter memlimit 1m",
    "netem delay 10ms 3ms loss 5% duplicate 20% corrupt 5% reorder 20% limit 30",
    "etf clockid CLOCK_TAI delta 1000 skip_sock_check",
    "htb default 1",
    "drr",
];

/// Commands that some of the trees accept.
const COMMANDS: [&str; 8] = [
    "class add classid 1:1 htb rate 50mbit",
    "class add classid 1:1 drr quantum 3000",
    "qdisc replace parent 1:1 fq_codel limit 5",
    "qdisc replace parent 1:2 pfifo limit 2",
    "filter add pref 1 protocol all matchall classid 1:1",
    "qdisc del parent 1:1",
    "class del classid 1:1",
    "qdisc replace root handle 1: pfifo limit 5",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    /// Each value returns once, as departed or as dropped, whatever the qdisc does; the counters add up.
    #[test]
    fn each_value_returns_once(text in 0..TEXTS.len(), ops in prop::collection::vec(op(), 1..200)) {
        let text = format!("handle 1: {}", TEXTS[text]);
        let mut queue = Scheduler::new(&text).unwrap();
        let (mut now, mut next) = (MS, 0_u64);
        let (mut inside, mut departed) = (BTreeSet::new(), 0);
        for op in ops {
            match op {
                Op::Enqueue { len, flow, priority, header, segments } => {
                    let bytes = frame(flow as u8 & 3, [flow, 80]);
                    let item = Item::new(len, next).priority(priority).segments(segments);
                    let item = item.departure(if text.contains("etf") { now + MS } else { 0 });
                    inside.insert(next);
                    next += 1;
                    let _ = match header {
                        true => queue.enqueue(now, item.header(&bytes)),
                        false => queue.enqueue(now, item.hash(flow.into())),
                    };
                }
                Op::Dequeue(packets) => {
                    let mut out = Vec::new();
                    let count = queue.dequeue_batch(now, Budget::packets(packets), &mut out);
                    prop_assert_eq!(count, out.len());
                    departed += count as u64;
                    for packet in out {
                        prop_assert!(inside.remove(&packet.value), "{} left twice", packet.value);
                    }
                }
                Op::Wait(time) => now += time,
                Op::Tc(number) => {
                    let _ = queue.tc(now, COMMANDS[number % COMMANDS.len()]);
                }
            }
            for packet in queue.dropped() {
                prop_assert!(inside.remove(&packet.value), "{} left twice", packet.value);
            }
            prop_assert_eq!(inside.len(), queue.len(), "{}", text);
            let drops = queue.drops().total();
            prop_assert_eq!(next + queue.tree.packets.created(), departed + drops + queue.len() as u64);
        }
    }
}

#[test]
fn a_purge_returns_every_value_with_its_reason() {
    let mut link = Scheduler::new("handle 1: prio bands 3").unwrap();
    link.tc(0, "qdisc add parent 1:1 handle 10: tbf rate 1mbit burst 1600 latency 1s").unwrap();
    for value in 0..9 {
        assert_eq!(link.enqueue(0, Item::new(1000, value).priority(value % 3 * 6)), Verdict::Success);
    }
    let mut out = Vec::new();
    link.dequeue_with(0, Budget::packets(2), |departed| out.push(departed.value));
    assert_eq!(out.len(), 2);
    link.purge(0);
    let dropped: Vec<_> = link.dropped().collect();
    assert!(dropped.iter().all(|dropped| dropped.reason == DropReason::QueuePurge));
    out.extend(dropped.iter().map(|dropped| dropped.value));
    out.sort_unstable();
    assert_eq!(out, (0..9).collect::<Vec<_>>());
    assert_eq!((link.len(), link.drops().get(DropReason::QueuePurge), link.next_event()), (0, 7, None));
}
