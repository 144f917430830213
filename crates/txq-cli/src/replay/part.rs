//! One thread's part of a replay.
//!
//! Each thread reads the capture by itself, at its own pace, and sends the packets whose flow's hash selects it. So one thread hands
//! in all packets of a flow, in order, and no thread waits for another one. All threads compute the same times.

use std::net::SocketAddr;

use txq::flow::public_hash;
use txq::xps::reciprocal_scale;
use txq_device::capture::Capture;

use super::is_truncated;
use super::packets::{CaptureCounts, Packets};
use super::schedule::{ReplayPace, Schedule};
use crate::common::stop::Stop;
use crate::pump::{Count, Frame, Source};

/// What a replay sends, which all its parts have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'c> {
    pub(crate) capture: &'c Capture,
    /// The peer of the datagrams that carry the frames.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) pace: ReplayPace,
    /// How often it is sent.
    pub(crate) passes: u64,
    /// The time of a pass in nanoseconds, if the capture was read before.
    pub(crate) pass: Option<f64>,
    /// Whether it may end within its last frame.
    pub(crate) torn: bool,
    /// The length of the longest packet that the device has room for.
    pub(crate) room: usize,
    pub(crate) threads: u32,
}

/// One thread's part.
pub(crate) struct Part<'c> {
    stop: &'c Stop,
    pub(super) packets: Packets<'c>,
    schedule: Schedule,
    passes: u64,
    torn: bool,
    room: usize,
    /// The number of this part, and of all.
    share: (u32, u32),
    /// The time of a pass in nanoseconds, once it is known.
    length: Option<f64>,
    /// The passes that have ended.
    pass: u64,
    /// The packets handed out in this pass, in a whole one, and in all.
    now: Count,
    whole: Option<Count>,
    taken: Count,
    /// The last packet's time.
    due: u64,
    ended: Option<End>,
    /// What the first pass has found, of all parts' packets.
    first: Option<(CaptureCounts, Schedule)>,
    /// The packets that were too long, and the first of them: its frame and its length.
    too_long: u64,
    first_too_long: Option<(u64, usize)>,
}

/// How a part has ended.
enum End {
    Done,
    Failed(anyhow::Error),
}

impl<'c> Part<'c> {
    /// Returns part `number`, which has no further packets once `stop` is asked.
    pub(crate) fn of(whole: Whole<'c>, number: u32, stop: &'c Stop) -> Self {
        Self {
            stop,
            packets: Packets::of(whole.capture, whole.remote),
            schedule: Schedule::of(whole.pace),
            passes: whole.passes,
            torn: whole.torn,
            room: whole.room,
            share: (number, whole.threads),
            length: whole.pass,
            pass: 0,
            now: Count::default(),
            whole: None,
            taken: Count::default(),
            due: 0,
            ended: None,
            first: None,
            too_long: 0,
            first_too_long: None,
        }
    }

    /// Returns the number of passes that it knows to have ended.
    pub(crate) fn passed(&self) -> u64 {
        if self.whole == Some(Count::default()) { self.passes } else { self.pass }
    }

    /// Returns the packets that were left out because they were too long.
    pub(crate) fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Returns the first packet that was too long, once: the number of its frame, and its length in bytes.
    pub(crate) fn take_first_too_long(&mut self) -> Option<(u64, usize)> {
        self.first_too_long.take()
    }

    /// Returns what the first pass has found, of all parts' packets, once.
    pub(crate) fn take_first_pass(&mut self) -> Option<(CaptureCounts, Schedule)> {
        self.first.take()
    }

    /// Returns why it ended before its last packet, if it did.
    pub(crate) fn into_error(self) -> Option<anyhow::Error> {
        match self.ended {
            Some(End::Failed(error)) => Some(error),
            Some(End::Done) | None => None,
        }
    }

    /// Moves to the next packet of its own; returns whether there is one. `gives_up` says at the time of each other packet whether to
    /// end the search: the next one of its own may be gigabytes away.
    fn advance(&mut self, gives_up: impl Fn(u64) -> bool) -> bool {
        if self.pass >= self.passes {
            self.ended.get_or_insert(End::Done);
        }
        while self.ended.is_none() {
            match self.packets.advance() {
                Ok(true) => {
                    let len = self.packets.data().len();
                    // At the first pass the time of a pass does not matter.
                    let before = self.length.map_or(0.0, |pass| self.pass as f64 * pass);
                    let due = (before + self.schedule.due(self.packets.at(), len)) as u64;
                    let is_mine = self.is_mine();
                    if is_mine && len <= self.room {
                        self.due = due;
                        self.now.add(len);
                        return true;
                    }
                    if is_mine {
                        self.too_long += 1;
                        self.first_too_long.get_or_insert((self.packets.number(), len));
                    }
                    if gives_up(due) {
                        return false;
                    }
                }
                Ok(false) => self.end_pass(),
                Err(error) if self.torn && is_truncated(&error) => self.end_pass(),
                Err(error) => self.ended = Some(End::Failed(error)),
            }
        }
        false
    }

    fn end_pass(&mut self) {
        if self.pass == 0 {
            self.first = Some((self.packets.seen(), self.schedule));
        }
        self.length.get_or_insert(self.schedule.pass());
        let whole = *self.whole.get_or_insert(self.now);
        match self.pass + 1 >= self.passes || whole == Count::default() {
            true => {
                self.pass += 1;
                self.ended = Some(End::Done);
            }
            false => self.begin_pass(self.pass + 1),
        }
    }

    fn begin_pass(&mut self, pass: u64) {
        (self.pass, self.now) = (pass, Count::default());
        self.packets.rewind();
        self.schedule.restart();
    }

    fn is_mine(&self) -> bool {
        let (number, of) = self.share;
        let hash = || public_hash(&self.packets.link().dissect(self.packets.data()).keys);
        of == 1 || reciprocal_scale(hash(), of) == number
    }
}

impl Source for Part<'_> {
    fn is_rated(&self) -> bool {
        // Packets that all have the same time have no pace that a sender could keep.
        self.schedule.is_rated() && self.length != Some(0.0)
    }

    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        let stop = self.stop;
        if !self.advance(|_| stop.asked()) {
            return None;
        }
        let head = self.packets.data();
        self.taken.add(head.len());
        Some(Frame { due: self.due, head, len: head.len(), priority: 0, mark: 0 })
    }

    /// Counts what was handed out and is due, and reads on for the rest.
    fn due_by(&mut self, now: u64) -> Count {
        let mut count = self.taken;
        if !self.is_rated() {
            return Count::default();
        }
        if self.due > now {
            // The sender did not wait for the last one.
            return count.without(Count { packets: 1, bytes: self.packets.data().len() as u64 });
        }
        loop {
            // All packets of these passes are due.
            if let (Some(length), Some(whole)) = (self.length, self.whole) {
                let passes = ((now as f64 / length) as u64).saturating_sub(1).min(self.passes);
                if passes > self.pass && self.ended.is_none() {
                    count.packets = passes.saturating_mul(whole.packets);
                    count.bytes = passes.saturating_mul(whole.bytes);
                    self.begin_pass(passes);
                }
            }
            if !self.advance(|due| due > now) || self.due > now {
                return count;
            }
            count.add(self.packets.data().len());
        }
    }
}
