//! The set of numbers in use, of actions or of a filter's rules, with a fast search for the lowest free one.
//!
//! The numbers in use are stored as runs without gaps: a table without deletions is one run, and a deletion adds at most one
//! run. Every operation is logarithmic in the number of runs (the kernel's `idr`).

use std::collections::BTreeMap;

/// A set of numbers.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// First number of each run, to its last. Between two runs at least one number is free.
    runs: BTreeMap<u32, u32>,
}

impl Handles {
    /// Returns the run that contains `handle`, or the last one before it.
    fn run_at(&self, handle: u32) -> Option<(u32, u32)> {
        self.runs.range(..=handle).next_back().map(|(&first, &last)| (first, last))
    }

    /// Returns whether a number is in use.
    pub(crate) fn contains(&self, handle: u32) -> bool {
        self.run_at(handle).is_some_and(|(_, last)| last >= handle)
    }

    /// Adds a number. Does nothing if it is in use.
    pub(crate) fn insert(&mut self, handle: u32) {
        let before = self.run_at(handle);
        if before.is_some_and(|(_, last)| last >= handle) {
            return;
        }
        let after = handle.checked_add(1).and_then(|next| self.runs.remove(&next));
        let first = before.filter(|&(_, last)| last + 1 == handle).map_or(handle, |(first, _)| first);
        self.runs.insert(first, after.unwrap_or(handle));
    }

    /// Removes a number. Does nothing if it is free.
    pub(crate) fn remove(&mut self, handle: u32) {
        let Some((first, last)) = self.run_at(handle).filter(|&(_, last)| last >= handle) else { return };
        self.runs.remove(&first);
        if first < handle {
            self.runs.insert(first, handle - 1);
        }
        if handle < last {
            self.runs.insert(handle + 1, last);
        }
    }

    /// Returns the lowest free number from `from` on, or `None` if all up to `u32::MAX` are in use.
    pub(crate) fn lowest_free(&self, from: u32) -> Option<u32> {
        match self.run_at(from) {
            Some((_, last)) if last >= from => last.checked_add(1),
            _ => Some(from),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_lowest_free_number_is_that_of_a_set(
            script in prop::collection::vec((any::<bool>(), prop_oneof![0u32..12, u32::MAX - 4..=u32::MAX]), 1..80),
        ) {
            let (mut handles, mut model) = (Handles::default(), BTreeSet::new());
            for (add, handle) in script {
                if add {
                    handles.insert(handle);
                    model.insert(handle);
                } else {
                    handles.remove(handle);
                    model.remove(&handle);
                }
                for from in (0..14).chain(u32::MAX - 5..=u32::MAX) {
                    let free = (from..=u32::MAX).find(|handle| !model.contains(handle));
                    prop_assert_eq!(handles.lowest_free(from), free, "from {}", from);
                }
                let runs: Vec<_> = handles.runs.iter().collect();
                prop_assert!(runs.windows(2).all(|pair| *pair[0].1 + 1 < *pair[1].0), "runs do not touch: {:?}", runs);
            }
        }
    }
}
