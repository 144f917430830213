//! The loop of a sending thread: takes frames from its source when they are due and hands them in, in batches.
//!
//! It never drops: where there is no buffer, because the pool is used up or the sender has as many packets on their
//! way as it may, it hands in what it has and waits. What waiting costs is told afterwards, as lateness.

use std::thread;
use std::time::Duration;

use anyhow::bail;
use txq::Sender;
use txq::packet::PacketList;
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
    /// The next frame, if there is one.
    fn next(&mut self) -> Option<Frame<'_>>;
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Packets handed in.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The longest that a frame was behind its time, in nanoseconds.
    pub(crate) behind_max: u64,
    /// How long the last one was.
    pub(crate) behind_last: u64,
    /// Times that the thread had to wait for a buffer.
    pub(crate) held: u64,
    /// When the last frame was handed in, in nanoseconds since the start.
    pub(crate) ended: u64,
}

impl Account {
    /// Both threads' doings.
    pub(crate) fn merge(&mut self, other: &Account) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.behind_max = self.behind_max.max(other.behind_max);
        self.behind_last = self.behind_last.max(other.behind_last);
        self.held += other.held;
        self.ended = self.ended.max(other.ended);
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
    let mut now = 0;
    'frames: while let Some(frame) = source.next() {
        if frame.due > now {
            flush(sender, &mut list);
            let Some(then) = pace.wait(frame.due, stop) else { break };
            now = then;
        }
        let mut tries = 0;
        let mut packet = loop {
            match sender.alloc(frame.len) {
                Ok(packet) => break packet,
                Err(error @ AllocError::TooLong { .. }) => bail!(error),
                Err(error @ (AllocError::Exhausted { .. } | AllocError::Limit { .. })) => {
                    flush(sender, &mut list);
                    if stop.asked() {
                        break 'frames;
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
        };
        let (head, rest) = packet.data_mut().split_at_mut(frame.head.len());
        head.copy_from_slice(frame.head);
        rest.fill(0);
        packet.set_priority(frame.priority);
        account.packets += 1;
        account.bytes += frame.len as u64;
        list.push_back(packet);
        if frame.due > 0 {
            if tries > 0 {
                now = pace.now();
            }
            account.behind_last = now - frame.due.min(now);
            account.behind_max = account.behind_max.max(account.behind_last);
        }
        if list.len() >= batch {
            flush(sender, &mut list);
            if stop.asked() {
                break;
            }
            if frame.due > 0 {
                now = pace.now();
            }
        }
    }
    flush(sender, &mut list);
    account.ended = pace.now();
    Ok(account)
}

/// Hands in what was collected. The device counts what becomes of it.
fn flush(sender: &mut Sender, list: &mut PacketList) {
    let _ = sender.xmit_batch(list);
}
