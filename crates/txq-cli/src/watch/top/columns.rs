//! The columns of the tree, on the screen and in `txq top --once`.

use super::rates::{Row, What};
use super::units;

/// The heads of the columns behind the name, and their widths. A narrow screen leaves out the last ones.
pub(crate) const COLUMNS: [(&str, usize); 6] =
    [("RATE", 8), ("PPS", 6), ("DROPS/s", 7), ("BACKLOG", 7), ("OVERLIM/s", 9), ("P99", 6)];

/// Returns the texts of a row below [`COLUMNS`]; a dash stands for what is not known.
pub(crate) fn cells(row: &Row, bytes: bool) -> [String; COLUMNS.len()] {
    let speed = row.speed.as_ref();
    let counted = !matches!(row.what, What::Device | What::Txqs | What::Txq(_));
    let overlimits = speed.and_then(|speed| speed.overlimits).filter(|_| counted);
    [
        units::or_dash(speed.map(|speed| units::rate(speed.bits))),
        units::or_dash(speed.map(|speed| units::count(speed.packets))),
        units::or_dash(speed.map(|speed| units::count(speed.drops))),
        match row.backlog.filter(|_| bytes) {
            Some(backlog) => units::size(backlog),
            None => format!("{}p", units::count(row.queued as f64)),
        },
        units::or_dash(overlimits.map(units::count)),
        units::or_dash(row.p99.map(units::time)),
    ]
}

/// Aligns the columns of rows; the first `left` of them to the left, the others to the right.
pub(crate) fn align(rows: &[Vec<String>], left: usize) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length = |text: &String| text.chars().count();
    let width = |column| rows.iter().filter_map(|row| row.get(column)).map(length).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::top::testing::{after, nested};

    #[test]
    fn a_row_has_its_rates_and_dashes() {
        let rates = after(&nested(1), &nested(3));
        let row = |name: &str| rates.rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(cells(row("null0"), true), ["160Kbit", "20", "2", "7p", "-", "1.02us"]);
        assert_eq!(cells(row("htb 1:10"), false), ["160Kbit", "20", "2", "7p", "4", "-"]);
        assert_eq!(cells(row("htb 1:10"), true)[3], "6.84Kb");
        let new = Row { speed: None, ..row("htb 1:10").clone() };
        assert_eq!(cells(&new, false), ["-", "-", "-", "7p", "-", "-"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "b", "1"], ["long", "c", "100"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows, 2), ["a     b    1", "long  c  100"]);
        assert!(align(&[], 1).is_empty());
    }
}
