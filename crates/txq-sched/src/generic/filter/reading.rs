//! Which rules a reader of filters gets.

use super::show::{FilterInfo, Shown};

/// The rules that are read in one call: a portion of a list, or the one with a given handle. All others are passed over before they
/// are written down.
pub(super) struct Reading {
    wanted: Wanted,
    /// The lines and rules that were read, in order.
    pub(super) list: Vec<FilterInfo>,
}

enum Wanted {
    /// `left` lines, behind the first `skip`.
    Lines { skip: usize, left: usize },
    /// The rule with this handle.
    Rule(u32),
}

impl Reading {
    /// Reads `most` lines behind the first `skip`.
    pub(super) fn lines(skip: usize, most: usize) -> Self {
        Self { wanted: Wanted::Lines { skip, left: most }, list: Vec::new() }
    }

    /// Reads the rule with a handle. No rule has the handle 0.
    pub(super) fn rule(handle: u32) -> Self {
        Self { wanted: Wanted::Rule(handle), list: Vec::new() }
    }

    /// Returns whether all lines have been read.
    pub(super) fn is_over(&self) -> bool {
        match self.wanted {
            Wanted::Lines { left, .. } => left == 0,
            Wanted::Rule(_) => !self.list.is_empty(),
        }
    }

    /// Appends the line of a pref, if it is wanted.
    pub(super) fn head(&mut self, head: FilterInfo) {
        if self.is_wanted(0) {
            self.list.push(head);
        }
    }

    /// Appends a rule, which has `handle` (0 for none) and belongs to the pref `head`, if it is wanted.
    pub(super) fn put(&mut self, head: &FilterInfo, handle: u32, show: impl FnOnce() -> Shown) {
        if self.is_wanted(handle) {
            self.list.push(show().into_info(head.clone()));
        }
    }

    fn is_wanted(&mut self, handle: u32) -> bool {
        match &mut self.wanted {
            Wanted::Rule(wanted) => handle != 0 && *wanted == handle,
            Wanted::Lines { skip, .. } if *skip > 0 => {
                *skip -= 1;
                false
            }
            Wanted::Lines { left, .. } => {
                let is_left = *left > 0;
                *left -= usize::from(is_left);
                is_left
            }
        }
    }
}
