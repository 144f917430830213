//! Splits a batch into runs: consecutive packets of one class are enqueued together.

use std::mem;

use txq_core::arch::Arch;
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::{Cx, Total, Verdict};

/// A batch that is split into runs.
pub(super) struct Runs<'b, A: Arch, K> {
    /// The packets that are not classified yet.
    batch: &'b mut PacketList<A>,
    /// The packet that ended the last run, and its class.
    ahead: Option<(Packet<A>, K)>,
}

impl<'b, A: Arch, K: PartialEq> Runs<'b, A, K> {
    pub(super) fn new(batch: &'b mut PacketList<A>) -> Self {
        Self { batch, ahead: None }
    }

    /// Appends the next run to `run` and returns its class; `None` at the end of the batch. Calls `classify` once for each
    /// packet.
    pub(super) fn next(
        &mut self,
        run: &mut PacketList<A>,
        mut classify: impl FnMut(&Packet<A>) -> K,
    ) -> Option<K> {
        let (first, class) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => {
                let first = self.batch.pop_front()?;
                let class = classify(&first);
                (first, class)
            }
        };
        run.push_back(first);
        let unfinished = Unfinished { batch: &mut *self.batch, run };
        while let Some(packet) = unfinished.batch.pop_front() {
            let other = classify(&packet);
            if other != class {
                self.ahead = Some((packet, other));
                break;
            }
            unfinished.run.push_back(packet);
        }
        mem::forget(unfinished);
        Some(class)
    }

    /// Puts the rest of a run back where it was, in front of all packets still to come.
    pub(super) fn give_back(self, run: &mut PacketList<A>) {
        run.extend(self.ahead.map(|(packet, _)| packet));
        self.batch.prepend(run);
    }
}

/// A run that is being gathered. If `classify` panics, the packet that it was called with is dropped; the others return to
/// the batch, whose owner keeps them.
struct Unfinished<'r, A: Arch> {
    batch: &'r mut PacketList<A>,
    run: &'r mut PacketList<A>,
}

impl<A: Arch> Drop for Unfinished<'_, A> {
    fn drop(&mut self) {
        self.batch.prepend(self.run);
    }
}

/// Drops a packet that a filter of the qdisc drops, and counts it.
pub(super) fn refuse<A: Arch>(packet: Packet<A>, total: &mut Total, cx: &mut Cx<'_, A>) -> Verdict {
    total.drops += 1;
    cx.drop(packet, DropReason::QdiscDrop);
    Verdict::Drop
}

/// Drops the packets of a run.
#[cold]
pub(super) fn refuse_all<A: Arch>(run: &mut PacketList<A>, total: &mut Total, cx: &mut Cx<'_, A>) {
    while let Some(packet) = run.pop_front() {
        let _ = refuse(packet, total, cx);
    }
}

/// Enqueues a batch in a qdisc with classes. Calls `put` with each run that has a class, and `refuse` with each packet that
/// has no class or that `put` has left. As soon as a copy waits to be queued, the rest stays in the batch.
pub(super) fn enqueue<A: Arch, Q, C: PartialEq>(
    qdisc: &mut Q,
    batch: &mut PacketList<A>,
    cx: &mut Cx<'_, A>,
    classify: impl Fn(&mut Q, &Packet<A>, &mut Clock<A>) -> Option<C>,
    put: impl Fn(&mut Q, C, &mut PacketList<A>, &mut Cx<'_, A>),
    refuse: impl Fn(&mut Q, Packet<A>, &mut Cx<'_, A>) -> Verdict,
) {
    let (mut runs, mut run) = (Runs::new(batch), PacketList::new());
    while let Some(class) = runs.next(&mut run, |packet| classify(qdisc, packet, cx.clock)) {
        if let Some(id) = class {
            put(qdisc, id, &mut run, cx);
        }
        if cx.has_copies() {
            return runs.give_back(&mut run);
        }
        while let Some(packet) = run.pop_front() {
            let _ = refuse(qdisc, packet, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generic::qdisc::testing::Virtual;

    #[test]
    fn each_packet_is_classified_once() {
        let mut bench = Virtual::new("pfifo");
        for classes in ["", "a", "aaa", "ab", "aabbba", "abab", "abbbbbc"] {
            let mut batch: PacketList = PacketList::new();
            classes.bytes().for_each(|class| batch.push_back(bench.packet(64, class.into())));
            let (mut runs, mut run) = (Runs::new(&mut batch), PacketList::new());
            let (mut asked, mut seen) = (0, String::new());
            let mut last = None;
            while let Some(class) = runs.next(&mut run, |packet| {
                asked += 1;
                packet.priority()
            }) {
                assert_ne!(last.replace(class), Some(class), "{classes}: one run, and not two");
                while let Some(packet) = run.pop_front() {
                    assert_eq!(packet.priority(), class, "{classes}");
                    seen.push(class as u8 as char);
                }
            }
            assert_eq!((seen.as_str(), asked), (classes, classes.len()));
        }
    }

    /// A class takes one packet at a time, and the rest of its run is given back.
    #[test]
    fn what_is_given_back_is_in_its_place() {
        let mut bench = Virtual::new("pfifo");
        for classes in ["a", "aaa", "ab", "aabbba", "abab", "abbbbbc"] {
            let mut batch: PacketList = PacketList::new();
            classes.bytes().for_each(|class| batch.push_back(bench.packet(64, class.into())));
            let cookies: Vec<_> = batch.iter().map(|packet| packet.cookie()).collect();
            let mut seen = Vec::new();
            while !batch.is_empty() {
                let (left, bytes) = (batch.len(), batch.bytes());
                let (mut runs, mut run) = (Runs::new(&mut batch), PacketList::new());
                runs.next(&mut run, |packet| packet.priority());
                seen.extend(run.pop_front().map(|packet| packet.cookie()));
                runs.give_back(&mut run);
                assert!(run.is_empty());
                assert_eq!((batch.len(), batch.bytes()), (left - 1, bytes - 64), "{classes}");
            }
            assert_eq!(seen, cookies, "{classes}");
        }
    }
}
