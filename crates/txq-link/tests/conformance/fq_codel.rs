//! FQ-CoDel by RFC 8290, section 4, and with faults.

use std::collections::{BTreeMap, VecDeque};

use txq_link::Instant;
use txq_link::conformance::{FqCodel as Params, Queue, TestPacket, rfc8290};

use super::codel::{Fifo, Law};
use super::fails;

const QUANTUM: i64 = 1514;
const LIMIT: usize = 10_240;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// New flows join the old ones.
    NoNewFlows,
    /// The flow that came last goes first.
    Lifo,
    /// A new flow keeps its priority while it has packets.
    StrictPriority,
    /// A new flow that empties leaves the lists.
    Starves,
    /// A flow sends a packet in each round.
    CountsPackets,
    /// Beyond the limit, the flow with the most packets loses some.
    MostPackets,
    /// Beyond the limit, the flow loses packets from its tail.
    DropsTail,
    /// Beyond the limit, the packet that comes is dropped.
    DropsNewest,
    NoLimit,
    /// All flows share the state of CoDel.
    OneCodel,
}

#[derive(Default)]
struct Flow {
    queue: Fifo,
    law: Law,
    deficit: i64,
    is_listed: bool,
}

struct FqCodel {
    fault: Fault,
    flows: BTreeMap<u64, Flow>,
    new: VecDeque<u64>,
    old: VecDeque<u64>,
    /// The state for all flows.
    law: Law,
    packets: usize,
}

impl FqCodel {
    fn of(fault: Fault) -> Self {
        let (flows, new, old) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Self { fault, flows, new, old, law: Law::default(), packets: 0 }
    }

    /// Drops up to 64 packets of a flow, and up to half of its bytes.
    fn shed(&mut self) {
        let key = |flow: &&mut Flow| match self.fault {
            Fault::MostPackets => flow.queue.packets.len() as u64,
            _ => flow.queue.bytes,
        };
        let Some(flow) = self.flows.values_mut().max_by_key(key) else { return };
        let half = flow.queue.bytes / 2;
        for _ in 0..64 {
            if self.fault == Fault::DropsTail {
                flow.queue.packets.rotate_right(1);
            }
            flow.queue.pop();
            self.packets -= 1;
            if flow.queue.bytes <= half {
                return;
            }
        }
    }
}

impl Queue for FqCodel {
    fn enqueue(&mut self, now: Instant, packet: TestPacket) {
        let now = now.as_nanos();
        if self.fault == Fault::DropsNewest && self.packets == LIMIT {
            return;
        }
        let flow = self.flows.entry(packet.flow).or_default();
        flow.queue.push(now, packet);
        self.packets += 1;
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = QUANTUM;
            match self.fault {
                Fault::NoNewFlows => self.old.push_back(packet.flow),
                Fault::Lifo => self.new.push_front(packet.flow),
                _ => self.new.push_back(packet.flow),
            }
        }
        if self.packets > LIMIT && self.fault != Fault::NoLimit {
            self.shed();
        }
    }

    fn dequeue(&mut self, now: Instant) -> Option<TestPacket> {
        let now = now.as_nanos();
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let flow = self.flows.get_mut(&number)?;
            if flow.deficit <= 0 && !(is_new && self.fault == Fault::StrictPriority) {
                flow.deficit += QUANTUM;
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let before = flow.queue.packets.len();
            let law = if self.fault == Fault::OneCodel { &mut self.law } else { &mut flow.law };
            let packet = law.dequeue(&mut flow.queue, now);
            self.packets -= before - flow.queue.packets.len();
            if let Some(packet) = packet {
                flow.deficit -= if self.fault == Fault::CountsPackets { QUANTUM } else { packet.len.into() };
                return Some(packet);
            }
            list.pop_front();
            if is_new && self.fault != Fault::Starves {
                self.old.push_back(number);
            } else {
                flow.is_listed = false;
            }
        }
    }
}

/// Each fault fails the cases that it concerns, and no other.
#[test]
fn faults_of_fq_codel_are_found() {
    for (fault, expected) in [
        (Fault::None, &[][..]),
        (Fault::NoNewFlows, &["sparse flow"]),
        (Fault::Lifo, &["new order"]),
        (Fault::StrictPriority, &["sparse flow", "new order", "new quantum", "bytes"]),
        (Fault::Starves, &["no starvation"]),
        (Fault::CountsPackets, &["new quantum", "bytes"]),
        (Fault::MostPackets, &["fattest flow"]),
        (Fault::DropsTail, &["head drop"]),
        (Fault::DropsNewest, &["fattest flow", "head drop"]),
        (Fault::NoLimit, &["fattest flow", "head drop", "limit"]),
        (Fault::OneCodel, &["own codel"]),
    ] {
        let report = rfc8290(&Params::default(), || FqCodel::of(fault));
        fails(&format!("{fault:?}"), &report, expected);
    }
}
