//! Enqueue disciplines: how concurrent senders reach one qdisc.
//!
//! A queue's core has one owner at a time. A discipline decides which thread becomes the owner and what the other senders
//! do. It keeps the core behind a lock or behind its own protocol, and its owner calls `run::turn`. A discipline is one file
//! and a line in `kinds`.
//!
//! | discipline | a sender that finds the queue owned | source |
//! |---|---|---|
//! | `combine` | puts its packets on a list and returns; there is no lock | our own |
//! | `llist` | puts its packets on a list and returns; one at a time waits for the lock, to enqueue all of them | Linux 6.19, 100dfa74ca74 |
//! | `lockless` | puts its packets on their band's list and returns; the token holder runs the queue | Linux 4.16 |
//! | `busylock` | waits, in front of a second lock, so that the owner competes with one sender and not with all | Linux 2.6.36 to 6.18 |
//! | `spinlock` | waits; the owner waits too, for the lock that it needs after each batch | Linux until 2.6.35 |

mod busylock;
mod combine;
mod intake;
mod lease;
mod llist;
mod lockless;
mod noqueue;
mod refused;
mod room;
mod spinlock;

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;
use txq_core::sync::contention::{Lock, Recorded};
use txq_sched::qdisc::Verdict;

use crate::ctx::Ctx;
use crate::netdev::Root;
use crate::run::Core;

pub(crate) use noqueue::NoQueue;

/// Bound on the packets that wait for a queue's owner (`net.core.qdisc_max_burst`).
pub const QDISC_MAX_BURST: u32 = 1000;

/// A list counts as long from `qdisc_max_burst / LONG` packets ([`Discipline::is_behind`]). With as many packets again in
/// the owner's hands, they fit in the last quarter of a qdisc whose limit is `qdisc_max_burst`.
const LONG: u32 = 16;

/// How threads reach one queue's core.
pub(crate) trait Discipline<A: Arch>: Send + Sync {
    /// Hands `batch` to the qdisc, or queues it for the current owner. The batch is empty afterwards.
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict;

    /// Runs the queue: the worker's turn.
    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>);

    /// Waits until the core has no owner, and calls `f` with the core and with whether packets wait for an owner. Returns
    /// false if a worker must run the queue afterwards.
    fn visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool;

    /// Whether an owner keeps the core while it is in the driver, so that a visit waits for the driver too.
    fn visit_excludes_driver(&self) -> bool {
        false
    }

    /// Whether the tx lock is taken although ownership of the queue already excludes others from the driver.
    fn needs_tx_lock(&self) -> bool {
        false
    }

    /// As [`visit`](Discipline::visit), but returns `None` without waiting if the core has an owner. For senders: a thread
    /// that is preempted may never see a busy queue without an owner.
    fn try_visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool>;

    /// Makes the current or next owner check again for packets to send. Returns whether one will, so that it sees what the
    /// caller has stored before; if not, the caller schedules a worker.
    fn look_again(&self) -> bool {
        false
    }

    /// Whether the list in front of the qdisc is long. A sender that waits for room then does not add to the list: the owner
    /// is behind, and may find no room for all packets. While this is true the queue has an owner, or its worker is
    /// scheduled.
    fn is_behind(&self) -> bool {
        false
    }

    /// Calls `f` with each lock of the discipline, for its record. A thread that takes a lock through `f` is no owner and
    /// does not see what others leave for one: [`visit`](Discipline::visit) the queue afterwards.
    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded));

    /// Names its lines ([`Arch::name`]).
    fn name_lines(&self);
}

/// Returns whether the calling thread already owns a queue of this device, because a qdisc or a filter of the device sends
/// through it; if so, drops the batch as a loop (`RECURSION_LIMIT`). For disciplines in which a sender waits for the owner:
/// it would wait for itself.
#[inline]
fn owns_queue<A: Arch>(batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> bool {
    // The caller's own entry is one.
    A::inside(|inside| inside.depth()) > 1 && drop_looped(batch, cx)
}

/// As [`owns_queue`], for a thread that is inside several data paths.
#[cold]
fn drop_looped<A: Arch>(batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> bool {
    let owns = A::inside(|inside| inside.owns(cx.dev));
    if owns {
        cx.dev.count_looped(batch.len() as u64);
        batch.for_each_mut(|p| p.set_drop_reason(DropReason::RecursionLimit));
        cx.cache.free_dropped(batch);
    }
    owns
}

/// Names of the lines that senders and owners share ([`Arch::name`]), the same in all disciplines.
const ROOT_LOCK: &str = "root lock";
const QUEUE: &str = "queue's state";
const DRIVEN: &str = "what comes back from the driver";

/// A discipline and its name.
pub(crate) struct Kind<A: Arch> {
    pub(crate) name: &'static str,
    pub(crate) build: fn(Core<A>, max_burst: u32) -> Box<dyn Discipline<A>>,
}

/// Returns all disciplines that a user can choose, the default first. A new one is a file and a line here.
pub(crate) fn kinds<A: Arch>() -> [Kind<A>; 5] {
    [
        Kind { name: "combine", build: combine::build },
        Kind { name: "llist", build: llist::build },
        Kind { name: "lockless", build: lockless::build },
        Kind { name: "busylock", build: busylock::build },
        Kind { name: "spinlock", build: spinlock::build },
    ]
}

/// Returns the names of the disciplines, the default first.
pub fn names() -> Vec<&'static str> {
    kinds::<txq_core::arch::Native>().iter().map(|k| k.name).collect()
}
