//! Curves of one figure, a panel for each set of them.

use plotters::prelude::*;

use super::axes::{Heights, Steps, are_doubling};
use super::style::Style;
use super::{Area, Page, SMALL, TITLE, wrapped};
use txq_cli::common::table::number;

/// Pixels of a panel's margin, of its x axis' names and of its y axis' names.
const MARGIN: u32 = 12;
const BELOW: u32 = 44;
const BESIDE: u32 = 64;
/// Pixels between two lines of the names and of the note.
const NAME: i32 = 18;
const NOTE: i32 = 15;

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
    /// A smaller text below the title, on as many lines as it needs.
    pub note: String,
    /// The name of the x axis, with its unit.
    pub over: String,
    /// The name of the figure, on the y axis, with its unit.
    pub figure: String,
    /// The name of each step on the x axis, and its place.
    pub steps: Vec<(String, f64)>,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Whether values that span much are drawn by their logarithms although the steps do not double.
    pub log: bool,
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

/// Draws panels of that size in lines of `columns`; returns the SVG. A panel is higher if its curves' names need it.
pub fn curves(panels: &[Curves], size: Size, columns: usize) -> anyhow::Result<String> {
    let needed =
        panels.iter().map(|panel| panel.top(size) + panel.curves.len() as i32 * NAME).max().unwrap_or(0);
    let size = Size { height: size.height.max(needed as u32 + 2 * MARGIN), ..size };
    let page = Page { top: 0, panel: (size.width, size.height), columns };
    page.draw(panels, |_| Ok(()), |area, panel| panel.draw(area, size))
}

impl Curves {
    /// Returns the lines of the note.
    fn note(&self, size: Size) -> Vec<String> {
        wrapped(&self.note, ((size.width - 2 * MARGIN) / SMALL.1) as usize)
    }

    /// Returns the lines of the title.
    fn title(&self, size: Size) -> Vec<String> {
        wrapped(&self.title, ((size.width - 2 * MARGIN) / TITLE.1) as usize)
    }

    /// Returns the pixels above the curves.
    fn top(&self, size: Size) -> i32 {
        MARGIN as i32 + NAME * self.title(size).len() as i32 + NOTE * self.note(size).len() as i32
    }

    fn draw(&self, area: &Area<'_>, size: Size) -> anyhow::Result<()> {
        let left = MARGIN as i32;
        let mut y = left;
        for line in self.title(size) {
            area.draw(&Text::new(line, (left, y), ("sans-serif", TITLE.0)))?;
            y += NAME;
        }
        for line in self.note(size) {
            let grey = ("sans-serif", SMALL.0).into_text_style(area).color(&RGBColor(90, 90, 90));
            area.draw(&Text::new(line, (left, y), grey))?;
            y += NOTE;
        }
        let (_, body) = area.split_vertically(y);
        let (body, names) = body.split_horizontally(size.width - size.names);
        let doubling = are_doubling(&self.steps.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        let steps = Steps::new(&self.steps, size.width - size.names - 2 * MARGIN - BESIDE, SMALL.1 + 1);
        let places = steps.places.clone();
        let values = self.curves.iter().flat_map(|curve| &curve.at);
        let ends = values.flat_map(|at| {
            let (low, high) = at.spread.unwrap_or((at.value, at.value));
            [at.value, low, high]
        });
        let heights = Heights::new(ends, doubling || self.log);
        let scale = |log: bool| if log { ", log scale" } else { "" };
        let (over, figure) = (
            format!("{}{}", self.over, scale(doubling)),
            format!("{}{}", self.figure, scale(heights.is_log())),
        );
        let mut chart = ChartBuilder::on(&body)
            .margin(MARGIN)
            .x_label_area_size(BELOW)
            .y_label_area_size(BESIDE)
            .build_cartesian_2d(steps, heights)?;
        let label = |x: &f64| {
            let step = places.iter().position(|place| (place - x).abs() < 1e-9);
            step.map_or(String::new(), |step| self.steps[step].0.clone())
        };
        chart
            .configure_mesh()
            .x_labels(places.len())
            .x_label_formatter(&label)
            .y_label_formatter(&|y| if y.fract() == 0.0 { format!("{y}") } else { number(*y) })
            .x_desc(over)
            .y_desc(figure)
            .light_line_style(WHITE)
            .draw()?;
        let (left, top) = area.get_base_pixel();
        let pixel = |(x, y): (i32, i32)| (x - left, y - top);
        let styles = Style::all(self.curves.iter().map(|curve| curve.name.as_str()));
        let mut line = 0;
        for (curve, style) in self.curves.iter().zip(styles) {
            let points = || curve.at.iter().map(|at| (places[at.step], at.value));
            chart.draw_series(LineSeries::new(points(), style.line()))?;
            for at in &curve.at {
                let (x, y) = pixel(chart.backend_coord(&(places[at.step], at.value)));
                if let Some((low, high)) = at.spread {
                    let [(_, low), (_, high)] =
                        [low, high].map(|end| pixel(chart.backend_coord(&(places[at.step], end))));
                    whisker(area, style, x, (low, high))?;
                }
                style.mark(area, (x, y))?;
            }
            if curve.name.is_empty() {
                continue;
            }
            let at = MARGIN as i32 + NAME * line;
            names.draw(&PathElement::new([(4, at), (24, at)], style.line()))?;
            style.mark(&names, (14, at))?;
            names.draw(&Text::new(curve.name.clone(), (30, at - 5), ("sans-serif", SMALL.0 + 1)))?;
            line += 1;
        }
        Ok(())
    }
}

/// Draws a whisker with its ends, at pixels; none if it would be hidden behind the mark.
fn whisker(area: &Area<'_>, style: Style, x: i32, (low, high): (i32, i32)) -> anyhow::Result<()> {
    if low - high > 6 {
        let thin = style.colour.stroke_width(1);
        area.draw(&PathElement::new([(x, low), (x, high)], thin))?;
        for y in [low, high] {
            area.draw(&PathElement::new([(x - 3, y), (x + 3, y)], thin))?;
        }
    }
    Ok(())
}
