//! Which rows are shown, and in which order: collapsed rows, the filter, the order of siblings.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::rates::{Rates, Row, What};

/// The order of siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Name,
    Rate,
    Drops,
    Backlog,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Name, Self::Rate, Self::Drops, Self::Backlog];

    /// Returns the order that is `steps` further in the list.
    pub(crate) fn step(self, steps: usize) -> Self {
        Self::ALL[(self as usize + steps) % Self::ALL.len()]
    }

    /// Returns the order before this one.
    pub(crate) fn back(self) -> Self {
        self.step(Self::ALL.len() - 1)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Rate => "rate",
            Self::Drops => "drops",
            Self::Backlog => "backlog",
        }
    }

    /// Compares siblings: names upwards, numbers downwards, unknown numbers last.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let by = |of: fn(&Row) -> Option<f64>| of(b).unwrap_or(-1.0).total_cmp(&of(a).unwrap_or(-1.0));
        match self {
            // Devices have no numbers: by their names alone.
            Self::Name => a.order.cmp(&b.order).then_with(|| a.name.cmp(&b.name)),
            Self::Rate => by(|row| row.speed.map(|speed| speed.bits)),
            Self::Drops => by(|row| row.speed.map(|speed| speed.drops)),
            Self::Backlog => b.queued.cmp(&a.queued),
        }
    }
}

/// What the user chose to see of the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The keys of rows that are collapsed or expanded, against their default.
    pub(crate) toggled: HashSet<String>,
    pub(crate) sort: Sort,
    pub(crate) inverted: bool,
    /// Only rows with this text in their name or device, and those above them; all if it is empty.
    pub(crate) filter: String,
}

impl View {
    /// Returns whether the rows below `row` are hidden.
    pub(crate) fn is_collapsed(&self, row: &Row) -> bool {
        let default = matches!(row.what, What::Txqs | What::Flows(_));
        default != self.toggled.contains(&row.key)
    }

    /// Collapses or expands a row.
    pub(crate) fn collapse(&mut self, row: &Row, collapsed: bool) {
        if self.is_collapsed(row) != collapsed && !self.toggled.remove(&row.key) {
            self.toggled.insert(row.key.clone());
        }
    }

    /// Returns the indices of the shown rows, from the top of the screen down.
    pub(crate) fn arrange(&self, rates: &Rates) -> Vec<usize> {
        let ends = ends(&rates.rows);
        let (matching, kept) = self.kept(rates);
        let mut shown = Vec::with_capacity(rates.rows.len());
        let walk = Walk { view: self, rows: &rates.rows, ends: &ends, matching: &matching, kept: &kept };
        walk.siblings(0, rates.rows.len(), &mut shown);
        shown
    }

    /// Returns for each row whether the filter's text is in it, and whether it is in the row or in one below.
    fn kept(&self, rates: &Rates) -> (Vec<bool>, Vec<bool>) {
        let wanted = self.filter.to_lowercase();
        let has = |row: &Row| {
            let device = &rates.devices[row.device].device.name;
            wanted.is_empty()
                || row.name.to_lowercase().contains(&wanted)
                || device.to_lowercase().contains(&wanted)
        };
        let matching: Vec<_> = rates.rows.iter().map(has).collect();
        let mut kept = matching.clone();
        // The depths of rows further down that wait for the row above them.
        let mut waiting = usize::MAX;
        for (index, row) in rates.rows.iter().enumerate().rev() {
            if row.depth < waiting && waiting != usize::MAX {
                kept[index] = true;
            }
            if kept[index] {
                waiting = if row.depth == 0 { usize::MAX } else { row.depth };
            }
        }
        (matching, kept)
    }
}

/// Returns whether rows are below the one at `index`.
pub(crate) fn has_below(rows: &[Row], index: usize) -> bool {
    rows.get(index + 1).is_some_and(|next| next.depth > rows[index].depth)
}

/// Returns for each row the index behind the rows below it.
fn ends(rows: &[Row]) -> Vec<usize> {
    let mut ends = vec![rows.len(); rows.len()];
    let mut open: Vec<usize> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        while open.last().is_some_and(|&above| rows[above].depth >= row.depth) {
            open.pop().into_iter().for_each(|above| ends[above] = index);
        }
        open.push(index);
    }
    ends
}

struct Walk<'r> {
    view: &'r View,
    rows: &'r [Row],
    ends: &'r [usize],
    matching: &'r [bool],
    kept: &'r [bool],
}

impl Walk<'_> {
    /// Appends the rows from `start` to `end`, which have one row above them.
    fn siblings(&self, start: usize, end: usize, shown: &mut Vec<usize>) {
        let (mut own, mut at) = (Vec::new(), start);
        while at < end {
            if self.kept[at] {
                own.push(at);
            }
            at = self.ends[at];
        }
        let View { sort, inverted, .. } = *self.view;
        own.sort_by(|&a, &b| {
            let (a, b) = (&self.rows[a], &self.rows[b]);
            // The txqs stay above the tree of qdiscs.
            let group = |row: &Row| row.what != What::Txqs;
            let order = sort.compare(a, b);
            group(a).cmp(&group(b)).then(if inverted { order.reverse() } else { order })
        });
        for index in own {
            shown.push(index);
            // The filter opens a collapsed row without its text, for the rows below that have it.
            if !self.view.is_collapsed(&self.rows[index]) || !self.matching[index] {
                self.siblings(index + 1, self.ends[index], shown);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::top::testing::{nested, rates};

    fn names(rates: &Rates, view: &View) -> Vec<String> {
        let row = |index: usize| format!("{}{}", " ".repeat(rates.rows[index].depth), rates.rows[index].name);
        view.arrange(rates).into_iter().map(row).collect()
    }

    #[test]
    fn txqs_and_flows_are_collapsed_and_classes_are_not() {
        let (rates, mut view) = (rates(&nested(1)), View::default());
        let closed = names(&rates, &view);
        let expected =
            ["null0", " txqs: 2", " htb 1:", "  htb 1:1", "   htb 1:10", "    fq_codel 8002:", "   htb 1:20"];
        assert_eq!(closed, expected);
        let txqs = &rates.rows[1];
        view.collapse(txqs, false);
        assert_eq!(names(&rates, &view)[1..4], [" txqs: 2", "  txq 0", "  txq 1"]);
        view.collapse(txqs, true);
        view.collapse(&rates.rows[0], true);
        assert_eq!(names(&rates, &view), ["null0"]);
        view.collapse(&rates.rows[0], true);
        view.collapse(&rates.rows[0], false);
        assert_eq!(names(&rates, &view), expected);
    }

    #[test]
    fn a_filter_keeps_the_rows_above_and_opens_collapsed_ones() {
        let (rates, mut view) = (rates(&nested(1)), View::default());
        for (filter, expected) in [
            ("1:20", &["null0", " htb 1:", "  htb 1:1", "   htb 1:20"][..]),
            ("TXQ 1", &["null0", " txqs: 2", "  txq 1"]),
            ("nothing", &[]),
        ] {
            view.filter = filter.to_owned();
            assert_eq!(names(&rates, &view), expected, "{filter}");
        }
        view.filter = "ULL".to_owned();
        assert_eq!(names(&rates, &view).len(), 7);
    }

    #[test]
    fn siblings_are_sorted_and_stay_below_their_parent() {
        let mut rates = rates(&nested(1));
        for row in &mut rates.rows {
            row.queued = u64::from(row.name == "htb 1:20") * 5;
        }
        let mut view = View { sort: Sort::Backlog, ..View::default() };
        assert_eq!(names(&rates, &view)[4..], ["   htb 1:20", "   htb 1:10", "    fq_codel 8002:"]);
        view.inverted = true;
        assert_eq!(names(&rates, &view)[4..], ["   htb 1:10", "    fq_codel 8002:", "   htb 1:20"]);
    }

    #[test]
    fn orders_are_a_ring() {
        let mut sort = Sort::Name;
        for _ in 0..4 {
            assert_eq!(sort.step(1).back(), sort);
            sort = sort.step(1);
        }
        assert_eq!(sort, Sort::Name);
    }
}
