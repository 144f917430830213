//! All parts in deterministic time.

use proptest::prelude::*;
use txq_core::drop::DropReason;

use crate::generic::qdisc::testing::{ENV, MS, Parts};
use crate::generic::qdisc::{Env, Verdict};
use crate::tc::Style;

mod flows;

const SECOND: u64 = 1_000_000_000;

/// What left of the parts: the time, the part, the bytes.
type Left = Vec<(u64, usize, u64)>;

/// Asserts that in no window more left than the rate and one burst allow, and for each of 64 parts the bytes of the
/// nanosecond that its last price was cut to.
fn assert_within(left: &Left, rate: u64, burst: u64) {
    let mut most = i128::MIN;
    let mut sent = 0_i128;
    // Of all windows that end here the worst begins where the sum before it was least against the time.
    let mut least = i128::MAX;
    for &(at, _, bytes) in left {
        let allowed = i128::from(at) * i128::from(rate) / i128::from(SECOND);
        least = least.min(sent - allowed);
        sent += i128::from(bytes);
        most = most.max(sent - allowed - least);
    }
    let cut = i128::from(1 + 65 * rate / SECOND) + sent / 1_000_000_000;
    assert!(most <= i128::from(burst) + cut, "a window with {most} bytes above the rate, of {burst}");
}

fn bytes_of(left: &Left, part: usize) -> u64 {
    left.iter().filter(|sent| sent.1 == part).map(|sent| sent.2).sum()
}

/// Runs parts that always have packets, until `end`. A part is asked again when its event is due, `late` later.
fn saturate(parts: &mut Parts, busy: &[usize], bytes: usize, end: u64, late: impl Fn(usize) -> u64) -> Left {
    let mut left = Left::new();
    let mut next: Vec<_> = busy.iter().map(|_| parts.now).collect();
    while let Some(at) = next.iter().copied().min().filter(|&at| at < end) {
        let which = next.iter().position(|&time| time == at).unwrap();
        let part = busy[which];
        parts.now = at.max(parts.now);
        while parts.qlen(part) < 32 {
            assert_eq!(parts.enqueue(part, bytes), Verdict::Success);
        }
        let sent = parts.dequeue(part, 64);
        left.extend(sent.iter().map(|&len| (parts.now, part, len as u64)));
        next[which] = match parts.next_event(part) {
            Some(event) if sent.is_empty() || parts.qlen(part) > 0 => event.max(parts.now + 1) + late(which),
            _ => parts.now + 1,
        };
    }
    left
}

/// With 1, 2, 16 and 64 busy parts, from 1 Mbit/s to 40 Gbit/s: the rate within 0.5 %, equal shares, no window above the
/// burst.
#[test]
fn the_rate_is_exact_and_shares_are_equal() {
    for (text, rate, burst, bytes, time) in [
        ("rate 1mbit burst 3000", 125_000, 3000, 1500, 100 * SECOND),
        ("rate 100mbit burst 30k", 12_500_000, 30 << 10, 1000, 4 * SECOND),
        ("rate 1gbit burst 100k", 125_000_000, 100 << 10, 1500, SECOND),
        ("rate 10gbit burst 1m", 1_250_000_000, 1 << 20, 64, SECOND / 50),
        ("rate 40gbit burst 4m", 5_000_000_000_u64, 4 << 20, 1500, SECOND / 10),
    ] {
        for busy in [1, 2, 16, 64] {
            let busy: Vec<_> = (0..busy).collect();
            let mut parts = Parts::new(&format!("tbf_mq {text} limit 200k"), 64);
            let began = parts.now;
            let left = saturate(&mut parts, &busy, bytes, began + time, |_| 0);
            let sent: u64 = left.iter().map(|sent| sent.2).sum();
            let due = rate * time / SECOND;
            assert!(sent.abs_diff(due) <= due / 200 + burst, "{text}, {} parts: {sent} of {due}", busy.len());
            assert_within(&left, rate, burst);
            let shares: Vec<_> = busy.iter().map(|&part| bytes_of(&left, part)).collect();
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            let turn = (rate / 10_000).max(bytes as u64) + bytes as u64;
            assert!(most - least <= burst + 2 * turn, "{text}: {least} to {most}");
        }
    }
}

/// Without a burst in the sum, the rate alone: within 0.05 % over the second half of the time.
#[test]
fn the_rate_of_short_packets_is_exact() {
    for busy in [1, 3] {
        let busy: Vec<_> = (0..busy).collect();
        let mut parts = Parts::new("tbf_mq rate 10gbit burst 100k limit 200k", 4);
        let (began, time) = (parts.now, SECOND / 50);
        let left = saturate(&mut parts, &busy, 67, began + time, |_| 0);
        let late = left.iter().filter(|sent| sent.0 >= began + time / 2).map(|sent| sent.2).sum::<u64>();
        let due = 1_250_000_000 * (time / 2) / SECOND;
        assert!(late.abs_diff(due) <= due / 2000, "{late} of {due}");
    }
}

/// When a part runs dry, the others have its share within a millisecond.
#[test]
fn an_idle_parts_share_is_used_by_the_others() {
    let mut parts = Parts::new("tbf_mq rate 1gbit burst 20k limit 200k", 4);
    let began = parts.now;
    saturate(&mut parts, &[0, 1, 2, 3], 1500, began + 50 * MS, |_| 0);
    parts.drop_all(1);
    parts.drop_all(2);
    parts.drop_all(3);
    let stopped = parts.now;
    let left = saturate(&mut parts, &[0], 1500, stopped + 3 * MS, |_| 0);
    for window in 1..3 {
        let (from, to) = (stopped + window * MS, stopped + (window + 1) * MS);
        let sent: u64 = left.iter().filter(|sent| (from..to).contains(&sent.0)).map(|sent| sent.2).sum();
        assert!(sent >= 125_000 - 1500, "{sent} bytes in millisecond {window}");
    }
}

/// A part that begins to send waits for one turn of each other part at most, although they always have packets.
#[test]
fn a_part_that_begins_has_its_turn() {
    let mut parts = Parts::new("tbf_mq rate 100mbit burst 30k limit 200k", 16);
    let began = parts.now;
    let busy: Vec<_> = (0..15).collect();
    saturate(&mut parts, &busy, 1000, began + 100 * MS, |_| 0);
    let asked = parts.now;
    let all: Vec<_> = (0..16).collect();
    let left = saturate(&mut parts, &all, 1000, asked + 20 * MS, |_| 0);
    let first = left.iter().find(|sent| sent.1 == 15).expect("it sends").0;
    // A turn is 100 us of packets, so 2 of them: 160 us.
    assert!(first - asked <= 16 * 160_000, "after {} us", (first - asked) / 1000);
    for part in 0..16 {
        let times: Vec<_> = left.iter().filter(|sent| sent.1 == part).map(|sent| sent.0).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest <= 17 * 160_000, "part {part} waited for {longest} ns");
    }
}

/// A bucket of one packet, and a part whose timer is always later than the bucket is deep, while another is always on time:
/// the late one sends nevertheless.
#[test]
fn a_part_that_is_always_late_is_not_starved() {
    let mut parts = Parts::new("tbf_mq rate 1gbit burst 1600 limit 200k", 2);
    let began = parts.now;
    let late = |which| if which == 1 { 300_000 } else { 0 };
    let left = saturate(&mut parts, &[0, 1], 1500, began + 100 * MS, late);
    assert_within(&left, 125_000_000, 1600 + 300 * 125);
    let times: Vec<_> = left.iter().filter(|sent| sent.1 == 1).map(|sent| sent.0).collect();
    assert!(times.len() >= 50, "{} packets", times.len());
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest <= 5 * MS, "it waited for {longest} ns");
}

/// Parts whose timers are later than the bucket is deep find the tokens that they have reserved. All parts have the rate
/// together.
#[test]
fn late_parts_waste_no_tokens() {
    for (late_parts, ms) in [(1, 1), (1, 4), (1, 16), (15, 4)] {
        let mut parts = Parts::new("tbf_mq rate 800mbit burst 100k limit 200k", 16);
        let busy: Vec<_> = (0..=late_parts).collect();
        let end = parts.now + SECOND;
        let left = saturate(&mut parts, &busy, 1500, end, |which| if which > 0 { ms * MS } else { 0 });
        assert_within(&left, 100_000_000, (100 << 10) + ms * 100_000);
        let of: Vec<_> = busy.iter().map(|&part| bytes_of(&left, part)).collect();
        let sum: u64 = of.iter().sum();
        assert!(sum >= 99_000_000, "{late_parts} parts {ms} ms late: {sum} bytes");
        assert!(of.iter().all(|&bytes| bytes > 0), "one is starved: {of:?}");
    }
}

#[test]
fn words_are_checked() {
    let error = |text: &str| Parts::try_new(text, 4).err().expect(text).to_string();
    for (text, expected) in [
        ("tbf_mq", "tbf_mq: the \"rate\" parameter is mandatory."),
        ("tbf_mq rate 1mbit burst 2k", "tbf_mq: either \"limit\" or \"latency\" is required."),
        ("tbf_mq rate 1mbit burst 2k limit 3k peakrate 2mbit", "tbf_mq: unknown parameter \"peakrate\""),
        ("tbf_mq rate 1mbit burst 2k limit 3k mtu 1500", "tbf_mq: unknown parameter \"mtu\""),
    ] {
        assert!(error(text).starts_with(expected), "{text}: {}", error(text));
    }
    let one = crate::generic::qdisc::build::<txq_core::arch::Native>(
        "tbf_mq rate 1mbit burst 2k limit 3k",
        &Env { txqs: 1, ..ENV },
    );
    let one = one.err().expect("one txq").to_string();
    assert!(
        one.starts_with("RTNETLINK answers: Operation not supported") && one.contains("use tbf"),
        "{one}"
    );
}

#[test]
fn parameters_are_shown_as_tbfs() {
    let parts = Parts::new("tbf_mq rate 1gbit burst 125k latency 5ms overhead 24", 2);
    let options = parts.options(Style::default());
    assert_eq!(
        options.text(),
        "rate 1Gbit burst 125Kb lat 5ms overhead 24 linklayer ethernet ".replace("linklayer ethernet ", "")
    );
    assert_eq!(options.json()["rate"], 125_000_000);
}

/// A packet that is longer than the bucket is dropped, also one that was queued before a change.
#[test]
fn what_can_never_leave_is_dropped() {
    let mut parts = Parts::new("tbf_mq rate 8mbit burst 2000 limit 10k", 2);
    assert_eq!(parts.enqueue(0, 2001), Verdict::Drop);
    for _ in 0..3 {
        assert_eq!(parts.enqueue(0, 1500), Verdict::Success);
    }
    assert_eq!(parts.enqueue(0, 900), Verdict::Success);
    assert_eq!(parts.dequeue(0, 64), [1500]);
    for part in 0..2 {
        parts.change(part, "rate 8mbit burst 1000 limit 10k").unwrap();
    }
    parts.now += 10 * MS;
    assert_eq!(parts.dequeue(0, 64), [900]);
    let stats = parts.stats(0);
    assert_eq!((stats.drops, stats.qlen, stats.backlog), (3, 0, 0));
    assert_eq!(parts.drops(0).get(DropReason::QdiscDrop), 3);
}

/// A reset drops what waits, also packets whose tokens are taken, and returns the tokens.
#[test]
fn a_reset_returns_reserved_tokens() {
    let mut parts = Parts::new("tbf_mq rate 8mbit burst 2000 limit 10k", 2);
    for _ in 0..4 {
        assert_eq!(parts.enqueue(0, 1000), Verdict::Success);
    }
    assert_eq!(parts.dequeue(0, 64), [1000, 1000]);
    assert_eq!(parts.dequeue(0, 64).len(), 0);
    let event = parts.next_event(0).unwrap();
    assert_eq!(event - parts.now, MS);
    parts.drop_all(0);
    assert_eq!((parts.stats(0).qlen, parts.drops(0).get(DropReason::QueuePurge)), (0, 2));
    assert_eq!(parts.enqueue(1, 1000), Verdict::Success);
    assert!(parts.dequeue(1, 64).is_empty());
    assert_eq!(parts.next_event(1), Some(event));
}

/// One operation on a part.
#[derive(Debug, Clone)]
enum Op {
    Enqueue(usize, usize),
    Dequeue(usize, usize, u64),
    Wait(u64),
    Reset(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0usize..4, 40usize..2000).prop_map(|(part, bytes)| Op::Enqueue(part, bytes)),
        8 => (0usize..4, 1usize..20, prop_oneof![Just(u64::MAX), 1u64..6000])
            .prop_map(|(part, packets, bytes)| Op::Dequeue(part, packets, bytes)),
        6 => prop_oneof![4 => 1u64..100_000, 2 => 1u64..3 * MS, 1 => 1u64..100 * MS].prop_map(Op::Wait),
        1 => (0usize..4).prop_map(Op::Reset),
    ]
}

/// A model: each part's packets in order. The parts must send each one's in order, never more than the rate and one burst,
/// and the lateness of parts that are not `punctual`; and what a part cannot send has an event, at which it leaves if no other
/// part runs.
fn tbf_mq_does_as_its_model_on(ops: &[Op], punctual: bool) {
    let (rate, burst) = (12_500_000, 4000);
    let mut parts = Parts::new("tbf_mq rate 100mbit burst 4000 limit 20000", 4);
    let mut model: Vec<std::collections::VecDeque<usize>> = vec![Default::default(); 4];
    let mut left = Left::new();
    let mut take = |parts: &mut Parts,
                    model: &mut Vec<std::collections::VecDeque<usize>>,
                    part: usize,
                    packets,
                    bytes| {
        let sent = parts.dequeue_within(part, packets, bytes);
        for &len in &sent {
            assert_eq!(model[part].pop_front(), Some(len), "out of order");
            left.push((parts.now, part, len as u64));
        }
        let stats = parts.stats(part);
        assert_eq!(stats.qlen as usize, model[part].len());
        assert_eq!(stats.backlog as usize, model[part].iter().sum::<usize>());
        sent.len()
    };
    for op in ops {
        match *op {
            Op::Enqueue(part, bytes) => {
                let queued: usize = model[part].iter().sum();
                // The queue's limit holds without the packets whose tokens are taken.
                match parts.enqueue(part, bytes) {
                    Verdict::Success => model[part].push_back(bytes),
                    _ => assert!(queued + bytes > 20_000, "refused at {queued} bytes"),
                }
            }
            Op::Dequeue(part, packets, bytes) => {
                let sent = take(&mut parts, &mut model, part, packets, bytes);
                if sent == 0 && !model[part].is_empty() {
                    let event = parts.next_event(part).expect("a packet waits");
                    assert!(event > parts.now);
                    // At most one turn of each part.
                    assert!(event - parts.now <= 4 * (160_000 + 320_000), "{} ns", event - parts.now);
                }
            }
            Op::Wait(time) => {
                let end = parts.now + time;
                while punctual && let Some((part, at)) = parts.first_event(end) {
                    parts.now = at;
                    take(&mut parts, &mut model, part, 64, u64::MAX);
                }
                parts.now = end;
            }
            Op::Reset(part) => {
                parts.drop_all(part);
                model[part].clear();
            }
        }
    }
    // All that waits leaves, each part at its events.
    while model.iter().any(|queue| !queue.is_empty()) {
        let mut first = u64::MAX;
        for part in 0..4 {
            take(&mut parts, &mut model, part, 64, u64::MAX);
            if !model[part].is_empty() {
                first = first.min(parts.next_event(part).expect("a packet waits"));
            }
        }
        assert!(first > parts.now);
        if first < u64::MAX {
            parts.now = first;
        }
    }
    assert_within(&left, rate, if punctual { burst } else { burst + 16 * MS * rate / SECOND });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn tbf_mq_does_as_its_model(ops in prop::collection::vec(op(), 1..200), punctual: bool) {
        tbf_mq_does_as_its_model_on(&ops, punctual);
    }
}
