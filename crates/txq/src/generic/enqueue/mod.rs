//! Enqueue disciplines: how concurrent senders reach one qdisc.
//!
//! A queue's core has one owner at a time. A discipline decides which thread becomes the owner and what the other senders
//! do. It keeps the core behind a lock or behind its own protocol, and its owner calls `run::turn`. A discipline is one file
//! and a variant of [`Discipline`].
//!
//! | discipline | a sender that finds the queue owned | source |
//! |---|---|---|
//! | `combine` | puts its packets on a list and returns; there is no lock | our own |
//! | `llist` | puts its packets on a list and returns; one at a time waits for the lock, to enqueue all of them | Linux 6.19, 100dfa74ca74 |
//! | `lockless` | puts its packets on their band's list and returns; the token holder runs the queue | Linux 4.16 |
//! | `busylock` | waits, in front of a second lock, so that the owner competes with one sender and not with all | Linux 2.6.36 to 6.18 |
//! | `spinlock` | waits; the owner waits too, for the lock that it needs after each batch | Linux until 2.6.35 |
//!
//! All but `combine` behave as the kernel's do. Under `combine` busy senders take turns (`datapath/lease.rs`).

mod busylock;
mod combine;
mod discipline;
mod intake;
mod llist;
mod lockless;
mod noqueue;
mod refused;
mod room;
mod root_lock;
mod spinlock;

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;

use crate::generic::datapath::Ctx;

pub use discipline::{Discipline, ParseDisciplineError};
pub(crate) use noqueue::NoQueue;

/// Bound on the packets that wait for a queue's owner (`net.core.qdisc_max_burst`).
pub const QDISC_MAX_BURST: u32 = 1000;

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
        cx.free_list(batch);
    }
    owns
}

/// Names of the lines that senders and owners share ([`Arch::name`]), the same in all disciplines.
const ROOT_LOCK: &str = "root lock";
const QUEUE: &str = "queue's state";
