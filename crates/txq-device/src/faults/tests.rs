use super::*;
use crate::Null;
use crate::testing::{Bench, ZEROS};

/// Runs batches of ten; returns for each the status, and the numbers of packets taken and dropped. The rest was left.
fn run(seed: u64, rates: Rates, calls: usize) -> Vec<(Status, usize, usize)> {
    let mut bench = Bench::new(&mut Faults::new(Null::new(1), seed, rates));
    (0..calls)
        .map(|_| {
            let mut batch = bench.packets([&ZEROS[..60]; 10]);
            let sent = bench.xmit(&mut batch);
            drop(bench.poll(64));
            (sent.status, sent.dropped.len(), batch.len())
        })
        .collect()
}

#[test]
fn the_same_seed_makes_the_same_faults() {
    let rates = Rates { busy: 0.5, drop: 0.1, ..Rates::default() };
    assert_eq!(run(1, rates, 200), run(1, rates, 200));
    assert_ne!(run(1, rates, 200), run(2, rates, 200));
}

#[test]
fn rates_are_what_they_say() {
    let calls = run(3, Rates { busy: 0.25, drop: 0.1, ..Rates::default() }, 2000);
    let busy = calls.iter().filter(|(status, ..)| *status != Status::Ok).count();
    let dropped: usize = calls.iter().map(|(_, dropped, _)| dropped).sum();
    assert!((430..570).contains(&busy), "{busy} of 2000");
    assert!((1800..2200).contains(&dropped), "{dropped} of 20000");
    assert!(run(3, Rates::default(), 100).iter().all(|call| *call == (Status::Ok, 0, 0)));
    assert!(run(3, Rates { drop: 1.0, ..Rates::default() }, 100).iter().all(|call| call.1 == 10));
}

#[test]
fn a_refused_batch_keeps_its_order_and_a_head_of_it_is_taken() {
    let rates = Rates { busy: 1.0, ..Rates::default() };
    let mut bench = Bench::new(&mut Faults::new(Null::new(1), 9, rates));
    let frames: Vec<Vec<u8>> = (0..10).map(|n| vec![n; 60]).collect();
    let mut left = bench.packets(frames.iter().map(Vec::as_slice));
    let mut arrived = Vec::new();
    while left.len() > 1 {
        assert_ne!(bench.xmit(&mut left).status, Status::Ok);
        arrived.extend(bench.poll(64).iter().map(|packet| packet.data()[0]));
    }
    arrived.extend(left.iter().map(|packet| packet.data()[0]));
    assert_eq!(arrived, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_stall_refuses_everything_until_it_ends() {
    let rates = Rates { stall: 1.0, stall_time: Duration::from_millis(20), ..Rates::default() };
    let mut bench = Bench::new(&mut Faults::new(Null::new(1), 9, rates));
    let mut batch = bench.packets([&ZEROS[..60]; 3]);
    let Status::Busy { retry: Some(first) } = bench.xmit(&mut batch).status else { panic!("not stalled") };
    let Status::Busy { retry: Some(then) } = bench.xmit(&mut batch).status else { panic!("not stalled") };
    assert!(then < first && first <= rates.stall_time && batch.len() == 3, "{first:?} {then:?}");
}

#[test]
fn completions_come_late_and_in_another_order_and_all() {
    let rates = Rates { delay: 0.5, delay_time: Duration::from_millis(1), reorder: 0.5, ..Rates::default() };
    let mut bench = Bench::new(&mut Faults::new(Null::new(1), 4, rates));
    let frames: Vec<Vec<u8>> = (0..100).map(|n| vec![n; 60]).collect();
    let mut batch = bench.packets(frames.iter().map(Vec::as_slice));
    assert_eq!(bench.xmit(&mut batch).status, Status::Ok);
    let mut arrived = Vec::new();
    while arrived.len() < 100 {
        let done = bench.poll(7);
        assert!(done.len() <= 7, "never more than the budget");
        arrived.extend(done.iter().map(|packet| packet.data()[0]));
    }
    assert!(!arrived.is_sorted());
    arrived.sort_unstable();
    assert_eq!(arrived, (0..100).collect::<Vec<_>>());
    assert!(bench.pool.in_use().is_empty() || !cfg!(debug_assertions));
}
