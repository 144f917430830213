//! Qdiscs that lie: they return packets that they never got, report more or fewer packets than they have, ignore budgets,
//! panic when asked for a number. The device continues, every buffer comes home, and the audit reports wrong sums exactly
//! where they are wrong.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::{Discipline, NetDev};

use crate::liar::{Liar, other_pool};
use crate::{bounded, packets, pool};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Returns packets of its own beside those that it was given.
    Invents,
    /// Loses each third packet.
    Loses,
    /// Reports twice as many packets as it has.
    Doubles,
    /// Reports the largest possible number.
    Infinite,
    /// Reports none.
    None,
    /// Returns all its packets, whatever the budget.
    IgnoresBudget,
    /// Returns nothing for a while, though it has packets and no event is pending.
    Sits,
    /// Panics at every second request for its length, and at other calls.
    PanicsOverLength,
    /// Adds packets of its own to a batch that is requeued.
    RequeuesMore,
    /// At first leaves packets in a batch that it should queue.
    LeavesBatch,
}

const LIES: [Lie; 10] = [
    Lie::Invents,
    Lie::Loses,
    Lie::Doubles,
    Lie::Infinite,
    Lie::None,
    Lie::IgnoresBudget,
    Lie::Sits,
    Lie::PanicsOverLength,
    Lie::RequeuesMore,
    Lie::LeavesBatch,
];

struct Rogue {
    lie: Lie,
    queue: VecDeque<Packet>,
    /// Packets of its own, some of another pool.
    own: Arc<Mutex<VecDeque<Packet>>>,
    calls: AtomicUsize,
}

impl Rogue {
    fn each(&self, n: usize) -> bool {
        self.calls.fetch_add(1, Relaxed) % n == n - 1
    }
}

impl Qdisc for Rogue {
    fn kind(&self) -> &'static str {
        "rogue"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        if self.lie != Lie::Loses || !self.each(3) {
            self.queue.push_back(packet);
        }
        Verdict::Success
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList, cx: &mut Cx<'_>) {
        let leave = if self.lie == Lie::LeavesBatch && self.each(2) { batch.len() / 2 } else { 0 };
        while batch.len() > leave
            && let Some(packet) = batch.pop_front()
        {
            let _ = self.enqueue(packet, cx);
        }
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        if self.lie == Lie::Sits && !self.each(3) {
            return;
        }
        if self.lie == Lie::Invents {
            out.extend(self.own.lock().unwrap().pop_front());
        }
        let n = if self.lie == Lie::IgnoresBudget { usize::MAX } else { budget.packets };
        out.extend(self.queue.drain(..n.min(self.queue.len())));
    }

    fn requeue(&mut self, batch: &mut PacketList) {
        if self.lie == Lie::RequeuesMore {
            batch.extend(self.own.lock().unwrap().pop_front());
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.queue.drain(..).for_each(|packet| cx.drop(packet, DropReason::QueuePurge));
    }

    fn qlen(&self) -> usize {
        let n = self.queue.len();
        match self.lie {
            Lie::Doubles => n * 2,
            Lie::Infinite => usize::MAX,
            Lie::None => 0,
            Lie::PanicsOverLength if self.each(2) => panic!("the qdisc panics, as the test wants"),
            _ => n,
        }
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats {
            qlen: u64::MAX,
            backlog: u64::MAX,
            packets: u64::MAX,
            drops: u64::MAX,
            ..QdiscStats::default()
        }
    }
}

impl Shortcuts for Rogue {}

/// Whatever a qdisc reports: the calls return, its packets leave or are dropped with it, and all buffers are home in the
/// end. The audit returns `Ok` only where no packet was invented or lost.
#[test]
fn a_qdisc_lies() {
    bounded(|| {
        std::thread::scope(|scope| {
            for &discipline in Discipline::ALL {
                scope.spawn(move || LIES.into_iter().for_each(|lie| lies(discipline, lie)));
            }
        });
    });
}

fn lies(discipline: Discipline, lie: Lie) {
    let liar = Liar::new(Some(8));
    let own = Arc::<Mutex<VecDeque<Packet>>>::default();
    let qdisc = Rogue { lie, queue: VecDeque::new(), own: own.clone(), calls: AtomicUsize::new(0) };
    let dev = NetDev::builder(liar.clone()).custom_qdisc(qdisc).discipline(discipline);
    let dev = dev.pool_config(pool()).build().unwrap();
    let other = other_pool();
    let mut makers = [dev.sender("its own"), other.sender("another's")];
    for maker in &mut makers {
        let mut list = packets(maker, 0..5);
        own.lock().unwrap().extend(std::iter::from_fn(|| list.pop_front()));
    }
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    for i in 0..40 {
        liar.lie(crate::liar::Lie::Never, usize::from(i % 7 == 3), other.sender("driver"));
        let mut batch = packets(&mut makers[0], i * 5..i * 5 + 5);
        let _ = catch_unwind(AssertUnwindSafe(|| sender.xmit_batch(&mut batch)));
        drop(batch);
        let _ = catch_unwind(AssertUnwindSafe(|| worker.poll()));
        let _ = catch_unwind(AssertUnwindSafe(|| dev.qdiscs(Default::default())));
    }
    for _ in 0..200 {
        let _ = catch_unwind(AssertUnwindSafe(|| worker.poll()));
    }
    let audit = catch_unwind(AssertUnwindSafe(|| dev.audit()));
    let wrong = !matches!(audit, Ok(Ok(_)));
    assert!(audit.is_ok() || lie == Lie::PanicsOverLength, "{lie:?}, {discipline}: the audit panics");
    let honest = matches!(lie, Lie::Doubles | Lie::IgnoresBudget | Lie::Sits | Lie::LeavesBatch);
    // The length shows what a panic loses, and it panics, too: any answer is allowed.
    if !matches!(lie, Lie::PanicsOverLength | Lie::None) {
        assert_eq!(wrong, !honest, "{lie:?}, {discipline}: {audit:?}");
    }
    // The device goes down, and the qdisc's packets are dropped.
    let ended = catch_unwind(AssertUnwindSafe(|| dev.deactivate()));
    assert!(ended.is_ok() || lie == Lie::PanicsOverLength, "{lie:?}, {discipline}");
    liar.forget();
    own.lock().unwrap().clear();
    drop((sender, worker, makers));
    let pools = [dev.pool().clone(), other.pool().clone()];
    let _ = catch_unwind(AssertUnwindSafe(move || drop(dev)));
    drop(other);
    for pool in pools {
        assert_eq!(pool.in_use(), Default::default(), "{lie:?}, {discipline}: buffers are not home");
    }
}
