//! A distribution in buckets of powers of two, like bpftrace's `hist()`.

/// Number of buckets: one for 0 and one for each power of two.
const BUCKETS: usize = 65;

/// Counts of values by power of two. The first bucket is for 0 alone, the others for 1, 2 to 3, 4 to 7 and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log2 {
    counts: [u64; BUCKETS],
}

/// One bucket of a [`Log2`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value in it.
    pub min: u64,
    /// The largest value in it.
    pub max: u64,
    /// The number of values in it.
    pub count: u64,
}

impl Log2 {
    /// The number of buckets.
    pub const BUCKETS: usize = BUCKETS;

    /// Returns a distribution without values.
    pub const fn new() -> Self {
        Self { counts: [0; BUCKETS] }
    }

    /// Returns the index of the bucket for `value`.
    #[inline]
    pub fn index(value: u64) -> usize {
        (u64::BITS - value.leading_zeros()) as usize
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.add(value, 1);
    }

    /// Counts `count` values that fall into the same bucket as `value`.
    #[inline]
    pub fn add(&mut self, value: u64, count: u64) {
        self.counts[Self::index(value)] += count;
    }

    /// Counts `count` values in a bucket.
    pub fn add_to_bucket(&mut self, index: usize, count: u64) {
        self.counts[index] += count;
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Log2) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Iterates from the first to the last bucket that is not empty, including the empty ones between them.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let used = |count: &u64| *count > 0;
        let first = self.counts.iter().position(used).unwrap_or(0);
        let end = self.counts.iter().rposition(used).map_or(0, |last| last + 1);
        (first..end).map(|index| {
            let min = if index == 0 { 0 } else { 1 << (index - 1) };
            let max = if index == 0 { 0 } else { min + (min - 1) };
            Bucket { min, max, count: self.counts[index] }
        })
    }
}

impl Default for Log2 {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_bucket_that_holds_it() {
        for value in [0, 1, 2, 3, 4, 255, 256, 511, 512, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX] {
            let mut one = Log2::new();
            one.record(value);
            let buckets: Vec<_> = one.buckets().collect();
            assert_eq!(buckets.len(), 1, "{value}");
            assert!((buckets[0].min..=buckets[0].max).contains(&value), "{value}: {buckets:?}");
        }
    }

    #[test]
    fn empty_buckets_between_others_are_there_and_around_them_are_not() {
        let mut log2 = Log2::new();
        assert_eq!(log2.buckets().count(), 0);
        [5, 40, 41].into_iter().for_each(|value| log2.record(value));
        let mut twice = log2;
        twice.merge(&log2);
        let counts: Vec<_> = twice.buckets().map(|b| (b.min, b.max, b.count)).collect();
        assert_eq!(counts, [(4, 7, 2), (8, 15, 0), (16, 31, 0), (32, 63, 4)]);
        assert_eq!(twice.count(), 6);
    }
}
