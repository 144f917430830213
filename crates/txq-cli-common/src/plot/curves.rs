//! Curves of one figure, a panel for each set of them.

use plotters::prelude::*;

use super::steps::Steps;
use super::{Area, COLOURS, Page};

/// The size of a panel in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Width of the whole panel.
    pub width: u32,
    /// Height of the panel.
    pub height: u32,
    /// The part of the width for the curves' names.
    pub names: u32,
}

/// The curves of a panel.
#[derive(Debug, Default)]
pub struct Curves {
    /// The line above the panel.
    pub title: String,
    /// The name of the x axis.
    pub over: String,
    /// The name of the figure, on the y axis.
    pub figure: String,
    /// The name of each step on the x axis, and its place.
    pub steps: Vec<(String, f64)>,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A curve.
#[derive(Debug)]
pub struct Curve {
    /// The name beside the panel; empty for a curve without one.
    pub name: String,
    /// The values, in the order of their steps.
    pub at: Vec<At>,
}

/// A value of a curve.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The index of the step.
    pub step: usize,
    /// The value there.
    pub value: f64,
    /// The least and the greatest of several measurements of the value.
    pub spread: Option<(f64, f64)>,
}

/// Draws panels of that size in lines of `columns`; returns the SVG.
pub fn curves(panels: &[Curves], size: Size, columns: usize) -> anyhow::Result<String> {
    let page = Page { top: 0, panel: (size.width, size.height), columns };
    page.draw(panels, |_| Ok(()), |area, panel| panel.draw(area, size))
}

impl Curves {
    fn draw(&self, area: &Area<'_>, size: Size) -> anyhow::Result<()> {
        let (left, names) = area.split_horizontally(size.width - size.names);
        let places: Vec<f64> = self.steps.iter().map(|(_, place)| *place).collect();
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 14))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(Steps(places.clone()), self.heights())?;
        let label = |x: &f64| {
            let step = places.iter().position(|place| (place - x).abs() < 1e-9);
            step.map_or(String::new(), |step| self.steps[step].0.clone())
        };
        chart
            .configure_mesh()
            .x_labels(places.len())
            .x_label_formatter(&label)
            .x_desc(&self.over)
            .y_desc(&self.figure)
            .light_line_style(WHITE)
            .draw()?;
        for (index, curve) in self.curves.iter().enumerate() {
            let (colour, first) = (COLOURS[index % COLOURS.len()], index < COLOURS.len());
            // When colours repeat, curves are thin, with hollow dots.
            let style = colour.stroke_width(if first { 2 } else { 1 });
            let dot = if first { colour.filled() } else { style };
            let points = || curve.at.iter().map(|at| (places[at.step], at.value));
            chart.draw_series(LineSeries::new(points(), style))?;
            let spread = curve.at.iter().filter_map(|at| Some((places[at.step], at.spread?)));
            chart.draw_series(
                spread.map(|(x, (low, high))| PathElement::new([(x, low), (x, high)], colour)),
            )?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, dot)))?;
            if curve.name.is_empty() {
                continue;
            }
            let y = 48 + 18 * index as i32;
            names.draw(&PathElement::new([(4, y), (24, y)], style))?;
            names.draw(&Circle::new((14, y), 3, dot))?;
            names.draw(&Text::new(curve.name.clone(), (30, y - 5), ("sans-serif", 12)))?;
        }
        Ok(())
    }

    /// Returns the range of the y axis: from zero, or the least value below it, to a little above the highest.
    fn heights(&self) -> std::ops::Range<f64> {
        let values = self.curves.iter().flat_map(|curve| &curve.at);
        let ends = values.flat_map(|at| [at.value, at.spread.map_or(at.value, |(_, high)| high)]);
        let (low, high) = ends.fold((0.0, 0.0), |(low, high): (f64, f64), y| (low.min(y), high.max(y)));
        low..if low < high { high + (high - low) * 0.05 } else { low + 1.0 }
    }
}
