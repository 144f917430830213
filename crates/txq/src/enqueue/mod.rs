//! Enqueue disciplines: how concurrent senders reach one qdisc.
//!
//! A queue's core has one owner at a time; a discipline says how a thread becomes it, and what the others do. It
//! keeps the core where it likes, behind a lock or behind nothing but its own protocol, and calls `run::turn` while it
//! has it. A discipline is one file and a line in `kinds`.
//!
//! | discipline | a sender that finds the queue in use | source |
//! |---|---|---|
//! | `combine` | leaves its packets on a list and goes; nobody waits for anybody | our own |
//! | `llist` | leaves its packets on a list and goes; one at a time waits for the lock, to bring them all | Linux 6.19, 100dfa74ca74 |
//! | `lockless` | leaves its packets in their band, and goes; one at a time has the token to run the queue | Linux 4.16 |
//! | `busylock` | waits, in front of a second lock, so that the owner competes with one sender and not with all | Linux 2.6.36 to 6.18 |
//! | `spinlock` | waits; the owner waits too, for the lock it needs after each batch | Linux until 2.6.35 |

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

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::drop::DropReason;
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::qdisc::Verdict;
use crate::run::Core;
use crate::sync::contention::{Lock, Recorded};

pub(crate) use noqueue::NoQueue;

/// Bound of packets that wait for a queue's owner (`net.core.qdisc_max_burst`).
pub const QDISC_MAX_BURST: u32 = 1000;

/// The part of `qdisc_max_burst` from which on a list counts as long ([`Discipline::is_behind`]): with as much again in the
/// owner's hands it fits in the last quarter of a qdisc of that length.
const LONG: u32 = 16;

/// One queue's way in.
pub(crate) trait Discipline<A: Arch>: Send + Sync {
    /// Hands `batch` to the qdisc, or leaves it for who has the qdisc. The batch is empty afterwards.
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict;

    /// Runs the queue: the worker's turn.
    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>);

    /// Waits until the core has no owner, and calls `f` with it, and with whether something waits for an owner. False
    /// when somebody has left something meanwhile, and a worker must see to it.
    fn visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool;

    /// Whether an owner in the driver has the core, so that a visit waits for it too.
    fn visit_excludes_driver(&self) -> bool {
        false
    }

    /// Whether the tx lock is taken although ownership of the queue already excludes others from the driver.
    fn needs_tx_lock(&self) -> bool {
        false
    }

    /// As [`visit`](Discipline::visit), if the core has no owner; `None` if it has one. For senders: a queue that is always
    /// in use may have no moment without an owner for a thread that is preempted to see.
    fn try_visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool>;

    /// Whether somebody has the queue, or is about to, who will look once more what there is to send. What made the
    /// caller ask is then seen. If not, a worker must be sent.
    fn look_again(&self) -> bool {
        false
    }

    /// Whether the list in front of the qdisc is long, so that a sender that would wait for room does not add to it: the owner
    /// is behind, and may find no room for all. It has an owner then, or a worker has been sent.
    fn is_behind(&self) -> bool {
        false
    }

    /// Calls `f` with each lock of the discipline, for its record. Who has a lock in this way is no owner, and does not see
    /// what others leave for one: [`visit`](Discipline::visit) the queue afterwards.
    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded));

    /// Names its lines ([`Arch::name`]).
    fn name_lines(&self);
}

/// Whether the calling thread owns a queue of this device already, because a qdisc or a filter of the device sends through it.
/// Where a sender waits for the owner it would wait for itself: the batch is dropped as a loop (`RECURSION_LIMIT`).
#[inline]
fn owns_queue<A: Arch>(batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> bool {
    // The caller's own entry is one.
    A::inside(|inside| inside.depth()) > 1 && drop_looped(batch, cx)
}

/// As [`owns_queue`], for a thread that is in several data paths.
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

/// What senders and owners share is called so ([`Arch::name`]), whatever the discipline.
const ROOT_LOCK: &str = "root lock";
const QUEUE: &str = "queue's state";
const DRIVEN: &str = "what comes back from the driver";

/// A discipline by its name.
pub(crate) struct Kind<A: Arch> {
    pub(crate) name: &'static str,
    pub(crate) build: fn(Core<A>, max_burst: u32) -> Box<dyn Discipline<A>>,
}

/// All disciplines that a user can choose, the default first. A new one is a file and a line here.
pub(crate) fn kinds<A: Arch>() -> [Kind<A>; 5] {
    [
        Kind { name: "combine", build: combine::build },
        Kind { name: "llist", build: llist::build },
        Kind { name: "lockless", build: lockless::build },
        Kind { name: "busylock", build: busylock::build },
        Kind { name: "spinlock", build: spinlock::build },
    ]
}

/// The names of the disciplines, the default first.
pub fn names() -> Vec<&'static str> {
    kinds::<crate::arch::Native>().iter().map(|k| k.name).collect()
}
