//! Reads a recording: a file of Mahimahi, or CSV.

use std::fs::{self, File};
use std::io::Read;

use super::csv;
use super::link::Schedule;
use crate::tc::ParseError;

/// The most bytes of a file: an hour of Mahimahi's at 100 Mbit/s.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Reads the file at a path.
pub(super) fn read(path: &str) -> Result<Schedule, ParseError> {
    let wrong = |why: &str| ParseError::new(format!("trace: {path}: {why}"));
    // Opening a pipe would wait, and opening a device may do anything.
    let about = fs::metadata(path).map_err(|error| wrong(&error.to_string()))?;
    if !about.is_file() || about.len() > MAX_FILE_BYTES {
        return Err(wrong("it is no regular file of at most 256 MiB"));
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
    read.map_err(|error| wrong(&error.to_string()))?;
    parse(&text).map_err(|(line, why)| {
        let remedy =
            "a trace has times in milliseconds, or is CSV with a line of names: duration, rate, delay, loss";
        wrong(&if line > 0 { format!("line {line}: {why}") } else { why }).with_remedy(remedy)
    })
}

/// Parses a text; returns the number of the wrong line, or 0, and what is wrong.
pub(super) fn parse(text: &str) -> Result<Schedule, (usize, String)> {
    let lines = (1..).zip(text.lines()).map(|(number, line)| (number, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).peekable();
    match lines.peek() {
        None => Err((0, "it is empty".to_owned())),
        Some((_, first)) if first.starts_with(|c: char| c.is_ascii_digit()) => opportunities(lines),
        Some(_) => csv::segments(lines),
    }
}

fn opportunities<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Schedule, (usize, String)> {
    let mut times = Vec::new();
    for (number, line) in lines {
        let time: u32 =
            line.parse().map_err(|_| (number, format!("\"{line}\" is no time in milliseconds")))?;
        if times.last().is_some_and(|last| time < *last) {
            return Err((number, format!("{time} is before the time of the line above")));
        }
        times.push(time);
    }
    if times.last() == Some(&0) {
        return Err((0, "all its times are 0, so it has no length".to_owned()));
    }
    Ok(Schedule::Opportunities(times.into()))
}
