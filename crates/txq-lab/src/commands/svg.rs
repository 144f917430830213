//! Drawings of published figures beside simulated ones: a panel for each figure, with two bars for each variant, and one
//! for each published distribution.

use std::fs;
use std::path::Path;

use crate::plot::{Bars, Group, Pair};
use crate::sim::compare::Row;
use crate::sim::report::xmit_times;
use crate::sim::scenario::Scenario;
use anyhow::anyhow;
use txq::stats::log2::Log2;
use txq_cli::common::bars;
use txq_cli::common::failure::Refused;

use super::points::Point;
use super::words;

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
    let mut groups = figures(scenario, rows);
    for point in points.iter().filter(|point| std::ptr::eq(point.scenario, scenario)) {
        if let Some(times) = xmit_times::published(&scenario.name, &point.name) {
            groups.push(distribution(&point.name, &times, &point.report.xmit));
        }
    }
    let title = format!("{}: {}", scenario.name, scenario.title);
    let text = Bars { title, names: ["published", "simulated"], groups }
        .draw()
        .map_err(|error| anyhow!("{} cannot be drawn: {error}", scenario.name))?;
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
fn figures(scenario: &Scenario, rows: &[Row]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows.iter().filter(|row| row.scenario == scenario.name) {
        let (title, name) = match row.figure.split_once(" over ") {
            None => (words::figure(&row.figure), row.variant.clone()),
            Some((figure, other)) => {
                let words = words::figure(figure);
                (
                    format!("{}, ratio", words::bare(&words)),
                    format!("{} : {}", row.variant, other.trim_matches('"')),
                )
            }
        };
        let pair = Pair { name, values: [row.published_middle(), row.simulated] };
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.pairs.push(pair),
            None => groups.push(Group { title, pairs: vec![pair] }),
        }
    }
    groups
}

/// Returns the panel of a distribution: the share of all calls in each range of times, in percent.
fn distribution(variant: &str, published: &Log2, simulated: &Log2) -> Group {
    let share = |times: &Log2, min: u64| {
        let count = times.buckets().find(|bucket| bucket.min == min).map_or(0, |bucket| bucket.count);
        100.0 * count as f64 / times.count().max(1) as f64
    };
    let mut least: Vec<u64> =
        published.buckets().chain(simulated.buckets()).map(|bucket| bucket.min).collect();
    least.sort_unstable();
    least.dedup();
    let pair = |min: u64| {
        let name = if min == 0 { "0".into() } else { bars::bound(min.into()) };
        Pair { name, values: [published, simulated].map(|times| Some(share(times, min))) }
    };
    let title = format!("{variant}: calls of xmit by their ns, %");
    Group { title, pairs: least.into_iter().map(pair).collect() }
}
