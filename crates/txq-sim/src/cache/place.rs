//! Where lines are in the memory of the host, and their numbers.

use super::{FRESH, Lines, NONE, table};
use crate::ahead::fetch;

impl Lines {
    /// The place of the line with the key. It need not have been accessed before.
    #[inline]
    pub(crate) fn find(&mut self, key: u64) -> u32 {
        // The memory itself is needed next, and the host can fetch both at a time.
        fetch((key << 6) as usize);
        let found = self.table.find(key);
        if found >= self.lines.len() {
            self.add_page();
        }
        found as u32
    }

    /// The line is accessed: it has a number from now on.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32) {
        let line = &mut self.lines[line as usize];
        if line.number == NONE {
            line.number = self.touched;
            self.touched += 1;
        }
    }

    /// Fetches what is known of the line.
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

    /// The line's number, in the order of their first accesses.
    #[inline]
    pub(crate) fn number(&self, line: u32) -> u32 {
        self.lines[line as usize].number
    }
}
