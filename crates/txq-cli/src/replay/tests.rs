use super::*;
use crate::common::stop::Stop;
use crate::frames::{Common, Target, header};
use crate::pump::{Count, Source};
use std::time::Duration;
use txq::driver::Link;

/// Returns a pcap of UDP frames of `flows` flows in turn, `gap` microseconds apart.
fn pcap(frames: u32, flows: u32, gap: u32) -> Capture {
    Capture::from_bytes("test", bytes(flows, (0..frames).map(|n| (0, n * gap)))).unwrap()
}

/// Returns the bytes of a pcap whose frames have these times, in seconds and microseconds.
fn bytes(flows: u32, times: impl Iterator<Item = (u32, u32)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (n, (seconds, micros)) in (0..).zip(times) {
        let frame =
            header(&Common { target: Target::Link(Link::Ethernet), to: None, dscp: 0 }, 0, n % flows, 42);
        for word in [seconds, micros, 42, 42] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

const RECORDED: ReplayPace = ReplayPace { rate: Rate::Recorded, speed: 1.0, max_gap: MAX_GAP };

fn pace(rate: &str) -> ReplayPace {
    ReplayPace { rate: rate.parse().unwrap(), ..RECORDED }
}

/// Returns the whole of a capture, of which nothing is known, for one thread.
fn whole(capture: &Capture, pace: ReplayPace) -> Whole<'_> {
    Whole { capture, remote: None, pace, passes: 1, pass: None, torn: false, room: usize::MAX, threads: 1 }
}

/// Returns part `number`, which nobody stops.
fn part_of(whole: Whole<'_>, number: u32) -> Part<'_> {
    Part::of(whole, number, Box::leak(Box::default()))
}

/// Returns all packets of part `number`: their times, and their source ports, which are those of the flows.
fn packets(whole: Whole<'_>, number: u32) -> Vec<(u64, u16)> {
    let mut part = part_of(whole, number);
    let mut all = Vec::new();
    while let Some(frame) = part.next() {
        all.push((frame.due, u16::from_be_bytes(frame.head[34..36].try_into().unwrap())));
    }
    assert!(part.into_error().is_none());
    all
}

fn times(whole: Whole<'_>) -> Vec<u64> {
    packets(whole, 0).into_iter().map(|(due, _)| due).collect()
}

/// A clock that is set forward by decades and back by an hour delays the frames by the bound, once.
#[test]
fn a_clock_that_jumps_does_not_stop_a_replay() {
    let seconds = [5, 6, 1_700_000_000, 1_700_000_001, 1_699_996_400, 1_699_996_402, 1_699_996_401];
    let capture = Capture::from_bytes("test", bytes(1, seconds.map(|at| (at, 0)).into_iter())).unwrap();
    let pace = ReplayPace { max_gap: Duration::from_secs(10), ..RECORDED };
    let due: Vec<u64> = times(whole(&capture, pace)).iter().map(|due| due / 1_000_000_000).collect();
    assert_eq!(due, [0, 1, 11, 12, 12, 14, 13]);
    let survey = Survey::of(&mut Packets::of(&capture, None), pace).unwrap();
    let warning = survey.schedule.warning().unwrap();
    assert!(warning.starts_with("2 gaps between frames are longer than 10s, or negative"), "{warning}");
}

/// A capture that was killed lacks the end of its last frame; the others are sent.
#[test]
fn a_capture_that_ends_early_is_sent_up_to_there() {
    let bytes = bytes(1, (0..3).map(|n| (n, 0)));
    let capture = Capture::from_bytes("test", &bytes[..bytes.len() - 1]).unwrap();
    let mut survey = Survey::of(&mut Packets::of(&capture, None), RECORDED).unwrap();
    let warning = survey.seen.warning(std::path::Path::new("x.pcap"), survey.torn).unwrap();
    assert_eq!(warning, "x.pcap: the file ends within frame 3; the 2 before it are sent");
    let known = Whole { torn: survey.torn.take().is_some(), passes: 3, ..whole(&capture, pace("1pps")) };
    assert_eq!(times(known).len(), 6);
    // A daemon's file may still be written: the frames before are sent, and the error is said.
    let mut part = part_of(Whole { passes: 3, ..whole(&capture, RECORDED) }, 0);
    assert!(part.next().is_some() && part.next().is_some() && part.next().is_none());
    let error = part.into_error().unwrap().to_string();
    assert!(error.contains("capture \"test\", frame 3 at byte 140: the file ends within it"), "{error}");
}

#[test]
fn each_flow_has_one_thread_and_its_order() {
    let capture = pcap(1000, 50, 1);
    let whole = Whole { threads: 4, passes: 2, ..whole(&capture, RECORDED) };
    let parts: Vec<_> = (0..4).map(|number| packets(whole, number)).collect();
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 2000);
    assert!(parts.iter().all(|packets| packets.is_sorted_by_key(|(due, _)| *due) && !packets.is_empty()));
    for port in parts.iter().flatten().map(|(_, port)| port) {
        let has = |packets: &&Vec<(u64, u16)>| packets.iter().any(|(_, other)| other == port);
        assert_eq!(parts.iter().filter(has).count(), 1, "port {port}");
    }
}

/// The time of a pass is known before the second one, also if the capture was not read before.
#[test]
fn schedules_keep_the_rate_over_passes() {
    let capture = pcap(10, 1, 100);
    let due = |pace: ReplayPace, n: usize| {
        let whole = Whole { passes: 4, ..whole(&capture, pace) };
        let due = times(whole);
        let survey = Survey::of(&mut Packets::of(&capture, None), pace).unwrap();
        assert_eq!(times(Whole { pass: Some(survey.schedule.pass()), ..whole }), due);
        due[n]
    };
    assert_eq!((due(pace("1kpps"), 9), due(pace("1kpps"), 31)), (9_000_000, 31_000_000));
    // 42 bytes are 336 bits.
    assert_eq!((due(pace("336kbit"), 9), due(pace("336kbit"), 10)), (9_000_000, 10_000_000));
    let fast = ReplayPace { speed: 4.0, ..RECORDED };
    assert_eq!((due(fast, 9), due(fast, 10)), (225_000, 250_000));
    assert_eq!((due(RECORDED, 9), due(RECORDED, 10)), (900_000, 1_000_000));
    assert_eq!(due(pace("max"), 39), 0);
    let asked = Survey::of(&mut Packets::of(&capture, None), RECORDED).unwrap().asked(Rate::Recorded);
    assert_eq!((asked.pps, asked.bps), (Some(10_000.0), Some(3_360_000.0)));
}

/// Three frames at 3 packets per second: a third of a nanosecond lost at each frame would be visible here.
#[test]
fn a_schedule_does_not_drift() {
    let capture = pcap(3, 1, 0);
    let mut part = part_of(Whole { passes: 2_000_000, ..whole(&capture, pace("3pps")) }, 0);
    assert!(part.next().is_some());
    assert_eq!(part.next().unwrap().due, 333_333_333);
    assert_eq!(part.due_by(1_000_000_000_000_000).packets, 3_000_001);
}

/// Frames whose times are not whole nanoseconds: the count agrees with the frames to the nanosecond, whenever the sender stopped.
#[test]
fn the_frames_that_are_due_are_counted() {
    let capture = pcap(10, 3, 100);
    for rate in ["1kpps", "700mpps", "3gpps", "336kbit", "recorded"] {
        for (threads, number) in [(1, 0), (2, 0), (2, 1), (64, 0)] {
            let whole = Whole { passes: 3, threads, ..whole(&capture, pace(rate)) };
            let due = packets(whole, number);
            let times = || due.iter().map(|(due, _)| *due);
            for now in times().flat_map(|due| [due.saturating_sub(1), due, due + 1]).chain([u64::MAX]) {
                let count = times().filter(|&due| due <= now).count();
                // A sender takes one packet that is not due, and then stops.
                for taken in 0..=(count + 1).min(due.len()) {
                    let mut part = part_of(whole, number);
                    (0..taken).for_each(|_| assert!(part.next().is_some()));
                    let packets = count as u64;
                    let counted = part.due_by(now);
                    assert_eq!(
                        counted,
                        Count { packets, bytes: packets * 42 },
                        "{rate}, {taken} at {now} ns"
                    );
                }
            }
        }
    }
}

/// Frames that all have the same time have no pace that a sender could keep: they wait for buffers.
#[test]
fn a_recording_of_one_moment_is_not_rated() {
    let capture = pcap(10, 3, 0);
    let survey = Survey::of(&mut Packets::of(&capture, None), RECORDED).unwrap();
    assert_eq!(survey.asked(Rate::Recorded).pps, None);
    let known = Whole { pass: Some(survey.schedule.pass()), ..whole(&capture, RECORDED) };
    assert!(!part_of(known, 0).is_rated());
    // Without a pass before, the first one shows it.
    let mut part = part_of(Whole { passes: 2, ..whole(&capture, RECORDED) }, 0);
    for n in 0..20 {
        assert!(part.next().is_some());
        assert_eq!(part.is_rated(), n < 10, "{n}");
    }
}

#[test]
fn a_part_ends_after_its_passes() {
    let capture = pcap(3, 1, 1);
    let part = |threads, number| {
        let mut part = part_of(Whole { threads, passes: 4, ..whole(&capture, RECORDED) }, number);
        let mut count = 0;
        while part.next().is_some() {
            count += 1;
        }
        (count, part.passed())
    };
    assert_eq!(part(1, 0), (12, 4));
    // The flow is another part's.
    let [one, other] = [part(2, 0), part(2, 1)];
    assert!([one, other] == [(12, 4), (0, 4)] || [one, other] == [(0, 4), (12, 4)], "{one:?} {other:?}");
}

/// Packets that the device has no room for are left out and counted; the others keep their times.
#[test]
fn packets_without_room_are_left_out() {
    let capture = pcap(4, 1, 100);
    let mut part = part_of(Whole { room: 41, passes: 2, ..whole(&capture, RECORDED) }, 0);
    assert!(part.next().is_none());
    assert_eq!((part.too_long(), part.take_first_too_long(), part.passed()), (4, Some((1, 42)), 2));
    let whole = Whole { room: 42, ..whole(&capture, RECORDED) };
    assert_eq!(times(whole), [0, 100_000, 200_000, 300_000]);
}

/// A datagram is longer than the frame that it carries.
#[test]
fn datagrams_carry_the_frames() {
    let capture = pcap(2, 1, 100);
    let whole = Whole { remote: Some("192.0.2.1:9".parse().unwrap()), ..whole(&capture, RECORDED) };
    let mut part = part_of(whole, 0);
    let first = part.next().unwrap();
    assert_eq!((first.len, first.head[0]), (42 + 28, 0x45));
}

/// A part whose next packet is far away ends when it is asked to.
#[test]
fn a_part_without_packets_stops() {
    let capture = pcap(1000, 1, 1);
    let stop = Stop::default();
    stop.ask();
    let whole = Whole { threads: 2, ..whole(&capture, RECORDED) };
    for number in [0, 1] {
        let mut part = Part::of(whole, number, &stop);
        let count = std::iter::from_fn(|| part.next().map(drop)).count();
        let read = part.packets.seen().all.packets;
        assert!(count == 1000 || (count, read) == (0, 1), "{count} of {read}");
        assert!(part.due_by(10).packets <= 1000);
    }
}
