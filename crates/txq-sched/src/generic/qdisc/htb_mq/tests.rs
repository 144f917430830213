//! All parts in deterministic time. A packet's length names its class: 1000 bytes and the class's minor number.

use proptest::prelude::*;

use crate::generic::qdisc::testing::{ENV, MS, Parts, Virtual};
use crate::generic::qdisc::{Env, Verdict};
use crate::tc::{Style, Words};

const SECOND: u64 = 1_000_000_000;
const MBIT: u64 = 125_000;
/// The length of a packet of the class 0.
const BASE: usize = 1000;

/// What left: the time, the part, the class.
type Left = Vec<(u64, usize, u16)>;

/// A packet source that never runs dry: its part and its class.
type Flow = (usize, u16);

/// Returns an htb_mq with classes, each as `PARENT MINOR OPTIONS`.
fn htb_mq(classes: &[&str], txqs: u16) -> Parts {
    let mut parts = Parts::new("htb_mq", txqs);
    for class in classes {
        parts.on_all(|part| add(part, class));
    }
    parts
}

/// Adds a class to a part.
fn add(part: &mut Virtual, class: &str) {
    let mut words = Words::split(class);
    let mut number = || u16::from_str_radix(words.next_word().unwrap(), 16).unwrap();
    let (parent, minor) = (number(), number());
    part.with(|qdisc, cx| qdisc.classes().unwrap().add(parent, minor, &mut words, &ENV, cx)).unwrap();
}

fn enqueue(parts: &mut Parts, (part, class): Flow) -> Verdict {
    parts.enqueue_to(part, BASE + usize::from(class), 0x1_0000 | u32::from(class))
}

fn dequeue(parts: &mut Parts, part: usize) -> Vec<u16> {
    parts.dequeue(part, 64).iter().map(|len| (len - BASE) as u16).collect()
}

/// Packets of a flow that wait at a time.
const DEEP: usize = 32;

/// Runs flows that always have packets, until `end`. A part that has sent all of them is asked again at once, any other when
/// its event is due, `late` later.
fn saturate(parts: &mut Parts, flows: &[Flow], end: u64, late: impl Fn(usize) -> u64) -> Left {
    let mut left = Left::new();
    let mut busy: Vec<_> = flows.iter().map(|flow| flow.0).collect();
    busy.sort_unstable();
    busy.dedup();
    let mut next: Vec<_> = busy.iter().map(|_| parts.now).collect();
    for &flow in flows {
        (0..DEEP).for_each(|_| assert_eq!(enqueue(parts, flow), Verdict::Success));
    }
    while let Some(at) = next.iter().copied().min().filter(|&at| at < end) {
        let which = next.iter().position(|&time| time == at).unwrap();
        let part = busy[which];
        parts.now = at.max(parts.now);
        let sent = dequeue(parts, part);
        for &class in &sent {
            left.push((parts.now, part, class));
            assert_eq!(enqueue(parts, (part, class)), Verdict::Success);
        }
        let queued = DEEP * flows.iter().filter(|flow| flow.0 == part).count();
        next[which] = match parts.next_event(part) {
            Some(event) if sent.len() < queued.min(64) => event.max(parts.now + 1) + late(which),
            _ => parts.now + 1,
        };
    }
    left
}

fn bytes<'l>(left: impl IntoIterator<Item = &'l (u64, usize, u16)>) -> u64 {
    left.into_iter().map(|sent| BASE as u64 + u64::from(sent.2)).sum()
}

fn bytes_of(left: &Left, class: u16) -> u64 {
    bytes(left.iter().filter(|sent| sent.2 == class))
}

fn assert_near(bytes: u64, expected: u64, parts_of_1000: u64, what: &str) {
    let off = bytes.abs_diff(expected);
    assert!(off * 1000 <= expected * parts_of_1000, "{what}: {bytes} and not {expected}");
}

/// Asserts that in no window the packets that `of` chooses exceed a rate and a burst, and for each of 64 parts the bytes of the
/// nanosecond that its last price was cut to.
fn assert_within(left: &Left, of: impl Fn(u16) -> bool, rate: u64, burst: u64) {
    let (mut least, mut most, mut sent) = (i128::MAX, i128::MIN, 0_i128);
    for &(at, _, class) in left.iter().filter(|sent| of(sent.2)) {
        let allowed = i128::from(at) * i128::from(rate) / i128::from(SECOND);
        least = least.min(sent - allowed);
        sent += BASE as i128 + i128::from(class);
        most = most.max(sent - allowed - least);
    }
    let cut = i128::from(1 + 65 * rate / SECOND) + sent / 1_000_000_000;
    assert!(most <= i128::from(burst) + cut, "a window with {most} bytes above {rate}, of {burst}");
}

/// Two classes that are busy on all of 1, 2, 16 and 64 txqs borrow by their quanta; a third has its rate. The sum is exact,
/// and no window exceeds a ceiling.
#[test]
fn classes_that_are_busy_everywhere_share_by_quantum() {
    for (mbit, time) in [
        (1, 200 * SECOND),
        (100, 4 * SECOND),
        (1000, SECOND / 2),
        (10_000, SECOND / 16),
        (40_000, SECOND / 32),
    ] {
        for busy in [1, 2, 16, 64] {
            let rate = mbit * MBIT;
            let burst = (rate / 1000).max(3000);
            let of = |percent: u64| {
                format!(
                    "rate {}bit ceil {}bit burst {burst} cburst {burst}",
                    percent * rate * 8 / 100,
                    rate * 8
                )
            };
            let classes = [
                format!("0 1 {}", of(100)),
                format!("1 10 {} quantum 3000", of(10)),
                format!("1 20 {} quantum 6000", of(20)),
                format!("1 30 rate {0}bit ceil {0}bit burst {burst} cburst {burst}", rate * 8 / 10),
            ];
            let mut parts = htb_mq(&classes.each_ref().map(|class| &**class), 64);
            let flows: Vec<_> =
                (0..busy).flat_map(|part| [0x10, 0x20, 0x30].map(|class| (part, class))).collect();
            // The bursts leave first.
            let began = parts.now + time / 10;
            let all = saturate(&mut parts, &flows, began + time, |_| 0);
            let left: Left = all.iter().copied().filter(|sent| sent.0 >= began).collect();
            let (what, all_bytes) = (format!("{mbit} Mbit/s, {busy} parts"), rate * time / SECOND);
            assert_near(bytes(&left), all_bytes, 5, &what);
            // 60 % are left to borrow, of which they have one part and two.
            for (class, percent) in [(0x10, 30), (0x20, 60), (0x30, 10)] {
                assert_near(
                    bytes_of(&left, class),
                    all_bytes * percent / 100,
                    20,
                    &format!("{what}, {class:x}"),
                );
            }
            // As in htb, a leaf's own burst may come on top of its parent's.
            assert_within(&all, |_| true, rate, 4 * burst);
            assert_within(&all, |class| class == 0x30, rate / 10, burst);
        }
    }
}

/// Classes that send the bursts of their own rates put their parent in debt. Meanwhile parts have no tokens in their turns. No turn
/// is longer for it.
#[test]
fn a_debt_makes_no_turn_longer() {
    let mut parts = htb_mq(
        &[
            "0 1 rate 10gbit burst 5m cburst 5m",
            "1 10 rate 1gbit ceil 10gbit burst 5m cburst 5m quantum 3000",
            "1 20 rate 2gbit ceil 10gbit burst 5m cburst 5m quantum 6000",
            "1 30 rate 1gbit ceil 1gbit burst 5m cburst 5m",
        ],
        64,
    );
    let flows: Vec<_> = (0..64).flat_map(|part| [0x10, 0x20, 0x30].map(|class| (part, class))).collect();
    let began = parts.now;
    let left = saturate(&mut parts, &flows, began + 80 * MS, |_| 4000);
    let least = 10_000 * MBIT * 80 / 1000;
    assert!(bytes(&left) >= least, "{} of {least} bytes", bytes(&left));
    let of_part = |part| bytes(left.iter().filter(|sent| sent.0 >= began + 20 * MS && sent.1 == part));
    let of_parts: Vec<_> = (0..64).map(of_part).collect();
    let (least, most) = (of_parts.iter().min().unwrap(), of_parts.iter().max().unwrap());
    // Parts have had 9 or 10 turns.
    assert!(most * 3 <= least * 4, "{least} to {most} bytes of a part");
}

/// A class's rate is sure, wherever it sends and however many txqs the others use.
#[test]
fn a_rate_is_sure_on_one_txq() {
    let mut parts = htb_mq(
        &[
            "0 1 rate 100mbit burst 20k cburst 20k",
            "1 10 rate 40mbit ceil 100mbit burst 20k cburst 20k",
            "1 20 rate 10mbit ceil 100mbit burst 20k cburst 20k",
        ],
        16,
    );
    let flows: Vec<_> = [(0, 0x10)].into_iter().chain((1..16).map(|part| (part, 0x20))).collect();
    let began = parts.now + SECOND / 10;
    let left = saturate(&mut parts, &flows, began + 2 * SECOND, |_| 0);
    let left: Left = left.into_iter().filter(|sent| sent.0 >= began).collect();
    assert_near(bytes(&left), 200 * MBIT, 5, "all");
    assert!(bytes_of(&left, 0x10) >= 2 * 40 * MBIT, "{}", bytes_of(&left, 0x10));
}

/// A ceiling is never exceeded by a class on all txqs together. The class has most of it, and its sibling has the rest.
#[test]
fn a_ceiling_holds_for_all_txqs() {
    let mut parts = htb_mq(
        &[
            "0 1 rate 1gbit burst 100k cburst 100k",
            "1 10 rate 10mbit ceil 300mbit burst 50k cburst 50k",
            "1 20 rate 10mbit ceil 1gbit burst 50k cburst 50k",
        ],
        16,
    );
    let flows: Vec<_> = (0..16).flat_map(|part| [(part, 0x10), (part, 0x20)]).collect();
    let began = parts.now + SECOND / 10;
    let all = saturate(&mut parts, &flows, began + SECOND, |_| 0);
    let left: Left = all.iter().copied().filter(|sent| sent.0 >= began).collect();
    assert_near(bytes(&left), 1000 * MBIT, 5, "all");
    assert!(bytes_of(&left, 0x10) >= 225 * MBIT, "1:10 has {}", bytes_of(&left, 0x10));
    assert_within(&all, |class| class == 0x10, 300 * MBIT, 50 << 10);
    assert_within(&all, |_| true, 1000 * MBIT, 200 << 10);
}

/// When the other parts run dry, a part has their share within a millisecond.
#[test]
fn an_idle_parts_share_is_used_by_the_others() {
    let mut parts = htb_mq(
        &["0 1 rate 1gbit burst 20k cburst 20k", "1 10 rate 1mbit ceil 1gbit burst 20k cburst 20k"],
        4,
    );
    let end = parts.now + 50 * MS;
    saturate(&mut parts, &[(0, 0x10), (1, 0x10), (2, 0x10), (3, 0x10)], end, |_| 0);
    (1..4).for_each(|part| parts.drop_all(part));
    let stopped = parts.now;
    let left = saturate(&mut parts, &[(0, 0x10)], stopped + 3 * MS, |_| 0);
    for window in 1..3 {
        let (from, to) = (stopped + window * MS, stopped + (window + 1) * MS);
        let sent = bytes(left.iter().filter(|sent| (from..to).contains(&sent.0)));
        assert!(sent >= 125_000 - 1500, "{sent} bytes in millisecond {window}");
    }
}

/// A bucket of one packet, and a part whose timer is always later than the bucket is deep, while another is always on time:
/// the late one sends nevertheless.
#[test]
fn a_part_that_is_always_late_is_not_starved() {
    let mut parts = htb_mq(
        &["0 1 rate 1gbit burst 1600 cburst 1600", "1 10 rate 1mbit ceil 1gbit burst 1600 cburst 1600"],
        2,
    );
    let end = parts.now + 100 * MS;
    let late = |which| if which == 1 { 300_000 } else { 0 };
    let left = saturate(&mut parts, &[(0, 0x10), (1, 0x10)], end, late);
    assert_within(&left, |_| true, 1000 * MBIT, 1600 + 300 * 125);
    let times: Vec<_> = left.iter().filter(|sent| sent.1 == 1).map(|sent| sent.0).collect();
    assert!(times.len() >= 50, "{} packets", times.len());
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest <= 5 * MS, "it waited for {longest} ns");
}

/// A part whose timer is late takes long turns. The other does not wait for their ends: it has what the late one leaves, and its
/// classes share that by quantum.
#[test]
fn a_late_part_leaves_its_turns_to_the_others() {
    let leaf = |minor, quantum| {
        format!("1 {minor} rate 8kbit ceil 800mbit burst 2000 cburst 100000 quantum {quantum}")
    };
    let classes = ["0 1 rate 800mbit burst 100000 cburst 100000".to_owned(), leaf(10, 2000), leaf(20, 4000)];
    let mut parts = htb_mq(&classes.each_ref().map(|class| &**class), 2);
    let began = parts.now + SECOND / 10;
    let flows = [(0, 0x10), (1, 0x10), (1, 0x20)];
    let mut left = saturate(&mut parts, &flows, began + SECOND, |which| if which == 0 { 16 * MS } else { 0 });
    // What leaves send by their own rates, the class above owes.
    assert_within(&left, |_| true, 800 * MBIT, 104_000);
    left.retain(|sent| sent.0 >= began);
    assert_near(bytes(&left), 800 * MBIT, 20, "both");
    let of = |part, class| bytes(left.iter().filter(|sent| (sent.1, sent.2) == (part, class)));
    assert!(of(0, 0x10) > MBIT, "the late part has {}", of(0, 0x10));
    assert_near(2 * of(1, 0x10), of(1, 0x20), 20, "the other's first class, twice");
}

#[test]
fn one_txq_takes_htb() {
    let one = crate::generic::qdisc::build::<txq_core::arch::Native>("htb_mq", &Env { txqs: 1, ..ENV });
    let one = one.err().expect("one txq").to_string();
    assert!(
        one.starts_with("RTNETLINK answers: Operation not supported") && one.contains("use htb"),
        "{one}"
    );
}

/// One operation on a part.
#[derive(Debug, Clone)]
enum Op {
    Enqueue(usize, u16),
    Dequeue(usize),
    Wait(u64),
    Reset(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop::sample::select(vec![0x10_u16, 0x20, 0x30, 0x40]);
    prop_oneof![
        8 => (0usize..4, class).prop_map(|(part, class)| Op::Enqueue(part, class)),
        8 => (0usize..4).prop_map(Op::Dequeue),
        6 => prop_oneof![4 => 1u64..100_000, 2 => 1u64..3 * MS, 1 => 1u64..100 * MS].prop_map(Op::Wait),
        1 => (0usize..4).prop_map(Op::Reset),
    ]
}

/// A model: each part's packets of each class in order. No window of a class exceeds its ceiling; what a part cannot send has
/// an event, and all leaves in the end. Parts that are not `punctual` come late.
fn htb_mq_does_as_its_model_on(ops: &[Op], punctual: bool) {
    let classes = [
        "0 1 rate 100mbit burst 4000 cburst 4000",
        "1 2 rate 20mbit ceil 50mbit burst 3000 cburst 3000",
        "2 10 rate 5mbit ceil 50mbit burst 2000 cburst 5000",
        "2 20 rate 15mbit ceil 20mbit burst 1500 cburst 1500 prio 1",
        "1 30 rate 1mbit ceil 100mbit burst 1100 cburst 6000 quantum 1000",
        "0 40 rate 8mbit burst 100 cburst 100",
    ];
    let mut parts = htb_mq(&classes, 4);
    let mut queued = [[0_u64; 5]; 4];
    let mut left = Left::new();
    fn take(parts: &mut Parts, queued: &mut [[u64; 5]; 4], left: &mut Left, part: usize) -> usize {
        let sent = dequeue(parts, part);
        for &class in &sent {
            queued[part][usize::from(class >> 4)] -= 1;
            left.push((parts.now, part, class));
        }
        assert_eq!(parts.qlen(part) as u64, queued[part].iter().sum::<u64>());
        sent.len()
    }
    for op in ops {
        match *op {
            Op::Enqueue(part, class) => {
                assert_eq!(enqueue(&mut parts, (part, class)), Verdict::Success);
                queued[part][usize::from(class >> 4)] += 1;
            }
            Op::Dequeue(part) => {
                if take(&mut parts, &mut queued, &mut left, part) == 0 && parts.qlen(part) > 0 {
                    let event = parts.next_event(part).expect("a packet waits");
                    assert!(event > parts.now);
                }
            }
            Op::Wait(time) => {
                let end = parts.now + time;
                while punctual && let Some((part, at)) = parts.first_event(end) {
                    parts.now = at;
                    take(&mut parts, &mut queued, &mut left, part);
                }
                parts.now = end;
            }
            Op::Reset(part) => {
                parts.drop_all(part);
                queued[part] = Default::default();
            }
        }
    }
    let began = parts.now;
    while (0..4).any(|part| parts.qlen(part) > 0) {
        let mut first = u64::MAX;
        for part in 0..4 {
            take(&mut parts, &mut queued, &mut left, part);
            if parts.qlen(part) > 0 {
                first = first.min(parts.next_event(part).expect("a packet waits"));
            }
        }
        assert!(first > parts.now);
        if first < u64::MAX {
            parts.now = first;
        }
        assert!(parts.now < began + 10 * SECOND, "packets stay");
    }
    // A rate below a class's own is the parent's to lend, so only ceilings are bounds for windows.
    for (class, mbit, burst) in
        [(0x10, 50, 5000), (0x20, 20, 1500), (0x30, 100, 6000), (0x40, 8, BASE as u64 + 0x40)]
    {
        let late = if punctual { 0 } else { 16 * mbit * MBIT / 1000 };
        assert_within(&left, |of| of == class, mbit * MBIT, burst + late);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn htb_mq_does_as_its_model(ops in prop::collection::vec(op(), 1..200), punctual: bool) {
        htb_mq_does_as_its_model_on(&ops, punctual);
    }
}

#[test]
fn the_qdisc_is_shown_as_htb() {
    let parts = htb_mq(&[], 2);
    assert_eq!(
        parts.options(Style::default()).text(),
        "r2q 10 default 0 direct_packets_stat 0 direct_qlen 1000"
    );
}

/// A deleted class drops its packets, and classes of its name share no bucket with it: what it had sent delays nobody. While one part still has
/// it, it is the same class for all parts.
#[test]
fn a_deleted_class_takes_its_packets_and_its_buckets_along() {
    const CLASS: u16 = 0x10;
    const BURST: usize = 2000;
    let rate = format!("0 {CLASS:x} rate 8kbit burst {BURST} cburst {BURST}");
    let delete =
        |part: &mut Virtual| part.with(|qdisc, cx| qdisc.classes().unwrap().delete(CLASS, cx)).unwrap();
    let sent_at_once = |parts: &mut Parts, part: usize| {
        (0..4).for_each(|_| assert_eq!(enqueue(parts, (part, CLASS)), Verdict::Success));
        dequeue(parts, part).len()
    };
    let mut parts = htb_mq(&[&rate], 2);
    parts.now = 100 * SECOND;
    // The burst, which both parts share.
    let first = sent_at_once(&mut parts, 0);
    assert!((1..4).contains(&first), "{first}");
    assert_eq!(sent_at_once(&mut parts, 1), 0);
    assert_eq!((parts.qlen(0), parts.qlen(1)), (4 - first, 4));

    delete(parts.at(1));
    assert_eq!((parts.qlen(0), parts.qlen(1), parts.drops(1).total()), (4 - first, 0, 4));
    add(parts.at(1), &rate);
    assert_eq!(sent_at_once(&mut parts, 1), 0, "part 0 kept the class");

    parts.on_all(delete);
    assert_eq!((parts.qlen(0), parts.qlen(1)), (0, 0));
    assert!(parts.next_event(0).is_none() && parts.next_event(1).is_none());
    parts.on_all(|part| add(part, &rate));
    assert_eq!(sent_at_once(&mut parts, 1), first, "a new class has its whole burst");
}
