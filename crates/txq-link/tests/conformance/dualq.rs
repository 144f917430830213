//! The coupled dual queue of RFC 9332, appendix A, and with faults.

use txq_link::Instant;
use txq_link::conformance::{DualQ as Params, Ecn, Queue, TestPacket, rfc9332};

use super::codel::Fifo;
use super::fails;

const TARGET: u64 = 15_000_000;
const TUPDATE: u64 = 16_000_000;
const STEP: u64 = 1_000_000;
const K: f64 = 2.0;
const LIMIT: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The L queue marks by its step alone.
    NoCoupling,
    /// The C queue drops with p', not with its square.
    Linear,
    /// Twice the coupling.
    MarksTooMuch,
    /// ECT(0) joins the L queue.
    Ect0InL,
    /// CE joins the C queue.
    CeInC,
    /// The L queue goes first, always.
    StrictPriority,
    /// One queue for all.
    OneQueue,
    /// The L queue marks by the coupling alone.
    NoStep,
    /// The L queue marks from a third of the step on.
    LowStep,
    /// The C queue drops ECN-capable packets, too.
    DropsEct0,
    /// An overload marks, and drops nothing.
    MarksOnly,
}

struct DualQ {
    fault: Fault,
    c: Fifo,
    l: Fifo,
    /// The probability p', the last delay, and the time of the next update.
    base: f64,
    before: u64,
    update: u64,
    /// L packets served in a row while C packets waited.
    turns: u32,
    random: u64,
}

impl DualQ {
    fn of(fault: Fault) -> Self {
        let (c, l) = (Fifo::default(), Fifo::default());
        Self { fault, c, l, base: 0.0, before: 0, update: TUPDATE, turns: 0, random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Returns true with a probability.
    fn happens(&mut self, probability: f64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    fn pass_time(&mut self, now: u64) {
        while now >= self.update {
            self.update += TUPDATE;
            let oldest = self.c.packets.front().into_iter().chain(self.l.packets.front());
            let delay = now - oldest.map(|&(at, _)| at).min().unwrap_or(now);
            let distance = 0.16 * (delay as f64 - TARGET as f64);
            let change = 3.2 * (delay as f64 - self.before as f64);
            self.base = (self.base + (distance + change) / 1e9).clamp(0.0, 1.0);
            self.before = delay;
        }
    }

    /// Marks or drops a packet of the L queue.
    fn scalable(&mut self, waited: u64, packet: &mut TestPacket) -> bool {
        let coupled = match self.fault {
            Fault::NoCoupling => 0.0,
            Fault::MarksTooMuch => 2.0 * K * self.base,
            _ => K * self.base,
        };
        if self.base >= 1.0 / K && self.fault != Fault::MarksOnly {
            if self.happens(self.base * self.base) {
                return false;
            }
            packet.ecn = Ecn::Ce;
            return true;
        }
        let over = match self.fault {
            Fault::NoStep => false,
            Fault::LowStep => waited > STEP / 3,
            _ => waited > STEP,
        };
        if over || self.happens(coupled) {
            packet.ecn = Ecn::Ce;
        }
        true
    }

    /// Marks or drops a packet of the C queue.
    fn classic(&mut self, packet: &mut TestPacket) -> bool {
        let probability = if self.fault == Fault::Linear { self.base } else { self.base * self.base };
        if self.happens(probability) {
            let overload = self.base >= 1.0 / K && self.fault != Fault::MarksOnly;
            if packet.ecn == Ecn::NotEct || overload || self.fault == Fault::DropsEct0 {
                return false;
            }
            packet.ecn = Ecn::Ce;
        }
        true
    }
}

impl Queue for DualQ {
    fn enqueue(&mut self, now: Instant, packet: TestPacket) {
        let now = now.as_nanos();
        self.pass_time(now);
        if self.c.packets.len() + self.l.packets.len() >= LIMIT {
            return;
        }
        let is_scalable = match packet.ecn {
            Ecn::Ect1 => true,
            Ecn::Ce => self.fault != Fault::CeInC,
            Ecn::Ect0 => self.fault == Fault::Ect0InL,
            Ecn::NotEct => false,
        };
        match is_scalable && self.fault != Fault::OneQueue {
            true => self.l.push(now, packet),
            false => self.c.push(now, packet),
        }
    }

    fn dequeue(&mut self, now: Instant) -> Option<TestPacket> {
        let now = now.as_nanos();
        self.pass_time(now);
        loop {
            let is_due = self.turns >= 15 && self.fault != Fault::StrictPriority;
            let takes_l = !self.l.packets.is_empty() && (self.c.packets.is_empty() || !is_due);
            self.turns = if takes_l && !self.c.packets.is_empty() { self.turns + 1 } else { 0 };
            let (at, mut packet) = if takes_l { self.l.pop() } else { self.c.pop() }?;
            let stays = match takes_l || matches!(packet.ecn, Ecn::Ect1) {
                true => self.scalable(now - at, &mut packet),
                false => self.classic(&mut packet),
            };
            if stays {
                return Some(packet);
            }
        }
    }
}

/// Each fault fails the cases that it concerns, and no other.
#[test]
fn faults_of_a_dual_queue_are_found() {
    for (fault, expected) in [
        (Fault::None, &[][..]),
        (Fault::NoCoupling, &["coupling", "square", "classic ecn"]),
        (Fault::Linear, &["coupling", "square", "classic ecn"]),
        (Fault::MarksTooMuch, &["square", "classic ecn"]),
        (Fault::Ect0InL, &["classifier", "classic ecn"]),
        (Fault::CeInC, &["classifier"]),
        (Fault::StrictPriority, &["starvation"]),
        (Fault::OneQueue, &["classifier", "priority", "coupling", "square", "classic ecn", "latency of L"]),
        (Fault::NoStep, &["step"]),
        (Fault::LowStep, &["below step"]),
        (Fault::DropsEct0, &["classic ecn"]),
        (Fault::MarksOnly, &["overload of L", "overload of C"]),
    ] {
        let report = rfc9332(&Params::default(), || DualQ::of(fault));
        fails(&format!("{fault:?}"), &report, expected);
    }
}
