//! The results as curves: a panel for each table, Mpps over threads or batch sizes.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use plotters::prelude::*;

use super::case::{Key, Row, Sample, Table};
use super::lab::refused;
use super::report::{distinct, grouped, lines, title};

/// A panel's width and height in pixels, the part of its width for the curves' names, and the number of panels side by
/// side.
const PANEL: (u32, u32) = (680, 360);
const NAMES: u32 = 180;
const COLUMNS: usize = 2;
/// Colours that can be told apart without green and red.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(148, 103, 189),
];

/// The file of the curves, opened before the measurement begins.
pub(super) struct Drawing {
    path: PathBuf,
    file: File,
}

impl Drawing {
    /// Opens the file for the results of `keys`; an error if there would be no curve.
    pub(super) fn open<'a>(path: &Path, keys: impl Iterator<Item = &'a Key>) -> anyhow::Result<Self> {
        let empty: Vec<Row> = keys.filter_map(|key| Row::of(key.clone(), &[Sample::default()])).collect();
        if drawable(&empty).is_empty() {
            bail!("--svg draws curves over threads or batch sizes: measure more than one of either");
        }
        // The file keeps its contents until the new drawing is ready.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(refused(format!("{} cannot be written", path.display())))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Draws all results.
    pub(super) fn draw(mut self, rows: &[Row]) -> anyhow::Result<()> {
        let text = svg(rows).map_err(|error| anyhow!("the curves cannot be drawn: {error}"))?;
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(refused(format!("{} cannot be written", self.path.display())))
    }
}

type Failed = Box<dyn std::error::Error>;

fn svg(rows: &[Row]) -> Result<String, Failed> {
    let tables = drawable(rows);
    let columns = COLUMNS.min(tables.len()).max(1);
    let lines = tables.len().div_ceil(columns).max(1);
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (PANEL.0 * columns as u32, PANEL.1 * lines as u32))
        .into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    for (panel, (table, rows)) in area.split_evenly((lines, columns)).iter().zip(&tables) {
        draw(panel, table, rows)?;
    }
    area.present().map_err(failed)?;
    drop(area);
    Ok(text)
}

/// Returns the tables that make a curve.
fn drawable(rows: &[Row]) -> Vec<(Table, Vec<&Row>)> {
    let mut tables = grouped(rows);
    tables.retain(|(_, rows)| lines(rows).0.iter().any(|line| line.at.len() > 1));
    tables
}

/// Draws the panel of a table.
fn draw(
    panel: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    table: &Table,
    rows: &[&Row],
) -> Result<(), Failed> {
    let (lines, over_batches) = lines(rows);
    // Threads and batches double from step to step, so the axis counts steps instead of numbers.
    let steps = distinct(lines.iter().flat_map(|line| line.at.iter().map(|(x, _)| *x)));
    let step = |x: u64| steps.iter().position(|&s| s == x).unwrap_or(0) as i32;
    let highest = rows.iter().map(|row| row.spread.1).fold(0.0, f64::max).max(1e-3);
    let (curves, names) = panel.split_horizontally(PANEL.0 - NAMES);
    let mut chart = ChartBuilder::on(&curves)
        .caption(title(table), ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(0..(steps.len() as i32 - 1).max(1), 0.0..highest * 1.05)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_labels(steps.len())
        .x_label_formatter(&|x| steps.get(*x as usize).map_or(String::new(), u64::to_string))
        .x_desc(if over_batches { "packets handed in at a time" } else { "threads" })
        .y_desc("Mpps")
        .light_line_style(WHITE)
        .draw()
        .map_err(failed)?;
    for (index, line) in lines.iter().enumerate() {
        let (colour, first) = (COLOURS[index % COLOURS.len()], index < COLOURS.len());
        // When colours repeat, curves are thin, with hollow dots.
        let style = colour.stroke_width(if first { 2 } else { 1 });
        let dot = if first { colour.filled() } else { style };
        let points: Vec<_> = line.at.iter().map(|(x, row)| (step(*x), row.sample.mpps)).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(failed)?;
        let spread = line.at.iter().filter(|(_, row)| row.repeats > 1);
        let bars = spread
            .map(|(x, row)| PathElement::new([(step(*x), row.spread.0), (step(*x), row.spread.1)], colour));
        chart.draw_series(bars).map_err(failed)?;
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, dot))).map_err(failed)?;
        let y = 48 + 18 * index as i32;
        names.draw(&PathElement::new([(4, y), (24, y)], style)).map_err(failed)?;
        names.draw(&Circle::new((14, y), 3, dot)).map_err(failed)?;
        names.draw(&Text::new(line.name.clone(), (30, y - 5), ("sans-serif", 12))).map_err(failed)?;
    }
    Ok(())
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failed {
    Box::new(error)
}
