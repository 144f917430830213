//! Batches that bypass an empty queue.

use txq_core::arch::Arch;
use txq_core::packet::PacketList;

use super::Qdisc;

/// Lets a batch bypass an empty qdisc, as if its packets came one after another: each would find the qdisc empty and bypass
/// it. For kinds that count by no priority.
pub(super) fn bypass_one_by_one<A: Arch>(qdisc: &mut impl Qdisc<A>, batch: &PacketList<A>) -> bool {
    let may = qdisc.qlen() == 0 && qdisc.can_bypass();
    if may {
        qdisc.bypassed(batch.segs(), batch.bytes());
    }
    may
}
