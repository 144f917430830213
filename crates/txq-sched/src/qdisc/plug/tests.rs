use txq_core::drop::DropReason;

use super::*;
use crate::qdisc::testing::Virtual;

/// Returns the numbers of the packets that leave now.
fn leaves(bench: &mut Virtual) -> Vec<u64> {
    bench.dequeue(100).into_iter().map(|(number, _)| number).collect()
}

fn send(bench: &mut Virtual, packets: usize) {
    (0..packets).for_each(|_| assert_eq!(bench.enqueue(100, 0), Verdict::Success));
}

/// An output that is committed leaves; that of the running epoch waits.
#[test]
fn a_release_sends_the_epoch_before_the_block() {
    let mut bench = Virtual::new("plug limit 10k");
    send(&mut bench, 2);
    assert!(leaves(&mut bench).is_empty(), "a new plug holds packets back");
    bench.change("release").unwrap();
    assert!(leaves(&mut bench).is_empty(), "no epoch has ended");
    bench.change("block").unwrap();
    send(&mut bench, 3);
    bench.change("release").unwrap();
    assert_eq!(bench.dequeue(1).len(), 1);
    assert_eq!(leaves(&mut bench), [1]);
    assert!(leaves(&mut bench).is_empty());
    bench.change("").unwrap();
    bench.change("release").unwrap();
    assert!(leaves(&mut bench).is_empty(), "a line without options does nothing");
    bench.change("block").unwrap();
    send(&mut bench, 1);
    bench.change("release").unwrap();
    assert_eq!(leaves(&mut bench), [2, 3, 4]);
    bench.change("release").unwrap();
    assert!(leaves(&mut bench).is_empty(), "an epoch is released once");
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.next_event()), (1, None));
}

#[test]
fn an_open_plug_is_a_fifo() {
    let mut bench = Virtual::new("plug limit 10k");
    send(&mut bench, 3);
    bench.change("release_indefinite").unwrap();
    assert_eq!(leaves(&mut bench), [0, 1, 2]);
    send(&mut bench, 2);
    assert_eq!(leaves(&mut bench), [3, 4]);
    bench.change("block release_indefinite block").unwrap();
    send(&mut bench, 1);
    assert!(leaves(&mut bench).is_empty(), "the last command counts");
    bench.change("block").unwrap();
    bench.change("release").unwrap();
    assert_eq!(leaves(&mut bench), [5]);
}

#[test]
fn the_limit_counts_bytes() {
    let shown = |text: &str| Virtual::new(text).qdisc.options(Style { input: true, ..Style::default() });
    assert_eq!([shown("plug").text(), shown("plug limit 3k").text()], ["limit 1514000", "limit 3072"]);
    let mut bench = Virtual::new("plug block");
    assert_eq!(bench.enqueue(1, 0), Verdict::Drop, "options without a limit");
    bench.change("limit 300").unwrap();
    send(&mut bench, 3);
    assert_eq!(bench.enqueue(1, 0), Verdict::Drop);
    assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 2);
    bench.change("block").unwrap();
    bench.change("limit 400 release").unwrap();
    assert_eq!(bench.enqueue(1, 0), Verdict::Drop, "the line's last word is no limit");
    assert_eq!(leaves(&mut bench), [1, 2, 3]);
    assert_eq!(bench.qdisc.stats(), QdiscStats { packets: 3, bytes: 300, drops: 3, ..QdiscStats::default() });
    bench.with(|qdisc, cx| qdisc.reset(cx));
    assert_eq!(bench.qdisc.qlen(), 0);
}

#[test]
fn errors_are_tcs() {
    let mut bench = Virtual::new("plug limit 1");
    assert_eq!(bench.qdisc.options(Default::default()).text(), "");
    for (text, message) in [
        ("foo", "plug: unknown parameter \"foo\""),
        ("block foo", "plug: unknown parameter \"foo\""),
        ("limit x", "Illegal value for \"limit\": \"x\""),
        ("limit", "Command line is not complete. Try option \"help\""),
    ] {
        assert_eq!(bench.change(text).unwrap_err().message(), message, "{text}");
    }
}
