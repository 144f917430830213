//! The times of a capture's packets, computed as they are read.

use std::time::Duration;

use crate::common::rate::Rate;

/// The longest gap between two frames that a recorded pace keeps, unless the user says another one.
pub(crate) const MAX_GAP: Duration = Duration::from_secs(60);

/// The pace of a replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayPace {
    pub(crate) rate: Rate,
    /// How many times as fast as recorded.
    pub(crate) speed: f64,
    /// The longest recorded gap.
    pub(crate) max_gap: Duration,
}

/// The times of one pass over a capture. Fractions of nanoseconds count, because they add up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pace: ReplayPace,
    /// At a rate: the time of the next packet.
    sum: f64,
    packets: u64,
    /// As recorded: the greatest times so far, in the file and of the schedule; their present difference; and how often it
    /// changed.
    before: u64,
    span: u64,
    shift: i128,
    bounded: u64,
}

impl Schedule {
    pub(crate) fn of(pace: ReplayPace) -> Self {
        Self { pace, sum: 0.0, packets: 0, before: 0, span: 0, shift: 0, bounded: 0 }
    }

    /// Returns the time of the next packet, in nanoseconds after the start of the pass; `at` is that in the file, and `len` its length
    /// in bytes.
    #[inline]
    pub(crate) fn due(&mut self, at: u64, len: usize) -> f64 {
        self.packets += 1;
        let due = self.sum;
        match self.pace.rate {
            Rate::Max => {}
            Rate::Packets(pps) => self.sum += 1e9 / pps,
            Rate::Bits(bits) => self.sum += len as f64 * 8e9 / bits,
            Rate::Recorded => return self.recorded(at) as f64 / self.pace.speed,
        }
        due
    }

    /// Returns a recorded time. A gap beyond the longest counts as that, and a clock that is set back by more than that as no gap.
    fn recorded(&mut self, at: u64) -> u64 {
        let max_gap = u64::try_from(self.pace.max_gap.as_nanos()).unwrap_or(u64::MAX);
        let is_long = at > self.before.saturating_add(max_gap);
        if is_long || at.saturating_add(max_gap) < self.before {
            let due = if is_long { self.span.saturating_add(max_gap) } else { self.span };
            (self.before, self.shift) = (at, i128::from(due) - i128::from(at));
            self.bounded += 1;
        }
        let due = u64::try_from(i128::from(at) + self.shift).unwrap_or(0);
        (self.before, self.span) = (self.before.max(at), self.span.max(due));
        due
    }

    /// Returns the time of the whole pass, which ends here, in nanoseconds. The mean gap between two recorded frames stands for the gap
    /// from the last frame to the first.
    pub(crate) fn pass(&self) -> f64 {
        match self.pace.rate {
            Rate::Recorded => {
                let (span, gaps) = (self.span as f64, self.packets.saturating_sub(1).max(1) as f64);
                (span + span / gaps) / self.pace.speed
            }
            _ => self.sum,
        }
    }

    /// Returns whether packets have times.
    pub(crate) fn is_rated(&self) -> bool {
        self.pace.rate != Rate::Max
    }

    /// Returns a warning if recorded gaps are cut.
    pub(crate) fn warning(&self) -> Option<String> {
        let Self { bounded, pace: ReplayPace { max_gap, .. }, .. } = self;
        (*bounded > 0).then(|| {
            format!(
                "{bounded} gaps between frames are longer than {max_gap:?}, or negative: max-gap bounds them"
            )
        })
    }

    /// Returns to the start of a pass.
    pub(crate) fn restart(&mut self) {
        *self = Self::of(self.pace);
    }
}
