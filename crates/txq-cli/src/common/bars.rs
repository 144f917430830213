//! Histograms in the layout of bpftrace's `hist()` maps, and in that of its JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use txq::stats::log2::Log2;

/// Columns of the longest bar.
const WIDTH: u64 = 52;

/// Returns the map `@name`: a row for each power of two, with a bar in proportion to the largest count.
pub fn text(name: &str, log2: &Log2) -> String {
    let mut text = format!("@{name}:\n");
    let largest = log2.buckets().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    for bucket in log2.buckets() {
        let label = match bucket.min {
            min @ (0 | 1) => format!("[{min}]"),
            min => format!("[{}, {})", bound(min.into()), bound(u128::from(bucket.max) + 1)),
        };
        let bar = "@".repeat((u128::from(bucket.count) * u128::from(WIDTH) / u128::from(largest)) as usize);
        let _ = writeln!(text, "{label:<16}{:>8} |{bar:<52}|", bucket.count);
    }
    text
}

/// Returns a power of two as text, in the largest unit that divides it.
pub fn bound(value: u128) -> String {
    let unit = (value.trailing_zeros() / 10) as usize;
    let suffix = ["", "K", "M", "G", "T", "P", "E"][unit];
    format!("{}{suffix}", value >> (10 * unit))
}

/// Returns the buckets, each with its smallest and largest value and its count.
pub fn json(log2: &Log2) -> Value {
    log2.buckets()
        .map(|bucket| json!({ "min": bucket.min, "max": bucket.max, "count": bucket.count }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(u64, u64)]) -> Log2 {
        let mut log2 = Log2::new();
        values.iter().for_each(|&(value, count)| log2.add(value, count));
        log2
    }

    /// The output of `bpftrace -e 'BEGIN { @x = hist(0); @x = hist(1); @x = hist(3); @x = hist(5000); @x = hist(5000) }'`.
    #[test]
    fn rows_are_bpftraces() {
        let printed = "\
@x:
[0]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[1]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[2, 4)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[4, 8)                 0 |                                                    |
[8, 16)                0 |                                                    |
[16, 32)               0 |                                                    |
[32, 64)               0 |                                                    |
[64, 128)              0 |                                                    |
[128, 256)             0 |                                                    |
[256, 512)             0 |                                                    |
[512, 1K)              0 |                                                    |
[1K, 2K)               0 |                                                    |
[2K, 4K)               0 |                                                    |
[4K, 8K)               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
";
        assert_eq!(text("x", &of(&[(0, 1), (1, 1), (3, 1), (5000, 2)])), printed);
    }

    #[test]
    fn large_numbers_keep_their_row() {
        let full = "@".repeat(52);
        assert_eq!(text("n", &of(&[(300, 2_299_558)])), format!("@n:\n[256, 512)       2299558 |{full}|\n"));
        let one = format!("@n:\n[8E, 16E)              3 |{full}|\n");
        assert_eq!(text("n", &of(&[(u64::MAX, 3)])), one);
        assert_eq!(text("n", &of(&[])), "@n:\n");
    }

    #[test]
    fn json_is_bpftraces() {
        let buckets =
            r#"[{"min":1,"max":1,"count":1},{"min":2,"max":3,"count":0},{"min":4,"max":7,"count":2}]"#;
        assert_eq!(json(&of(&[(1, 1), (6, 2)])).to_string(), buckets);
    }
}
