//! Drawings of published figures beside simulated ones: a panel for each figure, with two bars for each variant, and one
//! for each published distribution.

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use txq::stats::log2::Log2;
use txq_sim::compare::Row;
use txq_sim::report::xmit_times;
use txq_sim::scenario::Scenario;

use super::points::Point;
use crate::bars;
use crate::bench::number;
use crate::failure::Refused;

/// A panel's least width and its height, in pixels, and the number of panels side by side.
const PANEL: (u32, u32) = (320, 240);
const COLUMNS: usize = 3;
/// Pixels of the title and the key above all panels, of a panel's margins, and of a letter below a bar.
const TOP: u32 = 48;
const SIDES: u32 = 90;
const LETTER: u32 = 6;
/// Colours that can be told apart without green and red.
const PUBLISHED: RGBColor = RGBColor(150, 150, 150);
const SIMULATED: RGBColor = RGBColor(0, 114, 178);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failed = Box<dyn std::error::Error>;

/// A panel: its title, and for each place a name, the published value and the simulated one.
struct Panel {
    title: String,
    places: Vec<(String, Option<f64>, Option<f64>)>,
}

/// Creates the folder before any point is run.
pub(super) fn prepare(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))
}

/// Draws a scenario into the folder, as `NAME.svg`.
pub(super) fn draw(
    folder: &Path,
    scenario: &Scenario,
    points: &[Point<'_>],
    rows: &[Row],
) -> anyhow::Result<()> {
    let mut panels = figures(scenario, rows);
    for point in points.iter().filter(|point| std::ptr::eq(point.scenario, scenario)) {
        if let Some(times) = xmit_times::published(&scenario.name, &point.name) {
            panels.push(distribution(&point.name, &times, &point.report.xmit));
        }
    }
    let text =
        svg(scenario, &panels).map_err(|error| anyhow!("{} cannot be drawn: {error}", scenario.name))?;
    // The name of a scenario from a file may contain any character.
    let name: String = scenario.name.chars().map(|c| if c == '/' { '-' } else { c }).collect();
    let path = folder.join(format!("{name}.svg"));
    fs::write(&path, text).map_err(|error| cannot(&path, &error))
}

fn cannot(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let text = format!("--svg: {}: {error}; name a folder that can be written", path.display());
    Refused(text).into()
}

/// Returns a panel for each figure, with ratios of the figure on a panel of their own.
fn figures(scenario: &Scenario, rows: &[Row]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in rows.iter().filter(|row| row.scenario == scenario.name) {
        let (title, name) = match row.figure.split_once(" over ") {
            None => (row.figure.clone(), row.variant.clone()),
            Some((figure, other)) => {
                (format!("{figure}, ratio"), format!("{} : {}", row.variant, other.trim_matches('"')))
            }
        };
        let place = (name, row.published, row.simulated);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.places.push(place),
            None => panels.push(Panel { title, places: vec![place] }),
        }
    }
    panels
}

/// Returns the panel of a distribution: the share of all calls in each range of times, in percent.
fn distribution(variant: &str, published: &Log2, simulated: &Log2) -> Panel {
    let share = |times: &Log2, min: u64| {
        let count = times.buckets().find(|bucket| bucket.min == min).map_or(0, |bucket| bucket.count);
        100.0 * count as f64 / times.count().max(1) as f64
    };
    let mut least: Vec<u64> =
        published.buckets().chain(simulated.buckets()).map(|bucket| bucket.min).collect();
    least.sort_unstable();
    least.dedup();
    let place = |min: u64| {
        let name = if min == 0 { "0".into() } else { bars::bound(min.into()) };
        (name, Some(share(published, min)), Some(share(simulated, min)))
    };
    let title = format!("{variant}: calls of xmit by their ns, %");
    Panel { title, places: least.into_iter().map(place).collect() }
}

fn svg(scenario: &Scenario, panels: &[Panel]) -> Result<String, Failed> {
    let need = |panel: &Panel| {
        let longest = panel.places.iter().map(|(name, ..)| name.chars().count() as u32).max().unwrap_or(0);
        SIDES + panel.places.len() as u32 * (longest + 1) * LETTER
    };
    let width = panels.iter().map(need).max().unwrap_or(0).max(PANEL.0);
    let columns = COLUMNS.min(panels.len()).max(1);
    let lines = panels.len().div_ceil(columns).max(1);
    let mut text = String::new();
    let size = (width * columns as u32, TOP + PANEL.1 * lines as u32);
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let (head, body) = area.split_vertically(TOP);
    let title = format!("{}: {}", scenario.name, scenario.title);
    head.draw(&Text::new(title, (12, 8), ("sans-serif", 14))).map_err(failed)?;
    for (x, name, colour) in [(12, "published", PUBLISHED), (112, "simulated", SIMULATED)] {
        head.draw(&Rectangle::new([(x, 30), (x + 12, 42)], colour.filled())).map_err(failed)?;
        head.draw(&Text::new(name, (x + 18, 31), ("sans-serif", 12))).map_err(failed)?;
    }
    for (area, panel) in body.split_evenly((lines, columns)).iter().zip(panels) {
        draw_panel(area, panel)?;
    }
    area.present().map_err(failed)?;
    drop((area, head, body));
    Ok(text)
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Result<(), Failed> {
    let values = panel.places.iter().flat_map(|(_, a, b)| [*a, *b]).flatten();
    let highest = values.fold(0.0, f64::max).max(1e-9) * 1.1;
    let last = panel.places.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 13))
        .margin(10)
        .x_label_area_size(22)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..last, 0.0..highest)
        .map_err(failed)?;
    let name = |x: &f64| {
        let whole = (x - x.round()).abs() < 1e-6 && *x > -0.1;
        let place = whole.then(|| panel.places.get(x.round() as usize)).flatten();
        place.map_or(String::new(), |(name, ..)| name.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * panel.places.len() + 1)
        .x_label_formatter(&name)
        .y_labels(5)
        .y_label_formatter(&|y| if y.fract() == 0.0 { format!("{y}") } else { number(*y) })
        .light_line_style(WHITE)
        .draw()
        .map_err(failed)?;
    for (left, colour) in [(-0.35, PUBLISHED), (0.0, SIMULATED)] {
        let bars = panel.places.iter().enumerate().filter_map(|(at, (_, published, simulated))| {
            let value = if left < 0.0 { *published } else { *simulated };
            let x = at as f64 + left;
            value.map(|value| Rectangle::new([(x, 0.0), (x + 0.35, value)], colour.filled()))
        });
        chart.draw_series(bars).map_err(failed)?;
    }
    Ok(())
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failed {
    Box::new(error)
}
