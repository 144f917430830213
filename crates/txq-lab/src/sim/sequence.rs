//! A core's prefetcher: it requests the lines of an array before the thread that accesses the array in order.
//!
//! After three accesses at equal distances a core requests the next lines ([`Line::ahead`](crate::sim::machine::Line::ahead)), for
//! reading or for writing as the accesses were. So a thread waits only for the first lines of a ring that another CPU has used.
//!
//! A real prefetcher also fetches lines behind the array's end. What lies there differs from run to run. So the simulated one
//! fetches only arrays that the data plane announces ([`Arch::array`]), and stops at their ends.
//!
//! [`Arch::array`]: txq_core::arch::Arch::array

use std::cell::RefCell;
use std::collections::VecDeque;
use std::iter::StepBy;
use std::ops::Range;

use crate::sim::machine::Picos;

/// The longest distance of two accesses that a prefetcher follows, in lines.
const FARTHEST: u64 = 4;
/// Bytes of a line, as a power of two.
const LINE_LOG2: u32 = 6;

thread_local! {
    /// The arrays of the world that this thread builds.
    static ARRAYS: RefCell<Vec<Range<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Announces an array.
pub(crate) fn array<T>(at: &[T]) {
    let bytes = at.as_ptr_range();
    let (from, to) =
        (bytes.start.addr() as u64 >> LINE_LOG2, (bytes.end.addr() as u64).div_ceil(1 << LINE_LOG2));
    if from < to {
        ARRAYS.with_borrow_mut(|arrays| arrays.push(from..to));
    }
}

/// Forgets all arrays, and returns them.
pub(crate) fn take() -> Vec<Range<u64>> {
    ARRAYS.take()
}

/// A core's way through an array.
#[derive(Debug, Clone, Default)]
pub(crate) struct Way {
    last: u64,
    /// The distance of the last two lines; 0 if it is none that is followed.
    step: u64,
    /// The first line that has not been requested.
    next: u64,
    /// The lines on their way, and when they arrive.
    flight: VecDeque<(u64, Picos)>,
}

/// The arrays of a world, and the CPUs' ways through them.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Disjoint, in the order of their keys, each with a way of each CPU. Empty if the machine fetches no line ahead.
    arrays: Vec<(Range<u64>, Vec<Way>)>,
    /// From the first to the last of their keys.
    all: Range<u64>,
    cpus: usize,
    /// Number of lines.
    ahead: u64,
}

impl Sequences {
    pub(crate) fn new(cpus: u32, ahead: u32) -> Self {
        Self { arrays: Vec::new(), all: 0..0, cpus: cpus as usize, ahead: ahead.into() }
    }

    /// Sets the arrays, if there are some: a world that goes on has set its own before.
    pub(crate) fn set(&mut self, mut arrays: Vec<Range<u64>>) {
        if self.ahead == 0 || arrays.is_empty() {
            return;
        }
        arrays.sort_by_key(|keys| keys.start);
        // An array may lie where an earlier one was.
        arrays.dedup_by(|keys, before| keys.start < before.end);
        self.all = arrays.first().map_or(0, |keys| keys.start)..arrays.last().map_or(0, |keys| keys.end);
        self.arrays = arrays.into_iter().map(|keys| (keys, vec![Way::default(); self.cpus])).collect();
    }

    /// Returns whether a line belongs to an array.
    #[inline]
    pub(crate) fn covers(&self, key: u64) -> bool {
        self.all.contains(&key)
            && self.arrays.get(self.place(key)).is_some_and(|(keys, _)| keys.contains(&key))
    }

    /// Returns the place of the array of a line, if it belongs to one.
    fn place(&self, key: u64) -> usize {
        self.arrays.partition_point(|(keys, _)| keys.end <= key)
    }

    /// Notes that a CPU accesses a line. Returns its way through the array, and the lines to request now; `None` for a line of no
    /// array.
    #[inline]
    pub(crate) fn follow(&mut self, key: u64, cpu: u32) -> Option<(&mut Way, StepBy<Range<u64>>)> {
        if !self.all.contains(&key) {
            return None;
        }
        let place = self.place(key);
        let (keys, ways) = self.arrays.get_mut(place).filter(|(keys, _)| keys.contains(&key))?;
        let way = &mut ways[cpu as usize];
        let lines = way.follow(key, self.ahead, keys.end);
        Some((way, lines))
    }
}

impl Way {
    /// Notes an access to a line. Returns the lines to request: `ahead` lines at most, all before `end`.
    fn follow(&mut self, key: u64, ahead: u64, end: u64) -> StepBy<Range<u64>> {
        let none = (0..0).step_by(1);
        if key == self.last {
            return none;
        }
        let step = key.wrapping_sub(self.last);
        let goes_on = step == self.step;
        self.last = key;
        if !goes_on {
            (self.step, self.next) = (if step <= FARTHEST { step } else { 0 }, key.saturating_add(step));
            self.flight.retain(|(line, _)| *line == key);
            return none;
        }
        let from = self.next.max(key + step);
        let to = (key + step * ahead + 1).min(end);
        if from >= to {
            return none;
        }
        self.next = from + (to - from).div_ceil(step) * step;
        (from..to).step_by(step as usize)
    }

    /// Returns when a line arrives that was requested ahead, once.
    pub(crate) fn arrival(&mut self, key: u64) -> Option<Picos> {
        let at = self.flight.iter().position(|(line, _)| *line == key)?;
        self.flight.remove(at).map(|(_, at)| at)
    }

    /// Notes that a line has been requested, which arrives at `at`.
    pub(crate) fn requested(&mut self, key: u64, at: Picos) {
        self.flight.push_back((key, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; 0] = [];

    fn sequences(arrays: &[Range<u64>], cpus: u32, ahead: u32) -> Sequences {
        let mut sequences = Sequences::new(cpus, ahead);
        sequences.set(arrays.to_vec());
        sequences
    }

    fn one(cpus: u32, ahead: u32) -> Sequences {
        sequences(&[100..200, 900..901], cpus, ahead)
    }

    fn lines(sequences: &mut Sequences, key: u64, cpu: u32) -> Vec<u64> {
        sequences.follow(key, cpu).map_or(Vec::new(), |(_, lines)| lines.collect())
    }

    #[test]
    fn the_third_line_at_the_same_distance_fetches_ahead() {
        let mut s = one(2, 3);
        assert_eq!(lines(&mut s, 110, 0), NONE);
        assert_eq!(lines(&mut s, 112, 0), NONE);
        assert_eq!(lines(&mut s, 112, 0), NONE, "the same line again");
        assert_eq!(lines(&mut s, 111, 1), NONE, "another CPU has its own way");
        assert_eq!(lines(&mut s, 114, 0), [116, 118, 120]);
        assert_eq!(lines(&mut s, 116, 0), [122]);
        assert_eq!(lines(&mut s, 117, 0), NONE, "another distance");
        assert_eq!(lines(&mut s, 118, 0), [119, 120, 121]);
        assert_eq!(lines(&mut s, 180, 0), NONE);
        assert_eq!(lines(&mut s, 190, 0), NONE);
        assert_eq!(lines(&mut s, 200, 0), NONE, "of no array");
    }

    #[test]
    fn nothing_behind_an_array_is_fetched() {
        let mut s = sequences(&[300..400, 100..103, 101..120], 1, 8);
        assert_eq!(
            [99, 100, 102, 103, 250, 300, 399, 400].map(|key| s.covers(key)),
            [false, true, true, false, false, true, true, false]
        );
        assert_eq!(lines(&mut s, 100, 0), NONE);
        assert_eq!(lines(&mut s, 101, 0), NONE);
        assert_eq!(lines(&mut s, 102, 0), NONE);
        assert!(s.follow(110, 0).is_none(), "it overlaps an array");
        for key in [394, 395] {
            assert_eq!(lines(&mut s, key, 0), NONE);
        }
        assert_eq!(lines(&mut s, 396, 0), [397, 398, 399]);
    }

    #[test]
    fn a_line_that_was_fetched_arrives_once() {
        let mut s = one(1, 2);
        (100..103).for_each(|key| _ = lines(&mut s, key, 0));
        let (way, _) = s.follow(102, 0).expect("an array");
        way.requested(103, 7000);
        way.requested(104, 8000);
        let arrival = |s: &mut Sequences, key| s.follow(key, 0).and_then(|(way, _)| way.arrival(key));
        assert_eq!(
            (arrival(&mut s, 103), arrival(&mut s, 103), arrival(&mut s, 104)),
            (Some(7000), None, Some(8000))
        );
        assert!(!one(1, 0).covers(100), "a machine without a prefetcher");
    }
}
