//! The place of each line in the host's memory, and its number.

use std::ops::Range;

use super::{FRESH_LINE, Lines, NONE, table};
use crate::sim::ahead::fetch;

impl Lines {
    /// Returns the place of the line of `key`, which need not have been accessed before.
    #[inline]
    pub(crate) fn find(&mut self, key: u64) -> u32 {
        let found = self.table.find(key);
        if found >= self.lines.len() {
            self.add_page();
        }
        found as u32
    }

    /// Prefetches the state of adjacent lines.
    #[inline]
    pub(crate) fn fetch_range(&mut self, keys: &Range<u64>) {
        if keys.is_empty() {
            return;
        }
        let first = self.find(keys.start);
        // Mostly they are in one page. Any address may be fetched.
        let n = (keys.end - keys.start) as usize;
        let (state, shared) = (size_of::<super::Line>(), self.words * 8);
        (0..n).step_by(2).for_each(|i| fetch(self.lines.as_ptr().addr() + (first as usize + i) * state));
        let sharers = self.sharers.as_ptr().addr() + first as usize * shared;
        (0..n * shared).step_by(64).for_each(|i| fetch(sharers + i));
    }

    /// Gives the line a number at its first access.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32) {
        let line = &mut self.lines[line as usize];
        if line.number == NONE {
            line.number = self.touched;
            self.touched += 1;
        }
    }

    /// Prefetches the line's state.
    #[inline]
    pub(crate) fn fetch(&self, line: u32) {
        fetch(self.lines.as_ptr().wrapping_add(line as usize).addr());
        fetch(self.sharers.as_ptr().wrapping_add(line as usize * self.words).addr());
    }

    #[cold]
    fn add_page(&mut self) {
        self.lines.resize(self.lines.len() + table::LINES_PER_PAGE, FRESH_LINE);
        self.sharers.resize(self.lines.len() * self.words, 0);
    }

    /// Returns the line's number, in the order of first accesses.
    #[inline]
    pub(crate) fn number(&self, line: u32) -> u32 {
        self.lines[line as usize].number
    }
}
