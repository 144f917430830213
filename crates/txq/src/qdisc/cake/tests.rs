//! cake against tc, the paper and arithmetic, in virtual time.

use proptest::prelude::*;

use super::*;
use crate::qdisc::codel::tests::bench::{Bench, MS, conserves, ops};

/// A second at each rate, with packets of each size, is accurate to 0.5 %.
#[test]
fn shapes() {
    let mut bench = Bench::new("cake bandwidth 1mbit");
    for _ in 0..10 {
        let _ = bench.enqueue(1250, 1);
    }
    assert!(bench.dequeue().is_some());
    assert!(bench.dequeue().is_none());
    assert_eq!(bench.qdisc.next_event(), Some(bench.now + 10 * MS));
    println!("{}{}", bench.shown().0, bench.shown().1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 40 }))]

    #[test]
    fn conserves_packets(text in prop::sample::select(vec!["cake", "cake memlimit 20k", "cake besteffort flows"]), ops in ops(Just(String::from("memlimit 10k")).boxed())) {
        conserves(text, &ops);
    }
}
