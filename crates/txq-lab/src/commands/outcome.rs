//! Results of a sweep: JSON lines as points finish, then tables and curves.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::plot::{At, Curve, Curves, Size, curves, places};
use crate::sim::sweep::{Axis, Line};
use anyhow::{anyhow, bail};
use toml::Value;
use txq_cli::common::out::{self, File};
use txq_cli::common::table::{align, number};

use super::args::Results;
use super::spread::Spread;
use super::words;

/// The figures of a table, in addition to the one that the user asked for.
const TABLE_FIGURES: [&str; 5] =
    ["mpps", "cpu_ns_per_packet", "spinning_percent", "drops_percent", "xmit_mode_ns"];

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
const DRAWING_SIZE: Size = Size { width: 860, height: 480, names: 220 };

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
        let mut panel = plot(&self.lines, figure);
        panel.title = self.args.title.clone().unwrap_or(panel.title);
        let drawn = curves(&[panel], DRAWING_SIZE, 1);
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

/// The field that makes repetitions of a point, not points of their own, unless it is varied first.
const SEED: &str = "seed";

/// A point with all of its seeds.
struct Row<'l> {
    /// Its values but the seed, and its error, if any.
    line: &'l Line,
    values: Vec<&'l (String, Value)>,
    /// The results of its seeds.
    seeds: Vec<&'l Line>,
}

impl<'l> Row<'l> {
    /// Returns the points, in the order of the sweep.
    fn all(lines: &'l [Line]) -> Vec<Self> {
        let values = |line: &'l Line| {
            let other = |(at, field): &(usize, &(String, Value))| *at == 0 || field.0 != SEED;
            line.at.0.iter().enumerate().filter(other).map(|(_, field)| field).collect::<Vec<_>>()
        };
        let mut rows: Vec<Self> = Vec::new();
        for line in lines {
            let values = values(line);
            match rows.iter_mut().find(|row| row.values == values) {
                Some(row) => row.seeds.push(line),
                None => rows.push(Self { line, values, seeds: vec![line] }),
            }
        }
        rows
    }

    fn first(&self) -> &'l Value {
        &self.values[0].1
    }

    /// Returns all but the first of the point's values, as one text.
    fn others(&self) -> String {
        self.values.iter().skip(1).map(|(_, value)| plain(value)).collect::<Vec<_>>().join(", ")
    }

    fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::figure(self.seeds.iter().map(|line| &line.figures), figure)
    }

    /// Returns the median of a figure as a table's cell.
    fn cell(&self, figure: &str) -> String {
        self.spread(figure).map_or_else(|| "-".into(), |spread| number(spread.median))
    }
}

/// Returns the greatest number of seeds of a point.
fn seeds(rows: &[Row<'_>]) -> usize {
    rows.iter().map(|row| row.seeds.len()).max().unwrap_or(0)
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
    let rows = Row::all(lines);
    points(&mut text, &rows, figure);
    if rows[0].values.len() > 1 {
        side_by_side(&mut text, &rows, figure);
    }
    text
}

/// Writes a row for each point, with the reason where a point could not be run. Values are medians over the seeds.
fn points(text: &mut String, rows: &[Row<'_>], figure: &str) {
    let more = (!TABLE_FIGURES.contains(&figure)).then_some(figure);
    let known = |name: &&str| rows.iter().any(|row| row.spread(name).is_some());
    let names: Vec<&str> = TABLE_FIGURES.into_iter().chain(more).filter(known).collect();
    let repeated = seeds(rows) > 1;
    let mut heads: Vec<String> = rows[0].values.iter().map(|(path, _)| path.clone()).collect();
    heads.extend(names.iter().map(|name| (*name).to_owned()));
    if repeated {
        let _ = writeln!(
            text,
            "medians of {} seeds; low and high are the least and the greatest {figure}\n",
            seeds(rows)
        );
        heads.extend(["low", "high"].map(str::to_owned));
    }
    let cells = rows.iter().map(|row| {
        let values = row.values.iter().map(|(_, value)| plain(value));
        let mut cells: Vec<String> = values.chain(names.iter().map(|name| row.cell(name))).collect();
        if repeated {
            let ends = row.spread(figure).map(|spread| [spread.low, spread.high].map(number));
            cells.extend(ends.unwrap_or_else(|| ["-", "-"].map(str::to_owned)));
        }
        cells
    });
    let mut table = String::new();
    align(&mut table, heads, cells.collect());
    let errors = rows.iter().map(|row| row.line.error.as_deref());
    for (row, error) in table.lines().zip([None].into_iter().chain(errors)) {
        let _ = match error {
            Some(error) => writeln!(text, "{row}  {error}"),
            None => writeln!(text, "{row}"),
        };
    }
}

/// Writes one figure: a row for each value of the first varied field, a column for each combination of the others.
fn side_by_side(text: &mut String, rows: &[Row<'_>], figure: &str) {
    let _ = writeln!(text, "\n{figure}\n");
    let columns = distinct(rows.iter().map(Row::others));
    let cells = distinct(rows.iter().map(Row::first)).into_iter().map(|value| {
        let here: Vec<&Row<'_>> = rows.iter().filter(|row| row.first() == value).collect();
        let find = |column: &String| here.iter().find(|row| row.others() == *column);
        let mut cells = vec![plain(value)];
        cells.extend(
            columns.iter().map(|column| find(column).map_or_else(String::new, |row| row.cell(figure))),
        );
        let median = |row: &Row<'_>| row.spread(figure).map(|spread| spread.median);
        let with = here.iter().filter_map(|row| Some((median(row)?, row)));
        let highest = with.max_by(|a, b| a.0.total_cmp(&b.0));
        cells.push(highest.map_or_else(|| "-".into(), |(_, row)| row.others()));
        cells
    });
    let cells = cells.collect();
    let mut heads = vec![rows[0].values[0].0.clone()];
    heads.extend(columns);
    heads.push("highest".into());
    align(text, heads, cells);
}

/// Returns the curves of one figure over the first varied field. A curve alone has no name.
fn plot(lines: &[Line], figure: &str) -> Curves {
    let rows = Row::all(lines);
    let Some(first) = rows.first() else { return Curves::default() };
    let values = distinct(rows.iter().map(Row::first));
    let names = distinct(rows.iter().map(Row::others));
    let alone = names.len() == 1;
    let curve = |name: String| {
        let own = rows.iter().filter(|row| row.others() == name);
        let at = |row: &Row<'_>| {
            let Spread { low, median, high } = row.spread(figure)?;
            let step = values.iter().position(|value| *value == row.first()).unwrap_or(0);
            Some(At { step, value: median, spread: (row.seeds.len() > 1).then_some((low, high)) })
        };
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
    let (over, figure_words) = (words::field(&first.values[0].0), words::figure(figure));
    Curves {
        title: title(&first.values, words::bare(&figure_words), words::bare(&over)),
        note: note(first.line, seeds(&rows)),
        over,
        figure: figure_words,
        steps: steps.into_iter().zip(places).collect(),
        curves: names.into_iter().map(curve).collect(),
        log: false,
    }
}

/// Returns the title: what is compared.
fn title(values: &[&(String, Value)], figure: &str, over: &str) -> String {
    let mut title: String = figure.chars().take(1).flat_map(char::to_uppercase).collect();
    title.extend(figure.chars().skip(1));
    title += &format!(" by {over}");
    let others: Vec<String> =
        values.iter().skip(1).map(|(path, _)| words::bare(&words::field(path)).to_owned()).collect();
    if !others.is_empty() {
        title += &format!(", for each {}", others.join(" and "));
    }
    title
}

/// Returns what all points share.
fn note(line: &Line, seeds: usize) -> String {
    let mut note = format!("txq sim sweep {}", line.scenario);
    if line.variant != line.scenario {
        let _ = write!(note, ", {}", line.variant);
    }
    for (path, value) in &line.set.0 {
        let _ = write!(note, ", {path}={}", plain(value));
    }
    if seeds > 1 {
        let _ = write!(note, "; medians of {seeds} seeds, whiskers from the least to the greatest");
    }
    note
}
