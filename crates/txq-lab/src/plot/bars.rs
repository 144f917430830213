//! Pairs of bars, a panel for each group of them.

use plotters::prelude::*;

use super::style::FILLS;
use super::{Area, Page};
use txq_cli::common::table::number;

/// A panel's least width and its height, in pixels, and the number of panels side by side.
const PANEL: (u32, u32) = (320, 240);
const COLUMNS: usize = 3;
/// Pixels of the title and the key above all panels, of a panel's margins, and of a letter below a bar.
const TOP: u32 = 48;
const SIDES: u32 = 90;
const LETTER: u32 = 6;

/// A drawing.
#[derive(Debug)]
pub struct Bars {
    /// The line above all panels.
    pub title: String,
    /// The names of a pair's first and second bar.
    pub names: [&'static str; 2],
    /// The panels.
    pub groups: Vec<Group>,
}

/// The pairs of a panel.
#[derive(Debug)]
pub struct Group {
    /// The line above the panel.
    pub title: String,
    /// The pairs, from left to right.
    pub pairs: Vec<Pair>,
}

/// Two bars side by side; `None` leaves one out.
#[derive(Debug)]
pub struct Pair {
    /// The name below the bars.
    pub name: String,
    /// The heights.
    pub values: [Option<f64>; 2],
}

impl Bars {
    /// Returns the drawing as SVG.
    pub fn draw(&self) -> anyhow::Result<String> {
        let width = self.groups.iter().map(Group::width).max().unwrap_or(0).max(PANEL.0);
        let page = Page { top: TOP, panel: (width, PANEL.1), columns: COLUMNS };
        page.draw(&self.groups, |head| self.head(head), |area, group| group.draw(area))
    }

    fn head(&self, area: &Area<'_>) -> anyhow::Result<()> {
        area.draw(&Text::new(self.title.clone(), (12, 8), ("sans-serif", 14)))?;
        for ((x, name), colour) in [12, 112].into_iter().zip(self.names).zip(FILLS) {
            area.draw(&Rectangle::new([(x, 30), (x + 12, 42)], colour.filled()))?;
            area.draw(&Text::new(name, (x + 18, 31), ("sans-serif", 12)))?;
        }
        Ok(())
    }
}

impl Group {
    /// Returns the width that the names below the bars take.
    fn width(&self) -> u32 {
        let longest = self.pairs.iter().map(|pair| pair.name.chars().count() as u32).max().unwrap_or(0);
        SIDES + self.pairs.len() as u32 * (longest + 1) * LETTER
    }

    fn draw(&self, area: &Area<'_>) -> anyhow::Result<()> {
        let values = self.pairs.iter().flat_map(|pair| pair.values).flatten();
        let highest = values.fold(0.0, f64::max).max(1e-9) * 1.1;
        let last = self.pairs.len() as f64 - 0.5;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 13))
            .margin(10)
            .x_label_area_size(22)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.5..last, 0.0..highest)?;
        let name = |x: &f64| {
            let whole = (x - x.round()).abs() < 1e-6 && *x > -0.1;
            let pair = whole.then(|| self.pairs.get(x.round() as usize)).flatten();
            pair.map_or(String::new(), |pair| pair.name.clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(2 * self.pairs.len() + 1)
            .x_label_formatter(&name)
            .y_labels(5)
            .y_label_formatter(&|y| if y.fract() == 0.0 { format!("{y}") } else { number(*y) })
            .light_line_style(WHITE)
            .draw()?;
        for (index, colour) in FILLS.into_iter().enumerate() {
            let bars = self.pairs.iter().enumerate().filter_map(|(at, pair)| {
                let x = at as f64 + [-0.35, 0.0][index];
                Some(Rectangle::new([(x, 0.0), (x + 0.35, pair.values[index]?)], colour.filled()))
            });
            chart.draw_series(bars)?;
        }
        Ok(())
    }
}
