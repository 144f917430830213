//! Enqueue disciplines: how concurrent senders reach one qdisc.
//!
//! A queue's core has one owner at a time; a discipline says how a thread becomes it, and what the others do. It
//! keeps the core where it likes, behind a lock or behind nothing but its own protocol, and calls `run::admit` and
//! `run::run` while it has it. A discipline is one file and a line in `kinds`.
//!
//! | discipline | a sender that finds the queue in use | source |
//! |---|---|---|
//! | `spinlock` | waits; the owner waits too, for the lock it needs after each batch | Linux until 2.6.35 |
//! | `llist` | leaves its packets on a list and goes | Linux 6.19, 100dfa74ca74 |

mod llist;
mod noqueue;
mod spinlock;

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::qdisc::Verdict;
use crate::run::Core;
use crate::sync::contention::{Lock, Recorded};

pub(crate) use noqueue::NoQueue;

/// Bound of packets that wait for a queue's owner (`net.core.qdisc_max_burst`).
pub const QDISC_MAX_BURST: u32 = 1000;

/// One queue's way in.
pub(crate) trait Discipline<A: Arch>: Send + Sync {
    /// Hands `batch` to the qdisc, or leaves it for who has the qdisc. The batch is empty afterwards.
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict;

    /// Runs the queue: the worker's turn.
    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>);

    /// Calls `f` with the core, when its owner is done.
    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>));

    /// Whether nothing is queued, nothing waits for the owner, and there is no owner.
    fn is_idle(&self) -> bool;

    /// Calls `f` with each lock of the discipline, for its record.
    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded));
}

/// A discipline by its name.
pub(crate) struct Kind<A: Arch> {
    pub(crate) name: &'static str,
    pub(crate) build: fn(Core<A>, max_burst: u32) -> Box<dyn Discipline<A>>,
}

/// All disciplines that a user can choose, the default first. A new one is a file and a line here.
pub(crate) fn kinds<A: Arch>() -> [Kind<A>; 2] {
    [Kind { name: "llist", build: llist::build }, Kind { name: "spinlock", build: spinlock::build }]
}

/// The names of the disciplines, the default first.
pub fn names() -> Vec<&'static str> {
    kinds::<crate::arch::Native>().iter().map(|k| k.name).collect()
}
