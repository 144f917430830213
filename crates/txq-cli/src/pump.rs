//! The loop of a sending thread: takes frames from its source when they are due and hands them in, in batches.
//!
//! Where there is no buffer, because the pool is used up or the sender has as many packets on their way as it may, the
//! thread hands in its list. A thread at max then waits for a buffer. A thread whose frames have times does not, or the
//! device would set its pace: the frame is refused and counted, and the next one is offered at its own time.

use std::thread;
use std::time::Duration;

use txq::Sender;
use txq::packet::{Packet, PacketList};
use txq::pool::AllocError;

use crate::pace::Pace;
use crate::stop::Stop;

/// Attempts at a buffer between which the thread only gives its CPU away; after that it sleeps.
const POLITE: u32 = 64;
/// That sleep.
const REST: Duration = Duration::from_micros(50);

/// How long a thread at its limit sleeps at most before it looks whether it shall stop, in nanoseconds.
const NAP: u64 = 10_000_000;

/// A frame to be sent.
pub(crate) struct Frame<'a> {
    /// When, in nanoseconds since the start; 0 for as soon as possible.
    pub(crate) due: u64,
    /// Its first bytes; the rest are zeros.
    pub(crate) head: &'a [u8],
    /// How long it is.
    pub(crate) len: usize,
    /// Its `SO_PRIORITY`.
    pub(crate) priority: u32,
}

/// Where a thread's frames come from. The times never fall.
pub(crate) trait Source {
    /// Whether each frame has a time of its own; otherwise all of them are due as soon as possible.
    fn is_rated(&self) -> bool;

    /// Returns the next frame, if there is one.
    fn next(&mut self) -> Option<Frame<'_>>;

    /// Counts the frames of a rated source that are due `now` or earlier, in nanoseconds since the start.
    fn due_by(&self, now: u64) -> Count;
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Count {
    /// Adds one packet.
    pub(crate) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }

    /// Returns both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }

    /// Returns what is left without `other`, or nothing.
    fn without(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Packets handed in.
    pub(crate) accepted: Count,
    /// Frames of a rated source that found no buffer at their time.
    pub(crate) refused: Count,
    /// Frames of a rated source that were due before the end and that the thread did not get to.
    pub(crate) missed: Count,
    /// The longest that a frame was behind its time, in nanoseconds.
    pub(crate) behind_max: u64,
    /// How long the last one was.
    pub(crate) behind_last: u64,
    /// Times that the thread had to wait for a buffer; always 0 for a rated source.
    pub(crate) held: u64,
    /// The end of the time in which frames were offered, in nanoseconds since the start: when the source was empty or all
    /// threads were asked to stop.
    pub(crate) until: u64,
    /// When the thread ended, in nanoseconds since the start.
    pub(crate) ended: u64,
}

impl Account {
    /// Adds what another thread did.
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

    /// Returns what the source had to send: of a rated source, all frames that its schedule holds until the end.
    pub(crate) fn offered(&self) -> Count {
        self.accepted.and(self.refused).and(self.missed)
    }
}

/// Sends everything that the source has, unless it shall stop before.
pub(crate) fn pump(
    sender: &mut Sender,
    source: &mut impl Source,
    batch: usize,
    pace: Pace,
    stop: &Stop,
) -> anyhow::Result<Account> {
    let mut account = Account::default();
    let mut list = PacketList::new();
    let rated = source.is_rated();
    let mut now = 0;
    while let Some(frame) = source.next() {
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
                account.refused.add(frame.len);
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
    if rated {
        account.missed = source.due_by(account.until).without(account.offered());
    }
    Ok(account)
}

/// Returns a buffer for a frame that is due, `None` where there is none even after the list is handed in.
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

/// Waits for a buffer and returns it, or `None` when the thread shall stop.
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
            sender.wait_credit(Some(sender.now() + NAP));
        } else if tries < POLITE {
            thread::yield_now()
        } else {
            thread::sleep(REST)
        }
        tries += 1;
    }
}

/// Hands in what was collected. The device counts what becomes of it.
fn flush(sender: &mut Sender, list: &mut PacketList) {
    let _ = sender.xmit_batch(list);
}
