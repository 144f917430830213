//! A batch by classes: packets that come in a row for one class go there together.

use crate::arch::Arch;
use crate::packet::{Packet, PacketList};

/// What is left of a batch.
pub(super) struct Runs<'b, A: Arch, K> {
    batch: &'b mut PacketList<A>,
    /// The packet that ended the last run, and its class.
    ahead: Option<(Packet<A>, K)>,
}

impl<'b, A: Arch, K: PartialEq> Runs<'b, A, K> {
    pub(super) fn new(batch: &'b mut PacketList<A>) -> Self {
        Self { batch, ahead: None }
    }

    /// Appends the next packets of one class to `run`, and tells the class. `classify` is asked once for each packet.
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
        while let Some(packet) = self.batch.pop_front() {
            let other = classify(&packet);
            if other != class {
                self.ahead = Some((packet, other));
                break;
            }
            run.push_back(packet);
        }
        Some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::testing::Virtual;

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
}
