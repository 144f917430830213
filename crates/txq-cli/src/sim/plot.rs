//! Curves of one figure, in an SVG file.
//!
//! Steps that grow by factors have a logarithmic axis, other numbers a linear one, and values that are no numbers stand at
//! equal distances.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

use crate::bench::COLOURS;

/// The drawing's width and height in pixels, and the part of its width for the curves' names.
const SIZE: (u32, u32) = (860, 480);
const NAMES: u32 = 220;

/// A drawing.
#[derive(Debug, Default)]
pub(super) struct Plot {
    pub(super) title: String,
    /// The name of the x axis.
    pub(super) over: String,
    /// The name of the figure, on the y axis.
    pub(super) figure: String,
    /// The values on the x axis.
    pub(super) steps: Vec<String>,
    pub(super) curves: Vec<Curve>,
}

/// A curve: its name, and pairs of a step's number and the value there.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) at: Vec<(usize, f64)>,
}

type Failed = Box<dyn std::error::Error>;

impl Plot {
    /// Returns the drawing as SVG.
    pub(super) fn draw(&self) -> Result<String, Failed> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (left, names) = area.split_horizontally((SIZE.0 - NAMES) as i32);
        let places = places(&self.steps);
        let values = self.curves.iter().flat_map(|curve| curve.at.iter().map(|(_, y)| *y));
        let (low, high) = values.fold((0.0, 0.0), |(low, high): (f64, f64), y| (low.min(y), high.max(y)));
        let high = if low < high { high + (high - low) * 0.05 } else { low + 1.0 };
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 15))
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(Steps(places.clone()), low..high)?;
        let label = |x: &f64| {
            let step = places.iter().position(|place| (place - x).abs() < 1e-9);
            step.map_or(String::new(), |step| self.steps[step].clone())
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
            let points: Vec<(f64, f64)> = curve.at.iter().map(|&(step, y)| (places[step], y)).collect();
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, dot)))?;
            if self.curves.len() == 1 {
                continue;
            }
            let y = 48 + 18 * index as i32;
            names.draw(&PathElement::new([(4, y), (24, y)], style))?;
            names.draw(&Circle::new((14, y), 3, dot))?;
            let name =
                if points.is_empty() { format!("{} (cannot be)", curve.name) } else { curve.name.clone() };
            names.draw(&Text::new(name, (30, y - 5), ("sans-serif", 12)))?;
        }
        area.present()?;
        drop((chart, left, names, area));
        Ok(text)
    }
}

/// The x axis, with each step's place.
struct Steps(Vec<f64>);

/// Steps with names below the axis, at most.
const NAMED: usize = 24;

impl Ranged for Steps {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, &value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        limit.0 + ((value - start) / (end - start) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.0.iter().copied().step_by(self.0.len().div_ceil(NAMED).max(1)).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        let low = self.0.iter().copied().fold(f64::MAX, f64::min);
        let high = self.0.iter().copied().fold(f64::MIN, f64::max);
        if low < high { low..high } else { 0.0..1.0 }
    }
}

/// Returns the place of each step.
fn places(steps: &[String]) -> Vec<f64> {
    let numbers: Vec<f64> = steps.iter().filter_map(|step| step.parse().ok()).collect();
    let count = || (0..steps.len()).map(|step| step as f64).collect();
    if numbers.len() < steps.len() || numbers.iter().any(|n| !n.is_finite()) {
        return count();
    }
    // Steps grow by factors if each is longer than the one before. The last one does not count: it may be cut off by a
    // bound.
    let sure = if numbers.len() > 3 { &numbers[..numbers.len() - 1] } else { &numbers[..] };
    let longer = sure.windows(3).all(|three| three[2] - three[1] > 1.2 * (three[1] - three[0]));
    let grow = sure.len() > 2 && longer && numbers[0] > 0.0;
    match grow && numbers.is_sorted() {
        true => numbers.iter().map(|n| n.log2()).collect(),
        false => numbers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &str) -> Vec<f64> {
        places(&steps.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn factors_differences_and_names_have_their_places() {
        assert_eq!(of("1 2 4 8 12"), [0.0, 1.0, 2.0, 3.0, 12_f64.log2()]);
        assert_eq!(of("10 20 30 40"), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(of("near far hash"), [0.0, 1.0, 2.0]);
        assert_eq!(of("1 4 16"), [0.0, 2.0, 4.0]);
        assert_eq!(of("0 1 2 4"), [0.0, 1.0, 2.0, 4.0]);
        assert_eq!(of("5"), [5.0]);
    }
}
