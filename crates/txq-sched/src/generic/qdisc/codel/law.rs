//! CoDel's control law (RFC 8289): chooses the packets that a queue drops so that the others do not wait too long.
//!
//! The law uses the shortest delay within the last `interval`: a queue that empties now and then is good, however long
//! it grows in between. A queue enters dropping state once every packet of an `interval` has waited for `target` or longer.
//! There it drops one packet, the next after `interval`, then after `interval/sqrt(2)`, and so on. It leaves the
//! state when a packet has waited less than `target`, or when at most `mtu` bytes are left behind it. A queue that enters
//! the state again soon starts near the drop rate that worked before.
//!
//! Difference from Linux: the root is exact. Linux approximates it in 16 bits, with one step of Newton's method for each
//! drop, so the gap after its second drop is half an interval instead of 0.71 of one. Times have 64 bits here and never
//! wrap.

use txq_core::arch::{Arch, Nanos};
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::ecn::set_ce;

/// The parameters of the law.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Goal {
    /// The standing delay that a queue may have.
    pub(in crate::generic::qdisc) target: Nanos,
    /// How long the delay may exceed `target` before the first drop.
    pub(in crate::generic::qdisc) interval: Nanos,
    /// The law drops no packet with this many bytes or less behind it: the device's longest packet, 0 in cake.
    pub(in crate::generic::qdisc) mtu: u32,
    /// Marks ECN-capable packets instead of dropping them.
    pub(in crate::generic::qdisc) ecn: bool,
    /// Marks ECN-capable packets that waited longer than this, whatever the law says.
    pub(in crate::generic::qdisc) ce_threshold: Option<Nanos>,
    /// `(value, mask)`: `ce_threshold` marks only packets with `DS field & mask == value`. A mask of 0 selects all packets.
    pub(in crate::generic::qdisc) selector: (u8, u8),
}

/// A queue, as the law uses it.
pub(in crate::generic::qdisc) trait Queue<A: Arch> {
    /// Takes and returns the first packet.
    fn pop(&mut self) -> Option<Packet<A>>;
    /// Returns the number of bytes left in the queue.
    fn bytes(&self) -> u64;
    /// Drops a packet that [`pop`](Queue::pop) returned.
    fn drop(&mut self, packet: Packet<A>);
}

/// A plain packet list as a [`Queue`], with a closure that drops packets.
pub(in crate::generic::qdisc) struct Head<'a, A: Arch, D> {
    pub(in crate::generic::qdisc) queue: &'a mut PacketList<A>,
    pub(in crate::generic::qdisc) drop: D,
}

impl<A: Arch, D: FnMut(Packet<A>)> Queue<A> for Head<'_, A, D> {
    #[inline]
    fn pop(&mut self) -> Option<Packet<A>> {
        self.queue.pop_front()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn drop(&mut self, packet: Packet<A>) {
        (self.drop)(packet);
    }
}

/// The law's counters, for one queue or for several together.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::generic::qdisc) struct Counts {
    /// The longest packet so far, in bytes.
    pub(in crate::generic::qdisc) maxpacket: u32,
    /// Packets marked instead of dropped.
    pub(in crate::generic::qdisc) ecn_mark: u32,
    /// Packets marked because of `ce_threshold`.
    pub(in crate::generic::qdisc) ce_mark: u32,
}

/// The state of one queue. The names are those of RFC 8289, section 5.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::generic::qdisc) struct Law {
    /// Time from which the queue may drop, if no packet waits less than `target` before it; 0 after a packet that waited
    /// less.
    pub(super) first_above: Nanos,
    /// Time of the next drop, in dropping state; otherwise the time that was set last.
    pub(super) drop_next: Nanos,
    /// The number that sets the next gap, `interval / sqrt(count)`: drops since the queue entered dropping state, drops for
    /// the limit, and the head start that a recent dropping state gives.
    pub(super) count: u32,
    /// `count` when the queue entered dropping state.
    pub(super) lastcount: u32,
    /// Whether the queue is in dropping state.
    pub(super) dropping: bool,
    /// How long the packet taken last has waited.
    pub(in crate::generic::qdisc) ldelay: Nanos,
}

impl Law {
    /// Returns the number of drops that sets the next gap, `interval / sqrt(count)`.
    pub(in crate::generic::qdisc) fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether a dropping state that begins at `now` starts near the drop rate of the last one, which was recent.
    pub(in crate::generic::qdisc) fn remembers(&self, goal: &Goal, now: Nanos) -> bool {
        self.count.saturating_sub(self.lastcount) > 1
            && now.saturating_sub(self.drop_next) < goal.interval.saturating_mul(16)
    }

    /// Takes and returns the packet to send at `now`; drops or marks packets by the law on the way. Returns `None` when the
    /// queue is empty.
    #[inline]
    pub(in crate::generic::qdisc) fn dequeue<A: Arch>(
        &mut self,
        queue: &mut impl Queue<A>,
        goal: &Goal,
        now: Nanos,
        counts: &mut Counts,
    ) -> Option<Packet<A>> {
        let (mut packet, ok_to_drop) = self.take(queue, goal, now, counts);
        if self.dropping {
            self.dropping = ok_to_drop;
            if self.dropping && now >= self.drop_next {
                packet = self.go_on(packet, queue, goal, now, counts);
            }
        } else if ok_to_drop {
            packet = self.begin(packet, queue, goal, now, counts);
        }
        if goal.ce_threshold.is_some_and(|threshold| self.ldelay > threshold) {
            packet = packet.map(|mut packet| {
                if selected(&packet, goal.selector) && set_ce(&mut packet) {
                    counts.ce_mark = counts.ce_mark.wrapping_add(1);
                }
                packet
            });
        }
        packet
    }

    /// Enters dropping state: marks `packet` and returns it, or drops it and returns the next one.
    #[cold]
    fn begin<A: Arch>(
        &mut self,
        packet: Option<Packet<A>>,
        queue: &mut impl Queue<A>,
        goal: &Goal,
        now: Nanos,
        counts: &mut Counts,
    ) -> Option<Packet<A>> {
        let packet = match refuse(packet, queue, goal, counts) {
            None => self.take(queue, goal, now, counts).0,
            marked => marked,
        };
        self.dropping = true;
        // Starts from the rate that controlled the queue in the last dropping state, if its `drop_next` is less than 16
        // intervals ago.
        self.count = if self.remembers(goal, now) { self.count - self.lastcount } else { 1 };
        self.lastcount = self.count;
        self.drop_next = now.saturating_add(gap(goal.interval, self.count));
        packet
    }

    /// Drops a packet for each drop that was due by `now`, and returns the packet to send. A packet that can be marked is
    /// marked instead, and ends the loop.
    #[cold]
    fn go_on<A: Arch>(
        &mut self,
        mut packet: Option<Packet<A>>,
        queue: &mut impl Queue<A>,
        goal: &Goal,
        now: Nanos,
        counts: &mut Counts,
    ) -> Option<Packet<A>> {
        while self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            packet = refuse(packet, queue, goal, counts);
            let marked = packet.is_some();
            if !marked {
                (packet, self.dropping) = self.take(queue, goal, now, counts);
            }
            if self.dropping {
                self.drop_next = self.drop_next.saturating_add(gap(goal.interval, self.count));
            }
            if marked {
                break;
            }
        }
        packet
    }

    /// Takes a packet; returns it, and whether the law may drop it: whether packets have waited too long for an interval.
    #[inline]
    fn take<A: Arch>(
        &mut self,
        queue: &mut impl Queue<A>,
        goal: &Goal,
        now: Nanos,
        counts: &mut Counts,
    ) -> (Option<Packet<A>>, bool) {
        let Some(mut packet) = queue.pop() else {
            self.first_above = 0;
            return (None, false);
        };
        self.ldelay = now.saturating_sub(packet.take_queued());
        counts.maxpacket = counts.maxpacket.max(packet.len() as u32);
        let ok_to_drop = if self.ldelay < goal.target || queue.bytes() <= goal.mtu.into() {
            self.first_above = 0;
            false
        } else if self.first_above == 0 {
            self.first_above = now.saturating_add(goal.interval);
            false
        } else {
            now >= self.first_above
        };
        (Some(packet), ok_to_drop)
    }

    /// Counts packets that were dropped because the queue was too long. They raise the drop rate of the law.
    #[inline]
    pub(in crate::generic::qdisc) fn dropped(&mut self, packets: u32) {
        self.count = self.count.saturating_add(packets);
    }
}

/// Returns the time from drop number `count` to the next one: `interval / sqrt(count)`.
#[inline]
pub(in crate::generic::qdisc) fn gap(interval: Nanos, count: u32) -> Nanos {
    (interval as f64 / f64::from(count.max(1)).sqrt()) as Nanos
}

/// Marks the packet and returns it, or drops it and returns `None`.
fn refuse<A: Arch>(
    packet: Option<Packet<A>>,
    queue: &mut impl Queue<A>,
    goal: &Goal,
    counts: &mut Counts,
) -> Option<Packet<A>> {
    let mut packet = packet?;
    if goal.ecn && set_ce(&mut packet) {
        counts.ecn_mark = counts.ecn_mark.wrapping_add(1);
        return Some(packet);
    }
    queue.drop(packet);
    None
}

/// Returns whether `ce_threshold` applies to this packet.
fn selected<A: Arch>(packet: &Packet<A>, (selector, mask): (u8, u8)) -> bool {
    mask == 0 || ds_field(packet).is_some_and(|ds| ds & mask == selector)
}

/// Returns the DS field with the two ECN bits of an IP packet, and `None` for other packets.
fn ds_field<A: Arch>(packet: &Packet<A>) -> Option<u8> {
    let found = packet.dissect();
    matches!(found.ethertype, 0x0800 | 0x86dd).then_some(found.tos)
}
