//! Many senders of one device.

use std::time::{Duration, Instant};

use crate::device::{Wires, pool};
use txq::{NetDev, Sender};

/// Makes and ends `n` senders; returns how long both took.
fn make(dev: &NetDev, n: usize) -> Duration {
    let begun = Instant::now();
    let senders: Vec<Sender> = (0..n).map(|_| dev.sender("s")).collect();
    // In the order of creation: the last one is not the first that is found.
    senders.into_iter().for_each(drop);
    begun.elapsed()
}

/// Of a walk along all senders, ten times as many would take a hundred times as long.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn a_sender_costs_the_same_however_many_there_are() {
    let fresh = || NetDev::builder(Wires::new(1, None)).pool_config(pool()).qdisc("pfifo").build().unwrap();
    let (few, many) = (fresh(), fresh());
    let best = |dev: &NetDev, n| (0..3).map(|_| make(dev, n)).min().unwrap();
    let (least, most) = (best(&few, 2_000), best(&many, 20_000));
    println!("2,000: {least:?}, 20,000: {most:?}");
    assert!(most < least * 40, "2,000 senders take {least:?}, 20,000 take {most:?}");
    // They leave no rows but a bounded number.
    assert!(many.stats().senders.len() < 300);
}
