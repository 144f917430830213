//! `qdisc_max_burst` bounds the packets that wait for a busy owner. They no longer count once an owner has taken them, so
//! repeated contention drops nothing.
//!
//! Guards the counts in front of the qdisc (`txq/src/generic/enqueue/`, `Defer::count` and lockless' `Band::len`). A mutant that it
//! catches: a count that is not reset when the list is taken; packets are dropped from the third burst on. The models of
//! `netdev/xmit.rs` do not catch it, because there the bound may be reached in any case.

use std::io;
use std::sync::mpsc;

use txq::Discipline;
use txq::drop::DropReason;
use txq::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::generic::netdev::NetDev;
use txq::generic::qdisc::{Budget, Cx, Qdisc, Verdict};
use txq::stats::QdiscStats;
use txq_core::packet::{Packet, PacketList};

/// The bound on waiting packets, and the number of bursts of that size.
const MAX_BURST: u32 = 2;
const BURSTS: usize = 8;
/// The cookie of a packet whose enqueue waits for the test.
const SLOW: u64 = 1;
/// The cookie of a packet whose enqueue does not wait.
const QUICK: u64 = 0;

/// A fifo whose enqueue of a slow packet reports that it has begun, and waits.
struct Slow {
    queue: PacketList,
    began: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
    stats: QdiscStats,
}

impl Qdisc for Slow {
    fn kind(&self) -> &'static str {
        "slow"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        if packet.cookie() == SLOW {
            self.began.send(()).expect("the test goes on");
            self.go_on.recv().expect("the test goes on");
        }
        self.stats.backlog += packet.len() as u64;
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        self.queue.move_front(budget.packets, out);
        self.stats.backlog -= out.bytes();
        self.stats.bytes += out.bytes();
        self.stats.packets += out.len() as u64;
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        std::iter::from_fn(|| self.queue.pop_front())
            .for_each(|packet| cx.drop(packet, DropReason::QueuePurge));
        self.stats.backlog = 0;
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { qlen: self.queue.len() as u64, ..self.stats }
    }
}

struct Sink;

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue { tx: Box::new(Sink), done: Box::new(NoCompletions), ring: None })
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        cx.sent_all(batch);
        Status::Ok
    }
}

/// While one sender is in the qdisc, another fills the room for waiting packets, one packet per call; `over` more packets
/// find no room. Returns how many were dropped.
fn bursts(discipline: Discipline, over: u32) -> u64 {
    let (began, has_begun) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    let qdisc = Slow { queue: PacketList::new(), began, go_on, stats: QdiscStats::default() };
    let builder = NetDev::builder(Sink).custom_qdisc(qdisc).discipline(discipline).max_burst(MAX_BURST);
    let dev = builder.build().expect("a device");
    let (mut slow, mut other) = (dev.sender("slow"), dev.sender("other"));
    std::thread::scope(|threads| {
        let (call, calls) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        threads.spawn(move || {
            while let Ok(()) = calls.recv() {
                let mut packet = slow.alloc(60).expect("a buffer");
                packet.set_cookie(SLOW);
                let _ = slow.xmit(packet);
                done.send(()).expect("the test goes on");
            }
        });
        for _ in 0..BURSTS {
            call.send(()).expect("the sender is there");
            has_begun.recv().expect("the sender enqueues");
            for _ in 0..MAX_BURST + over {
                let mut packet = other.alloc(60).expect("a buffer");
                packet.set_cookie(QUICK);
                let _ = other.xmit(packet);
            }
            go.send(()).expect("the qdisc waits");
            is_done.recv().expect("the sender comes back");
        }
        drop(call);
    });
    let stats = dev.audit().expect("sums that add up");
    assert_eq!(stats.queued, 0, "{discipline}");
    let dropped = stats.dropped.total();
    assert_eq!(stats.sent + dropped, BURSTS as u64 * u64::from(1 + MAX_BURST + over), "{discipline}");
    assert_eq!(stats.dropped.get(DropReason::QdiscBurstDrop), dropped, "{discipline}");
    dropped
}

/// The disciplines whose senders never wait for an owner in the qdisc; combine does not count a packet that finds the list empty.
const LISTS: [(Discipline, u32); 2] = [(Discipline::Combine, 1), (Discipline::Lockless, 0)];

#[test]
fn what_was_taken_no_longer_counts() {
    for (discipline, free) in LISTS {
        assert_eq!(bursts(discipline, free), 0, "{discipline}");
    }
}

#[test]
fn what_is_too_much_is_dropped_each_time() {
    for (discipline, free) in LISTS {
        assert_eq!(bursts(discipline, free + 3), 3 * BURSTS as u64, "{discipline}");
    }
}
