//! `tc monitor`: prints the changes that commands make, until a signal or the program ends it.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use crate::common::out::printable;
use crate::common::stop::Signals;
use anyhow::Context;
use txq_control::tc::WORDS;
use txq_control::{Answer, Change, Monitored};

use super::flags::{Flags, Stamp};
use crate::control::{connect, failed, tell};

/// How long the command waits for a change before it checks for a signal.
const CHANGE_WAIT: Duration = Duration::from_millis(100);
const USAGE: &str = "Usage: txq tc [ -timestamp [ -tshort ] ] monitor\n";

/// Prints changes; returns the exit code.
pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    if let Some(word) = flags.words.get(1) {
        if "help".starts_with(word.as_str()) {
            eprint!("{USAGE}");
            return Ok(ExitCode::from(WORDS));
        }
        let message = format!("Argument \"{word}\" is unknown, try \"tc monitor help\".");
        return tell(&Answer::bad(WORDS, &message, None));
    }
    let signals = Signals::catch()?;
    let mut monitor = connect(&flags.target)?.monitor().map_err(failed)?;
    let mut is_stopped = false;
    loop {
        if !is_stopped && signals.seen().is_some() {
            monitor.stop();
            is_stopped = true;
        }
        match monitor.next_within(CHANGE_WAIT).map_err(failed)? {
            Some(Monitored::Change(change)) => match print(&change, flags.stamp) {
                // The reader of the output is gone.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                printed => printed.context("stdout")?,
            },
            Some(Monitored::End { lost, .. }) => {
                if lost > 0 {
                    eprintln!("txq: {lost} changes lost");
                }
                return Ok(ExitCode::SUCCESS);
            }
            _ => {}
        }
    }
}

fn print(change: &Change, stamp: Stamp) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let micros = change.time_ns / 1000 % 1_000_000;
    let Date { year, month, day, weekday, time } = Date::of(change.time_ns / 1_000_000_000);
    match stamp {
        Stamp::None => {}
        Stamp::Line => {
            let (weekday, name) = (DAYS[weekday], MONTHS[month - 1]);
            writeln!(out, "Timestamp: {weekday} {name} {day:2} {time} {year} {micros} usec")?;
        }
        Stamp::Short => write!(out, "[{year}-{month:02}-{day:02}T{time}.{micros:06}] ")?,
    }
    out.write_all(printable(&change.text).as_bytes())?;
    out.flush()
}

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date in UTC.
#[derive(Debug, PartialEq, Eq)]
struct Date {
    year: u64,
    /// From 1.
    month: usize,
    day: u64,
    /// From Sunday, 0.
    weekday: usize,
    time: String,
}

impl Date {
    /// Returns the date of a time since 1970, in seconds.
    fn of(seconds: u64) -> Self {
        let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
        // 1970 began on a Thursday.
        let weekday = ((days + 4) % 7) as usize;
        let is_leap =
            |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let mut year = 1970;
        while days >= 365 + u64::from(is_leap(year)) {
            days -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let february = 28 + u64::from(is_leap(year));
        let mut month = 1;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        let time = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
        Self { year, month, day: days + 1, weekday, time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, (1970, 1, 1, 4, "00:00:00")),
            (951_827_696, (2000, 2, 29, 2, "12:34:56")),
            (1_709_251_199, (2024, 2, 29, 4, "23:59:59")),
            (1_735_689_599, (2024, 12, 31, 2, "23:59:59")),
            (1_795_503_327, (2026, 11, 24, 2, "06:55:27")),
            (4_107_542_400, (2100, 3, 1, 1, "00:00:00")),
        ] {
            let (year, month, day, weekday, time) = expected;
            let date = Date { year, month, day, weekday, time: time.to_owned() };
            assert_eq!(Date::of(seconds), date);
        }
    }
}
