//! Polls that come late: each shaper sends at its rate nevertheless, saves nothing in pauses, and keeps to its bound.

use txq_core::arch::Native;

use super::*;
use crate::generic::qdisc::{Built, build};

const SECOND: u64 = 1_000_000_000;
const LEN: u32 = 1500;
/// Most of what counts as late (`qdisc/lateness.rs`).
const MOST_LATE: u64 = 16 * MS;
/// Packets of a class that wait at a time: more than leave in the longest lateness.
const DEEP: usize = 400;
/// The classes of an htb and an htb_mq: both borrow from a class that has all, and their own bursts are one packet.
const CLASSES: [&str; 3] = [
    "class add parent 1: classid 1:1 htb rate 100mbit",
    "class add parent 1:1 classid 1:10 htb rate 10mbit ceil 100mbit quantum 3000",
    "class add parent 1:1 classid 1:20 htb rate 20mbit ceil 100mbit quantum 3000",
];

/// A shaper at 100 Mbit/s, what it may send at once, and whether flows have a rate each.
struct Kind {
    text: &'static str,
    burst: u64,
    /// Flows or classes whose packets wait, which have the rate together.
    flows: u16,
    parts: u16,
    is_bounded: bool,
}

const KINDS: [Kind; 8] = [
    Kind { text: "tbf rate 100mbit burst 1600 limit 10m", burst: 1600, flows: 1, parts: 1, is_bounded: true },
    Kind {
        text: "tbf rate 100mbit burst 1600 limit 10m peakrate 200mbit mtu 1600",
        burst: 1600,
        flows: 1,
        parts: 1,
        is_bounded: true,
    },
    // A packet may take a bucket below 0, also those of a leaf while its parent lends.
    Kind { text: "htb", burst: 3 * 1800 + 3 * 1500, flows: 2, parts: 1, is_bounded: true },
    // A new flow sends its first quantum at once.
    Kind {
        text: "fq maxrate 50mbit flow_limit 1000",
        burst: 2 * 16_000,
        flows: 2,
        parts: 1,
        is_bounded: true,
    },
    // As in the kernel, all that waited is sent.
    Kind { text: "cake bandwidth 100mbit besteffort", burst: 1500, flows: 2, parts: 1, is_bounded: false },
    Kind {
        text: "tbf_mq rate 100mbit burst 1600 limit 10m",
        burst: 1600,
        flows: 1,
        parts: 2,
        is_bounded: true,
    },
    Kind { text: "htb_mq", burst: 3 * 1800 + 3 * 1500, flows: 2, parts: 2, is_bounded: true },
    Kind { text: "cake_mq bandwidth 100mbit besteffort", burst: 1500, flows: 2, parts: 2, is_bounded: false },
];

/// How late the next poll is.
type Late = Box<dyn FnMut() -> u64>;

/// The parts of a qdisc, each polled at times of its own.
struct Parts(Vec<Scheduler<u16>>);

impl Parts {
    fn new(kind: &Kind) -> Self {
        let env = Env { txqs: kind.parts, ..Env::default() };
        let config = Config { env, ..Config::default() };
        let qdiscs = match build::<Native>(kind.text, &env).unwrap() {
            (_, Built::Parts(parts) | Built::Replicas(parts) | Built::Children(_, parts)) => parts,
            (_, Built::Qdisc(qdisc)) => vec![qdisc],
            _ => panic!("{} holds no packets", kind.text),
        };
        let mut parts: Vec<_> =
            qdiscs.into_iter().map(|qdisc| Scheduler::of_part(qdisc, &config).unwrap()).collect();
        if kind.text.starts_with("htb") {
            for part in &mut parts {
                CLASSES.iter().for_each(|class| drop(part.tc(SECOND, class).unwrap()));
            }
        }
        Self(parts)
    }

    /// Queues packets in each flow of a part until so many wait in all of them.
    fn fill(&mut self, kind: &Kind, part: usize, now: u64, packets: usize) {
        let scheduler = &mut self.0[part];
        while scheduler.len() < packets * usize::from(kind.flows) {
            for flow in 1..=kind.flows {
                let item =
                    Item::new(LEN, flow).hash(u32::from(flow) << 16).class(Handle::new(1, flow * 0x10));
                assert_eq!(scheduler.enqueue(now, item), Verdict::Success);
            }
        }
    }

    /// Sends all that a part may send at `now`; returns the bytes, and the time at which it asks to be polled.
    fn poll(&mut self, part: usize, now: u64) -> (u64, Option<u64>) {
        let mut bytes = 0;
        loop {
            match self.0[part].poll(now) {
                Next::Packet(departed) => bytes += u64::from(departed.len),
                Next::Until(at) => return (bytes, Some(at.as_nanos())),
                Next::Idle => return (bytes, None),
            }
        }
    }

    /// Keeps packets waiting in all parts until `end`, and polls each part `late` after the time for which it asked. Returns
    /// what left, and when.
    fn saturate(
        &mut self,
        kind: &Kind,
        now: u64,
        end: u64,
        mut late: impl FnMut() -> u64,
    ) -> Vec<(u64, u64)> {
        let (mut left, mut next) = (Vec::new(), vec![now; self.0.len()]);
        while let Some((part, &now)) =
            next.iter().enumerate().min_by_key(|next| next.1).filter(|next| *next.1 < end)
        {
            self.fill(kind, part, now, DEEP);
            let (bytes, at) = self.poll(part, now);
            left.push((now, bytes));
            next[part] = at.expect("packets wait").max(now + 1) + late();
        }
        left
    }
}

/// Pseudorandom numbers from 0 to 999.
fn random() -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 1000
    }
}

/// The lateness of a busy machine: 5 % of the polls are late by 0.3 to 12 ms, the others by 60 us.
fn busy_machine() -> impl FnMut() -> u64 {
    let mut random = random();
    move || match random() {
        rare @ 0..50 => 300_000 + rare * 240_000,
        _ => 60_000,
    }
}

#[test]
fn late_polls_cost_no_rate() {
    for kind in &KINDS {
        let lates: [(&str, Late); 4] = [
            ("never late", Box::new(|| 0)),
            ("a busy machine", Box::new(busy_machine())),
            ("4 ms", Box::new(|| 4 * MS)),
            ("16 ms", Box::new(|| 16 * MS)),
        ];
        for (name, late) in lates {
            let mut parts = Parts::new(kind);
            let left = parts.saturate(kind, SECOND, 4 * SECOND, late);
            let sent: u64 = left.iter().filter(|sent| sent.0 >= 2 * SECOND).map(|sent| sent.1).sum();
            let due = 2 * 12_500_000;
            let off = sent.abs_diff(due) * 1000 / due;
            println!("{}, {name}: off by {off} in 1000", kind.text);
            assert!(off <= 10, "{}, {name}: {sent} of {due} bytes", kind.text);
            if kind.is_bounded {
                let longest = if name == "never late" { 0 } else { MOST_LATE };
                assert_within(&left, kind.burst + longest / 80, &format!("{}, {name}", kind.text));
            }
        }
    }
}

/// Asserts that in no time more left than 100 Mbit/s and `burst` bytes.
fn assert_within(left: &[(u64, u64)], burst: u64, what: &str) {
    let (mut sent, mut least, mut most) = (0, i128::MAX, 0);
    for &(at, bytes) in left {
        let allowed = i128::from(at) / 80;
        least = least.min(sent - allowed);
        sent += i128::from(bytes);
        most = most.max(sent - allowed - least);
    }
    assert!(most <= i128::from(burst) + sent / 1000, "{what}: {most} bytes above the rate, of {burst}");
}

/// A pause without packets gives no credit, however late the next poll is for the time that was asked for last.
#[test]
fn a_pause_gives_no_credit() {
    for kind in &KINDS {
        let mut parts = Parts::new(kind);
        for part in 0..parts.0.len() {
            let mut now = SECOND;
            parts.fill(kind, part, now, 3);
            while let (_, Some(at)) = parts.poll(part, now) {
                now = at;
            }
            now += SECOND;
            parts.fill(kind, part, now, DEEP);
            let (bytes, _) = parts.poll(part, now);
            assert!(bytes <= kind.burst, "{}: {bytes} bytes at once, of {}", kind.text, kind.burst);
        }
    }
}

/// After a stop of a second, packets of 16 ms leave at once.
#[test]
fn the_credit_is_bounded() {
    for kind in KINDS.iter().filter(|kind| kind.is_bounded) {
        let mut parts = Parts::new(kind);
        let now = SECOND;
        parts.fill(kind, 0, now, 1000 / usize::from(kind.flows));
        parts.poll(0, now);
        let (bytes, _) = parts.poll(0, now + SECOND);
        let (least, most) = (MOST_LATE / 80, MOST_LATE / 80 + kind.burst);
        assert!((least..=most).contains(&bytes), "{}: {bytes} bytes, not {least} to {most}", kind.text);
    }
}

/// A class whose first packet arrives while the others wait for a late poll has credit from then on.
#[test]
fn a_class_has_credit_only_for_the_time_in_which_it_waits() {
    for kind in KINDS.iter().filter(|kind| kind.text.starts_with("htb")) {
        let mut parts = Parts::new(kind);
        let scheduler = &mut parts.0[0];
        let put = |scheduler: &mut Scheduler<_>, now, class| {
            let item = Item::new(LEN, class).class(Handle::new(1, class));
            assert_eq!(scheduler.enqueue(now, item), Verdict::Success);
        };
        let _ = scheduler.tc(0, "class add parent 1: classid 1:30 htb rate 50mbit").unwrap();
        (0..DEEP).for_each(|_| put(scheduler, SECOND, 0x30));
        while let Next::Packet(_) = scheduler.poll(SECOND) {}
        let _ = scheduler.tc(0, "class add parent 1: classid 1:40 htb rate 100mbit").unwrap();
        (0..DEEP).for_each(|_| put(scheduler, SECOND + 8 * MS, 0x40));
        let mut sent = [0, 0];
        while let Next::Packet(departed) = scheduler.poll(SECOND + 12 * MS) {
            sent[usize::from(departed.value == 0x40)] += u64::from(departed.len);
        }
        let near = |bytes: u64, ms: u64, rate: u64| (ms * rate - 1500..=ms * rate + 3500).contains(&bytes);
        assert!(near(sent[0], 12, 6250), "{}: {} bytes of the class that waits", kind.text, sent[0]);
        assert!(near(sent[1], 4, 12_500), "{}: {} bytes of the class that comes", kind.text, sent[1]);
    }
}
