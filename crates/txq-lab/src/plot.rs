//! SVG drawings: panels side by side, with curves or with bars.

mod axes;
mod bars;
mod curves;
mod style;

use plotters::coord::Shift;
use plotters::prelude::*;

pub use axes::{are_doubling, places};
pub use bars::{Bars, Group, Pair};
pub use curves::{At, Curve, Curves, Size, curves};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels of a letter of the titles, of the names and of the notes, about.
const TITLE: (u32, u32) = (14, 8);
const SMALL: (u32, u32) = (11, 6);

/// How panels lie on a page: `top` pixels above all of them, then lines of `columns` panels of that size.
struct Page {
    top: u32,
    panel: (u32, u32),
    columns: usize,
}

impl Page {
    /// Draws the head with `head` and each panel with `draw`; returns the SVG.
    fn draw<T>(
        &self,
        panels: &[T],
        head: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
        draw: impl Fn(&Area<'_>, &T) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let columns = self.columns.min(panels.len()).max(1);
        let lines = panels.len().div_ceil(columns).max(1);
        let size = (self.panel.0 * columns as u32, self.top + self.panel.1 * lines as u32);
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        let (above, body) = area.split_vertically(self.top);
        head(&above)?;
        for (area, panel) in body.split_evenly((lines, columns)).iter().zip(panels) {
            draw(area, panel)?;
        }
        area.present()?;
        drop((area, above, body));
        Ok(text)
    }
}

/// Breaks a text at spaces into lines of at most `width` letters, or of one longer word.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn texts_are_broken_at_spaces() {
        assert_eq!(wrapped("a bc def ghijkl m", 6), ["a bc", "def", "ghijkl", "m"]);
        assert!(wrapped("", 6).is_empty());
    }
}
