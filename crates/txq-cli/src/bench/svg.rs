//! The results as curves: a panel for each table, Mpps over threads or batch sizes.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use plotters::prelude::*;

use super::case::{Row, Table};
use super::report::{distinct, grouped, lines, title};
use crate::failure::Refused;

/// A panel's size, in pixels, and how many stand side by side.
const PANEL: (u32, u32) = (560, 360);
const COLUMNS: usize = 2;
/// Colours that tell from each other without green and red.
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

/// A file that will hold the curves, opened before anything is measured.
pub(super) struct Drawing {
    path: PathBuf,
    file: File,
}

impl Drawing {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        // What is in it stays until there is something to replace it with.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let refused = || Refused(format!("{} cannot be written", path.display()));
        Ok(Self { path: path.to_owned(), file: file.with_context(refused)? })
    }

    /// Draws all results.
    pub(super) fn draw(mut self, rows: &[Row]) -> anyhow::Result<()> {
        let text = svg(rows).map_err(|error| anyhow!("the curves cannot be drawn: {error}"))?;
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.with_context(|| Refused(format!("{} cannot be written", self.path.display())))
    }
}

type Failed = Box<dyn std::error::Error>;

fn svg(rows: &[Row]) -> Result<String, Failed> {
    let tables = grouped(rows);
    let columns = COLUMNS.min(tables.len()).max(1);
    let lines = tables.len().div_ceil(columns).max(1);
    let mut text = String::new();
    let area =
        SVGBackend::with_string(&mut text, (PANEL.0 * columns as u32, PANEL.1 * lines as u32)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    for (panel, (table, rows)) in area.split_evenly((lines, columns)).iter().zip(&tables) {
        draw(panel, table, rows)?;
    }
    area.present().map_err(failed)?;
    drop(area);
    Ok(text)
}

/// The panel of a table.
fn draw(
    panel: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    table: &Table,
    rows: &[&Row],
) -> Result<(), Failed> {
    let (lines, over_batches) = lines(rows);
    // Threads and batches are doubled from step to step, so steps and not numbers are what the axis counts.
    let steps = distinct(lines.iter().flat_map(|line| line.at.iter().map(|(x, _)| *x)));
    let step = |x: u64| steps.iter().position(|&s| s == x).unwrap_or(0) as i32;
    let highest = rows.iter().map(|row| row.spread.1).fold(0.0, f64::max).max(1e-3);
    let mut chart = ChartBuilder::on(panel)
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
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<_> = line.at.iter().map(|(x, row)| (step(*x), row.sample.mpps)).collect();
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))
            .map_err(failed)?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        let spread = line.at.iter().filter(|(_, row)| row.repeats > 1);
        let bars = spread
            .map(|(x, row)| PathElement::new([(step(*x), row.spread.0), (step(*x), row.spread.1)], *colour));
        chart.draw_series(bars).map_err(failed)?;
        let dots = points.iter().map(|&point| Circle::new(point, 3, colour.filled()));
        chart.draw_series(dots).map_err(failed)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 12))
        .draw()
        .map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failed {
    Box::new(error)
}
