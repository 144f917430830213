//! Enqueues ahead of the driver. The owner's turn enqueues as many packets as it sends, so the rest waits in front of the
//! qdisc, where no priority overtakes. If the driver is slow, enqueueing costs next to nothing: the owner then enqueues
//! further portions first.

use txq_core::arch::{Arch, Nanos};
use txq_core::packet::PacketList;

use super::{Going, Owner, QUOTA, admit};
use crate::generic::datapath::{Ctx, Root};

/// Bound on the portions ahead.
const PORTIONS: u32 = 8;
/// Bound on the time for them, in nanoseconds.
const TIME: Nanos = 20_000;

/// Enqueues further portions of the waiting packets, if that takes a small part of the time in which they are sent. The owner
/// has just enqueued a whole portion.
#[cold]
pub(super) fn enqueue_ahead<A: Arch>(
    owner: &mut impl Owner<A>,
    own: &mut PacketList<A>,
    root: &Root<A>,
    cx: &mut Ctx<'_, A>,
) -> Going {
    let is_timed = owner.core().pace.is_due();
    if !(is_timed || owner.core().pace.is_cheap) || !owner.waits() {
        return Going::On;
    }
    let mut now = A::now();
    let end = now.saturating_add(TIME);
    for portion in 0..PORTIONS {
        let mut chunk = PacketList::new();
        owner.gather(own, QUOTA, &mut chunk, root, cx);
        let packets = chunk.len() as u64;
        if packets == 0 {
            break;
        }
        let (_, going) = admit(owner, root, &mut chunk, cx);
        if going != Going::On {
            return going;
        }
        let from = std::mem::replace(&mut now, A::now());
        let core = owner.core();
        if is_timed && portion == 0 {
            core.pace.note(packets, from, now, core.counters.sent);
        }
        if !core.pace.is_cheap || now >= end || !owner.waits() {
            break;
        }
    }
    Going::On
}
