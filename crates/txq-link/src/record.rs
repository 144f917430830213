//! A recording: each packet of a run, and its fate.

use txq_sched::{DropReason, Instant};

use crate::packet::{Direction, Payload};

#[cfg(feature = "pcapng")]
mod pcapng;
#[cfg(feature = "plot")]
mod plot;

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// It was sent.
    Sent,
    /// It arrived.
    Arrived {
        /// With a flipped bit.
        damaged: bool,
    },
    /// It was dropped.
    Lost {
        /// The qdisc of the chain, from 1.
        stage: usize,
        /// Why.
        reason: DropReason,
    },
}

/// An event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When it happened.
    pub at: Instant,
    /// The direction of the packet.
    pub direction: Direction,
    /// What happened.
    pub what: What,
    /// When the packet was sent.
    pub sent: Instant,
    /// The packet's TOS after it.
    pub tos: u8,
    /// The packets and bytes in the direction's qdiscs: before it for a packet that is sent, else after it.
    pub backlog: (u64, u64),
}

/// What a link has recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The link's text and seed.
    link: String,
    events: Vec<Event>,
    /// The bytes of all events' packets, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    #[cfg(feature = "pcapng")]
    addresses: Vec<Option<(std::net::SocketAddr, std::net::SocketAddr)>>,
}

impl Recording {
    pub(crate) fn new(text: &str, seed: u64) -> Self {
        Self {
            link: format!("seed {seed}: {}", text.trim()),
            events: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
            #[cfg(feature = "pcapng")]
            addresses: Vec::new(),
        }
    }

    pub(crate) fn note<T: Payload>(&mut self, event: Event, data: &T) {
        self.events.push(event);
        self.bytes.extend(data.bytes());
        self.ends.push(self.bytes.len());
        #[cfg(feature = "pcapng")]
        self.addresses.push(data.addresses());
    }

    /// Returns the seed and the text of the link.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// Returns the events, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the bytes of the packet of an event.
    pub fn bytes(&self, event: usize) -> &[u8] {
        let begin = event.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[event]]
    }
}
