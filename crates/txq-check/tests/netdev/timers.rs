//! A qdisc that holds packets back, and a worker that sleeps until their time: they leave without further packets.
//!
//! Guards `Schedule::run_at` (`txq/src/generic/schedule.rs`), an owner's report when the qdisc returns nothing (`run/dequeue.rs`) and
//! the worker's turn (`worker.rs`). Mutants that it catches, each by a deadlock because the worker sleeps for ever: a time
//! that is set without a notification, not set, or not taken. A model's clock stands still: a time is due at once or never.

use super::device::{Device, Record, assert_conserved, assert_order, packets};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;
use txq::Discipline;
use txq::drop::DropReason;
use txq::generic::qdisc::{Budget, Cx, Qdisc, Verdict};
use txq::stats::QdiscStats;
use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{Atomic, Event, Nanos};
use txq_core::packet::{Packet, PacketList};

/// Holds packets until an urgent one is among them. Even then the first dequeue returns none: the packets' time is now, and
/// the queue must be dequeued again. Without an urgent packet the time is later, which is never.
struct Held<A: Model> {
    queue: PacketList<A>,
    urgent: bool,
    asked: bool,
    stats: QdiscStats,
}

/// A time that has come, and one that never comes in a model.
const NOW: Nanos = 0;
const LATER: Nanos = Nanos::MAX / 2;

impl<A: Model> Held<A> {
    fn new() -> Self {
        Self { queue: PacketList::new(), urgent: false, asked: false, stats: QdiscStats::default() }
    }
}

impl<A: Model> Qdisc<A> for Held<A> {
    fn kind(&self) -> &'static str {
        "held"
    }

    /// Each sender's packets with odd numbers are urgent.
    fn enqueue(&mut self, packet: Packet<A>, _: &mut Cx<'_, A>) -> Verdict {
        if packet.cookie() & 1 == 1 {
            (self.urgent, self.asked) = (true, false);
        }
        self.stats.backlog += packet.len() as u64;
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList<A>, _: &mut Cx<'_, A>) {
        if self.urgent && !std::mem::replace(&mut self.asked, true) {
            return;
        }
        if self.urgent {
            self.queue.move_front(budget.packets, out);
            self.urgent = !self.queue.is_empty();
            self.stats.backlog -= out.bytes();
            self.stats.bytes += out.bytes();
            self.stats.packets += out.len() as u64;
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
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

    fn next_event(&self) -> Option<Nanos> {
        Some(if self.urgent { NOW } else { LATER })
    }
}

/// Which loop runs the worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loop {
    /// `Worker::run`.
    Worker,
    /// A program's own loop, by `Worker::poll` and a waker.
    Program,
}

/// Senders send pairs of a packet for later and an urgent one, which re-arms the timer while the worker is going to sleep
/// for the first.
fn rearm<A: Model>(discipline: Discipline, senders: u64, each: u64, by: Loop) {
    let record = Record::<A>::new(1);
    let device = Device { record: record.clone(), ring: None, inline: true };
    let mut dev =
        device.builder().custom_qdisc(Held::new()).discipline(discipline).build().expect("a device");
    let mut worker = dev.worker(0);
    // For the program's own loop: its sleep, and its end flag.
    let own = Arc::new(A::Event::new());
    let end = Arc::new(A::AtomicU32::new(0));
    if by == Loop::Program {
        let waker = own.clone();
        worker.set_waker(move || waker.notify());
    }
    let worker = {
        let (own, end) = (own.clone(), end.clone());
        A::spawn(1, move || {
            if by == Loop::Worker {
                return worker.run();
            }
            while end.load(Acquire) == 0 {
                let next = worker.poll();
                own.wait(next);
            }
        })
    };
    let threads: Vec<_> = (0..senders)
        .map(|who| {
            let mut sender = dev.sender_on("s", 0);
            let mut packets = packets(&mut sender, who, each);
            A::spawn(who as u32 + 2, move || {
                while let Some(packet) = packets.pop_front() {
                    let _ = sender.xmit(packet);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|join| join());
    assert!(dev.drain(Duration::from_nanos(1)));
    dev.shutdown().expect("the device finishes");
    end.store(1, Release);
    own.notify();
    worker();
    assert_conserved(&dev);
    assert_order(&record.sent(), senders, each, false);
}

/// A module of tests for each discipline, so that each can run alone.
macro_rules! disciplines {
    ($($module:ident: $discipline:ident,)*) => {
        $(mod $module {
            use super::*;

            const DISCIPLINE: Discipline = Discipline::$discipline;

            #[test]
            fn rearm_under_loom() {
                Loom::check_to(if txq_check::deep() { 2 } else { 1 }, || rearm::<Loom>(DISCIPLINE, 1, 2, Loop::Worker));
            }

            #[test]
            fn rearm_under_shuttle() {
                Shuttle::check(|| rearm::<Shuttle>(DISCIPLINE, 1, 4, Loop::Worker));
                Shuttle::check(|| rearm::<Shuttle>(DISCIPLINE, 3, 4, Loop::Worker));
            }

            #[test]
            fn rearm_in_a_programs_loop_under_shuttle() {
                Shuttle::check(|| rearm::<Shuttle>(DISCIPLINE, 2, 4, Loop::Program));
            }
        })*

        #[test]
        fn every_discipline_is_modelled() {
            assert_eq!(Discipline::ALL, [$(Discipline::$discipline),*]);
        }
    };
}

disciplines! {
    combine: Combine,
    llist: Llist,
    lockless: Lockless,
    busylock: Busylock,
    spinlock: Spinlock,
}
