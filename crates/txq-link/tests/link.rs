//! Links in virtual time.

use std::process::Command;
use std::time::Duration;

use txq_link::{Arrival, Direction, DropReason, Event, Instant, Link, Packet, What, presets};

use Direction::{Down, Up};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn link(text: &str) -> Link {
    Link::new(text, 7).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Polls whenever the link asks for it; returns what arrives.
fn drain(link: &mut Link) -> Vec<Arrival> {
    let mut all = Vec::new();
    while let Some(time) = link.next() {
        all.extend(link.poll(time));
    }
    all
}

#[test]
fn a_chain_delays_one_after_the_other() {
    let mut link = link("up netem delay 5ms | netem rate 8mbit | netem delay 2ms\ndown netem delay 1ms");
    link.send(0, Up, Packet::new(vec![1; 972]).header(28));
    link.send(0, Up, Packet::new(vec![2; 972]).header(28));
    link.send(MS, Down, Packet::new(vec![3; 10]));
    let arrivals: Vec<_> = drain(&mut link)
        .iter()
        .map(|a| (a.at.as_nanos(), a.sent.as_nanos(), a.direction, a.data[0]))
        .collect();
    assert_eq!(arrivals, [(2 * MS, MS, Down, 3), (8 * MS, 0, Up, 1), (9 * MS, 0, Up, 2)]);
    assert_eq!(link.next(), None);
}

/// It makes no difference when the link is polled: at each event, or once at the end.
#[test]
fn polls_change_nothing() {
    let text = "tbf rate 4mbit burst 3k latency 30ms | netem delay 20ms 10ms distribution normal loss 2% duplicate 1% \
                reorder 5% gap 3\nat 60ms qdisc change root tbf rate 1mbit burst 3k latency 30ms\n\
                at 90ms qdisc change dev up2 root netem delay 1ms loss 30%";
    let run = |often: bool| {
        let mut link = link(text);
        let mut all = Vec::new();
        for number in 0..200_u64 {
            let now = Instant::from_nanos(number * MS);
            while let Some(time) = link.next().filter(|&time| often && time <= now) {
                all.extend(link.poll(time).map(|a| (a.at, a.data[0])));
            }
            link.send(now, Up, Packet::new(vec![number as u8; 700]).flow(number % 3));
        }
        while let Some(time) = link.next() {
            all.extend(
                link.poll(if often { time } else { Instant::from_nanos(u64::MAX / 2) })
                    .map(|a| (a.at, a.data[0])),
            );
        }
        (all, link.counts(Up))
    };
    let (often, once) = (run(true), run(false));
    assert!(often.1.lost > 10 && often.1.copies > 0 && often.0.len() > 50, "{:?}", often.1);
    assert_eq!(often, once);
}

#[test]
fn another_seed_loses_others_and_so_does_the_other_direction() {
    let run = |seed| {
        let mut link = Link::new("netem loss 50% | netem loss 50%", seed).unwrap();
        for number in 0..100 {
            link.send(0, Up, Packet::new(vec![number]));
            link.send(0, Down, Packet::new(vec![number]));
        }
        let arrivals = drain(&mut link);
        [Up, Down]
            .map(|d| arrivals.iter().filter(|a| a.direction == d).map(|a| a.data[0]).collect::<Vec<_>>())
    };
    let ([up, down], [other, _]) = (run(1), run(2));
    assert_eq!(run(1)[0], up);
    assert!(up != down && up != other);
    // Both stages of a chain draw for themselves: a quarter arrives.
    assert!((10..45).contains(&up.len()), "{}", up.len());
}

#[test]
fn what_qdiscs_change_arrives_changed() {
    let mut marking = link("netem loss 100% ecn");
    for tos in [0x02, 0x01, 0x00, 0xb8] {
        marking.send(0, Up, Packet::new(vec![tos]).tos(tos));
    }
    let lost: Vec<_> = marking.lost().map(|lost| (lost.data[0], lost.stage, lost.reason)).collect();
    assert_eq!(lost, [(0xb8, 1, DropReason::QdiscDrop)], "the last call's alone");
    let marked: Vec<_> = drain(&mut marking).iter().map(|a| (a.data[0], a.tos)).collect();
    assert_eq!(marked, [(0x02, 0x03), (0x01, 0x03)]);
    assert_eq!((marking.counts(Up).marked, marking.counts(Up).lost), (2, 2));

    let mut damaging = link("netem corrupt 100% duplicate 100%");
    damaging.send(0, Up, Packet::new(vec![0; 64]).header(28));
    let arrivals = drain(&mut damaging);
    assert_eq!(arrivals.len(), 2);
    for arrival in &arrivals {
        let ones: u32 = arrival.data.iter().map(|byte| byte.count_ones()).sum();
        assert!(arrival.damaged && ones == 1, "{arrival:?}");
    }
    let counts = damaging.counts(Up);
    assert_eq!((counts.sent, counts.copies, counts.arrived, counts.damaged), (1, 1, 2, 2));
}

#[test]
fn a_link_changes_by_schedule_and_by_command() {
    let mut link =
        link("netem delay 1ms\nat 1s qdisc change dev up root netem delay 9ms\nat 2s qdisc del dev up3 root");
    let delay = |link: &mut Link, now: u64, direction| {
        link.send(now, direction, Packet::new(vec![0]));
        let arrival = &drain(link)[0];
        (arrival.at - arrival.sent).as_nanos() as u64
    };
    assert_eq!(delay(&mut link, SECOND - 2 * MS, Up), MS);
    assert_eq!(link.next(), None, "a change alone is no reason to poll");
    assert_eq!(delay(&mut link, SECOND, Up), 9 * MS);
    assert_eq!(delay(&mut link, SECOND + 20 * MS, Down), MS);
    link.tc(SECOND + 50 * MS, "qdisc change root netem delay 3ms").unwrap();
    assert_eq!(Direction::BOTH.map(|d| delay(&mut link, SECOND + 60 * MS, d)), [3 * MS; 2]);
    assert!(link.failed().is_none());
    link.poll(2 * SECOND);
    assert!(link.failed().unwrap().to_string().contains("up has 1 qdiscs in its chain, and not 3"));
    assert!(link.tc(0, "qdisc change dev left root netem").is_err());
    assert!(link.tc(0, "qdisc change root netem loss 200%").is_err());
}

#[test]
fn a_link_loses_what_is_longer_than_its_mtu() {
    let mut link = link(
        "up netem delay 1ms | netem delay 1ms\ndown netem\nlink set dev up2 mtu 1280\nat 1s link set mtu 1000",
    );
    let arrives = |link: &mut Link, now: u64, direction, len| {
        link.send(now, direction, Packet::new(vec![0; len]).header(28));
        let mut lost = Vec::new();
        let mut arrived = 0;
        while let Some(time) = link.next() {
            arrived += usize::from(link.poll(time).is_some());
            lost.extend(link.lost().map(|lost| (lost.stage, lost.reason, lost.data.len())));
        }
        lost.extend(link.lost().map(|lost| (lost.stage, lost.reason, lost.data.len())));
        (arrived, lost)
    };
    let too_long = |stage, len| (0, vec![(stage, DropReason::PktTooBig, len)]);
    assert_eq!(arrives(&mut link, 0, Up, 1252), (1, vec![]));
    assert_eq!(arrives(&mut link, 5 * MS, Up, 1253), too_long(2, 1253));
    assert_eq!(arrives(&mut link, 5 * MS, Down, 9000), (1, vec![]));
    // At the first qdisc of both directions now.
    assert_eq!(arrives(&mut link, SECOND, Up, 973), too_long(1, 973));
    assert_eq!(arrives(&mut link, SECOND, Down, 973), too_long(1, 973));
    link.tc(2 * SECOND, "ip link set dev up mtu 1400").unwrap();
    assert_eq!(arrives(&mut link, 2 * SECOND, Up, 973), (1, vec![]));
    assert_eq!((link.counts(Up).sent, link.counts(Up).lost), (4, 2));
    assert!(link.tc(2 * SECOND, "link set dev up3 mtu 1400").is_err());
}

#[test]
fn a_tree_is_commands_below_a_chain() {
    let mut link = link(
        "up handle 1: htb default 20 | netem delay 1ms\n\
         class add dev up parent 1: classid 1:10 htb rate 1mbit prio 0\n\
         class add dev up parent 1: classid 1:20 htb rate 8mbit prio 1\n\
         filter add dev up parent 1: handle 7 fw classid 1:10",
    );
    // The class of the mark has 1 Mbit/s, the other one 8 Mbit/s.
    for (mark, expected) in [(7, 8 * MS), (0, MS)] {
        let from = u64::from(mark == 0) * SECOND;
        (0..40).for_each(|_| link.send(from, Up, Packet::new(vec![0; 1000]).mark(mark)));
        let arrivals = drain(&mut link);
        let gap = (arrivals[39].at - arrivals[20].at).as_nanos() as u64 / 19;
        assert!(gap.abs_diff(expected) < expected / 50, "mark {mark}: {gap}");
    }
}

/// The delay that each preset promises, and the rate.
#[test]
fn presets_are_what_they_say() {
    let rates = |name: &str| match name {
        "dsl" => [384_000.0, 1_500_000.0],
        "cable" => [1e6, 5e6],
        "3g" => [768_000.0, 1_600_000.0],
        "lte" => [6e6, 13e6],
        "starlink" => [13.89e6, 97.23e6],
        "geo" => [10e6, 100e6],
        "wifi" => [100e6; 2],
        "conference" => [5e6; 2],
        other => panic!("{other} is not known here"),
    };
    let round_trips = [
        ("dsl", 50),
        ("cable", 28),
        ("3g", 300),
        ("lte", 70),
        ("starlink", 50),
        ("geo", 600),
        ("wifi", 10),
        ("conference", 20),
    ];
    for preset in presets() {
        assert!(preset.text.contains("# Source"), "{} has no source", preset.name);
        let mut link = Link::preset(preset.name, 3).unwrap();
        let expected = rates(preset.name);
        for direction in Direction::BOTH {
            let rate = expected[direction as usize];
            // Two seconds at 1.1 of the rate.
            let (bytes, gap) = (1250_u64, (1250.0 * 8.0 / rate / 1.1 * 1e9) as u64);
            let start = 100 * SECOND * (1 + direction as u64);
            let mut arrivals = Vec::new();
            for number in 0..2 * SECOND / gap {
                link.send(start + number * gap, direction, Packet::new(vec![0; bytes as usize]));
                arrivals.extend(std::iter::from_fn(|| link.poll(0)));
            }
            arrivals.extend(drain(&mut link));
            let late: Vec<_> =
                arrivals.iter().filter(|a| a.sent >= Instant::from_nanos(start + SECOND)).collect();
            let (first, last) = (late.first().unwrap().at, late.last().unwrap().at);
            let counts = link.counts(direction);
            let survive = counts.arrived as f64 / (counts.arrived + counts.lost) as f64;
            let measured = (late.len() - 1) as f64 * bytes as f64 * 8.0 / (last - first).as_secs_f64();
            assert!(
                measured > rate * survive.min(0.97) * 0.85 && measured < rate * 1.03,
                "{} {}: {measured}",
                preset.name,
                direction.name()
            );
        }
        let ping = |link: &mut Link, now: u64| {
            link.send(now, Up, Packet::new(vec![0; 56]));
            let there = drain(link).first()?.at;
            link.send(there, Down, Packet::new(vec![0; 56]));
            Some((drain(link).first()?.at - Instant::from_nanos(now)).as_secs_f64() * 1e3)
        };
        let mut trips: Vec<_> =
            (0..999).filter_map(|number| ping(&mut link, (400 + number) * SECOND)).collect();
        trips.sort_by(f64::total_cmp);
        let median = trips[trips.len() / 2];
        let promised = round_trips.iter().find(|(name, _)| *name == preset.name).unwrap().1 as f64;
        assert!((median - promised).abs() < promised * 0.1 + 1.0, "{}: {median} ms", preset.name);
    }
    let error = Link::<Vec<u8>>::preset("isdn", 1).unwrap_err().to_string();
    assert!(error.contains("dsl, cable, 3g"), "{error}");
}

#[test]
fn a_recording_has_each_packet_and_its_fate() {
    let mut link =
        link("up tbf rate 1mbit burst 2k limit 3k | netem delay 5ms loss 10% ecn\ndown netem corrupt 100%");
    link.record();
    for number in 0..10_u8 {
        link.send(0, Up, Packet::new(vec![number; 1000]).tos(0xb8));
    }
    link.send(MS, Down, Packet::new(vec![9; 100]));
    drain(&mut link);
    let counts = link.counts(Up);
    let recording = link.take_recording().unwrap();
    assert!(link.take_recording().is_none());
    let count = |f: fn(&Event) -> bool| recording.events().iter().filter(|event| f(event)).count() as u64;
    assert_eq!(count(|event| event.what == What::Sent), 11);
    assert_eq!(count(|event| matches!(event.what, What::Lost { .. })), counts.lost);
    assert!(counts.lost >= 5 && counts.arrived >= 2, "{counts:?}");
    assert_eq!(recording.bytes(3), [3; 1000]);
    assert!(recording.link().starts_with("seed 7: up tbf"));
    let drop = recording.events().iter().find(|event| matches!(event.what, What::Lost { .. })).unwrap();
    assert_eq!(drop.what, What::Lost { stage: 1, reason: DropReason::QdiscOverlimit });

    let mut file = Vec::new();
    recording.write_pcapng(&mut file).unwrap();
    check_pcapng(&file, recording.events());
    let svg = recording.svg();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(
        svg.matches("<circle").count() as u64 > counts.arrived,
        "{} circles",
        svg.matches("<circle").count()
    );
    assert!(svg.contains("delay (ms)") && svg.contains("in the link (kB)"));
}

fn check_pcapng(file: &[u8], events: &[Event]) {
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption::Comment;
    use pcap_file::pcapng::{Block, PcapNgReader};
    let mut reader = PcapNgReader::new(file).unwrap();
    let (mut packets, mut comments) = (0, Vec::new());
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
        let event = events[packets];
        assert_eq!(packet.timestamp, Duration::from_nanos(event.at.as_nanos()));
        let ip = etherparse::SlicedPacket::from_ip(&packet.data).unwrap();
        assert!(matches!(ip.transport, Some(etherparse::TransportSlice::Udp(_))));
        assert_eq!(packet.data[1], event.tos);
        let texts = packet.options.iter().filter_map(|option| match option {
            Comment(text) => Some(text.to_string()),
            _ => None,
        });
        comments.extend(texts);
        packets += 1;
    }
    assert_eq!(packets, events.len());
    assert!(
        comments.iter().any(|text| text == "dropped by qdisc 1 of up after 0.000 ms: QDISC_OVERLIMIT"),
        "{comments:?}"
    );
    assert!(comments.iter().any(|text| text.starts_with("damaged, after")), "{comments:?}");
}

/// A failed test says how to repeat it, and the variable does so.
#[test]
fn a_failed_test_prints_its_seed() {
    let run = |seed: Option<&str>| {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "fails_with_a_link", "--ignored", "--nocapture"]);
        match seed {
            Some(seed) => test.env("TXQ_LINK_SEED", seed),
            None => test.env_remove("TXQ_LINK_SEED"),
        };
        let out = test.output().unwrap();
        assert!(!out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let said = run(None);
    let seed = said.split("TXQ_LINK_SEED=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let seed = seed.unwrap_or_else(|| panic!("no seed in: {said}"));
    assert!(said.contains("netem loss 50%"), "{said}");
    let lost = |text: &str| text.split("lost: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(lost(&run(Some(seed))), lost(&said));
    assert!(run(Some("x")).contains("use a number"));
}

#[test]
#[ignore = "fails: another test runs it"]
fn fails_with_a_link() {
    let mut link: Link = Link::new("netem loss 50%", txq_link::seed()).unwrap();
    (0..64).for_each(|number| link.send(0, Up, Packet::new(vec![number])));
    let arrived: Vec<_> = drain(&mut link).iter().map(|a| a.data[0]).collect();
    panic!("lost: {arrived:?}");
}
