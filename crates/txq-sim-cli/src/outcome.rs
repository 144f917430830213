//! Results of a sweep: JSON lines as points finish, then tables and curves.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use toml::Value;
use txq_cli_common::out::{self, File};
use txq_cli_common::plot::{At, Curve, Curves, Size, curves, places};
use txq_cli_common::table::{align, number};
use txq_sim::sweep::{Axis, Line};

use super::args::Results;

/// The figures of a table, in addition to the one that the user asked for.
const FIGURES: [&str; 5] = ["mpps", "cpu_ns_per_packet", "spinning_percent", "drops_percent", "xmit_mode_ns"];

impl Results {
    /// Refuses curves that would be dots.
    pub(super) fn check(&self, axes: &[Axis]) -> anyhow::Result<()> {
        if self.svg.is_some() && axes.first().is_none_or(|axis| axis.values.len() < 2) {
            bail!("--svg draws curves over what is varied first: give it more than one value");
        }
        Ok(())
    }
}

/// The size of the drawing.
const SIZE: Size = Size { width: 860, height: 480, names: 220 };

/// Where results go.
pub(super) struct Outcome<'a> {
    args: &'a Results,
    out: Option<File>,
    svg: Option<File>,
    lines: Vec<Line>,
}

impl<'a> Outcome<'a> {
    /// Opens the output files before any point is run.
    pub(super) fn open(args: &'a Results) -> anyhow::Result<Self> {
        let mut out = args.out.as_deref().map(File::open).transpose()?;
        let svg = args.svg.as_deref().map(File::open).transpose()?;
        if let Some(out) = &mut out {
            out.clear()?;
        }
        Ok(Self { args, out, svg, lines: Vec::new() })
    }

    /// Calls `run`, which passes every line to this, and prints and draws the results if it succeeds.
    pub(super) fn take(mut self, run: impl FnOnce(&mut Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        run(&mut self)?;
        self.lines.sort_by_key(|line| line.index);
        if !self.args.json && self.lines.iter().any(|line| line.error.is_none()) {
            out::write(&tables(&self.lines, &self.args.figure))?;
        }
        self.end()
    }

    /// Takes a result as soon as a point has finished.
    pub(super) fn line(&mut self, line: Line) -> anyhow::Result<()> {
        let text = serde_json::to_string(&line)? + "\n";
        if let Some(out) = &mut self.out {
            out.add(&text)?;
        }
        if self.args.json {
            out::write(&text)?;
        }
        self.lines.push(line);
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        let figure = self.args.figure.as_str();
        let good: Vec<&Line> = self.lines.iter().filter(|line| line.error.is_none()).collect();
        if let (true, Some(line)) = (good.is_empty(), self.lines.first()) {
            bail!("no point could be run; the first: {}", line.error.as_deref().unwrap_or_default());
        }
        if !good.is_empty() && good.iter().all(|line| !line.figures.contains_key(figure)) {
            let known: BTreeSet<&str> =
                good.iter().flat_map(|line| line.figures.keys().map(String::as_str)).collect();
            let known = Vec::from_iter(known).join(", ");
            bail!("--figure {figure}: no point has such a figure: use one of {known}");
        }
        let Some(svg) = self.svg else { return Ok(()) };
        let drawn = curves(&[plot(&self.lines, figure)], SIZE, 1);
        svg.replace(&drawn.map_err(|error| anyhow!("the curves cannot be drawn: {error}"))?)
    }
}

/// Returns a value as the user gave it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Returns all but the first of a point's values, as one text.
fn others(line: &Line) -> String {
    line.at.0.iter().skip(1).map(|(_, value)| plain(value)).collect::<Vec<_>>().join(", ")
}

/// Returns the distinct values, in the order of their first occurrence.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    all.for_each(|one| {
        if !once.contains(&one) {
            once.push(one);
        }
    });
    once
}

/// Returns the table of all points, and one figure of them side by side.
fn tables(lines: &[Line], figure: &str) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let mut text = format!("{}, {}", first.scenario, first.variant);
    for (path, value) in &first.set.0 {
        let _ = write!(text, ", {path}={}", plain(value));
    }
    let _ = match lines.len() == first.of {
        true => writeln!(text, ": {} points\n", first.of),
        false => writeln!(text, ": {} of {} points\n", lines.len(), first.of),
    };
    points(&mut text, lines, figure);
    if first.at.0.len() > 1 {
        side_by_side(&mut text, lines, figure);
    }
    text
}

/// Writes a row for each point, with the reason where a point could not be run.
fn points(text: &mut String, lines: &[Line], figure: &str) {
    let more = (!FIGURES.contains(&figure)).then_some(figure);
    let known = |name: &&str| lines.iter().any(|line| line.figures.contains_key(*name));
    let names: Vec<&str> = FIGURES.into_iter().chain(more).filter(known).collect();
    let heads = lines[0].at.paths().chain(names.iter().copied()).map(str::to_owned).collect();
    let cells = lines.iter().map(|line| {
        let values = line.at.0.iter().map(|(_, value)| plain(value));
        values.chain(names.iter().map(|name| cell(line, name))).collect()
    });
    let mut table = String::new();
    align(&mut table, heads, cells.collect());
    let errors = lines.iter().map(|line| line.error.as_deref());
    for (row, error) in table.lines().zip([None].into_iter().chain(errors)) {
        let _ = match error {
            Some(error) => writeln!(text, "{row}  {error}"),
            None => writeln!(text, "{row}"),
        };
    }
}

fn cell(line: &Line, figure: &str) -> String {
    line.figures.get(figure).map_or_else(|| "-".into(), |&value| number(value))
}

/// Writes one figure: a row for each value of the first varied field, a column for each combination of the others.
fn side_by_side(text: &mut String, lines: &[Line], figure: &str) {
    let path = lines[0].at.0[0].0.clone();
    let _ = writeln!(text, "\n{figure}\n");
    let columns = distinct(lines.iter().map(others));
    let rows = distinct(lines.iter().map(|line| &line.at.0[0].1));
    let cells = rows.iter().map(|value| {
        let row: Vec<&Line> = lines.iter().filter(|line| line.at.0[0].1 == **value).collect();
        let find = |column: &String| row.iter().find(|line| others(line) == *column);
        let mut cells = vec![plain(value)];
        cells.extend(
            columns.iter().map(|column| find(column).map_or_else(String::new, |line| cell(line, figure))),
        );
        let value = |line: &&&Line| line.figures.get(figure).copied();
        let with = row.iter().filter(|line| value(line).is_some());
        let highest = with.max_by(|a, b| value(a).unwrap_or(0.0).total_cmp(&value(b).unwrap_or(0.0)));
        cells.push(highest.map_or_else(|| "-".into(), |line| others(line)));
        cells
    });
    let cells = cells.collect();
    let mut heads = vec![path];
    heads.extend(columns);
    heads.push("highest".into());
    align(text, heads, cells);
}

/// Returns the curves of one figure over the first varied field. A curve alone has no name.
fn plot(lines: &[Line], figure: &str) -> Curves {
    let Some(first) = lines.first() else { return Curves::default() };
    let values = distinct(lines.iter().map(|line| &line.at.0[0].1));
    let names = distinct(lines.iter().map(others));
    let alone = names.len() == 1;
    let step = |line: &Line| values.iter().position(|value| **value == line.at.0[0].1).unwrap_or(0);
    let curve = |name: String| {
        let own = lines.iter().filter(|line| others(line) == name);
        let at = |line: &Line| Some(At { step: step(line), value: *line.figures.get(figure)?, spread: None });
        let at: Vec<At> = own.filter_map(at).collect();
        let name = match (alone, at.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!("{name} (cannot be)"),
            (false, false) => name,
        };
        Curve { name, at }
    };
    let steps: Vec<String> = values.iter().map(|value| plain(value)).collect();
    let places = places(&steps);
    Curves {
        title: format!("{}, {}", first.scenario, first.variant),
        over: first.at.0[0].0.clone(),
        figure: figure.to_owned(),
        steps: steps.into_iter().zip(places).collect(),
        curves: names.into_iter().map(curve).collect(),
    }
}
