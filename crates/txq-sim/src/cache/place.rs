//! The place of each line in the host's memory, and its number.

use super::{FRESH, Lines, NONE, table};
use crate::ahead::fetch;

impl Lines {
    /// Returns the place of the line of `key`, which need not have been accessed before.
    #[inline]
    pub(crate) fn find(&mut self, key: u64) -> u32 {
        // The memory itself is needed next; the host can fetch both at the same time.
        fetch((key << 6) as usize);
        let found = self.table.find(key);
        if found >= self.lines.len() {
            self.add_page();
        }
        found as u32
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
        self.lines.resize(self.lines.len() + table::LINES, FRESH);
        self.sharers.resize(self.lines.len() * self.words, 0);
    }

    /// Returns the line's number, in the order of first accesses.
    #[inline]
    pub(crate) fn number(&self, line: u32) -> u32 {
        self.lines[line as usize].number
    }
}
