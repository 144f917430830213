//! Events, by the names of the kernel's tracepoints.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use txq_core::drop::DropReason;
use txq_core::flow::{Dissected, Link};
use txq_sched::Instant;
use txq_sched::tc::Handle;

/// The bytes of a packet that an event keeps.
pub const SNAPLEN: usize = 128;

/// A step of a packet. The text form is the kernel's tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum EventKind {
    /// The packet reaches the qdisc, which queues it or drops it. (The kernel's event comes after that, for queued packets.)
    QdiscEnqueue,
    /// The packet leaves the qdisc for a txq.
    QdiscDequeue,
    /// The driver has refused the packet, and the queue takes it back. The kernel counts requeues and has no event for them.
    QdiscRequeue,
    /// The driver gets the packet.
    NetDevStartXmit,
    /// The packet is dropped.
    KfreeSkb,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 5] = [
        EventKind::QdiscEnqueue,
        EventKind::QdiscDequeue,
        EventKind::QdiscRequeue,
        EventKind::NetDevStartXmit,
        EventKind::KfreeSkb,
    ];

    /// Returns the kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::QdiscEnqueue => "qdisc_enqueue",
            EventKind::QdiscDequeue => "qdisc_dequeue",
            EventKind::QdiscRequeue => "qdisc_requeue",
            EventKind::NetDevStartXmit => "net_dev_start_xmit",
            EventKind::KfreeSkb => "kfree_skb",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word names no event.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{0}\" is no event: use qdisc_enqueue, qdisc_dequeue, qdisc_requeue, net_dev_start_xmit or kfree_skb"
)]
pub struct ParseEventError(String);

impl FromStr for EventKind {
    type Err = ParseEventError;

    fn from_str(word: &str) -> Result<Self, ParseEventError> {
        // perf names a tracepoint with its group: `qdisc:qdisc_enqueue`.
        let name = word.rsplit_once(':').map_or(word, |(_, name)| name);
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| ParseEventError(word.to_owned()))
    }
}

/// A step of a packet, and the packet's first bytes.
#[derive(Clone)]
#[non_exhaustive]
pub struct Event {
    /// The step.
    pub kind: EventKind,
    /// When it happened, on the clock of [`Instant::now`].
    pub time: Instant,
    /// The txq; `None` for a packet that was dropped before it had one.
    pub txq: Option<u16>,
    /// The handle of the queue's qdisc, and its place: the root, or the class of mq or mqprio. `None` without a qdisc, and for
    /// a packet that was dropped on its way to one.
    pub queue: Option<(Handle, Handle)>,
    /// The packet's buffer. Two events of one packet have the same number; a later packet may have it again.
    pub packet: u64,
    /// The packet's length, in bytes.
    pub len: u32,
    /// The packet's priority.
    pub priority: u32,
    /// What the packet begins with.
    pub link: Link,
    /// Why the packet was dropped; `None` if it was not.
    pub reason: Option<DropReason>,
    /// How long the packet was in the qdisc: known when it leaves or is dropped there, and its enqueue was
    /// not lost. Copies and segments that a qdisc makes have no enqueue.
    pub sojourn: Option<Duration>,
    pub(super) captured: u8,
    pub(super) bytes: [u8; SNAPLEN],
}

impl Event {
    /// Returns an event for a ring's slots.
    pub(super) fn empty() -> Self {
        Self {
            kind: EventKind::QdiscEnqueue,
            time: Instant::ZERO,
            txq: None,
            queue: None,
            packet: 0,
            len: 0,
            priority: 0,
            link: Link::Ethernet,
            reason: None,
            sojourn: None,
            captured: 0,
            bytes: [0; SNAPLEN],
        }
    }

    /// Returns the packet's first bytes, at most [`SNAPLEN`].
    pub fn data(&self) -> &[u8] {
        &self.bytes[..usize::from(self.captured)]
    }

    /// Finds the packet's headers and its flow: the outer ones if it is a tunnel.
    pub fn dissect(&self) -> Dissected {
        self.link.dissect_outer(self.data())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("time", &self.time)
            .field("txq", &self.txq)
            .field("queue", &self.queue)
            .field("packet", &self.packet)
            .field("len", &self.len)
            .field("reason", &self.reason)
            .field("sojourn", &self.sojourn)
            .finish_non_exhaustive()
    }
}
