use super::*;
use crate::frames::{Common, Target, header};
use txq::driver::Link;
use txq_device::capture::Capture;

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

/// A clock that is set forward by decades and back by an hour delays the frames by the bound, once.
#[test]
fn a_clock_that_jumps_does_not_stop_a_replay() {
    let seconds = [5, 6, 1_700_000_000, 1_700_000_001, 1_699_996_400, 1_699_996_402, 1_699_996_401];
    let capture = Capture::from_bytes("test", bytes(1, seconds.map(|at| (at, 0)).into_iter())).unwrap();
    let schedule = schedule(
        &Recording::of(&capture, usize::MAX).unwrap(),
        Rate::Recorded,
        1.0,
        Some(Duration::from_secs(10)),
    );
    let due: Vec<u64> = (0..7).map(|n| schedule.as_ref().unwrap().due(0, n) / 1_000_000_000).collect();
    assert_eq!(due, [0, 1, 11, 12, 12, 14, 13]);
}

/// Each frame takes memory, also one without bytes.
#[test]
fn a_capture_of_too_many_frames_is_refused() {
    let capture = pcap(10, 1, 100);
    assert!(Recording::of(&capture, 10).is_ok());
    let error = Recording::of(&capture, 9).map(drop).unwrap_err().to_string();
    assert!(error.contains("more than 9 frames"), "{error}");
}

/// A capture that was killed lacks the end of its last frame; the others are sent.
#[test]
fn a_capture_that_ends_early_is_sent_up_to_there() {
    let bytes = bytes(1, (0..3).map(|n| (n, 0)));
    let capture = Capture::from_bytes("test", &bytes[..bytes.len() - 1]).unwrap();
    // A daemon's file may still be written.
    assert!(Recording::of(&capture, usize::MAX).is_err());
    let recording = Recording::of_torn(&capture).unwrap();
    assert_eq!(recording.frames().len(), 2);
    let warning = recording.warning(std::path::Path::new("x.pcap")).unwrap();
    assert_eq!(warning, "x.pcap: the file ends within frame 3; the 2 before it are sent");
}

#[test]
fn each_flow_has_one_thread_and_its_order() {
    let capture = pcap(1000, 50, 1);
    let recording = Recording::of(&capture, usize::MAX).unwrap();
    let dealt = deal(&recording, 4);
    assert_eq!(dealt.iter().map(Vec::len).sum::<usize>(), 1000);
    assert!(dealt.iter().all(|frames| frames.is_sorted() && !frames.is_empty()));
    for flow in 0..50 {
        let mine = |frames: &&Vec<u32>| frames.iter().any(|frame| frame % 50 == flow);
        assert_eq!(dealt.iter().filter(mine).count(), 1, "flow {flow}");
    }
}

#[test]
fn schedules_keep_the_rate_over_passes() {
    let capture = pcap(10, 1, 100);
    let recording = Recording::of(&capture, usize::MAX).unwrap();
    let due = |rate: &str, pass, index| {
        schedule(&recording, rate.parse().unwrap(), 1.0, None).unwrap().due(pass, index)
    };
    assert_eq!((due("1kpps", 0, 9), due("1kpps", 3, 1)), (9_000_000, 31_000_000));
    // 42 bytes are 336 bits.
    assert_eq!((due("336kbit", 0, 9), due("336kbit", 1, 0)), (9_000_000, 10_000_000));
    let fast = schedule(&recording, Rate::Recorded, 4.0, None).unwrap();
    assert_eq!((fast.due(0, 9), fast.due(1, 0)), (225_000, 250_000));
    assert_eq!((due("recorded", 0, 9), due("recorded", 1, 0)), (900_000, 1_000_000));
    assert!(schedule(&recording, Rate::Max, 1.0, None).is_none());
    let asked = asked(&recording, Rate::Recorded, schedule(&recording, Rate::Recorded, 1.0, None).as_ref());
    assert_eq!((asked.pps, asked.bps), (Some(10_000.0), Some(3_360_000.0)));
}

/// Frames whose times are not whole nanoseconds: the count agrees with the frames to the nanosecond.
#[test]
fn the_frames_that_are_due_are_counted() {
    let capture = pcap(10, 3, 100);
    let recording = Recording::of(&capture, usize::MAX).unwrap();
    for rate in ["1kpps", "700mpps", "3gpps", "336kbit", "recorded"] {
        let schedule = schedule(&recording, rate.parse().unwrap(), 1.0, None).unwrap();
        let part = |frames| Part {
            recording: &recording,
            schedule: Some(&schedule),
            frames,
            passes: 3,
            pass: 0,
            next: 0,
        };
        assert_eq!(part(vec![]).due_by(u64::MAX), Count::default());
        let mut frames = part(vec![0, 2, 5, 9]);
        let mut due = Vec::new();
        while let Some(frame) = frames.next() {
            due.push(frame.due);
        }
        assert_eq!(due.len(), 12);
        for now in due.iter().flat_map(|&due| [due.saturating_sub(1), due, due + 1]).chain([u64::MAX]) {
            let packets = due.iter().filter(|&&due| due <= now).count() as u64;
            assert_eq!(frames.due_by(now), Count { packets, bytes: packets * 42 }, "{rate} at {now} ns");
        }
    }
}

/// Frames that all have the same time have no pace that a sender could keep: they wait for buffers.
#[test]
fn a_recording_of_one_moment_is_not_rated() {
    let capture = pcap(10, 3, 0);
    let recording = Recording::of(&capture, usize::MAX).unwrap();
    let schedule = schedule(&recording, Rate::Recorded, 1.0, None);
    let schedule = schedule.as_ref();
    let part = Part { recording: &recording, schedule, frames: vec![0], passes: 1, pass: 0, next: 0 };
    assert!(!part.is_rated());
    assert_eq!(asked(&recording, Rate::Recorded, schedule).pps, None);
}

#[test]
fn a_part_ends_after_its_passes() {
    let capture = pcap(3, 1, 1);
    let recording = Recording::of(&capture, usize::MAX).unwrap();
    let part =
        |frames, passes| Part { recording: &recording, schedule: None, frames, passes, pass: 0, next: 0 };
    let count = |mut part: Part<'_>| std::iter::from_fn(|| part.next().map(|frame| frame.len)).count();
    assert_eq!(count(part(vec![0, 1, 2], 4)), 12);
    assert_eq!(count(part(vec![], 4)), 0);
}
