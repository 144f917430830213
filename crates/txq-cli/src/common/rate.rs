//! Sending rates: packets or bits per second, as recorded, or as fast as possible.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use txq::tc;

use crate::common::schema::described;
use crate::common::within::is_negative;

/// A rate as the user writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Rate {
    /// As fast as buffers return.
    #[default]
    Max,
    /// At the times that the capture recorded.
    Recorded,
    /// Packets per second.
    Packets(f64),
    /// Bits per second of frames, counted as tc counts them: from the Ethernet header to the last byte of the payload.
    Bits(f64),
}

described!(Rate, "a rate, such as \"10kpps\" or \"100mbit\", or \"max\"", { "type": "string" });

/// The highest accepted rate, in packets per second; a higher one is a mistake.
const FASTEST: f64 = 1e12;

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let remedy = "use a number above zero with pps, kpps, mpps or tc's bit, kbit, mbit, gbit, such as 10kpps or 100mbit, or max";
        let wrong = |why: &str| format!("rate \"{text}\" {why}: {remedy}");
        let lower = text.trim().to_ascii_lowercase();
        if lower == "max" {
            return Ok(Self::Max);
        }
        if lower == "recorded" {
            return Ok(Self::Recorded);
        }
        if is_negative(&lower) {
            return Err(wrong("is negative"));
        }
        let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let rate = match &lower[number.len()..] {
            "" => return Err(wrong("has no unit")),
            "pps" => packets(number, 1.0),
            "kpps" => packets(number, 1e3),
            "mpps" => packets(number, 1e6),
            "gpps" => packets(number, 1e9),
            _ => lower.parse::<tc::Rate>().ok().map(|rate| Self::Bits(rate.0 as f64 * 8.0)),
        };
        match rate {
            Some(Self::Packets(n) | Self::Bits(n)) if n.is_nan() || n <= 0.0 => {
                Err(wrong("is not above zero"))
            }
            Some(Self::Packets(n)) if n > FASTEST => Err(wrong("is beyond 1000 gpps")),
            Some(rate) => Ok(rate),
            None => Err(wrong("is none")),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

fn packets(number: &str, unit: f64) -> Option<Rate> {
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some(Rate::Packets(number * unit))
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Recorded => f.write_str("recorded"),
            Self::Packets(n) => write!(f, "{}pps", metric(*n)),
            Self::Bits(n) => write!(f, "{}bit", metric(*n)),
        }
    }
}

/// Returns a number with k, M or G, and at most three digits behind the point.
pub fn metric(value: f64) -> String {
    let (scaled, prefix) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = format!("{scaled:.3}");
    format!("{}{prefix}", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, rate) in [
            ("max", Rate::Max),
            ("recorded", Rate::Recorded),
            ("10kpps", Rate::Packets(1e4)),
            ("1.5mpps", Rate::Packets(1.5e6)),
            ("0.5pps", Rate::Packets(0.5)),
            ("100mbit", Rate::Bits(1e8)),
            ("1Gbit", Rate::Bits(1e9)),
            ("1kbps", Rate::Bits(8e3)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_remedy() {
        for text in [
            "",
            "0pps",
            "-1pps",
            "-5mbit",
            "-5",
            "0mbit",
            "10",
            "fast",
            "10parsecs",
            "nanpps",
            "infpps",
            "1e30pps",
        ] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.contains("such as 10kpps"), "{text}: {error}");
            assert_eq!(error.contains("is negative"), text.starts_with('-'), "{text}: {error}");
        }
    }

    #[test]
    fn metrics_are_short() {
        for (value, text) in
            [(0.0, "0"), (999.5, "999.5"), (20_000.0, "20k"), (1_234_567.0, "1.235M"), (8e9, "8G")]
        {
            assert_eq!(metric(value), text);
        }
    }
}
