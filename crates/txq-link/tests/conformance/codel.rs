//! CoDel by RFC 8289, section 5, and with faults.

use std::collections::VecDeque;

use txq_link::Instant;
use txq_link::conformance::{Codel as Params, Ecn, Queue, TestPacket, rfc8289};

use super::fails;

const TARGET: u64 = 5_000_000;
const INTERVAL: u64 = 100_000_000;
const MTU: u64 = 1500;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Drops without regard to the delay.
    IgnoresTarget,
    /// Drops at the first packet above TARGET.
    IgnoresInterval,
    /// The time between drops falls with their number.
    Linear,
    /// The time between drops does not fall.
    Constant,
    /// Drops the packet that comes.
    AtEnqueue,
    /// The dropping state never ends.
    Stays,
    /// Drops the last packets, too.
    IgnoresMtu,
    /// Starts each dropping state anew.
    Forgets,
    /// Resumes at the last rate whenever that was.
    Remembers,
    /// Drops packets that it could mark.
    MarksNothing,
    /// Marks a packet that is not ECN-capable, beside the one that it drops.
    MarksNotEct,
    /// Each 50th packet overtakes the one before it.
    Reorders,
}

/// Packets and the times at which they came.
#[derive(Default)]
pub(crate) struct Fifo {
    pub(crate) packets: VecDeque<(u64, TestPacket)>,
    pub(crate) bytes: u64,
}

impl Fifo {
    pub(crate) fn push(&mut self, now: u64, packet: TestPacket) {
        self.bytes += u64::from(packet.len);
        self.packets.push_back((now, packet));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, TestPacket)> {
        let popped = self.packets.pop_front()?;
        self.bytes -= u64::from(popped.1.len);
        Some(popped)
    }
}

/// The state of a queue. The names are those of the RFC.
pub(crate) struct Law {
    fault: Fault,
    first_above: u64,
    drop_next: u64,
    count: u64,
    lastcount: u64,
    dropping: bool,
}

impl Default for Law {
    fn default() -> Self {
        Self { fault: Fault::None, first_above: 0, drop_next: 0, count: 0, lastcount: 0, dropping: false }
    }
}

impl Law {
    /// Returns whether a packet that waited so long may be dropped, with so many bytes behind it.
    fn may_drop(&mut self, now: u64, waited: u64, bytes: u64) -> bool {
        let is_good = waited < TARGET && self.fault != Fault::IgnoresTarget;
        if is_good || (bytes <= MTU && self.fault != Fault::IgnoresMtu) {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            let interval = if self.fault == Fault::IgnoresInterval { 0 } else { INTERVAL };
            self.first_above = now + interval;
        }
        now >= self.first_above
    }

    fn gap(&self) -> u64 {
        let count = self.count as f64;
        let root = match self.fault {
            Fault::Linear => count,
            Fault::Constant => 1.0,
            _ => count.sqrt(),
        };
        (INTERVAL as f64 / root) as u64
    }

    /// Returns whether the packet is dropped.
    fn drops(&mut self, now: u64, may_drop: bool) -> bool {
        if self.dropping {
            self.dropping = may_drop || self.fault == Fault::Stays;
            if !self.dropping || now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next += self.gap();
            return true;
        }
        if may_drop {
            self.dropping = true;
            let is_recent = now - self.drop_next.min(now) < 16 * INTERVAL;
            let resumes = match self.fault {
                Fault::Forgets => false,
                Fault::Remembers => true,
                _ => is_recent,
            };
            let delta = self.count - self.lastcount;
            self.count = if delta > 1 && resumes { delta } else { 1 };
            self.lastcount = self.count;
            self.drop_next = now + self.gap();
        }
        may_drop
    }

    pub(crate) fn dequeue(&mut self, queue: &mut Fifo, now: u64) -> Option<TestPacket> {
        let mut dropped = false;
        loop {
            let Some((at, mut packet)) = queue.pop() else {
                self.first_above = 0;
                self.dropping = false;
                return None;
            };
            let may_drop = self.may_drop(now, now - at, queue.bytes);
            if self.fault == Fault::AtEnqueue || !self.drops(now, may_drop) {
                if dropped && self.fault == Fault::MarksNotEct {
                    packet.ecn = Ecn::Ce;
                }
                return Some(packet);
            }
            if packet.ecn != Ecn::NotEct && self.fault != Fault::MarksNothing {
                packet.ecn = Ecn::Ce;
                return Some(packet);
            }
            dropped = true;
        }
    }
}

struct Codel {
    law: Law,
    queue: Fifo,
}

impl Queue for Codel {
    fn enqueue(&mut self, now: Instant, mut packet: TestPacket) {
        let now = now.as_nanos();
        if self.law.fault == Fault::AtEnqueue {
            let waited = self.queue.packets.front().map_or(0, |&(at, _)| now - at);
            let may_drop = self.law.may_drop(now, waited, self.queue.bytes);
            if self.law.drops(now, may_drop) {
                if packet.ecn == Ecn::NotEct {
                    return;
                }
                packet.ecn = Ecn::Ce;
            }
        }
        self.queue.push(now, packet);
        let last = self.queue.packets.len() - 1;
        if self.law.fault == Fault::Reorders && packet.number % 50 == 49 && last > 0 {
            self.queue.packets.swap(last - 1, last);
        }
    }

    fn dequeue(&mut self, now: Instant) -> Option<TestPacket> {
        let now = now.as_nanos();
        self.law.dequeue(&mut self.queue, now)
    }
}

/// Each fault fails the cases that it concerns, and no other.
#[test]
fn faults_of_codel_are_found() {
    for (fault, expected) in [
        (Fault::None, &[][..]),
        (Fault::IgnoresTarget, &["below target", "first interval", "leaves", "restart"]),
        (Fault::IgnoresInterval, &["first interval", "leaves"]),
        (Fault::Linear, &["schedule", "resume", "ecn"]),
        (Fault::Constant, &["schedule", "resume", "ecn"]),
        (Fault::AtEnqueue, &["schedule", "at dequeue", "ecn"]),
        (Fault::Stays, &["leaves", "restart"]),
        (Fault::IgnoresMtu, &["last mtu"]),
        (Fault::Forgets, &["resume"]),
        (Fault::Remembers, &["restart"]),
        (Fault::MarksNothing, &["ecn"]),
        (Fault::MarksNotEct, &["packets"]),
        (Fault::Reorders, &["packets"]),
    ] {
        let build = || Codel { law: Law { fault, ..Law::default() }, queue: Fifo::default() };
        let report = rfc8289(&Params::default(), build);
        fails(&format!("{fault:?}"), &report, expected);
    }
}
