//! CoDel's control law (RFC 8289): which packets a queue drops so that the others do not wait too long.
//!
//! What matters is the shortest time that a packet has waited within the last `interval`: a queue that empties now and
//! then is good however long it gets meanwhile. Once every packet of an `interval` has waited for `target` or longer the
//! queue is in dropping state: it drops one, the next after `interval/sqrt(2)`, then after `interval/sqrt(3)`, and so
//! on, until a packet has waited less or there is no more than one packet's worth of bytes left. A queue that comes
//! back to that state soon goes on with the rate that has helped before.
//!
//! The root is exact. Linux keeps an approximation in 16 bits that follows with one step of Newton's method for each drop,
//! which makes its second gap half an interval instead of 0.71 of one. Times have 64 bits here, so they never wrap.

use crate::arch::{Arch, Nanos};
use crate::flow::dissect;
use crate::packet::{Packet, PacketList};
use crate::qdisc::ecn::set_ce;

/// What the law has to keep to.
#[derive(Debug, Clone, Copy)]
pub(in crate::qdisc) struct Goal {
    /// The time that a packet may wait.
    pub(in crate::qdisc) target: Nanos,
    /// How long packets may wait for longer.
    pub(in crate::qdisc) interval: Nanos,
    /// As many bytes may always wait: the longest packet.
    pub(in crate::qdisc) mtu: u32,
    /// Marks packets that can be marked instead of dropping them.
    pub(in crate::qdisc) ecn: bool,
    /// Packets that have waited for longer are marked in any case.
    pub(in crate::qdisc) ce_threshold: Option<Nanos>,
    /// Only those are whose DS field, under the mask (the second), is the first.
    pub(in crate::qdisc) selector: (u8, u8),
}

/// What the law is applied to.
pub(in crate::qdisc) trait Queue<A: Arch> {
    /// Takes the first packet.
    fn pop(&mut self) -> Option<Packet<A>>;
    /// Bytes that are left.
    fn bytes(&self) -> u64;
    /// Drops a packet that was taken.
    fn drop(&mut self, packet: Packet<A>);
}

/// A queue that nothing else keeps count of, while the law is applied to it.
pub(in crate::qdisc) struct Head<'a, A: Arch, D> {
    pub(in crate::qdisc) queue: &'a mut PacketList<A>,
    pub(in crate::qdisc) drop: D,
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

/// What the law counts, for one queue or for many together.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::qdisc) struct Counts {
    /// The longest packet so far, in bytes.
    pub(in crate::qdisc) maxpacket: u32,
    /// Packets marked instead of dropped.
    pub(in crate::qdisc) ecn_mark: u32,
    /// Packets marked because of `ce_threshold`.
    pub(in crate::qdisc) ce_mark: u32,
}

/// The state of one queue. The names are those of RFC 8289, section 5.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::qdisc) struct Law {
    /// When the queue may drop if no packet waits less until then; 0 while one does.
    pub(super) first_above: Nanos,
    pub(super) drop_next: Nanos,
    /// Packets dropped since dropping state was entered, or as if.
    pub(super) count: u32,
    pub(super) lastcount: u32,
    pub(super) dropping: bool,
    /// How long the last packet has waited.
    pub(in crate::qdisc) ldelay: Nanos,
}

impl Law {
    /// Drops in a row that the next gap goes by.
    pub(in crate::qdisc) fn count(&self) -> u32 {
        self.count
    }

    /// Takes the packet that is to be sent at `now`, and drops those that are not.
    #[inline]
    pub(in crate::qdisc) fn dequeue<A: Arch>(
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

    /// Enters dropping state with `packet`, and takes another if that was dropped.
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
        // The rate that controlled the queue when it was dropping last is a good one to start from, if that is not long ago.
        let delta = self.count.saturating_sub(self.lastcount);
        let recent = now.saturating_sub(self.drop_next) < goal.interval.saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.lastcount = self.count;
        self.drop_next = now.saturating_add(gap(goal.interval, self.count));
        packet
    }

    /// Drops all that should have been dropped by now.
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

    /// Takes a packet, and tells whether it may be dropped: whether packets have waited too long for an interval.
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

    /// Counts packets that were dropped from the queue for another reason: it is too long, so the law shall be stricter.
    #[inline]
    pub(in crate::qdisc) fn dropped(&mut self, packets: u32) {
        self.count = self.count.saturating_add(packets);
    }
}

/// The time between two drops, of which `count` have been: `interval / sqrt(count)`.
#[inline]
pub(in crate::qdisc) fn gap(interval: Nanos, count: u32) -> Nanos {
    (interval as f64 / f64::from(count.max(1)).sqrt()) as Nanos
}

/// Marks the packet and returns it, or drops it.
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

/// Whether `ce_threshold` is for this packet.
fn selected<A: Arch>(packet: &Packet<A>, (selector, mask): (u8, u8)) -> bool {
    mask == 0 || ds_field(packet).is_some_and(|ds| ds & mask == selector)
}

/// The DS field with its two bits of ECN, if it is an IP packet.
fn ds_field<A: Arch>(packet: &Packet<A>) -> Option<u8> {
    let found = dissect(packet.data());
    matches!(found.ethertype, 0x0800 | 0x86dd).then_some(found.tos)
}
