//! The loop of a sending thread: takes frames from its source when they are due, and hands them in in batches.
//!
//! If an allocation fails, because the pool is empty or the sender is at its limit of outstanding packets, the thread
//! hands in its list. A thread at max then waits for a buffer. A thread at a rate does not wait, or the device would set
//! its pace: it counts the frame as refused, and offers the next frame at that frame's own time.

use std::thread;
use std::time::Duration;

use crate::common::stop::Stop;
use txq::Sender;
use txq::packet::{Packet, PacketList};
use txq::pool::AllocError;

use crate::pace::Pace;

/// Attempts to allocate between which the thread only yields its CPU; after them it sleeps for [`ALLOC_RETRY`].
const POLITE: u32 = 64;
/// The sleep between two attempts to allocate.
const ALLOC_RETRY: Duration = Duration::from_micros(50);

/// The longest sleep of a thread at its limit before it checks for a stop again.
const LONGEST_LIMIT_SLEEP: Duration = Duration::from_millis(10);

/// A frame to send.
pub(crate) struct Frame<'a> {
    /// The time to send the frame, in nanoseconds since the start; 0 for as soon as possible.
    pub(crate) due: u64,
    /// The frame's first bytes; the rest are zeros.
    pub(crate) head: &'a [u8],
    /// The frame's length in bytes.
    pub(crate) len: usize,
    /// The frame's priority, as `SO_PRIORITY`.
    pub(crate) priority: u32,
    /// The frame's mark, as `SO_MARK`.
    pub(crate) mark: u32,
}

/// The source of a thread's frames. The frames' times never decrease.
pub(crate) trait Source {
    /// Returns whether the next frame has a time of its own; otherwise it is due as soon as possible.
    fn is_rated(&self) -> bool;

    /// Returns the next frame, or `None` at the end of the source.
    fn next(&mut self) -> Option<Frame<'_>>;

    /// Notes that no buffer was free at the time of the last frame, of `len` bytes.
    fn refused(&mut self, _len: usize) {}

    /// Returns the number of a rated source's frames that are due at `now` or earlier, in nanoseconds since the start. The source is
    /// at its end afterwards.
    fn due_by(&mut self, now: u64) -> Count;
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Count {
    /// Adds one packet of `len` bytes.
    pub(crate) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }

    /// Returns the sum of both counts.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }

    /// Returns the count minus `other`; each field saturates at zero.
    pub(crate) fn without(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The account of a thread's frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Packets handed in.
    pub(crate) accepted: Count,
    /// Frames of a rated source for which no buffer was free at their time.
    pub(crate) refused: Count,
    /// Frames of a rated source that were due before the end, but that the thread did not reach.
    pub(crate) missed: Count,
    /// The largest delay of a frame behind its time, in nanoseconds.
    pub(crate) behind_max: u64,
    /// The delay of the last frame behind its time, in nanoseconds.
    pub(crate) behind_last: u64,
    /// The number of waits for a buffer; always 0 for a rated source.
    pub(crate) held: u64,
    /// The end of the time in which the thread offered frames, in nanoseconds since the start: the end of the source, or the
    /// request to stop.
    pub(crate) until: u64,
    /// The end of the thread, in nanoseconds since the start.
    pub(crate) ended: u64,
}

impl Account {
    /// Adds the account of another thread.
    pub(crate) fn merge(&mut self, other: &Account) {
        self.accepted = self.accepted.and(other.accepted);
        self.refused = self.refused.and(other.refused);
        self.missed = self.missed.and(other.missed);
        self.behind_max = self.behind_max.max(other.behind_max);
        self.behind_last = self.behind_last.max(other.behind_last);
        self.held += other.held;
        self.until = self.until.max(other.until);
        self.ended = self.ended.max(other.ended);
    }

    /// Returns the offered frames; for a rated source, all frames that its schedule holds until the end.
    pub(crate) fn offered(&self) -> Count {
        self.accepted.and(self.refused).and(self.missed)
    }
}

/// Sends all frames of `source`, or those until `stop` is requested; returns the account.
pub(crate) fn pump(
    sender: &mut Sender,
    source: &mut impl Source,
    batch: usize,
    pace: Pace,
    stop: &Stop,
) -> anyhow::Result<Account> {
    let mut account = Account::default();
    let mut list = PacketList::new();
    let mut now = 0;
    loop {
        let rated = source.is_rated();
        let Some(frame) = source.next() else { break };
        if frame.due > now {
            flush(sender, &mut list);
            let Some(then) = pace.wait(frame.due, stop) else { break };
            now = then;
        }
        if rated {
            account.behind_last = now - frame.due.min(now);
            account.behind_max = account.behind_max.max(account.behind_last);
        }
        let packet = match rated {
            true => packet_now(sender, &mut list, frame.len)?,
            false => packet_in_time(sender, &mut list, frame.len, stop, &mut account)?,
        };
        let Some(mut packet) = packet else {
            if rated {
                let len = frame.len;
                account.refused.add(len);
                source.refused(len);
            }
            if stop.asked() {
                break;
            }
            continue;
        };
        let (head, rest) = packet.data_mut().split_at_mut(frame.head.len());
        head.copy_from_slice(frame.head);
        rest.fill(0);
        packet.set_priority(frame.priority);
        packet.set_mark(frame.mark);
        account.accepted.add(frame.len);
        list.push_back(packet);
        if list.len() >= batch {
            flush(sender, &mut list);
            if stop.asked() {
                break;
            }
            if rated {
                now = pace.now();
            }
        }
    }
    flush(sender, &mut list);
    account.ended = pace.now();
    account.until = pace.end(stop).map_or(account.ended, |end| end.min(account.ended));
    if source.is_rated() {
        account.missed = source.due_by(account.until).without(account.offered());
    }
    Ok(account)
}

/// Allocates a packet for a frame that is due. If no buffer is free, it hands in the list and tries again; returns `None`
/// if that fails too.
fn packet_now(sender: &mut Sender, list: &mut PacketList, len: usize) -> Result<Option<Packet>, AllocError> {
    loop {
        match sender.alloc(len) {
            Ok(packet) => return Ok(Some(packet)),
            Err(error @ AllocError::TooLong { .. }) => return Err(error),
            Err(_) if list.is_empty() => return Ok(None),
            Err(_) => flush(sender, list),
        }
    }
}

/// Allocates a packet, and waits for a buffer if none is free; returns `None` when `stop` is requested.
fn packet_in_time(
    sender: &mut Sender,
    list: &mut PacketList,
    len: usize,
    stop: &Stop,
    account: &mut Account,
) -> Result<Option<Packet>, AllocError> {
    let mut tries = 0;
    loop {
        let error = match sender.alloc(len) {
            Ok(packet) => return Ok(Some(packet)),
            Err(error @ AllocError::TooLong { .. }) => return Err(error),
            Err(error) => error,
        };
        flush(sender, list);
        if stop.asked() {
            return Ok(None);
        }
        account.held += u64::from(tries == 0);
        if matches!(error, AllocError::Limit { .. }) {
            sender.wait_credit(Some(sender.now() + LONGEST_LIMIT_SLEEP));
        } else if tries < POLITE {
            thread::yield_now()
        } else {
            thread::sleep(ALLOC_RETRY)
        }
        tries += 1;
    }
}

/// Hands in the packets of `list`. The device counts whether they are sent or dropped.
fn flush(sender: &mut Sender, list: &mut PacketList) {
    let _ = sender.xmit_batch(list);
}
