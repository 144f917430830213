//! `estimator`: an average of the rate at which a qdisc sends.
//!
//! Every interval the average moves towards the rate of that interval. The weight of an interval follows from the averaging
//! time. The counterpart is iproute2's `parse_estimator` and `tc_setup_estimator`, and the kernel's `gen_estimator`.

use std::time::Duration;

use super::error::ParseError;
use super::lex::Words;
use super::units::Micros;

/// The shortest interval, in microseconds. The others are 2 to 32 times as long.
const SHORTEST_INTERVAL: u32 = 250_000;

/// The options of an estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimator {
    /// The interval is this power of 2 times 250 ms.
    interval_log: u32,
    /// An interval's weight in the average is this power of 1/2.
    ewma_log: u32,
}

impl Estimator {
    /// Reads the interval and the averaging time. `before` says whether an estimator was given before.
    pub(crate) fn parse(words: &mut Words<'_>, before: bool) -> Result<Self, ParseError> {
        let time = |text: &str, what: &str| {
            text.parse::<Micros>().map_err(|error| {
                ParseError::argument(&format!("invalid estimator {what}"), "estimator", error.remedy())
            })
        };
        let text = words.value("estimator")?;
        if before {
            return Err(ParseError::duplicate("estimator", text));
        }
        if text == "help" {
            return Err(ParseError::new(USAGE));
        }
        let interval = time(text, "interval")?;
        let average = time(words.value("estimator")?, "time constant")?;
        let interval_log = (0..6).find(|log| interval.0 <= SHORTEST_INTERVAL << log);
        let is_longer = |log: &u32| {
            let kept = 1.0 - 0.5f64.powi(*log as i32);
            f64::from(interval.0) / -kept.ln() > average.0.into()
        };
        let ewma_log = (1..32).find(is_longer).map_or(31, |log| log - 1);
        match interval_log {
            Some(interval_log) if (1..31).contains(&ewma_log) => Ok(Self { interval_log, ewma_log }),
            _ => {
                let error = ParseError::new("Error: estimator parameters are out of range.");
                Err(error.with_remedy("use an interval of at most 8s, and a longer averaging time"))
            }
        }
    }

    /// Returns the interval.
    pub fn interval(&self) -> Duration {
        Duration::from_micros(u64::from(SHORTEST_INTERVAL) << self.interval_log)
    }

    /// Returns the weight of one interval in the average.
    pub fn weight(&self) -> f64 {
        0.5f64.powi(self.ewma_log as i32)
    }

    /// Returns words that describe it.
    pub fn words(&self) -> String {
        let interval = self.interval().as_micros();
        // A time whose weight is the same, whatever the rounding: between those of this weight and of the next one.
        let time = |log: u32| interval as f64 / -(1.0 - 0.5f64.powi(log as i32)).ln();
        let average = (time(self.ewma_log) + time(self.ewma_log + 1)) / 2.0;
        format!("estimator {interval}us {}us", average as u64)
    }
}

const USAGE: &str = "Usage: ... estimator INTERVAL TIME-CONST\n\
    \x20 INTERVAL is interval between measurements\n\
    \x20 TIME-CONST is averaging time constant\n\
    Example: ... est 1sec 8sec";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Estimator, String> {
        Estimator::parse(&mut Words::split(text), false).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn words_and_errors_are_tcs() {
        for (text, millis, weight) in [
            ("1s 4s", 1000, 0.25),
            ("250ms 1s", 250, 0.25),
            ("100ms 300ms", 250, 0.5),
            ("8s 16s", 8000, 0.5),
            ("1s 1000s", 1000, 1.0 / 512.0),
        ] {
            let estimator = parse(text).unwrap();
            assert_eq!(estimator.interval(), Duration::from_millis(millis), "{text}");
            assert_eq!(estimator.weight(), weight, "{text}");
            let words = estimator.words();
            assert_eq!(parse(words.strip_prefix("estimator ").unwrap()), Ok(estimator), "{words}");
        }
        for (text, message) in [
            ("", "Command line is not complete. Try option \"help\""),
            ("1s", "Command line is not complete. Try option \"help\""),
            ("x 4s", "Error: argument \"invalid estimator interval\" is wrong: estimator"),
            ("1s x", "Error: argument \"invalid estimator time constant\" is wrong: estimator"),
            ("1s 1ms", "Error: estimator parameters are out of range."),
            ("16s 32s", "Error: estimator parameters are out of range."),
        ] {
            assert_eq!(parse(text).unwrap_err(), message, "{text}");
        }
    }
}
