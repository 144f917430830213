use txq_core::arch::Native;

use super::*;
use crate::generic::qdisc::build_qdisc;
use crate::generic::qdisc::testing::{ENV, MS, Virtual, try_build};
use crate::tc::{Handle, Header, Words};

fn options(text: &str) -> Estimator {
    Header::parse(&mut Words::split(text)).unwrap().estimator.unwrap()
}

/// 100 packets of 1000 bytes a second are 100,000 bytes a second, after a while; a pause lets the average fall.
#[test]
fn the_average_follows_the_rate() {
    let mut stand = Virtual::new("pfifo");
    let mut qdisc = Estimated::<Native>::new(build_qdisc("pfifo", &ENV), options("estimator 250ms 1s pfifo"));
    let mut now = 1000 * MS;
    let mut rates = Vec::new();
    for round in 0..1000 {
        let packet = stand.packet(1000, 0);
        stand.now = now;
        stand.with(|_, cx| {
            let _ = qdisc.enqueue(packet, cx);
            let mut out = PacketList::new();
            qdisc.dequeue_batch(Budget::packets(1), &mut out, cx);
            assert_eq!(out.len(), 1);
        });
        if round % 25 == 24 {
            rates.push(qdisc.rate_at(now));
        }
        now += 10 * MS;
    }
    // A quarter of the distance in each interval, from the second on.
    assert_eq!(rates[0].rate, Rate(0));
    assert_eq!((rates[1].rate, rates[1].packets), (Rate(25_000), 25));
    assert_eq!((rates[2].rate, rates[3].rate), (Rate(43_750), Rate(57_812)));
    assert!((99_000..=100_000).contains(&rates[39].rate.0), "{:?}", rates[39]);
    let end = qdisc.rate_at(now);
    assert_eq!(end, qdisc.rate_at(now), "showing it changes nothing");
    let later = qdisc.rate_at(now + 1000 * MS).rate.0;
    let expected = end.rate.0 as f64 * 0.75f64.powi(4);
    assert!((later as f64 - expected).abs() <= 1.0, "{later} {expected}");
    assert_eq!(qdisc.rate_at(Nanos::MAX / 2).rate, Rate(0));
    qdisc.set_estimator(options("estimator 1s 8s pfifo"));
    assert_eq!(qdisc.rate_at(now).rate, Rate(0), "a new estimator starts anew");
}

#[test]
fn it_is_the_qdisc_that_it_contains() {
    let built = try_build("estimator 1s 4s htb default 1", &ENV).unwrap();
    assert_eq!((built.kind(), built.can_bypass()), ("htb", false));
    assert_eq!(built.rate().map(|rate| (rate.rate, rate.packets)), Some((Rate(0), 0)));
    assert_eq!(try_build("htb", &ENV).unwrap().rate(), None);
    let mut stand = Virtual::new("est 1s 4s handle 1: prio bands 2 priomap 0 1 0 1 0 1 0 1 0 0 0 0 0 0 0 0");
    assert_eq!(stand.qdisc.classes().unwrap().minors(), [1, 2]);
    stand.filter(0, 100, Handle::new(1, 2));
    let _ = (stand.enqueue(100, 0), stand.enqueue(50, 0));
    assert_eq!(stand.dequeue(9), [(1, 50), (0, 100)]);
    assert_eq!(stand.qdisc.stats().bytes, 150);
    let error = try_build("estimator 1s 1ms pfifo", &ENV).map(|_| ()).unwrap_err();
    assert_eq!(error.message(), "Error: estimator parameters are out of range.");
}
