use txq_core::drop::DropReason;
use txq_core::packet::Packet;

use crate::generic::qdisc::Verdict;
use crate::generic::qdisc::timed::tests::{Bench, try_build};

#[test]
fn drops_everything_and_says_nothing() {
    let mut bench = Bench::new("blackhole");
    for _ in 0..5 {
        assert_eq!(bench.enqueue(100), Verdict::Success);
    }
    let stats = bench.qdisc.stats();
    assert_eq!((stats.packets, stats.bytes, stats.drops, stats.qlen, stats.backlog), (0, 0, 5, 0, 0));
    assert_eq!(bench.drops.get(DropReason::QdiscDrop), 5);
    assert_eq!(bench.to_free.iter().map(Packet::cookie).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(bench.sent().is_empty() && !bench.qdisc.can_bypass());
}

#[test]
fn has_no_options() {
    assert!(Bench::new("blackhole").change("").is_ok());
    let error = try_build("blackhole limit 5").err().unwrap();
    assert_eq!(error.message(), "Unknown qdisc \"blackhole\", hence option \"limit\" is unparsable");
}
