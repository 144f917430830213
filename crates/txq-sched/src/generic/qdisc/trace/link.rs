//! When a packet has passed a recorded link. All times are in nanoseconds since the recording's start.

use std::sync::Arc;

/// The bytes of an opportunity, in Mahimahi's files.
const OPPORTUNITY: u64 = 1504;
const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;
/// The rate of a file without one, in bytes a second: a packet passes within its nanosecond.
pub(super) const UNLIMITED: u64 = 1 << 60;

/// A recording.
#[derive(Debug)]
pub(super) enum Schedule {
    /// The times of opportunities, in milliseconds and in order. The last one is not 0.
    Opportunities(Box<[u32]>),
    /// One after the other; at least one has a rate.
    Segments(Box<[Segment]>),
}

/// A time in which the link stays the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// In nanoseconds, not 0.
    pub(super) duration: u64,
    /// In bytes a second.
    pub(super) rate: u64,
    /// In nanoseconds.
    pub(super) delay: u64,
    /// The share of packets that are lost, of 2^32.
    pub(super) loss: u32,
}

impl Segment {
    /// Returns the bytes that pass in a time, multiplied by the nanoseconds of a second.
    fn work(&self, nanos: u64) -> u128 {
        u128::from(self.rate) * u128::from(nanos)
    }
}

impl Schedule {
    /// Returns the bytes that are added to a packet by default.
    pub(super) fn overhead(&self) -> i32 {
        match self {
            Self::Opportunities(_) => 4,
            Self::Segments(_) => 0,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Opportunities(times) => times.len(),
            Self::Segments(all) => all.len(),
        }
    }

    /// Returns the length of the recording, not 0.
    fn length(&self) -> u64 {
        match self {
            Self::Opportunities(times) => times.last().map_or(1, |last| u64::from(*last) * MS),
            Self::Segments(all) => all.iter().fold(0, |sum, segment| segment.duration.saturating_add(sum)),
        }
    }
}

/// A recorded link, up to the last byte that is known to pass it.
#[derive(Debug)]
pub(super) struct Link {
    schedule: Arc<Schedule>,
    once: bool,
    /// The schedule's length.
    length: u64,
    /// What passes in all segments ([`Segment::work`]).
    capacity: u128,
    /// The start of the present pass through the schedule.
    pass: u64,
    /// The next opportunity, or the present segment.
    index: usize,
    /// The start of the present segment, or the time of the last opportunity that was used.
    at: u64,
    /// The bytes that have passed in the present segment ([`Segment::work`]), or the bytes that are left in the last opportunity.
    done: u128,
}

impl Link {
    pub(super) fn new(schedule: Arc<Schedule>, once: bool) -> Self {
        let length = schedule.length();
        let capacity = match &*schedule {
            Schedule::Opportunities(_) => 0,
            Schedule::Segments(all) => {
                all.iter().fold(0, |sum: u128, segment| sum.saturating_add(segment.work(segment.duration)))
            }
        };
        Self { schedule, once, length, capacity, pass: 0, index: 0, at: 0, done: 0 }
    }

    /// Returns the share of packets that come at `now` and are lost, of 2^32. `now` never goes back.
    pub(super) fn loss(&self, now: u64) -> u32 {
        let Schedule::Segments(all) = &*self.schedule else { return 0 };
        if all.iter().all(|segment| segment.loss == 0) {
            return 0;
        }
        let mut rest = if self.once { now } else { now % self.length };
        let holds = all.iter().find(|segment| match rest.checked_sub(segment.duration) {
            None => true,
            Some(after) => {
                rest = after;
                false
            }
        });
        holds.or(all.last()).map_or(0, |segment| segment.loss)
    }

    /// Lets a packet that comes at `now` pass behind all before it; returns when it arrives at the other end. `None` if it never
    /// does. `now` never goes back.
    pub(super) fn pass(&mut self, now: u64, bytes: u64) -> Option<u64> {
        match &*Arc::clone(&self.schedule) {
            Schedule::Opportunities(times) => self.deliver(times, now, bytes),
            Schedule::Segments(all) => self.flow(all, now, bytes),
        }
    }

    /// Leaves out whole passes that have been by `now`.
    fn skip_passes(&mut self, now: u64) {
        if !self.once && now >= self.pass.saturating_add(self.length) {
            self.pass += (now - self.pass) / self.length * self.length;
            (self.index, self.at, self.done) = (0, self.pass, 0);
        }
    }

    /// Goes on to the next opportunity or segment; returns whether there is one.
    fn advance(&mut self) -> bool {
        self.index += 1;
        if self.index == self.schedule.len() && !self.once {
            self.index = 0;
            self.pass = self.pass.saturating_add(self.length);
        }
        self.index < self.schedule.len()
    }

    fn deliver(&mut self, times: &[u32], now: u64, bytes: u64) -> Option<u64> {
        let time = |link: &Self| Some(link.pass + u64::from(*times.get(link.index)?) * MS);
        // What an opportunity that has been did not use is lost.
        if self.at <= now {
            self.done = 0;
            self.skip_passes(now);
            while time(self)? <= now {
                self.advance();
            }
        }
        let mut left = self.done as u64;
        let mut rest = bytes;
        while rest > left {
            rest -= left;
            self.at = time(self)?;
            left = OPPORTUNITY;
            self.advance();
        }
        self.done = u128::from(left - rest);
        Some(self.at)
    }

    fn flow(&mut self, all: &[Segment], now: u64, bytes: u64) -> Option<u64> {
        let is_last = |link: &Self| link.once && link.index + 1 == all.len();
        // The bits of the time before this packet are lost.
        if now >= self.at {
            self.skip_passes(now);
            while !is_last(self) && now - self.at >= all[self.index].duration {
                self.next_segment(all);
            }
            self.done = self.done.max(all[self.index].work(now - self.at));
        }
        let mut rest = u128::from(bytes) * SECOND;
        loop {
            let segment = &all[self.index];
            let room = match is_last(self) {
                true if segment.rate == 0 => return None,
                true => u128::MAX,
                false => segment.work(segment.duration) - self.done,
            };
            if segment.rate > 0 && rest <= room {
                self.done += rest;
                let rate = u128::from(segment.rate);
                let passed =
                    if segment.rate == UNLIMITED { self.done / rate } else { self.done.div_ceil(rate) };
                return Some(self.at.saturating_add(passed as u64).saturating_add(segment.delay));
            }
            rest -= room;
            self.next_segment(all);
            // A packet may take many passes of a slow link.
            if !self.once && self.index == 0 {
                let passes = (rest - 1) / self.capacity;
                rest -= passes * self.capacity;
                let time = u64::try_from(passes).unwrap_or(u64::MAX).saturating_mul(self.length);
                (self.pass, self.at) = (self.pass.saturating_add(time), self.at.saturating_add(time));
            }
        }
    }

    fn next_segment(&mut self, all: &[Segment]) {
        self.at = self.at.saturating_add(all[self.index].duration);
        self.done = 0;
        self.advance();
    }
}
