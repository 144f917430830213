//! All cakes in deterministic time.

use txq_core::arch::Native;

use crate::generic::qdisc::testing::{ENV, MS, Parts};
use crate::generic::qdisc::{Env, Verdict, build};

const SECOND: u64 = 1_000_000_000;

/// Runs cakes that always have packets until `end`, each at its events. Returns for each the bytes that it sent.
fn saturate(cakes: &mut Parts, busy: &[usize], bytes: usize, end: u64) -> Vec<u64> {
    let mut sent = vec![0; busy.len()];
    let mut next: Vec<_> = busy.iter().map(|_| cakes.now).collect();
    while let Some(at) = next.iter().copied().min().filter(|&at| at < end) {
        let which = next.iter().position(|&time| time == at).unwrap();
        let cake = busy[which];
        cakes.now = at.max(cakes.now);
        while cakes.qlen(cake) < 8 {
            assert_eq!(cakes.enqueue(cake, bytes), Verdict::Success);
        }
        sent[which] += cakes.dequeue(cake, 4).iter().sum::<usize>() as u64;
        next[which] = cakes.next_event(cake).unwrap_or(0).max(cakes.now + 1);
    }
    sent
}

/// With 1, 2, 16 and 64 active cakes: the sum within 0.5 %, and what 200 us at the whole rate of each exceed it by; parts
/// equal to 2 %.
#[test]
fn active_cakes_share_the_rate() {
    for (text, rate, bytes, time) in [
        ("100mbit", 12_500_000_u64, 1000, SECOND),
        ("1gbit", 125_000_000, 1500, SECOND / 4),
        ("40gbit", 5_000_000_000, 1500, SECOND / 40),
    ] {
        for busy in [1, 2, 16, 64] {
            let busy: Vec<_> = (0..busy).collect();
            let mut cakes = Parts::new(&format!("cake_mq bandwidth {text} besteffort rtt 1000s"), 64);
            // The cakes learn of one another.
            let began = cakes.now;
            saturate(&mut cakes, &busy, bytes, began + time / 4);
            let began = cakes.now;
            let sent = saturate(&mut cakes, &busy, bytes, began + time);
            let (all, due) = (sent.iter().sum::<u64>(), rate * time / SECOND);
            let packets = (busy.len() * bytes * 2) as u64;
            assert!(all.abs_diff(due) <= due / 200 + packets, "{text}, {} cakes: {all} of {due}", busy.len());
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            assert!(
                most - least <= due / busy.len() as u64 / 50 + 2 * bytes as u64,
                "{text}: {least} to {most}"
            );
        }
    }
}

/// A cake that runs dry leaves its part to the others within 400 us: it counts for 200, and the others check every 200.
#[test]
fn a_dry_cakes_part_goes_to_the_others() {
    let mut cakes = Parts::new("cake_mq bandwidth 1gbit besteffort rtt 1000s", 4);
    let began = cakes.now;
    saturate(&mut cakes, &[0, 1, 2, 3], 1500, began + 20 * MS);
    (1..4).for_each(|cake| cakes.drop_all(cake));
    let stopped = cakes.now;
    saturate(&mut cakes, &[0], 1500, stopped + MS / 2);
    let from = cakes.now;
    let sent = saturate(&mut cakes, &[0], 1500, from + MS);
    assert!(sent[0] >= 125_000 - 3000, "{} bytes in a millisecond", sent[0]);
}

#[test]
fn words_are_checked() {
    let error = |text: &str, env: &Env| build::<Native>(text, env).err().expect(text).to_string();
    let two = Env { txqs: 2, ..ENV };
    let unsupported = "RTNETLINK answers: Operation not supported";
    assert!(error("cake_mq bandwidth 1mbit autorate-ingress", &two).starts_with(unsupported));
    let one = error("cake_mq bandwidth 1mbit", &ENV);
    assert!(one.starts_with(unsupported) && one.contains("use cake"), "{one}");
    let mut cakes = Parts::new("cake_mq bandwidth 1mbit", 2);
    assert!(cakes.change(0, "autorate-ingress").is_err());
    assert!(cakes.options(Default::default()).text().starts_with("bandwidth 1Mbit diffserv3 "));
}
