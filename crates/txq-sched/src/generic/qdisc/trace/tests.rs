//! Recorded links in virtual time, against what Mahimahi's manual and rattan's source say of the same files.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::link::Link;
use super::*;
use crate::generic::qdisc::timed::tests::{Bench, MS, conserves, ops, try_build};

/// A file that is removed when it is dropped.
struct Recording(PathBuf);

impl Recording {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("txq-trace-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn words(&self, options: &str) -> String {
        format!("trace {} {options}", self.0.display())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn link(text: &str, once: bool) -> Link {
    Link::new(file::parse(text).unwrap().into(), once)
}

/// Returns when packets leave that come at these times, in nanoseconds since the first one.
fn departures(bench: &mut Bench, packets: &[(Nanos, usize)]) -> Vec<Nanos> {
    let (start, mut sent) = (bench.now, Vec::new());
    let take = |bench: &mut Bench, sent: &mut Vec<Nanos>| {
        let now = bench.now - start;
        sent.extend(bench.sent().iter().map(|_| now));
    };
    for &(at, bytes) in packets {
        while let Some(next) = bench.qdisc.next_event().filter(|next| *next < start + at) {
            bench.now = next;
            take(bench, &mut sent);
        }
        bench.now = start + at;
        assert_eq!(bench.enqueue(bytes), Verdict::Success);
    }
    sent.extend(bench.run().iter().map(|(at, _)| at - start));
    sent
}

/// The meaning of a file by the manual of mm-link, in the plainest way: millisecond by millisecond, opportunity by opportunity, each of 1504
/// bytes for the packets that are there.
fn mahimahi(times: &[u64], packets: &[(Nanos, usize)]) -> Vec<Nanos> {
    let (mut sent, mut part, mut base) = (Vec::new(), 0, 0);
    while sent.len() < packets.len() {
        for time in times {
            let now = (base + time) * MS;
            let mut left = 1504;
            // A packet that comes at the time itself is too late.
            while left > 0 && sent.len() < packets.len() && packets[sent.len()].0 < now {
                let size = packets[sent.len()].1 + 4;
                let bytes = left.min(size - part);
                (left, part) = (left - bytes, part + bytes);
                if part == size {
                    (part, sent) = (0, [sent, vec![now]].concat());
                }
            }
        }
        base += times.last().unwrap();
    }
    sent
}

/// The meaning of a bandwidth trace in rattan, by its published source: `next_available` is when the link is free, and moves with each packet
/// and each change of the rate. Returns it for each packet: when the packet's last bit has passed.
fn rattan(lines: &[(f64, f64)], packets: &[(Nanos, usize)]) -> Vec<f64> {
    let (mut next_available, mut index, mut changed) = (0.0_f64, 0, 0.0_f64);
    let mut passed = Vec::new();
    for &(at, bytes) in packets {
        let at = at as f64 / 1e9;
        // The changes that come before the packet begins.
        let change = |next: &mut f64, index: &mut usize, changed: &mut f64| {
            let (duration, before) = lines[*index % lines.len()];
            *changed += duration;
            *index += 1;
            let after = lines[*index % lines.len()].1;
            if *next > *changed {
                *next = *changed + (*next - *changed) * before / after;
            }
        };
        while changed + lines[index % lines.len()].0 <= next_available.max(at) {
            change(&mut next_available, &mut index, &mut changed);
        }
        next_available = next_available.max(at) + bytes as f64 * 8.0 / lines[index % lines.len()].1;
        while changed + lines[index % lines.len()].0 < next_available {
            change(&mut next_available, &mut index, &mut changed);
        }
        passed.push(next_available);
    }
    passed
}

#[test]
fn opportunities_are_mahimahis() {
    // Two at 5 ms, one at 7 ms, one at 20 ms, which is the file's length.
    let file = Recording::new("mahimahi", "5\n5\n7\n20\n");
    let mut bench = Bench::new(&file.words("limit 100"));
    // Whole packets; short ones that share an opportunity; one that is too late for 7 ms; one of the second pass.
    let packets = [(0, 1500), (0, 1500), (MS, 400), (MS, 400), (7 * MS, 1500), (8 * MS, 1500)];
    let left = departures(&mut bench, &packets);
    assert_eq!(left, [5, 5, 7, 7, 20, 25].map(|ms| ms * MS));
    assert_eq!(left, mahimahi(&[5, 5, 7, 20], &packets));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn departures_are_mahimahis(
        gaps in prop::collection::vec(0u64..4, 1..40),
        packets in prop::collection::vec((0u64..8 * MS, 1usize..1500), 1..60),
    ) {
        let mut times: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
        times.push(times.last().unwrap() + 1);
        let text: String = times.iter().map(|time| format!("{time}\n")).collect();
        let mut at = 0;
        let packets: Vec<_> = (0..).zip(&packets).map(|(n, (gap, bytes))| {
            at += if n == 0 { 0 } else { *gap };
            (at, *bytes)
        }).collect();
        let mut link = link(&text, false);
        let ours: Vec<_> = packets.iter().map(|(at, bytes)| link.pass(*at, *bytes as u64 + 4).unwrap()).collect();
        prop_assert_eq!(ours, mahimahi(&times, &packets));
    }

    #[test]
    fn departures_are_rattans(
        lines in prop::collection::vec((1u64..50, 100u64..50_000), 1..12),
        packets in prop::collection::vec((0u64..20 * MS, 40usize..1500), 1..60),
    ) {
        let text: String = lines.iter().map(|(ms, kbit)| format!("{ms}ms,{kbit}kbit\n")).collect();
        let mut at = 0;
        let packets: Vec<_> = packets.iter().map(|(gap, bytes)| { at += gap; (at, *bytes) }).collect();
        let mut link = link(&format!("duration,rate\n{text}"), false);
        let lines: Vec<_> = lines.iter().map(|(ms, kbit)| (*ms as f64 / 1e3, *kbit as f64 * 1e3)).collect();
        for (theirs, (at, bytes)) in rattan(&lines, &packets).into_iter().zip(&packets) {
            let ours = link.pass(*at, *bytes as u64).unwrap() as f64 / 1e9;
            prop_assert!((ours - theirs).abs() < 1e-6, "{} is not {}", ours, theirs);
        }
    }

    #[test]
    fn packets_are_conserved(
        ops in ops(prop_oneof![Just("limit 5".to_owned()), Just("limit 500 overhead 40".to_owned())].boxed())
    ) {
        let file = Recording::new("conserved", "duration,rate,delay,loss\n5ms,40mbit,2ms,10%\n1ms,0,9ms,0\n2ms,1mbit,1ms,50%\n");
        conserves(&file.words("limit 20"), &ops);
    }
}

#[test]
fn rates_delays_and_losses_are_those_of_their_lines() {
    let text =
        "# a comment\nduration,rate,delay,loss\n\n10ms,1.2mbit,1ms,0%\n10ms,0,50ms,0\n5ms,12mbit,2ms,100%\n";
    let file = Recording::new("csv", text);
    let mut bench = Bench::new(&file.words(""));
    // 1500 bytes take 10 ms of the first line. The next 1500 wait for the outage, and pass in the third line in 1 ms, with its delay.
    assert_eq!(departures(&mut bench, &[(0, 1500), (0, 1500)]), [11 * MS, 23 * MS]);
    // All that comes in the third line is lost, and counted.
    bench.now = bench.now / MS * MS;
    let lost = bench.qdisc.stats().drops;
    assert_eq!((bench.enqueue(100), bench.qdisc.qlen()), (Verdict::Success, 0));
    assert_eq!(bench.qdisc.stats().drops, lost + 1);
    assert_eq!(bench.drops.get(DropReason::QdiscDrop), 1);
}

#[test]
fn packets_keep_their_order_when_the_delay_falls() {
    let mut qdisc = Bench::new(&Recording::new("order", "duration,delay\n10ms,100ms\n10ms,1ms\n").words(""));
    assert_eq!(departures(&mut qdisc, &[(0, 100), (15 * MS, 100)]), [100 * MS, 100 * MS]);
}

#[test]
fn a_file_is_played_once_or_again_and_again() {
    let mut looped = link("4\n8\n", false);
    // Passes without a packet are left out.
    assert_eq!(looped.pass(8_001 * MS, 1504), Some(8_004 * MS));
    assert_eq!(looped.pass(8_001 * MS, 1504), Some(8_008 * MS));
    assert_eq!(looped.pass(8_001 * MS, 1504), Some(8_012 * MS));
    let mut once = link("4\n8\n", true);
    assert_eq!([0, 0, 0].map(|_| once.pass(0, 1504)), [Some(4 * MS), Some(8 * MS), None]);
    let mut last = link("duration,rate\n1ms,0\n1ms,8kbit\n", true);
    assert_eq!(last.pass(0, 1000), Some(1001 * MS));
    assert_eq!(last.pass(5_000 * MS, 1000), Some(6_000 * MS));
    assert_eq!(link("duration,rate\n1ms,8kbit\n1ms,0\n", true).pass(0, 1000), None);
}

#[test]
fn a_packet_may_take_many_passes() {
    // 8 bits a second in each first millisecond: 1000 bytes are a million passes of 2 ms, up to the end of the last one's first half.
    let mut slow = link("duration,rate\n1ms,8bit\n1ms,0\n", false);
    assert_eq!(slow.pass(0, 1000), Some(2_000_000 * MS - MS));
    assert_eq!(slow.pass(0, 1), Some(2_002_000 * MS - MS));
}

#[test]
fn the_rate_has_no_rounding_that_adds_up() {
    // 7 bits a microsecond: 12000 bits are no whole number of nanoseconds.
    let mut link = link("duration,rate\n1s,7mbit\n", false);
    let last = (0..1_000_000).map(|_| link.pass(0, 1500)).last().flatten().unwrap();
    assert_eq!(last, (1_000_000_u128 * 12_000 * 1000).div_ceil(7) as u64);
}

#[test]
fn wrong_files_and_words_are_explained() {
    let error = |text: &str, options: &str| {
        let file = Recording::new("wrong", text);
        try_build(&file.words(options)).err().expect(text).to_string()
    };
    for (text, what) in [
        ("", "it is empty"),
        ("5\n4\n", "line 2: 4 is before the time of the line above"),
        ("0\n0\n", "it has no length"),
        ("1\nx\n", "line 2: \"x\" is no time in milliseconds"),
        ("rate\n1mbit\n", "no column \"duration\""),
        ("duration,speed\n", "\"speed\" is no column"),
        ("duration,rate\n1s\n", "line 2: it has 1 values for 2 columns"),
        ("duration,rate\n100,1mbit\n", "line 2: \"100\" has no unit"),
        ("duration,rate\n1s,0\n", "no line has a rate above 0"),
        ("duration,loss\n1s,101%\n", "line 2: \"101%\" is no loss"),
        ("duration,rate\n0ms,1mbit\n", "line 2: its duration is 0"),
    ] {
        let error = error(text, "");
        assert!(error.contains(what), "{what} is not in {error}");
    }
    assert!(error("1\n", "limt 5").contains("did you mean \"limit\"?"));
    let error = |text: &str| try_build(text).err().expect(text).to_string();
    assert!(error("trace").contains("a path with a \"/\""));
    assert!(error("trace lte.up").contains("a path with a \"/\""));
    assert!(error("trace /no/such/file").contains("No such file"));
    assert!(error("trace /dev/null").contains("no regular file"));
}

#[test]
fn parameters_are_shown_and_changed() {
    let file = Recording::new("shown", "1\n2\n");
    let mut bench = Bench::new(&file.words("once seed 5"));
    let path = file.0.display().to_string();
    let shown = |bench: &Bench| bench.qdisc.options(Style::default()).text().to_owned();
    assert_eq!(shown(&bench), format!("{path} limit 1000p once overhead 4 seed 5"));
    bench.change("limit 10 overhead -10").unwrap();
    assert_eq!(shown(&bench), format!("{path} limit 10p once overhead -10 seed 5"));
    assert!(bench.change("limit x").is_err());
}
