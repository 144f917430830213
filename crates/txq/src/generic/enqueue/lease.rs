//! Leases: one sender at a time uses a cheap queue, and the others wait for their turn instead of handing packets over or taking
//! the queue's lock by turns.
//!
//! A packet that one CPU hands to another moves cache lines there and back: the descriptor, the list, and the account and
//! inbox of its home. A lock that two CPUs take by turns moves itself and the queue's state. Where all other work on a packet
//! is cheaper than that, one CPU alone sends more than two that hand over. A lease gives the queue to one sender for
//! [`Arch::lease`]: its packets, its pool and the queue's state stay in one cache. Then the first waiting sender to find it over
//! takes it (`sync/lease.rs`).
//!
//! A sender whose packets go to several queues by turns, as under mq by hash, would wait at each queue for senders that wait
//! elsewhere, while its own lease passes unused. Such senders share a lease of all queues of the device
//! ([`DeviceLease`](crate::generic::datapath::DeviceLease)) instead: one of them at a time sends, to all queues.
//!
//! A lease is advice: the discipline's own word still decides the ownership of the queue. A sender that may not wait, or has
//! waited for the longest wait of its discipline, continues as if there were no lease. A sender begins to wait when it has
//! handed in [`LIGHT`] packets within the length of a lease. So a sender that sends seldom never waits.
//!
//! Measurement decides whether senders wait or hand over ([`Trial`]): the owners of contended queues compare what is sent
//! under each rule, and try the worse one again now and then.

use txq_core::arch::{Arch, Nanos};
use txq_core::sync::lease::{Lease, tag};

use crate::generic::datapath::{Ctx, Trial};

/// Packets in the length of a lease from which a sender without a recent lease waits for one.
const LIGHT: usize = 32;
/// How long after it took a lease a sender counts as busy and waits from its first packet on, in nanoseconds.
const BUSY: Nanos = 20_000_000;
/// How long after its end a sender that does not wait may take a lease, in nanoseconds. Longer than a holder is likely to be
/// without a CPU while no sender waits.
const STALE: Nanos = 10_000_000;

/// Returns the tag of the sender whose call this is.
#[inline]
fn own_tag<A: Arch>(cx: &Ctx<'_, A>) -> u16 {
    tag(cx.cache.id())
}

/// Whether another sender has the lease, or had it last.
#[inline]
pub(super) fn is_anothers<A: Arch>(lease: &Lease<A>, cx: &Ctx<'_, A>) -> bool {
    A::lease() > 0 && lease.held().is_anothers(own_tag(cx))
}

/// Waits until the sender of `packets` can take the lease of a queue, until there is no lease, or for the longest wait. Returns
/// whether the sender has just taken the lease.
#[cold]
pub(super) fn wait<A: Arch>(lease: &Lease<A>, packets: usize, cx: &mut Ctx<'_, A>) -> bool {
    if cx.cache.alternates() {
        // The sender has waited for the lease of the device instead. Those that used this queue alone may be gone.
        if A::now() >= lease.held().end() + STALE {
            lease.end();
        }
        return false;
    }
    // The caller's own entry is one.
    wait_at_depth(lease, packets, 1, cx)
}

/// Waits for the lease of the device as a sender that sends to several queues by turns, outside the data path.
#[inline]
pub(crate) fn wait_for_device<A: Arch>(packets: usize, cx: &mut Ctx<'_, A>) {
    if is_anothers(&cx.dev.lease.word, cx) {
        wait_for_turn(packets, cx);
    }
}

#[cold]
fn wait_for_turn<A: Arch>(packets: usize, cx: &mut Ctx<'_, A>) {
    let dev = cx.dev;
    if wait_at_depth(&dev.lease.word, packets, 0, cx) {
        dev.look_at_lease(own_tag(cx));
    }
}

/// As [`wait`]. A sender inside more than `depth` data paths, from a driver or a qdisc, does not wait: the holder may wait for that
/// call.
fn wait_at_depth<A: Arch>(lease: &Lease<A>, packets: usize, depth: u32, cx: &mut Ctx<'_, A>) -> bool {
    let start = A::now();
    let nested = A::inside(|inside| inside.depth()) > depth;
    let past = cx.cache.leases();
    let busy = past.count(packets, start, A::lease()) >= LIGHT || start < past.took + BUSY;
    let light = nested || !busy;
    let grace = if light { STALE } else { 0 };
    let mut now = start;
    loop {
        let held = lease.held();
        if held.is_none() {
            return false;
        }
        if now >= held.end() + grace && lease.take(held, own_tag(cx), now + A::lease()) {
            cx.cache.leases().took = if light { 0 } else { now };
            return true;
        }
        if light || now >= start + cx.dev.lease.longest_wait || cx.dev.is_stopping() {
            return false;
        }
        A::yield_cpu();
        now = A::now();
    }
}

/// Begins or ends leases of a queue if the phase of its trial is over. The caller owns the queue, which has sent `sent` packets so
/// far. Where the caller sends to several queues by turns, the device's trial decides.
#[cold]
pub(super) fn look<A: Arch>(trial: &mut Trial, lease: &Lease<A>, sent: u64, cx: &Ctx<'_, A>) {
    let own = own_tag(cx);
    if cx.cache.alternates() {
        cx.dev.look_at_lease(own);
        return;
    }
    let now = A::now();
    lease.set(trial.judge(now, sent), own, now);
}
