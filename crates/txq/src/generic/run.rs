//! Running a queue: its one owner dequeues in bulk and feeds the driver (`__qdisc_run`, `sch_direct_xmit`).
//!
//! A queue's state is its [`Core`], which one thread at a time owns. The enqueue discipline decides which thread that is;
//! this file knows it as an [`Owner`], which may release the core while the driver works.
//!
//! ```text
//! sender      Sender::xmit_batch                  chooses the txq
//!             Sender::enter, Shared::submit       chooses the queue (Root) of that txq
//! discipline  CoreAccess::submit                  becomes the owner; or queues the batch for the owner and returns
//! owner       bypass                              nothing queued and no tx lock needed: TxQueue::pass, no turn
//!               through                           as bypass, where the qdisc must see the packets
//! owner       turn                                otherwise: loops until its quota or its time is used up
//!               Owner::gather                     takes its own packets and those that senders queued for it
//!               admit
//! qdisc           Qdisc::enqueue, enqueue_batch   queues the packets, or drops them with a reason
//!               run                               loops while packets are queued and the txq takes them
//!                 Core::dequeue                   checks that the txq is open and how much it takes (TxQueue::budget)
//! qdisc             Qdisc::dequeue_batch
//!                 run_batch, Owner::drive         calls the driver, with the core released or kept
//! driver            TxQueue::transmit             Transmit::start_xmit; stops the txq if it is full
//! completion        TxQueue::reap_or_leave        Complete::poll, frees the buffers; or schedules the worker to reap
//! owner           Core::returned                  counts the batch; requeues the packets that the driver refused
//!               Owner::leave                      frees the core; or, if packets wait for this owner, the turn loops
//!             Fill::wake                          wakes a sender that waits for room
//! worker      Shared::hand_over                   if packets are left: Worker::poll, CoreAccess::run, turn
//! ```
//!
//! A turn ends for one of these reasons. The right column says what runs the queue again:
//!
//! | end of the turn | next run |
//! |---|---|
//! | no packet is queued | the next [`CoreAccess::submit`](crate::generic::datapath::CoreAccess::submit) |
//! | the qdisc holds its packets back | the timer that `Core::dequeue` sets (`Shared::run_at`) |
//! | the txq is stopped | a completion: `TxQueue::wake`, `Shared::schedule` |
//! | the driver refuses packets | a timer (`Shared::retry`), the txq's wake, or the worker at once |
//! | another thread is in the driver for this queue | that thread, when the driver returns |
//! | the quota or the time is used up | the worker (`Shared::hand_over`) |

use txq_core::arch::{Arch, Memory};
use txq_core::drop::DropCounts;
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::{Core, Ctx, Errand, Gate, QUOTA, Root};
use crate::generic::trace::EventKind;
use crate::generic::transfer::Transmitted;
use crate::generic::tuning::OWNERS_TURN;

mod bypass;
mod dequeue;
mod direct;
mod enqueue;
mod relay;
mod through;
mod unwind;

pub(crate) use bypass::{Bypass, bypass};
pub(crate) use direct::run_noqueue;
pub(crate) use relay::forward;
use unwind::InDriver;

/// The thread that owns a [`Core`]. The defaults fit an owner for which no sender queues packets.
pub(crate) trait Owner<A: Arch> {
    /// Returns the core.
    fn core(&mut self) -> &mut Core<A>;

    /// Moves about `packets` waiting packets to `chunk`, the oldest first: `own`, the owner's own packets, and those that
    /// senders queued for the owner. Returns the number of batches.
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

    /// Calls `f`, which calls the driver, with the core released or kept, as the discipline decides. The caller owns the core
    /// again afterwards; other threads may have owned it meanwhile.
    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) {
        f(driven);
    }

    /// Whether packets wait for the owner.
    #[inline]
    fn waits(&mut self) -> bool {
        false
    }

    /// Frees the core; returns whether no packets wait for an owner. If some do and `tired` is false, the caller keeps the
    /// core. If `tired` is true, the turn is used up: this frees the core anyway, and the caller schedules the worker.
    #[inline]
    fn leave(&mut self, _tired: bool) -> bool {
        true
    }
}

/// A batch given to the driver, and the result.
pub(crate) struct Driven<A: Arch> {
    /// The packets to send; after the call, those that the driver refused.
    batch: PacketList<A>,
    txq: u16,
    /// Number of packets given to the driver.
    packets: u64,
    /// `Core::purges` when the batch left the queue.
    purges: u32,
    /// Whether the batch bypasses the qdisc, which is empty.
    pub(crate) bypassed: bool,
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
            bypassed: false,
            back: false,
            sent,
            drops: DropCounts::default(),
        }
    }

    /// Whether the driver, which has returned, has refused no packet.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.batch.is_empty()
    }
}

/// Gives a batch to the qdisc, or sends a lone packet past an empty qdisc that allows that. Returns the qdisc's verdict and
/// how the turn goes on; on [`Going::On`] the owner runs the queue next.
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
    cx.trace(EventKind::QdiscEnqueue, root, batch);
    if let Some(txq) = core.bypass(root, batch, cx) {
        let mut driven = Driven::new();
        driven.txq = txq;
        driven.bypassed = true;
        driven.batch.append(batch);
        return (Verdict::Success, run_batch(owner, root, &mut driven, cx));
    }
    (core.enqueue(root, batch, cx), Going::On)
}

/// Runs an owner's turn: enqueues waiting packets and sends dequeued ones, alternately and in portions of about equal size,
/// so that neither side starves the other. `own` holds the owner's own packets. Returns the qdisc's verdict on them if they
/// were enqueued alone, else success.
///
/// A turn is bounded in packets ([`QUOTA`], or `share` if the owner submits more than that) and in time ([`OWNERS_TURN`], from
/// the first [`Owner::leave`] that finds waiting packets: other turns read no clock), so that no sender works for others for
/// long. The worker sends the packets that are left.
#[inline]
pub(crate) fn turn<A: Arch, O: Owner<A>>(
    owner: O,
    root: &Root<A>,
    own: &mut PacketList<A>,
    share: usize,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    turn_here(owner, root, own, share, cx)
}

/// As [`turn`], inlined into the caller: an owner of more than two words is not copied while the stores to its fields are
/// still pending.
#[inline(always)]
pub(crate) fn turn_here<A: Arch, O: Owner<A>>(
    owner: O,
    root: &Root<A>,
    own: &mut PacketList<A>,
    share: usize,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    let mut owner = owner;
    A::touch(|| owner.core(), Memory::Queue);
    owner.core().end_permit();
    let mut quota = QUOTA.max(share);
    let mut verdict = None;
    let mut end = None;
    let quiet = loop {
        let mut chunk = PacketList::new();
        let batches = owner.gather(own, quota, &mut chunk, root, cx);
        let admitted = chunk.len();
        let before = quota;
        let mut going = Going::On;
        if admitted > 0 || owner.core().has_unadmitted() {
            let (admitted, then) = admit(&mut owner, root, &mut chunk, cx);
            verdict.get_or_insert(if batches == 1 { admitted } else { Verdict::Success });
            going = then;
        }
        if going == Going::On {
            going = run(&mut owner, root, &mut quota, cx);
        }
        if !owner.core().is_closed() {
            // Packets that were only enqueued, because none can be sent now, count too.
            quota = quota.min(before.saturating_sub(admitted));
        }
        let tired = quota == 0 || end.is_some_and(|end| A::now() >= end);
        let more = tired && going == Going::On && owner.core().qlen() > 0;
        if tired && (more || owner.waits()) {
            owner.core().note_hand_off();
        }
        let quiet = root.fill.word().is_quiet();
        if !quiet {
            root.fill.note_backlog(owner.core().qlen());
        }
        let left = !owner.leave(tired);
        if left && !tired {
            end.get_or_insert_with(|| A::now() + OWNERS_TURN);
            continue;
        }
        if left || more {
            cx.dev.hand_over(root.index);
        }
        break quiet;
    };
    let verdict = verdict.unwrap_or(Verdict::Success);
    drop(owner);
    if !quiet {
        // After the owner has left the queue: a wake may take a lock, and calls code of the program's own.
        root.fill.wake();
    }
    verdict
}

/// How a turn goes on after a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// More packets may be sent.
    On,
    /// No packet can be sent now: the queue is empty, or a wake, a timer or the thread in the driver runs it again.
    Blocked,
}

/// Sends queued packets within the quota, unless another thread is in the driver.
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
        match owner.core().gate {
            Gate::Hold => return Going::Blocked,
            Gate::Relay => {
                let going = relay::relay(owner, root, cx);
                if going != Going::On {
                    return going;
                }
                continue;
            }
            _ => {}
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

/// Gives a batch to the driver, with the core released or kept ([`Owner::drive`]), and requeues packets that it refuses.
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
    owner.drive(driven, |d| {
        d.sent = txq.transmit(root.index, &mut d.batch, cx, &mut d.drops);
        d.back = true;
        txq.reap_or_leave(root.index, cx);
    });
    A::touch(|| owner.core(), Memory::Queue);
    owner.core().returned(root, driven, cx)
}
