//! What many links take, by the process's pages.

#![cfg(target_os = "linux")]

use txq_link::{Direction, Link, Packet};

const MOST: usize = 350_000_000;

/// 10,000 links take 350 MB at most, with four packets under way in each.
#[test]
fn ten_thousand_links_take_little() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = resident();
    let mut links: Vec<Link> = (0..10_000)
        .map(|seed| {
            Link::new("netem delay 20ms 2ms distribution normal loss 0.5% rate 10mbit", seed).unwrap()
        })
        .collect();
    let empty = resident() - before;
    for link in &mut links {
        (0..4).for_each(|_| link.send(0, Direction::Up, Packet::new(vec![0; 100])));
    }
    let busy = resident() - before;
    println!("{} MB, {} MB with four packets in each", empty / 1_000_000, busy / 1_000_000);
    assert!(busy <= MOST, "{busy}");
}
