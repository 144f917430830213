//! SVG drawings: panels side by side, with curves or with bars.

mod bars;
mod curves;
mod steps;

use plotters::coord::Shift;
use plotters::prelude::*;

pub use bars::{Bars, Group, Pair};
pub use curves::{At, Curve, Curves, Size, curves};
pub use steps::places;

/// Colours that can be told apart without green and red.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(148, 103, 189),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

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
