//! [`CoreAccess`]: the access to a queue's core, which each enqueue discipline provides.

use txq_core::arch::Arch;
use txq_core::packet::PacketList;
use txq_core::stats::contention::Lock;
use txq_core::sync::contention::Recorded;
use txq_sched::generic::qdisc::Verdict;

use super::{Core, Ctx, Root};

/// How threads reach one queue's core: an enqueue discipline, or the entrance of noqueue.
pub(crate) trait CoreAccess<A: Arch>: Send + Sync {
    /// Hands `batch` to the qdisc, or queues it for the current owner. The batch is empty afterwards.
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict;

    /// Runs the queue: the worker's turn.
    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>);

    /// Waits until the core has no owner, and calls `f` with the core and with whether packets wait for an owner. Returns
    /// false if a worker must run the queue afterwards.
    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool;

    /// Whether an owner releases the core while it is in the driver, so that the txq's locks guard the driver.
    fn needs_tx_lock(&self) -> bool {
        false
    }

    /// As [`with_core`](CoreAccess::with_core), but returns `None` without waiting if the core has an owner. For senders:
    /// a thread that is preempted may never see a busy queue without an owner.
    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool>;

    /// Makes the current or next owner check again for packets to send. Returns whether one will, so that it sees what the
    /// caller has stored before; if not, the caller schedules a worker.
    fn try_notify_owner(&self) -> bool {
        false
    }

    /// Whether the list in front of the qdisc has more than `long` packets ([`Root::is_behind`](super::Root::is_behind)). While
    /// this is true the queue has an owner, or its worker is scheduled.
    fn is_behind(&self, _long: u32) -> bool {
        false
    }

    /// Calls `f` with each lock of the discipline, for its record. A thread that takes a lock through `f` is no owner and
    /// does not see what others leave for one: [`with_core`](CoreAccess::with_core) the queue afterwards.
    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded));

    /// Names its lines ([`Arch::name`]).
    fn name_lines(&self);
}
