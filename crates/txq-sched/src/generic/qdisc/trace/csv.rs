//! A recording as CSV: a line for each time in which rate, delay and loss stay the same.

use super::link::{Schedule, Segment, UNLIMITED};
use crate::tc::{Nanos, Rate};

/// What a column has.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Duration,
    Rate,
    Delay,
    Loss,
}

/// Parses lines with their numbers, the first of which names the columns; an error has the number of its line, or 0.
pub(super) fn segments<'a>(
    mut lines: impl Iterator<Item = (usize, &'a str)>,
) -> Result<Schedule, (usize, String)> {
    let Some((number, names)) = lines.next() else { return Err((0, "it is empty".to_owned())) };
    let columns: Vec<Column> = names
        .split(',')
        .map(|name| column(name.trim()))
        .collect::<Result<_, _>>()
        .map_err(|why| (number, why))?;
    if !columns.contains(&Column::Duration) {
        return Err((number, "it has no column \"duration\"".to_owned()));
    }
    let mut all = Vec::new();
    for (number, line) in lines {
        all.push(segment(&columns, line).map_err(|why| (number, why))?);
    }
    if !all.iter().any(|segment| segment.rate > 0) {
        return Err((0, "no line has a rate above 0".to_owned()));
    }
    Ok(Schedule::Segments(all.into()))
}

fn column(name: &str) -> Result<Column, String> {
    match name {
        "duration" => Ok(Column::Duration),
        "rate" => Ok(Column::Rate),
        "delay" => Ok(Column::Delay),
        "loss" => Ok(Column::Loss),
        other => Err(format!("\"{other}\" is no column")),
    }
}

fn segment(columns: &[Column], line: &str) -> Result<Segment, String> {
    let mut segment = Segment { duration: 0, rate: UNLIMITED, delay: 0, loss: 0 };
    let values: Vec<&str> = line.split(',').map(str::trim).collect();
    if values.len() != columns.len() {
        return Err(format!("it has {} values for {} columns", values.len(), columns.len()));
    }
    for (column, value) in columns.iter().zip(values) {
        match column {
            Column::Duration => segment.duration = time(value)?,
            Column::Rate => segment.rate = value.parse::<Rate>().map_err(|error| error.to_string())?.0,
            Column::Delay => segment.delay = time(value)?,
            Column::Loss => segment.loss = percent(value)?,
        }
    }
    match segment.duration {
        0 => Err("its duration is 0".to_owned()),
        _ => Ok(segment),
    }
}

/// Returns a time in nanoseconds. Its unit must be there: that of bare numbers differs from tool to tool.
fn time(text: &str) -> Result<u64, String> {
    if text.ends_with(|c: char| c.is_ascii_digit()) && text != "0" {
        return Err(format!("\"{text}\" has no unit: s, ms, us or ns"));
    }
    text.parse::<Nanos>().map(|time| time.0).map_err(|error| error.to_string())
}

/// Returns a share of 2^32.
fn percent(text: &str) -> Result<u32, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    let number = number.ok_or_else(|| format!("\"{text}\" is no loss: use 0% to 100%"))?;
    Ok((number / 100.0 * f64::from(u32::MAX)).round() as u32)
}
