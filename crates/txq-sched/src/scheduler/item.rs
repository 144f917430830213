//! What a program hands to a [`Scheduler`](super::Scheduler), and what it gets back.

use txq_core::drop::DropReason;
use txq_core::flow::Link;

use crate::Instant;
use crate::tc::Handle;

/// A packet to enqueue: the program's own buffer, or a key of it, and what qdiscs and filters need to know of it.
///
/// ```
/// use txq_sched::Item;
///
/// let buffer = vec![0_u8; 1200];
/// let item = Item::new(buffer.len() as u32, buffer).priority(6).hash(0x5eed);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Item<'h, T> {
    value: T,
    meta: Meta<'h>,
}

/// What a packet tells qdiscs and filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta<'h> {
    pub(super) len: u32,
    pub(super) priority: u32,
    pub(super) mark: u32,
    pub(super) hash: u32,
    pub(super) departure: Instant,
    pub(super) segments: u16,
    pub(super) tos: Option<u8>,
    pub(super) header: &'h [u8],
    pub(super) link: Link,
}

impl<'h, T> Item<'h, T> {
    /// Returns a packet of `len` bytes on the link, with its link-layer header if it has one. Rates, quanta and byte limits count them.
    pub fn new(len: u32, value: T) -> Self {
        let (hash, departure, link) = (0, Instant::ZERO, Link::Ethernet);
        let meta =
            Meta { len, priority: 0, mark: 0, hash, departure, segments: 1, tos: None, header: &[], link };
        Self { value, meta }
    }

    /// Sets the priority (`SO_PRIORITY`, `skb->priority`): a band, or the class that [`class`](Item::class) names.
    pub fn priority(self, priority: u32) -> Self {
        Self { meta: Meta { priority, ..self.meta }, ..self }
    }

    /// Sets the priority that names a class: `"1:10".parse()?`, or `Handle::new(1, 0x10)`. [`Handle`] says what becomes of a packet
    /// whose class does not exist.
    pub fn class(self, class: Handle) -> Self {
        self.priority(class.priority())
    }

    /// Sets the mark that `fw` filters match (`SO_MARK`, `skb->mark`).
    pub fn mark(self, mark: u32) -> Self {
        Self { meta: Meta { mark, ..self.meta }, ..self }
    }

    /// Sets the flow's hash (`skb->hash`), for programs that know their flows, such as a number of a connection. 0 stands
    /// for unknown: the qdisc then hashes the header. Packets with neither are one flow.
    pub fn hash(self, hash: u32) -> Self {
        Self { meta: Meta { hash, ..self.meta }, ..self }
    }

    /// Sets the flow by a number of the program's, such as that of a connection: packets with one number are one flow. Returns
    /// the item with a [`hash`](Item::hash) of the number.
    pub fn flow(self, number: u64) -> Self {
        self.hash(flow_hash(number))
    }

    /// Sets the byte of the IPv4 header's TOS or the IPv6 header's traffic class, for programs that hand in no header: filters
    /// and cake read its DSCP, and qdiscs mark congestion in its ECN field (RFC 3168). The byte of a header counts instead
    /// if there is one. A packet of fewer than 20 bytes has none. [`Departed::tos`] has the byte that a qdisc has changed.
    pub fn tos(self, tos: u8) -> Self {
        Self { meta: Meta { tos: Some(tos), ..self.meta }, ..self }
    }

    /// Sets the earliest departure time, on the program's clock; [`Instant::ZERO`] means as soon as possible (`SCM_TXTIME`).
    pub fn departure(self, at: impl Into<Instant>) -> Self {
        Self { meta: Meta { departure: at.into(), ..self.meta }, ..self }
    }

    /// Sets the number of segments that the packet is cut into after it has left (`gso_segs`). Counters count segments. No
    /// qdisc cuts the packet.
    pub fn segments(self, segments: u16) -> Self {
        Self { meta: Meta { segments: segments.max(1), ..self.meta }, ..self }
    }

    /// Sets the packet's first bytes, from its Ethernet header on: filters read them, qdiscs hash flows and mark congestion
    /// (ECN) in them. They are copied, as many as [`Config::header`](super::Config::header) says.
    pub fn header<'n>(self, header: &'n [u8]) -> Item<'n, T> {
        Item { value: self.value, meta: Meta { header, link: Link::Ethernet, ..self.meta } }
    }

    /// Sets the packet's first bytes, from its IP header on, as [`header`](Item::header) does.
    pub fn ip_header<'n>(self, header: &'n [u8]) -> Item<'n, T> {
        Item { value: self.value, meta: Meta { header, link: Link::Ip, ..self.meta } }
    }

    pub(super) fn into_parts(self) -> (T, Meta<'h>) {
        (self.value, self.meta)
    }
}

/// A packet that a dequeue returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departed<T> {
    /// The program's value.
    pub value: T,
    /// Its length in bytes.
    pub len: u32,
    /// The earliest departure time, which fq sets when it paces; [`Instant::ZERO`] for at once.
    pub departure: Instant,
    /// The byte that the IPv4 header's TOS or the IPv6 header's traffic class must have now, if a qdisc has changed it in the
    /// header or the [`tos`](Item::tos) that was handed in: congestion experienced (RFC 3168), or cake's `wash`.
    pub tos: Option<u8>,
    /// The bit that netem's `corrupt` has flipped, counted from the lowest of the packet's first byte. The program flips it in
    /// its buffer, after it has set `tos`.
    pub damage: Option<u32>,
}

/// What a scheduler answers to the question for its next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// This packet leaves now.
    Packet(Departed<T>),
    /// Packets are queued, and none may leave before this time.
    Until(Instant),
    /// Nothing is queued; or the qdisc waits for a command (plug).
    Idle,
}

/// A packet that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped<T> {
    /// The program's value.
    pub value: T,
    /// Why it was dropped.
    pub reason: DropReason,
}

/// Returns the hash of a flow's number, which is not 0. Qdiscs choose queues by its high bits or its low ones, so both depend on
/// all bits of the number.
fn flow_hash(number: u64) -> u32 {
    ((crate::generic::qdisc::mix(number) >> 32) as u32).max(1)
}
