//! Receiving: the half of a device that fills packets, and how to write it.
//!
//! A [`Receive`] is one rx queue of a device. It fills buffers that it takes from a [`Sender`], so that the packets can be
//! sent by that sender without a copy: a forwarder is a call of [`receive`](Receive::receive) and a call of
//! [`xmit_batch`](Sender::xmit_batch).
//!
//! ```no_run
//! # use std::{io, time::Duration};
//! # use txq::{Sender, packet::PacketList, receive::Receive};
//! fn forward(rx: &mut impl Receive, sender: &mut Sender) -> io::Result<()> {
//!     let mut batch = PacketList::new();
//!     loop {
//!         if rx.receive(64, sender, &mut batch)? == 0 {
//!             rx.wait(Some(Duration::from_millis(100)))?;
//!             continue;
//!         }
//!         let _ = sender.xmit_batch(&mut batch);
//!     }
//! }
//! ```
//!
//! A receiver records what it knows of a packet: the rx queue ([`set_rx_queue`](crate::packet::Packet::set_rx_queue)), which steering may
//! use, and [`set_gso`](crate::packet::Packet::set_gso) if the kernel has joined segments. A VLAN tag that the kernel has taken off is put back. A checksum
//! that the kernel left to the card is computed, except in a packet with segments, whose checksums the device or the
//! software writes that cuts it. If asked to, the receiver also records when the system received a packet
//! ([`record_times`](Receive::record_times)). [`BusyPoll`] polls for a time before it sleeps.

use std::io;
use std::ops::AddAssign;
use std::time::Duration;

use crate::driver::Link;
use crate::packet::PacketList;
use crate::sender::Sender;

mod busy_poll;
pub use busy_poll::BusyPoll;

/// An rx queue of a device (`napi_poll` of the receiving side). One thread at a time uses it.
pub trait Receive: Send {
    /// Returns what the packets begin with. A packet can be sent on through a device of the same link.
    fn link(&self) -> Link;

    /// Receives up to `budget` packets that are there, in buffers of `sender`, and appends them to `batch`. Returns how many
    /// were appended, and does not wait. If there is no buffer, packets stay in the device, which drops them when it is full.
    ///
    /// # Errors
    /// Errors that concern the device, not a single packet: it is gone, or down. The packets received before the error are
    /// in `batch`; the next call returns the error.
    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize>;

    /// Sleeps until there are packets, until a signal arrives, or until `timeout` has passed. Returns whether there may be
    /// packets: false only after the timeout. If [`receive`](Receive::receive) then returns none, the sender has no buffers;
    /// [`wait_credit`](Sender::wait_credit) waits for those of its limit. An event loop waits for the descriptor that the
    /// device offers instead ([`AsFd`](std::os::fd::AsFd)).
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool>;

    /// Frees the buffers that the receiver keeps for packets to come, and packets that it has not returned yet: another
    /// sender is used from now on. Buffers of a sender's pool that are kept beyond the pool's end are leaked.
    fn release(&mut self) {}

    /// Returns the counters.
    fn stats(&self) -> RxStats;

    /// Asks the system to poll the device's queue for `time` in a call that finds no packets, if it can (`SO_BUSY_POLL`,
    /// `SO_PREFER_BUSY_POLL`). [`BusyPoll`] calls it.
    fn prefer_busy_poll(&mut self, time: Duration) {
        let _ = time;
    }

    /// Records from now on when the system received each packet: nanoseconds since 1970 (`CLOCK_REALTIME`) as its
    /// [`cookie`](crate::packet::Packet::cookie). A packet that came in before has the time at which it is read.
    ///
    /// # Errors
    /// When the device does not know, and the system's.
    fn record_times(&mut self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the device does not know when its packets came in"))
    }
}

impl<R: Receive + ?Sized> Receive for Box<R> {
    fn link(&self) -> Link {
        (**self).link()
    }

    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize> {
        (**self).receive(budget, sender, batch)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        (**self).wait(timeout)
    }

    fn stats(&self) -> RxStats {
        (**self).stats()
    }

    fn release(&mut self) {
        (**self).release();
    }

    fn prefer_busy_poll(&mut self, time: Duration) {
        (**self).prefer_busy_poll(time);
    }

    fn record_times(&mut self) -> io::Result<()> {
        (**self).record_times()
    }
}

/// Counters of an rx queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxStats {
    /// Packets received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the device dropped, because nobody took them in time (`rx_missed_errors`).
    pub missed: u64,
    /// Packets dropped because they are longer than a buffer (`rx_length_errors`).
    pub too_long: u64,
    /// Packets dropped because their headers make no sense (`rx_errors`).
    pub malformed: u64,
}

impl RxStats {
    /// Counts packets and bytes received.
    pub fn received(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

impl AddAssign for RxStats {
    fn add_assign(&mut self, other: Self) {
        let Self { packets, bytes, missed, too_long, malformed } = other;
        self.received(packets, bytes);
        self.missed += missed;
        self.too_long += too_long;
        self.malformed += malformed;
    }
}
