//! A qdisc in virtual time, for the tests of kinds that hold packets back and of trees.

use super::*;
use crate::pool::{Backing, Cache, Pool, PoolConfig};

/// What a device of the usual size tells a qdisc.
pub(super) const ENV: Env = Env { tx_queue_len: 1000, mtu: 1514, txqs: 1 };

/// A qdisc that nobody sends from but the test, at times that the test chooses.
pub(super) struct Virtual {
    pub(super) qdisc: Box<dyn Qdisc>,
    cache: Cache,
    pub(super) now: Nanos,
    to_free: PacketList,
    /// By reason.
    pub(super) drops: DropCounts,
    numbers: u64,
}

impl Virtual {
    pub(super) fn new(text: &str) -> Self {
        Self::with_pool(text, 8192, 2048)
    }

    /// With so many packets, of so many bytes at the most.
    pub(super) fn with_pool(text: &str, buffers: u32, room: usize) -> Self {
        let config = PoolConfig { buffers, room, backing: Backing::Heap, ..PoolConfig::default() };
        let cache = Pool::new(&config).unwrap().cache("test", 0);
        let mut qdisc: Box<dyn Qdisc> = build_qdisc(text, &ENV);
        qdisc.set_handle(Handle::new(1, 0));
        let (to_free, drops) = (PacketList::new(), DropCounts::default());
        Self { qdisc, cache, now: 1_000_000_000, to_free, drops, numbers: 0 }
    }

    pub(super) fn with<R>(&mut self, f: impl FnOnce(&mut dyn Qdisc, &mut Cx<'_>) -> R) -> R {
        let mut clock = Clock::at(self.now);
        let mut cx = Cx { clock: &mut clock, to_free: &mut self.to_free, drops: &mut self.drops };
        let result = f(&mut *self.qdisc, &mut cx);
        self.cache.free(&mut self.to_free);
        result
    }

    /// A packet that knows its number; they are counted from 0.
    pub(super) fn packet(&mut self, bytes: usize, priority: u32) -> Packet {
        let mut packet = self.cache.alloc(bytes).expect("the pool is large enough");
        packet.set_priority(priority);
        packet.set_cookie(self.numbers);
        self.numbers += 1;
        packet
    }

    pub(super) fn enqueue(&mut self, bytes: usize, priority: u32) -> Verdict {
        let packet = self.packet(bytes, priority);
        self.with(|qdisc, cx| qdisc.enqueue(packet, cx))
    }

    /// Numbers and bytes of what leaves now.
    pub(super) fn dequeue(&mut self, packets: usize) -> Vec<(u64, usize)> {
        let mut out = PacketList::new();
        self.with(|qdisc, cx| qdisc.dequeue_batch(Budget::packets(packets), &mut out, cx));
        let left = out.iter().map(|packet| (packet.cookie(), packet.len())).collect();
        self.cache.free(&mut out);
        left
    }

    /// Bytes that leave until `end`, by whoever comes when the qdisc says.
    pub(super) fn bytes_until(&mut self, end: Nanos) -> u64 {
        let mut bytes = 0;
        while self.now < end {
            let left = self.dequeue(64);
            bytes += left.iter().map(|&(_, bytes)| bytes as u64).sum::<u64>();
            if left.is_empty() {
                let Some(next) = self.qdisc.next_event() else { return bytes };
                assert!(next > self.now, "it would be asked for ever");
                self.now = next;
            }
        }
        bytes
    }

    pub(super) fn change(&mut self, text: &str) -> Result<(), ParseError> {
        self.with(|qdisc, cx| qdisc.change(&mut Words::split(text), &ENV, cx))
    }

    /// Puts a qdisc below the one that has a handle. False where that has no such class.
    pub(super) fn attach(&mut self, parent: Handle, handle: Handle, text: &str) -> bool {
        self.with(|qdisc, cx| {
            let done =
                child::find(qdisc, Handle::new(1, 0), Handle::new(parent.major(), 0), &mut |parent_qdisc| {
                    let Some(classes) = parent_qdisc.classes() else { return false };
                    let Some(minor) = classes.find(parent.minor()) else { return false };
                    let mut new: Box<dyn Qdisc> = build_qdisc(text, &ENV);
                    new.set_handle(handle);
                    let (leaf, total) = classes.leaf(minor).expect("a leaf");
                    leaf.replace(new, handle, total, cx);
                    classes.leaf_changed(minor);
                    true
                });
            done == Some(true)
        })
    }
}
