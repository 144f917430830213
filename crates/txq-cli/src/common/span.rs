//! Spans of time: `300ms`, `5s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use txq::tc;

use crate::common::schema::described;
use crate::common::within::is_negative;

/// A span of time above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

described!(Span, "a time, such as \"300ms\" or \"5s\"", {
    "type": "string", "pattern": "^[0-9.]+ *[a-z]+$",
});

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "time \"{text}\" {why}: use a number above zero with h, m, s, ms, us or ns, such as 5s or 300ms"
            )
        };
        if is_negative(text) {
            return Err(wrong("is negative"));
        }
        // tc reads a number without a unit in the smallest unit, which is a mistake here.
        if text.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong("has no unit"));
        }
        // tc has no unit beyond a second.
        let (number, factor) = match (text.strip_suffix('h'), text.strip_suffix('m')) {
            (Some(hours), _) => (format!("{}s", hours.trim_end()), 3600),
            (_, Some(minutes)) => (format!("{}s", minutes.trim_end()), 60),
            _ => (text.to_owned(), 1),
        };
        let nanos: tc::Nanos = number.parse().map_err(|_| wrong("is none"))?;
        if nanos.0 == 0 {
            return Err(wrong("is not above zero"));
        }
        Ok(Self(Duration::from_nanos(nanos.0.saturating_mul(factor))))
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A time in nanoseconds, printed for people: three digits and a unit.
#[derive(Clone, Copy, Debug)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (nanos / 1e3, "us"),
            1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
            _ => (nanos / 1e9, "s"),
        };
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        assert_eq!("300ms".parse(), Ok(Span(Duration::from_millis(300))));
        assert_eq!("1.5s".parse(), Ok(Span(Duration::from_millis(1500))));
        assert_eq!("5m".parse(), Ok(Span(Duration::from_secs(300))));
        assert_eq!("1.5h".parse(), Ok(Span(Duration::from_secs(5400))));
        for text in ["", "h", "m", "0h", "5hs", "5", "0s", "-1s", "5 parsecs"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["-1s", "-5", "-.5ms"] {
            assert!(text.parse::<Span>().unwrap_err().contains("is negative"), "{text}");
        }
    }

    #[test]
    fn times_have_three_digits() {
        for (nanos, text) in [(7, "7 ns"), (1234, "1.23 us"), (45_600, "45.6 us"), (789_000_000, "789 ms")] {
            assert_eq!(Human(nanos).to_string(), text);
        }
    }
}
