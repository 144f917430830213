//! The numbers of actions, by which tc names them. Each kind has its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Handles;
use crate::tc::ParseError;

type Used = BTreeMap<&'static str, Handles>;

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
            Some(index) if used.contains(index) => {
                let error = ParseError::new("RTNETLINK answers: File exists");
                return Err(
                    error.with_remedy(format!("another rule has {kind} {index}: leave out the index"))
                );
            }
            Some(index) => index,
            None => used.lowest_free(1).ok_or_else(|| {
                ParseError::new("RTNETLINK answers: No space left on device")
                    .with_remedy(format!("all numbers of {kind} are in use: delete filters"))
            })?,
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
            used.remove(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_lowest_free_ones() {
        let indexes = Indexes::default();
        let take = |asked| indexes.take("gact", asked).map_err(|error| error.message().to_owned());
        let numbers: Vec<_> = (0..4).map(|_| take(None).unwrap()).collect();
        assert_eq!(numbers.iter().map(Number::get).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let high = take(Some(u32::MAX)).unwrap();
        assert_eq!(
            (high.get(), take(Some(2)).unwrap_err()),
            (u32::MAX, "RTNETLINK answers: File exists".to_owned())
        );
        drop(numbers);
        assert_eq!(take(None).unwrap().get(), 1);
        assert_eq!(indexes.take("police", None).unwrap().get(), 1, "each kind has its own numbers");
    }

    /// With 40,000 numbers in use, a walk over all of them takes hundreds of microseconds for each.
    #[test]
    fn a_number_costs_the_same_however_many_are_in_use() {
        let (few, many) = (Indexes::default(), Indexes::default());
        let fill =
            |indexes: &Indexes, n| (0..n).map(|_| indexes.take("gact", None).unwrap()).collect::<Vec<_>>();
        let time = |indexes: &Indexes| {
            let once = || {
                let start = std::time::Instant::now();
                drop(fill(indexes, 100));
                start.elapsed()
            };
            (0..20).map(|_| once()).min().unwrap()
        };
        let (_few, _many) = (fill(&few, 10), fill(&many, 40_000));
        let (few, many) = (time(&few), time(&many));
        assert!(many < few * 20, "{few:?} with 10 numbers in use, {many:?} with 40,000");
    }
}
