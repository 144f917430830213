//! Running a queue: the one owner dequeues in bulk and feeds the driver (`__qdisc_run`, `sch_direct_xmit`).
//!
//! Everything that belongs to a queue is in its [`Core`], and one thread at a time has it. How a thread comes to have it is
//! the enqueue discipline's affair; to this file it is an [`Owner`], who can lay the core aside while the driver works.
//!
//! An owner's [`turn`] ends when there is nothing to send, when the txq is stopped (its wake schedules the queue), when
//! the driver refuses (a timer does), or when it has done its share (the worker goes on).

use std::mem;

use crate::arch::{Arch, Memory, Nanos, Work};
use crate::ctx::{Ctx, Errand};
use crate::drop::{DropCounts, DropReason};
use crate::netdev::{Root, Shared};
use crate::packet::{Packet, PacketList};
use crate::qdisc::Verdict;
use crate::sync::contention::HandOff;
use crate::txqueue::{Transmitted, TxQueue};

mod bypass;
mod core;
mod gate;
mod marks;
mod permit;
mod relay;
mod unwind;

pub(crate) use self::core::{Core, CoreCounters};
pub(crate) use bypass::{Bypass, bypass};
pub(crate) use gate::Gate;
pub(crate) use relay::forward;
use unwind::{Back, Direct, InDriver, InQdisc};

/// Packets of one turn, and of one batch (`dev_tx_weight`).
const QUOTA: usize = 64;
/// Time of one turn, in nanoseconds. It is looked at only by an owner that others have left something for.
const TURN: Nanos = 100_000;

/// Who has a [`Core`]. The defaults are those of an owner for whom nobody leaves anything.
pub(crate) trait Owner<A: Arch> {
    /// The core.
    fn core(&mut self) -> &mut Core<A>;

    /// Moves what waits for the owner to `chunk`, the oldest first and at most about `packets`: `own`, which the owner
    /// brought along, and what senders have left for it. Returns how many batches that were.
    #[inline]
    fn gather(
        &mut self,
        own: &mut PacketList<A>,
        _packets: usize,
        chunk: &mut PacketList<A>,
        _root: &Root<A>,
        _cx: &mut Ctx<'_, A>,
    ) -> usize {
        chunk.append(own);
        1
    }

    /// Lays the core aside while `f` has the driver; others may have had it when this returns true. When it returns
    /// false, another thread has the core, and `driven` with it: the caller's turn is over.
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool;

    /// Whether something waits for the owner.
    #[inline]
    fn waits(&mut self) -> bool {
        false
    }

    /// Ends the turn. Returns false, and the core stays with the caller, when something has been left for it
    /// meanwhile. When `tired` the turn ends anyway, and false means that somebody else must see to what is left.
    #[inline]
    fn leave(&mut self, _tired: bool) -> bool {
        true
    }

    /// What was said of the owner's own packets, if they had to wait with those of others.
    fn said(&self) -> Option<Verdict> {
        None
    }
}

/// A batch in the driver's hands, and what became of it.
pub(crate) struct Driven<A: Arch> {
    /// What is to be sent; afterwards what the driver refused.
    batch: PacketList<A>,
    txq: u16,
    /// Packets that were to be sent.
    packets: u64,
    /// `Core::purges` when it left the queue.
    purges: u32,
    /// Whether it goes past the qdisc, which is empty.
    pub(crate) past: bool,
    /// Whether the driver has returned.
    back: bool,
    sent: Transmitted,
    drops: DropCounts,
}

impl<A: Arch> Driven<A> {
    pub(crate) fn new() -> Self {
        let sent = Transmitted { packets: 0, bytes: 0, retry: None };
        Self {
            batch: PacketList::new(),
            txq: 0,
            packets: 0,
            purges: 0,
            past: false,
            back: false,
            sent,
            drops: DropCounts::default(),
        }
    }

    /// Packets to send, or that the driver refused.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether the driver, when it has returned, has left nothing of it.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.batch.is_empty()
    }
}

/// Hands a batch to the qdisc: into its queue, or past it where it is empty and lets a packet pass. The owner runs the
/// queue next.
fn admit<A: Arch>(
    owner: &mut impl Owner<A>,
    root: &Root<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> (Verdict, Going) {
    let core = owner.core();
    core.counters.taken += batch.len() as u64;
    if (core.gate != Gate::Open || core.has_unadmitted())
        && let Some(verdict) = core.at_gate(batch, cx)
    {
        return (verdict, Going::On);
    }
    let n = batch.len() as u64;
    if let Some(txq) = core.bypass(root, batch, cx) {
        let mut driven = Driven::new();
        driven.txq = txq;
        driven.past = true;
        driven.batch.append(batch);
        return (Verdict::Success, run_batch(owner, root, &mut driven, cx));
    }
    A::spend(move || Work::Enqueue(n as usize));
    A::touch(|| core.qdisc(), Memory::Qdisc);
    A::classify(|| (core.qdisc(), batch.iter().map(|packet| packet.data())));
    let mut in_qdisc = InQdisc { core, batch, back: Back::ToQdisc };
    let InQdisc { core: Core { qdisc, counters, .. }, batch, .. } = &mut in_qdisc;
    let mut qcx = cx.for_qdisc(counters);
    let qdisc = &mut **qdisc.as_mut().expect("noqueue admits nothing");
    let verdict = if n == 1 {
        let verdict = qdisc.enqueue(batch.pop_front().expect("one packet"), &mut qcx);
        qcx.enqueue_copies(qdisc);
        verdict
    } else {
        let mut dropped = 0;
        while !batch.is_empty() {
            let before = qcx.to_free.len();
            qdisc.enqueue_batch(batch, &mut qcx);
            dropped += (qcx.to_free.len() - before) as u64;
            qcx.enqueue_copies(qdisc);
        }
        match dropped {
            0 => Verdict::Success,
            dropped if dropped == n => Verdict::Drop,
            _ => Verdict::Congested,
        }
    };
    mem::forget(in_qdisc);
    if verdict != Verdict::Success {
        owner.core().note_refusal(root);
    }
    (verdict, Going::On)
}

/// An owner's turn: hands what waits to the qdisc and sends what the qdisc gives, in turns of about equal size, so that
/// neither side starves the other. `own` is what the owner brought along; the verdict is on it, where it came alone.
///
/// The turn is bounded in packets ([`QUOTA`], or `share`, as many as the owner brought) and in time ([`TURN`]), so that no
/// sender is held captive by what others send. The worker goes on with what is left.
#[inline]
pub(crate) fn turn<A: Arch>(
    owner: impl Owner<A>,
    root: &Root<A>,
    own: &mut PacketList<A>,
    share: usize,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    turn_here(owner, root, own, share, cx)
}

/// As [`turn`], in the caller's frame: an owner that is more than two words is not copied while its fields are still on
/// their way to memory.
#[inline(always)]
pub(crate) fn turn_here<A: Arch>(
    owner: impl Owner<A>,
    root: &Root<A>,
    own: &mut PacketList<A>,
    share: usize,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    let unwound = Unwound { dev: cx.dev, root: root.index };
    // Dropped before `unwound`: the worker must not come while it still has the queue.
    let mut owner = owner;
    A::touch(|| owner.core(), Memory::Queue);
    owner.core().end_permit();
    let mut quota = QUOTA.max(share);
    let mut verdict = None;
    let mut end = None;
    let mut quiet = true;
    loop {
        let mut chunk = PacketList::new();
        let batches = owner.gather(own, quota, &mut chunk, root, cx);
        let admitted = chunk.len();
        let before = quota;
        let mut going = Going::On;
        if admitted > 0 || owner.core().has_unadmitted() {
            let (said, then) = admit(&mut owner, root, &mut chunk, cx);
            verdict.get_or_insert(if batches == 1 { said } else { Verdict::Success });
            going = then;
        }
        if going == Going::On {
            going = run(&mut owner, root, &mut quota, cx);
        }
        if going == Going::Gone {
            break;
        }
        if !owner.core().is_closed() {
            // What was only enqueued, because nothing can be sent now, counts as well.
            quota = quota.min(before.saturating_sub(admitted));
        }
        let tired = quota == 0 || end.is_some_and(|end| A::now() >= end);
        let more = tired && going == Going::On && owner.core().qlen() > 0;
        if tired && (more || owner.waits()) {
            owner.core().note_hand_off(HandOff::Worker);
        }
        quiet = root.fill.word().is_quiet();
        if !quiet {
            root.fill.note_backlog(owner.core().qlen());
        }
        let left = !owner.leave(tired);
        if left && !tired {
            end.get_or_insert_with(|| A::now() + TURN);
            continue;
        }
        if left || more {
            cx.dev.hand_over(root.index);
        }
        break;
    }
    mem::forget(unwound);
    let verdict = owner.said().or(verdict).unwrap_or(Verdict::Success);
    drop(owner);
    if !quiet {
        // With the queue left: a wake may take a lock, and calls code of the program's own.
        root.fill.wake();
    }
    verdict
}

/// A turn that a panic ends: the worker goes on.
struct Unwound<'d, A: Arch> {
    dev: &'d Shared<A>,
    root: usize,
}

impl<A: Arch> Drop for Unwound<'_, A> {
    fn drop(&mut self) {
        self.dev.hand_over(self.root);
    }
}

/// How a turn goes on after a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// There may be more to send.
    On,
    /// Nothing can be sent now: the queue is empty, or something will say when.
    Blocked,
    /// Somebody else has the queue.
    Gone,
}

/// Sends what is queued, within the quota, unless somebody else does.
fn run<A: Arch>(owner: &mut impl Owner<A>, root: &Root<A>, quota: &mut usize, cx: &mut Ctx<'_, A>) -> Going {
    if owner.core().running {
        let core = owner.core();
        if core.marks.high != usize::MAX && core.qlen() >= core.marks.high {
            root.fill.note_full(core.marks.low);
        }
        cx.held_up = true;
        return Going::Blocked;
    }
    if let Errand::Reap(txq) = cx.errand {
        cx.errand = Errand::Done(cx.dev.txqs[usize::from(txq)].reap_for_worker(root.index, cx));
    }
    while *quota > 0 {
        if owner.core().gate == Gate::Relay {
            let going = relay::relay(owner, root, cx);
            if going != Going::On {
                return going;
            }
            continue;
        }
        let core = owner.core();
        let queued = core.qlen();
        if queued == 0 {
            return Going::Blocked;
        }
        if queued >= core.marks.high {
            root.fill.note_full(core.marks.low);
        }
        let mut driven = Driven::new();
        let Some(txq) = owner.core().dequeue(root, QUOTA.min(*quota), &mut driven.batch, cx) else {
            return Going::Blocked;
        };
        driven.txq = txq;
        *quota -= driven.batch.len().min(*quota);
        let going = run_batch(owner, root, &mut driven, cx);
        if going != Going::On {
            return going;
        }
    }
    Going::On
}

/// Hands a batch to the driver, with the core laid aside, and keeps what it refuses.
fn run_batch<A: Arch>(
    owner: &mut impl Owner<A>,
    root: &Root<A>,
    driven: &mut Driven<A>,
    cx: &mut Ctx<'_, A>,
) -> Going {
    driven.packets = driven.batch.len() as u64;
    driven.purges = owner.core().purges;
    let txq = &cx.dev.txqs[usize::from(driven.txq)];
    let mut in_driver = InDriver::enter(owner, driven);
    let InDriver { owner, driven, .. } = &mut in_driver;
    let ours = owner.drive(driven, |d| {
        d.sent = txq.transmit(root.index, &mut d.batch, cx, &mut d.drops);
        d.back = true;
        txq.reap_or_leave(root.index, cx);
    });
    if !ours {
        mem::forget(in_driver);
        return Going::Gone;
    }
    A::touch(|| owner.core(), Memory::Queue);
    owner.core().returned(root, driven, cx)
}

/// Sends a batch with no qdisc in between; what the driver refuses is dropped (`__dev_queue_xmit` of a device without
/// a queue).
pub(crate) fn run_noqueue<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: u16,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    let n = batch.len() as u64;
    let txq = &cx.dev.txqs[usize::from(txq)];
    core.counters.taken += n;
    if core.permit.covers(batch, cx) {
        let mut direct = Direct { core, packets: n };
        let sent = txq.pass_permitted(root.index, batch, cx, &mut direct.core.counters.drops);
        direct.packets = 0;
        direct.core.counters.sent += sent.packets;
        direct.core.counters.sent_bytes += sent.bytes;
        return match sent.packets {
            0 => refused_directly(direct.core, root, txq, batch, cx),
            _ => Verdict::Success,
        };
    }
    core.end_permit();
    if core.gate != Gate::Open
        && let Some(verdict) = core.at_gate(batch, cx)
    {
        return verdict;
    }
    let passes = txq.takes_all(root.index, batch);
    let defers = (passes && txq.may_defer(batch, cx)).then(|| batch.front().map_or(0, Packet::priority));
    let mut direct = Direct { core, packets: n };
    let drops = &mut direct.core.counters.drops;
    let sent = match passes {
        true => txq.pass(root.index, batch, cx, drops),
        false => txq.transmit(root.index, batch, cx, drops),
    };
    direct.packets = 0;
    let core = &mut *direct.core;
    core.counters.sent += sent.packets;
    core.counters.sent_bytes += sent.bytes;
    match defers {
        Some(priority) if sent.packets == n => {
            let more = txq.reap_or_defer(root.index, cx);
            core.grant_permit(more, priority, cx);
            Verdict::Success
        }
        _ if sent.packets == n => {
            txq.reap_or_leave(root.index, cx);
            Verdict::Success
        }
        _ if sent.packets == 0 => refused_directly(core, root, txq, batch, cx),
        _ => {
            let _ = refused_directly(core, root, txq, batch, cx);
            Verdict::Congested
        }
    }
}

/// Drops what the driver has refused, where there is no queue.
#[cold]
fn refused_directly<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: &TxQueue<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    core.end_permit();
    core.drop_all(batch, DropReason::FullRing, cx);
    if txq.stopped() {
        // Until the txq is woken (`NoQueue::note_wake`).
        root.fill.note_full(0);
    }
    txq.reap_or_leave(root.index, cx);
    Verdict::Drop
}
