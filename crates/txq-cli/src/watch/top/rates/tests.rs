use super::*;
use crate::watch::top::testing::{after, nested, rates};

#[test]
fn rates_are_the_difference_of_two_snapshots() {
    let found = after(&nested(1), &nested(3));
    let device = &found.rows[0];
    let speed = device.speed.unwrap();
    assert_eq!((speed.bits, speed.packets, speed.drops), (160_000.0, 20.0, 2.0));
    assert_eq!((speed.overlimits, device.queued, device.backlog), (None, 7, None));
    assert_eq!((found.seconds, found.sum()), (Some(1.0), Some(speed)));
    let class = found.rows.iter().find(|row| row.name == "htb 1:10").unwrap();
    assert_eq!((class.speed.unwrap().overlimits, class.backlog), (Some(4.0), Some(7000)));
    let txqs =
        found.rows.iter().filter(|row| row.depth > 0 && !matches!(row.what, What::Node(_) | What::Flows(_)));
    let packets: Vec<_> =
        txqs.map(|row| (row.name.as_str(), row.speed.unwrap().packets, row.queued)).collect();
    assert_eq!(packets, [("txqs: 2", 20.0, 6), ("txq 0", 8.0, 3), ("txq 1", 12.0, 3)]);
    let detail = &found.devices[0];
    assert_eq!(detail.drops, [("qdisc_overlimit".to_owned(), 3, Some(2.0))]);
    assert_eq!(detail.senders[0]["sent"], 20.0);
    assert!(!detail.senders[0].contains_key("pending"), "a number now");
}

#[test]
fn the_first_snapshot_has_no_rates() {
    let found = rates(&nested(1));
    assert!(found.rows.iter().all(|row| row.speed.is_none() && row.p99.is_none()));
    assert_eq!((found.seconds, found.sum()), (None, None));
    assert_eq!((found.devices[0].drops[0].2, found.devices[0].senders[0].len()), (None, 0));
}

#[test]
fn counters_that_went_backwards_have_no_rate() {
    // All counters of the device: another program would have another process, too.
    let found = after(&nested(3), &nested(1));
    assert!(found.rows.iter().all(|row| row.speed.is_none() && row.p99.is_none()));
    assert_eq!(found.devices[0].drops[0].2, None);
    // One counter of one class, as after a class was replaced: the others keep their rates.
    let mut replaced = nested(3);
    replaced.devices[0].tree[2].bytes = 0;
    let found = after(&nested(1), &replaced);
    let unknown: Vec<_> = found.rows.iter().filter(|row| row.speed.is_none()).map(|row| &row.name).collect();
    assert_eq!(unknown, ["htb 1:10"]);
    // Another qdisc with the handle.
    let mut other = nested(3);
    other.devices[0].tree[3].kind = "fq".to_owned();
    let found = after(&nested(1), &other);
    let unknown: Vec<_> = found.rows.iter().filter(|row| row.speed.is_none()).map(|row| &row.name).collect();
    assert_eq!(unknown, ["fq 8002:"]);
}

#[test]
fn another_process_has_no_rates() {
    let mut other = nested(9);
    other.program.pid += 1;
    let found = after(&nested(1), &other);
    assert!(found.seconds.is_none() && found.rows.iter().all(|row| row.speed.is_none()));
}

#[test]
fn the_quantile_is_of_the_new_samples() {
    assert_eq!(after(&nested(1), &nested(2)).rows[0].p99, Some(1024));
    let p99 = |new: &[(u64, u64)]| since(&[(64, 1000)], new).map(|new| p99(&new));
    assert_eq!(p99(&[(64, 1100)]), Some(128));
    assert_eq!(p99(&[(64, 1098), (1 << 20, 2)]), Some(1 << 21));
    assert_eq!(p99(&[(1 << 63, 100), (64, 1000)]), Some(u64::MAX));
    assert_eq!(p99(&[(0, 100), (64, 1000)]), Some(2));
    assert_eq!(p99(&[(64, 999), (128, 500)]), None, "backwards");
    assert_eq!(p99(&[(128, 500)]), None, "a bucket has gone");
}

#[test]
fn a_quantile_reaches_back_for_samples_up_to_a_minute() {
    // 40 samples a snapshot: three snapshots have enough.
    let snapshot = |n: u64| {
        let mut snapshot = nested(n);
        snapshot.devices[0].to_driver = vec![(if n < 5 { 4096 } else { 64 }, n * 40)];
        if n >= 5 {
            snapshot.devices[0].to_driver = vec![(4096, 160), (64, (n - 4) * 40)];
        }
        snapshot
    };
    let seen = |numbers: std::ops::Range<u64>, seconds: u64| {
        let mut last: Option<Rates> = None;
        for n in numbers {
            let at = Duration::from_secs(n * seconds);
            last = Some(Rates::between(last.as_ref(), snapshot(n), at, SystemTime::UNIX_EPOCH));
        }
        last.unwrap().rows[0].p99
    };
    assert_eq!((seen(1..3, 1), seen(1..4, 1), seen(1..5, 1)), (None, None, Some(8192)));
    assert_eq!((seen(1..7, 1), seen(1..8, 1)), (Some(8192), Some(128)), "the older ones do not count");
    assert_eq!((seen(1..9, 20), seen(1..9, 21)), (Some(128), None));
}

#[test]
fn names_have_no_control_characters() {
    let mut snapshot = nested(1);
    snapshot.devices[0].name = "\x1b[2Jd".to_owned();
    assert_eq!(rates(&snapshot).rows[0].name, "?[2Jd");
}
