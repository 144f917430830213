//! `txq sim fit`: finds the value of a scenario's fitted field by bisection.

use std::fmt::Write;

use crate::sim::scenario::{Change, Fit, Published, Scenario};
use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use txq_cli::common::out;
use txq_cli::common::table::number;
use txq_cli::common::tell::Tell;

use super::args::FitArgs;
use super::points::{self, Job};

/// A figure this near to the wanted one, as a part of it, is good enough.
const FITTED_WITHIN: f64 = 0.005;
/// Digits of the values that are tried: more would exceed the precision of a simulation.
const VALUE_DIGITS: i32 = 3;

/// A tried value, and the resulting figure.
#[derive(Debug, Clone, Copy)]
struct Tried {
    value: f64,
    figure: f64,
}

/// Finds the value and prints it.
pub(crate) fn fit(args: &FitArgs) -> anyhow::Result<()> {
    let scenario = Scenario::open(&args.what.scenario)?;
    let Some(fit) = &scenario.fit else {
        bail!("{}: nothing of it is fitted: its file has no [fit]", scenario.name);
    };
    let wanted = wanted(&scenario, fit)?;
    let mut tell = Tell::new(args.what.host.quiet);
    let tried = search((fit.from, fit.to), wanted, |values| {
        let tried = run(&scenario, fit, args, values)?;
        for Tried { value, figure } in &tried {
            let (value, figure, wanted) = (plain(*value), number(*figure), number(wanted));
            tell.say(&format!("{}={value}: {} {figure}, {wanted} is wanted", fit.field, fit.figure));
        }
        Ok(tried)
    });
    tell.end();
    let tried = tried?;
    let best = best(&tried, wanted).ok_or_else(|| anyhow!("nothing was tried"))?;
    let file = scenario.field(&fit.variant, &fit.field).map(ToString::to_string);
    out::write(&match args.json {
        true => line(&scenario, fit, wanted, best, &tried),
        false => text(&scenario, fit, wanted, best, tried.len(), file),
    })
}

/// Returns the published figure to fit to.
fn wanted(scenario: &Scenario, fit: &Fit) -> anyhow::Result<f64> {
    let published = scenario.published.iter();
    let mut of = published.filter(|p| p.variant == fit.variant && p.figure == fit.figure && p.over.is_none());
    of.find_map(Published::middle).ok_or_else(|| {
        anyhow!(
            "{}: [fit] is to {} of \"{}\", of which nothing was published: add it as [[published]]",
            scenario.name,
            fit.figure,
            fit.variant
        )
    })
}

/// Runs the fitted point with each of these values.
fn run(scenario: &Scenario, fit: &Fit, args: &FitArgs, values: &[f64]) -> anyhow::Result<Vec<Tried>> {
    let job = |value: &f64| {
        let mut changes = args.what.set.clone();
        let value = toml_number(*value);
        changes.push(Change { path: fit.field.clone(), value });
        Job::new(scenario, &fit.variant, &changes)
    };
    let jobs = values.iter().map(job).collect::<anyhow::Result<Vec<_>>>()?;
    let host = super::args::RunsArgs { quiet: true, ..args.what.host };
    let points = points::run(jobs, &host, crate::sim::run::run)?;
    let tried = points.iter().zip(values).map(|(point, &value)| {
        let figure = point.figure(&fit.figure).ok_or_else(|| {
            anyhow!("{}: there is no figure {} with {} = {value}", scenario.name, fit.figure, fit.field)
        })?;
        Ok(Tried { value, figure })
    });
    tried.collect()
}

/// Returns a TOML integer for a whole number, so that integer fields accept it.
fn toml_number(value: f64) -> toml::Value {
    if value.fract() == 0.0 { toml::Value::Integer(value as i64) } else { toml::Value::Float(value) }
}

/// Tries both ends, and then the middle of the remaining range until the figure is near enough or there is no middle.
fn search(
    (from, to): (f64, f64),
    wanted: f64,
    mut run: impl FnMut(&[f64]) -> anyhow::Result<Vec<Tried>>,
) -> anyhow::Result<Vec<Tried>> {
    let mut tried = run(&[from, to])?;
    let [mut low, mut high] = tried[..] else { return Ok(tried) };
    let near = |t: Tried| (t.figure - wanted).abs() <= FITTED_WITHIN * wanted.abs();
    let between = (low.figure - wanted) * (high.figure - wanted) <= 0.0;
    while between && !near(low) && !near(high) {
        let value = middle(low.value, high.value);
        if value <= low.value || value >= high.value {
            break;
        }
        let Some(&new) = run(&[value])?.first() else { break };
        tried.push(new);
        if (new.figure - wanted) * (low.figure - wanted) > 0.0 {
            low = new;
        } else {
            high = new;
        }
    }
    Ok(tried)
}

/// Returns the rounded middle: the geometric mean of positive values, because they may span orders of magnitude; else the
/// mean.
fn middle(low: f64, high: f64) -> f64 {
    let middle = if low > 0.0 { (low * high).sqrt() } else { (low + high) / 2.0 };
    let order = middle.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
    let unit = 10_f64.powi((order + 1 - VALUE_DIGITS).abs());
    // Divides by a whole number, so that the decimal digits are exact: 1.23.
    if order + 1 >= VALUE_DIGITS { (middle / unit).round() * unit } else { (middle * unit).round() / unit }
}

fn best(tried: &[Tried], wanted: f64) -> Option<Tried> {
    let off = |t: &Tried| (t.figure - wanted).abs();
    tried.iter().copied().min_by(|a, b| off(a).total_cmp(&off(b)))
}

/// Returns a number with all of its digits.
fn plain(value: f64) -> String {
    value.to_string()
}

fn text(
    scenario: &Scenario,
    fit: &Fit,
    wanted: f64,
    best: Tried,
    runs: usize,
    file: Option<String>,
) -> String {
    let Fit { field, variant, figure, why, .. } = fit;
    let mut text = format!("{}: {field} = {}\n", scenario.name, plain(best.value));
    let off = 100.0 * (best.figure / wanted - 1.0);
    let _ = writeln!(text, "wanted       {figure} {} of \"{variant}\"", plain(wanted));
    let _ = writeln!(text, "reached      {figure} {} ({off:+.1} %), after {runs} runs", number(best.figure));
    let file = file.unwrap_or_else(|| "nothing".into());
    let _ = writeln!(text, "in the file  {file}");
    let _ = writeln!(text, "plausible    {why}");
    let ends = [fit.from, fit.to];
    if (best.figure / wanted - 1.0).abs() > FITTED_WITHIN && ends.contains(&best.value) {
        let [from, to] = ends.map(plain);
        let _ = writeln!(text, "no value from {from} to {to} comes nearer: the end of the range was taken");
    }
    text
}

fn line(scenario: &Scenario, fit: &Fit, wanted: f64, best: Tried, tried: &[Tried]) -> String {
    let file = scenario.field(&fit.variant, &fit.field);
    let line = json!({
        "scenario": scenario.name,
        "field": fit.field,
        "variant": fit.variant,
        "figure": fit.figure,
        "wanted": wanted,
        "value": best.value,
        "reached": best.figure,
        "deviation": best.figure / wanted - 1.0,
        "file": file.and_then(|value| value.as_float().or(value.as_integer().map(|n| n as f64))),
        "tried": tried.iter().map(|t| json!([t.value, t.figure])).collect::<Value>(),
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches with a figure that is a function of the value.
    fn found(ends: (f64, f64), wanted: f64, of: impl Fn(f64) -> f64) -> (Tried, usize) {
        let tried = search(ends, wanted, |values| {
            Ok(values.iter().map(|&value| Tried { value, figure: of(value) }).collect())
        });
        let tried = tried.unwrap();
        (best(&tried, wanted).unwrap(), tried.len())
    }

    #[test]
    fn falling_and_rising_figures_are_found_in_few_runs() {
        for (of, wanted) in
            [((|v| 240_000.0 / (v + 100.0)) as fn(f64) -> f64, 41.0), (|v: f64| v.sqrt(), 50.0)]
        {
            let (best, runs) = found((200.0, 20_000.0), wanted, of);
            assert!((best.figure / wanted - 1.0).abs() <= FITTED_WITHIN && runs <= 12, "{best:?} in {runs}");
        }
        let (best, _) = found((0.0, 1000.0), 2.1, |v| 1000.0 / (300.0 + v));
        assert!((best.value - 176.0).abs() < 3.0, "{best:?}");
    }

    #[test]
    fn out_of_reach_is_the_nearer_end() {
        let (best, runs) = found((200.0, 20_000.0), 500.0, |v| 1e5 / v * 0.9);
        assert_eq!((best.value, runs), (200.0, 2));
        // A step that jumps over the wanted figure ends the search too.
        let (best, runs) = found((200.0, 20_000.0), 5.0, |v| if v < 1234.5 { 9.0 } else { 2.0 });
        assert!(best.value > 1234.0 && runs < 40, "{best:?} in {runs}");
    }

    #[test]
    fn values_have_three_digits() {
        assert_eq!([middle(200.0, 20_000.0), middle(1.0, 2.0), middle(0.0, 0.5)], [2000.0, 1.41, 0.25]);
    }
}
