//! The tree of devices, qdiscs and classes. Only the rows on the screen are formatted.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::columns::{COLUMNS, cells};
use super::super::rates::Rates;
use super::super::state::{Link, State};
use super::super::tree;
use super::{Theme, put};

/// The narrowest column of names, and of bars.
const NARROWEST: (usize, usize) = (12, 8);
/// The widest column of names that bars leave, and of bars: one for each second of a minute.
const WIDEST_COLUMNS: (usize, usize) = (48, 60);

/// The widths of a screen: of the names, how many columns follow, of the bars.
struct Widths {
    name: usize,
    columns: usize,
    bars: usize,
}

impl Widths {
    fn of(width: usize) -> Self {
        let (mut free, mut columns) = (width, 0);
        for (_, width) in COLUMNS {
            if free < NARROWEST.0 + 1 + width {
                return Self { name: free, columns, bars: 0 };
            }
            free -= 1 + width;
            columns += 1;
        }
        if free < NARROWEST.0 + 1 + NARROWEST.1 {
            return Self { name: free, columns, bars: 0 };
        }
        let name = (free / 2).clamp(20, WIDEST_COLUMNS.0).min(free - 1 - NARROWEST.1);
        let bars = (free - 1 - name).min(WIDEST_COLUMNS.1);
        Self { name: free - 1 - bars, columns, bars }
    }
}

/// Draws the heads and the rows around the selected one.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &mut State, theme: Theme) {
    let head = usize::from(area.height >= 2);
    state.fit(usize::from(area.height).saturating_sub(head));
    let (Some(rates), widths) = (&state.rates, Widths::of(area.width.into())) else { return };
    if head > 0 {
        let heads = COLUMNS.map(|(head, _)| head.to_owned());
        let line = line(&widths, "NAME", &heads, "LAST MIN");
        put(buffer, area, 0, 0, &format!("{line:<0$}", usize::from(area.width)), theme.reversed());
    }
    let rows = usize::from(area.height).saturating_sub(head);
    for (line, place) in (state.offset..state.shown.len()).take(rows).enumerate() {
        row(buffer, area, head + line, (state, rates, &widths), place, theme);
    }
    if state.shown.is_empty() {
        let why = if state.view.filter.is_empty() {
            "no devices"
        } else {
            "nothing has the filter's text: Esc shows all"
        };
        put(buffer, area, head, 0, why, Style::new());
    }
}

type Shown<'s> = (&'s State, &'s Rates, &'s Widths);

fn row(
    buffer: &mut Buffer,
    area: Rect,
    at: usize,
    (state, rates, widths): Shown<'_>,
    place: usize,
    theme: Theme,
) {
    let index = state.shown[place];
    let row = &rates.rows[index];
    let open = state.shown.get(place + 1).is_some_and(|&next| rates.rows[next].depth > row.depth);
    let mark = match tree::has_below(&rates.rows, index) {
        true if open || !state.view.is_collapsed(row) => '-',
        true => '+',
        false => ' ',
    };
    let name = format!("{:1$}{mark}{2}", "", row.depth, row.name);
    let (cells, bars) = (cells(row, state.bytes), state.history.bars(&row.key, widths.bars));
    let selected = place == state.cursor;
    let style = match (selected, &state.link) {
        (true, _) => theme.reversed(),
        (false, Link::Live) => Style::new(),
        // The numbers are old.
        (false, _) => theme.quiet(),
    };
    let text = line(widths, &name, &cells, &bars);
    put(buffer, area, at, 0, &format!("{text:<0$}", usize::from(area.width)), style);
    let lost = row.speed.is_some_and(|speed| speed.drops > 0.0);
    if lost && !selected && widths.columns > 2 {
        let before: usize = COLUMNS[..2].iter().map(|(_, width)| 1 + width).sum();
        let text = format!("{:>1$}", cells[2], COLUMNS[2].1);
        put(buffer, area, at, widths.name + before + 1, &text, theme.alarm());
    }
}

/// Returns the text of a line.
fn line(widths: &Widths, name: &str, cells: &[String; COLUMNS.len()], bars: &str) -> String {
    let mut line: String = name.chars().take(widths.name).collect();
    line += &" ".repeat(widths.name - line.chars().count());
    for (cell, (_, width)) in cells.iter().zip(COLUMNS).take(widths.columns) {
        line += &format!(" {cell:>width$}");
    }
    if widths.bars > 0 {
        line.push(' ');
        line.extend(bars.chars().take(widths.bars));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_fill_each_width_and_never_more() {
        for width in 0..400 {
            let widths = Widths::of(width);
            let columns: usize = COLUMNS.iter().take(widths.columns).map(|(_, width)| 1 + width).sum();
            let bars = if widths.bars > 0 { 1 + widths.bars } else { 0 };
            assert_eq!(widths.name + columns + bars, width, "{width}");
            assert!(widths.name >= width.min(12), "{width}");
        }
        let usual = Widths::of(80);
        assert_eq!((usual.columns, usual.name, usual.bars), (6, 20, 10));
    }
}
