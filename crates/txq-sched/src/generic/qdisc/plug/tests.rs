use std::collections::VecDeque;

use proptest::prelude::*;
use txq_core::drop::DropReason;

use super::*;
use crate::generic::qdisc::testing::Virtual;

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

#[derive(Debug, Clone)]
enum Op {
    /// A batch of packets of so many bytes.
    Enqueue(Vec<usize>),
    /// A dequeue of at most so many packets and bytes.
    Dequeue(usize, u64),
    Change(&'static str),
    Limit(u32),
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    let command =
        prop_oneof![3 => Just("block"), 3 => Just("release"), 1 => Just("release_indefinite"), 1 => Just("")];
    prop_oneof![
        6 => prop::collection::vec(1_usize..1500, 1..8).prop_map(Op::Enqueue),
        6 => (1_usize..20, prop_oneof![Just(u64::MAX), 0_u64..6000]).prop_map(|(n, b)| Op::Dequeue(n, b)),
        6 => command.prop_map(Op::Change),
        1 => (0_u32..20_000).prop_map(Op::Limit),
        1 => Just(Op::Reset),
    ]
}

/// The epoch of a queued packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Epoch {
    /// That since the last `block`.
    Running,
    /// The one before.
    Ended,
    /// An earlier one, one that was released, or none: the plug was open.
    Past,
}

/// A queue of (number, bytes, epoch), and how many of its packets may leave.
struct Model {
    queue: VecDeque<(u64, usize, Epoch)>,
    may: usize,
    open: bool,
    limit: usize,
    stats: QdiscStats,
}

impl Model {
    fn enqueue(&mut self, number: u64, bytes: usize) {
        if self.queue.iter().map(|packet| packet.1).sum::<usize>() + bytes > self.limit {
            self.stats.drops += 1;
            return;
        }
        self.queue.push_back((number, bytes, if self.open { Epoch::Past } else { Epoch::Running }));
    }

    fn dequeue(&mut self, packets: usize, bytes: u64) -> Vec<u64> {
        let (mut left, mut numbers) = (i128::from(bytes.max(1)), Vec::new());
        while left > 0 && numbers.len() < packets && (self.open || self.may > 0) {
            let Some((number, bytes, _)) = self.queue.pop_front() else { break };
            self.may = self.may.saturating_sub(1);
            left -= bytes as i128;
            (self.stats.packets, self.stats.bytes) =
                (self.stats.packets + 1, self.stats.bytes + bytes as u64);
            numbers.push(number);
        }
        numbers
    }

    fn change(&mut self, command: &str) {
        let mut change = |from: Epoch, to: Epoch| {
            let mut changed = 0;
            for (.., epoch) in self.queue.iter_mut().filter(|(.., epoch)| *epoch == from) {
                *epoch = to;
                changed += 1;
            }
            changed
        };
        match command {
            "block" => {
                change(Epoch::Ended, Epoch::Past);
                change(Epoch::Running, Epoch::Ended);
                self.open = false;
            }
            "release" => self.may += change(Epoch::Ended, Epoch::Past),
            "release_indefinite" => {
                change(Epoch::Ended, Epoch::Past);
                change(Epoch::Running, Epoch::Past);
                (self.may, self.open) = (0, true);
            }
            _ => {}
        }
    }

    fn stats(&self) -> QdiscStats {
        let backlog = self.queue.iter().map(|packet| packet.1 as u64).sum();
        QdiscStats { backlog, qlen: self.queue.len() as u64, ..self.stats }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn plug_does_as_its_model(ops in prop::collection::vec(op(), 1..60)) {
        let mut bench = Virtual::new("plug limit 9000");
        let (queue, stats) = (VecDeque::new(), QdiscStats::default());
        let mut model = Model { queue, may: 0, open: false, limit: 9000, stats };
        for op in ops {
            match op {
                Op::Enqueue(packets) => {
                    let mut batch = PacketList::new();
                    for bytes in packets {
                        let packet = bench.packet(bytes, 0);
                        model.enqueue(packet.cookie(), bytes);
                        batch.push_back(packet);
                    }
                    bench.with(|qdisc, cx| qdisc.enqueue_batch(&mut batch, cx));
                    prop_assert!(batch.is_empty());
                }
                Op::Dequeue(packets, bytes) => {
                    let expected = model.dequeue(packets, bytes);
                    let out = bench.take(Budget::new(packets, bytes));
                    prop_assert!(out.iter().map(Packet::cookie).eq(expected));
                }
                Op::Change(command) => {
                    bench.change(command).unwrap();
                    model.change(command);
                }
                Op::Limit(bytes) => {
                    bench.change(&format!("limit {bytes}")).unwrap();
                    model.limit = bytes as usize;
                }
                Op::Reset => {
                    bench.with(|qdisc, cx| qdisc.reset(cx));
                    model.queue.clear();
                    model.may = 0;
                }
            }
            prop_assert_eq!(bench.qdisc.stats(), model.stats());
            prop_assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), model.stats.drops);
        }
    }
}
