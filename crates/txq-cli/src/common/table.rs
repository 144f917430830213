//! Tables for people: numbers of three digits, and columns that line up.

use std::fmt::Write;

/// Formats a number with three significant digits, or all of its integer part.
pub fn number(value: f64) -> String {
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$}")
}

/// Writes columns as wide as needed, the first left-aligned and the others right-aligned.
pub fn align(text: &mut String, heads: Vec<String>, rows: Vec<Vec<String>>) {
    let width = |column: usize| {
        let cells = rows.iter().chain([&heads]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for row in [&heads].into_iter().chain(&rows) {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
