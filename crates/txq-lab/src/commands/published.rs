//! `txq sim published`: all published figures beside the simulated ones.

use crate::sim::run::{measure, run};
use crate::sim::scenario::Scenario;
use anyhow::{anyhow, bail};
use serde_json::json;
use txq_cli::common::out;

use super::args::PublishedArgs;
use super::points::{self, Job};
use super::{rows, svg};

/// Runs the scenarios and prints one table.
pub(crate) fn published(args: &PublishedArgs) -> anyhow::Result<()> {
    let built_in = || Scenario::names().map(str::to_owned).collect();
    let names: Vec<String> = if args.scenarios.is_empty() { built_in() } else { args.scenarios.clone() };
    let scenarios = names.iter().map(|name| Scenario::open(name)).collect::<Result<Vec<_>, _>>()?;
    if let Some(none) = scenarios.iter().find(|scenario| scenario.published.is_empty()) {
        bail!("--scenario {}: nothing was published of it: add [[published]] to its file", none.name);
    }
    if let Some(folder) = &args.svg {
        svg::prepare(folder)?;
    }
    let jobs: anyhow::Result<Vec<_>> =
        scenarios.iter().map(|scenario| Job::all(scenario, &[], &[])).collect();
    let jobs: Vec<_> = jobs?.into_iter().flatten().collect();
    let all = jobs.len();
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    // A drawing has the times of calls, which only a run with recording has. Without it a point is run once.
    let how = |job: &Job<'_>| match args.svg.is_some() || job.is_recorded() {
        true => run(&job.setup),
        false => measure(&job.setup),
    };
    for point in points::each(jobs, &args.host, false, how) {
        match point {
            Ok(point) => done.push(point),
            Err(error) => failed.push(error.to_string()),
        }
    }
    let rows: Vec<_> = scenarios.iter().flat_map(|scenario| points::all_rows(scenario, &done)).collect();
    out::write(&match args.json {
        true => rows.iter().map(|row| json!(row).to_string() + "\n").collect(),
        false => rows::table(&rows, true),
    })?;
    if let Some(folder) = &args.svg {
        for scenario in &scenarios {
            svg::draw(folder, scenario, &done, &rows)?;
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("{} of {all} points could not be run: {}", failed.len(), failed.join("; "))),
    }
}
