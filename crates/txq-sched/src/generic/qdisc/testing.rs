//! A qdisc in virtual time, for the tests of trees and of kinds that hold packets back.

use std::cell::RefCell;
use std::collections::BTreeMap;

use txq_core::clock::Clock;
use txq_core::drop::DropCounts;
use txq_core::pool::{Backing, Cache, Pool, PoolConfig};

use super::copying::Copying;
use super::*;

/// The properties of a device of the usual size.
pub(crate) const ENV: Env =
    Env { tx_queue_len: 1000, mtu: 1514, txqs: 1, pacing_horizon: Duration::ZERO, seed: Some(1) };
/// The properties of a device with a short queue, whose limits are soon reached.
pub(crate) const SMALL: Env = Env { tx_queue_len: 20, txqs: 4, ..ENV };
pub(crate) const MS: Nanos = 1_000_000;

/// Builds the qdisc that a text describes, for a device.
pub(crate) fn try_build(text: &str, env: &Env) -> Result<Box<dyn Qdisc>, ParseError> {
    match build(text, env)? {
        (_, Built::Qdisc(qdisc)) => Ok(qdisc),
        _ => panic!("{text} holds no packets"),
    }
}

/// A qdisc, and what its calls need. Only the test sends from it, at times that the test chooses.
pub(crate) struct Stand {
    pub(crate) qdisc: Box<dyn Qdisc>,
    pub(crate) cache: Cache,
    pub(crate) now: Nanos,
    /// Packets that have been dropped.
    pub(crate) to_free: PacketList,
    /// Drops by reason.
    pub(crate) drops: DropCounts,
    /// Number of copies and parts that were made of packets.
    pub(crate) created: u64,
    /// Bytes of the copies.
    pub(crate) copied: u64,
    copies: PacketList,
    /// Number of packets so far, which is the next packet's number.
    pub(crate) numbers: u64,
    env: Env,
    /// The txqs that take no packets.
    pub(crate) stopped: Stopped,
    /// Dropped last, when the packets are home.
    _pool: StandPool,
}

/// Numbers of txqs that are stopped.
#[derive(Default)]
pub(crate) struct Stopped(pub(crate) Vec<u16>);

impl Txqs for Stopped {
    fn is_stopped(&self, txq: u16) -> bool {
        self.0.contains(&txq)
    }
}

thread_local! {
    /// Pools of this thread's former stands, by buffers and room.
    static SPARE: RefCell<BTreeMap<(u32, usize), Vec<Pool>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The pool of one stand at a time. The next stand of the thread gets the pool of a former one, unless packets are still out:
/// a test may build a stand for each of hundreds of cases, and a large pool has megabytes of descriptors to initialise.
struct StandPool {
    pool: Pool,
    size: (u32, usize),
}

impl StandPool {
    fn new(buffers: u32, room: usize) -> Self {
        let size = (buffers, room);
        let spare = SPARE.with_borrow_mut(|spare| spare.get_mut(&size).and_then(Vec::pop));
        let config = PoolConfig { buffers, room, backing: Backing::Heap, ..PoolConfig::default() };
        Self { pool: spare.unwrap_or_else(|| Pool::new(&config).unwrap()), size }
    }
}

impl Drop for StandPool {
    fn drop(&mut self) {
        if self.pool.in_use().values().all(|&packets| packets == 0) {
            // Fails when the thread ends.
            let _ = SPARE
                .try_with(|spare| spare.borrow_mut().entry(self.size).or_default().push(self.pool.clone()));
        }
    }
}

impl Stand {
    /// Returns a stand with so many buffers, of so many bytes.
    pub(crate) fn new(text: &str, env: Env, buffers: u32, room: usize) -> Self {
        let pool = StandPool::new(buffers, room);
        let cache = pool.pool.cache("test", 0);
        let (to_free, copies, drops) = (PacketList::new(), PacketList::new(), DropCounts::default());
        let qdisc = try_build(text, &env).unwrap();
        let (created, copied, numbers) = (0, 0, 0);
        Self {
            qdisc,
            cache,
            now: 1000 * MS,
            to_free,
            drops,
            created,
            copied,
            copies,
            numbers,
            env,
            stopped: Stopped::default(),
            _pool: pool,
        }
    }

    /// Calls `f` with the qdisc, then queues the copies that the call has left.
    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut dyn Qdisc, &mut Cx<'_>) -> R) -> R {
        let mut clock = Clock::at(self.now);
        let copying = Copying::new(&mut self.cache, &mut self.copies, &mut self.created);
        let mut cx = Cx::new(&mut clock, &mut self.to_free, &mut self.drops, copying);
        cx.set_txqs(&self.stopped);
        let result = f(&mut *self.qdisc, &mut cx);
        self.copied += cx.copied_bytes();
        cx.enqueue_copies(&mut *self.qdisc);
        result
    }

    /// Returns a packet of zeros whose cookie is its number, counted from 0.
    pub(crate) fn packet(&mut self, bytes: usize) -> Packet {
        let mut packet = self.cache.alloc(bytes).expect("the pool is large enough");
        packet.data_mut().fill(0);
        packet.set_cookie(self.numbers);
        self.numbers += 1;
        packet
    }

    pub(crate) fn push(&mut self, packet: Packet) -> Verdict {
        self.with(|qdisc, cx| qdisc.enqueue(packet, cx))
    }

    /// Dequeues the packets that may leave now, within a budget.
    pub(crate) fn take(&mut self, budget: Budget) -> PacketList {
        let mut out = PacketList::new();
        self.with(|qdisc, cx| qdisc.dequeue_batch(budget, &mut out, cx));
        out
    }

    pub(crate) fn change(&mut self, text: &str) -> Result<(), ParseError> {
        let env = self.env;
        self.with(|qdisc, cx| qdisc.change(&mut Words::split(text), &env, cx))
    }
}

/// Implements `Deref` and `DerefMut` to the stand that a type contains.
macro_rules! is_a_stand {
    ($bench:ident, $stand:tt) => {
        impl std::ops::Deref for $bench {
            type Target = $crate::generic::qdisc::testing::Stand;

            fn deref(&self) -> &Self::Target {
                &self.$stand
            }
        }

        impl std::ops::DerefMut for $bench {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.$stand
            }
        }
    };
}
pub(crate) use is_a_stand;

/// A stand whose packets return to the pool as soon as they are dropped.
pub(crate) struct Virtual {
    stand: Stand,
    /// Bytes that have been dropped.
    pub(crate) dropped: u64,
}

is_a_stand!(Virtual, stand);

impl Virtual {
    pub(crate) fn new(text: &str) -> Self {
        Self::with_room(text, 8192, 2048)
    }

    /// Returns one with so many buffers, of so many bytes.
    pub(crate) fn with_room(text: &str, buffers: u32, room: usize) -> Self {
        let mut stand = Stand::new(text, ENV, buffers, room);
        stand.qdisc.set_handle(Handle::new(1, 0));
        Self { stand, dropped: 0 }
    }

    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut dyn Qdisc, &mut Cx<'_>) -> R) -> R {
        let result = self.stand.with(f);
        self.dropped += self.to_free.bytes();
        let Stand { cache, to_free, .. } = &mut self.stand;
        cache.free(to_free);
        result
    }

    /// Returns a packet with a priority, whose cookie is its number.
    pub(crate) fn packet(&mut self, bytes: usize, priority: u32) -> Packet {
        let mut packet = self.stand.packet(bytes);
        packet.set_priority(priority);
        packet
    }

    /// Adds a filter to the qdisc or to a class of it: packets of so many bytes belong to the class `to`.
    pub(crate) fn filter(&mut self, class: u16, bytes: usize, to: Handle) {
        let choose = move |packet: &Packet| (packet.len() == bytes).then_some(to);
        self.with(|qdisc, _| {
            let filters = qdisc.filters(class).expect("filters");
            filters
                .add_closure(filters.info(None, Style::default()).len() as u16 + 1, Box::new(choose))
                .unwrap();
        });
    }

    pub(crate) fn enqueue(&mut self, bytes: usize, priority: u32) -> Verdict {
        let packet = self.packet(bytes, priority);
        self.with(|qdisc, cx| qdisc.enqueue(packet, cx))
    }

    /// Enqueues packets of these priorities as one batch, as the owner of a queue does.
    pub(crate) fn enqueue_batch(&mut self, bytes: usize, priorities: std::ops::Range<u32>) {
        let mut batch: PacketList = priorities.map(|priority| self.packet(bytes, priority)).collect();
        while !batch.is_empty() {
            self.with(|qdisc, cx| qdisc.enqueue_batch(&mut batch, cx));
        }
    }

    /// Dequeues up to so many packets; returns their numbers and lengths.
    pub(crate) fn dequeue(&mut self, packets: usize) -> Vec<(u64, usize)> {
        let mut out = PacketList::new();
        self.with(|qdisc, cx| qdisc.dequeue_batch(Budget::packets(packets), &mut out, cx));
        let left = out.iter().map(|packet| (packet.cookie(), packet.len())).collect();
        self.cache.free(&mut out);
        left
    }

    /// Returns the bytes that leave until `end`, while the time jumps from event to event of the qdisc.
    pub(crate) fn bytes_until(&mut self, end: Nanos) -> u64 {
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

    /// Adds a class directly below the qdisc.
    pub(crate) fn add_class(&mut self, minor: u16, text: &str) -> Result<(), ParseError> {
        let mut words = Words::split(text);
        self.with(|qdisc, cx| qdisc.classes().expect("classes").add(0, minor, &mut words, &ENV, cx))
    }

    /// Attaches a qdisc to the class `parent`. Returns false where there is no such class, or the class has no leaf.
    pub(crate) fn attach(&mut self, parent: Handle, handle: Handle, text: &str) -> bool {
        self.with(|qdisc, cx| {
            let done =
                child::find(qdisc, Handle::new(1, 0), Handle::new(parent.major(), 0), &mut |parent_qdisc| {
                    let Some(classes) = parent_qdisc.classes() else { return false };
                    let Some(minor) = classes.find(parent.minor()) else { return false };
                    let mut new: Box<dyn Qdisc> = build_qdisc(text, &ENV);
                    new.set_handle(handle);
                    let Some((leaf, total)) = classes.leaf(minor) else { return false };
                    leaf.replace(new, handle, total, cx);
                    classes.leaf_changed(minor);
                    true
                });
            done == Some(true)
        })
    }
}

/// The parts of one qdisc, or the children of a parent that makes them, each on a stand of its own, at one time.
pub(crate) struct Parts {
    stands: Vec<Virtual>,
    pub(crate) now: Nanos,
}

impl Parts {
    pub(crate) fn new(text: &str, txqs: u16) -> Self {
        Self::try_new(text, txqs).unwrap()
    }

    pub(crate) fn try_new(text: &str, txqs: u16) -> Result<Self, ParseError> {
        let parts = match build::<Native>(text, &Env { txqs, ..ENV })? {
            (_, Built::Parts(parts) | Built::Replicas(parts) | Built::Children(_, parts)) => parts,
            _ => panic!("{text} has no parts"),
        };
        let on_stand = |mut part: Box<dyn Qdisc>| {
            let mut stand = Virtual::with_room("pfifo", 512, 2048);
            part.set_handle(Handle::new(1, 0));
            stand.qdisc = part;
            stand
        };
        Ok(Self { stands: parts.into_iter().map(on_stand).collect(), now: 1000 * MS })
    }

    /// Returns a part, at the present time.
    pub(crate) fn at(&mut self, part: usize) -> &mut Virtual {
        let stand = &mut self.stands[part];
        stand.now = self.now;
        stand
    }

    pub(crate) fn enqueue(&mut self, part: usize, bytes: usize) -> Verdict {
        self.enqueue_to(part, bytes, 0)
    }

    pub(crate) fn enqueue_to(&mut self, part: usize, bytes: usize, priority: u32) -> Verdict {
        self.at(part).enqueue(bytes, priority)
    }

    /// Calls `f` with each part in turn, as a command on all does; returns the first result.
    pub(crate) fn on_all<R>(&mut self, mut f: impl FnMut(&mut Virtual) -> R) -> R {
        let mut done: Vec<_> = (0..self.stands.len()).map(|part| f(self.at(part))).collect();
        done.swap_remove(0)
    }

    /// Dequeues up to so many packets; returns their lengths.
    pub(crate) fn dequeue(&mut self, part: usize, packets: usize) -> Vec<usize> {
        self.dequeue_within(part, packets, u64::MAX)
    }

    /// The same, also within so many bytes.
    pub(crate) fn dequeue_within(&mut self, part: usize, packets: usize, bytes: u64) -> Vec<usize> {
        let stand = self.at(part);
        let mut out = PacketList::new();
        stand.with(|qdisc, cx| qdisc.dequeue_batch(Budget::new(packets, bytes), &mut out, cx));
        let lengths = out.iter().map(|packet| packet.len()).collect();
        stand.cache.free(&mut out);
        lengths
    }

    pub(crate) fn drop_all(&mut self, part: usize) {
        self.at(part).with(|qdisc, cx| qdisc.reset(cx));
    }

    pub(crate) fn change(&mut self, part: usize, text: &str) -> Result<(), ParseError> {
        self.at(part).with(|qdisc, cx| qdisc.change(&mut Words::split(text), &ENV, cx))
    }

    pub(crate) fn qlen(&self, part: usize) -> usize {
        self.stands[part].qdisc.qlen()
    }

    pub(crate) fn next_event(&self, part: usize) -> Option<Nanos> {
        self.stands[part].qdisc.next_event()
    }

    /// Returns the first part that asked to be called until `end`, and when; at once where that time has passed.
    pub(crate) fn first_event(&self, end: Nanos) -> Option<(usize, Nanos)> {
        let waiting = (0..self.stands.len()).filter(|&part| self.qlen(part) > 0);
        let events = waiting.filter_map(|part| Some((part, self.next_event(part)?.max(self.now))));
        events.min_by_key(|event| event.1).filter(|event| event.1 <= end)
    }

    pub(crate) fn stats(&self, part: usize) -> QdiscStats {
        self.stands[part].qdisc.stats()
    }

    pub(crate) fn drops(&self, part: usize) -> &DropCounts {
        &self.stands[part].drops
    }

    pub(crate) fn options(&self, style: Style) -> Options {
        self.stands[0].qdisc.options(style)
    }
}
