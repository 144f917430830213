//! The numbers of actions, by which tc names them. Each kind has its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::tc::ParseError;

type Used = BTreeMap<&'static str, BTreeSet<u32>>;

/// The numbers in use of all actions of a device. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Indexes(Arc<Mutex<Used>>);

/// The number of an action. The last clone gives it back.
#[derive(Debug, Clone)]
pub(super) struct Number(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    kind: &'static str,
    index: u32,
    of: Indexes,
}

impl Indexes {
    /// Takes a number, or the lowest free one.
    ///
    /// # Errors
    /// The number is taken.
    pub(super) fn take(&self, kind: &'static str, asked: Option<u32>) -> Result<Number, ParseError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = all.entry(kind).or_default();
        let index = match asked.filter(|&index| index != 0) {
            Some(index) if used.contains(&index) => {
                let error = ParseError::new("RTNETLINK answers: File exists");
                return Err(
                    error.with_remedy(format!("another rule has {kind} {index}: leave out the index"))
                );
            }
            Some(index) => index,
            // Numbers are used from 1 on, mostly without gaps.
            None => (1..)
                .zip(used.iter())
                .find(|(free, used)| free != *used)
                .map_or_else(|| used.last().map_or(1, |last| last.wrapping_add(1).max(1)), |(free, _)| free),
        };
        used.insert(index);
        Ok(Number(Arc::new(Taken { kind, index, of: self.clone() })))
    }
}

impl Number {
    pub(super) fn get(&self) -> u32 {
        self.0.index
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut all = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = all.get_mut(self.kind) {
            used.remove(&self.index);
        }
    }
}
