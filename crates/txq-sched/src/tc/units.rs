//! Rates, sizes and times, parsed and printed as by tc(8).
//!
//! A number may be followed by a unit in any case: `10mbit`, `1.5k`, `5ms`. A bare rate is bits per second, a bare size
//! bytes, a bare time microseconds ([`Micros`]) or nanoseconds ([`Nanos`]). A rate's `k` is 1000 (`kbit`) and its `ki` 1024;
//! a size's `k` is always 1024. Every text that tc accepts gives the same result, with three exceptions, which are errors
//! here: a negative number, `inf`/`nan`, and an overflow. tc lets these wrap silently (`rate -8` is 18446744Tbit there,
//! `4295s` is 32.7ms). The counterpart is iproute2's `get_rate64`, `get_size`, `get_time`, `get_time64` and their `print_`
//! twins, observed with version 6.1.

use std::fmt;
use std::str::FromStr;

/// A text that is not a rate, a size or a time. The message names it and shows a valid one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a {what}: {remedy}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    remedy: &'static str,
}

impl UnitError {
    /// Returns the description of a valid value, without the invalid text.
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}

/// A rate in bytes per second, as in the kernel; parsed and printed in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

/// A number of bytes: a limit, a burst, a quantum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u32);

/// A time in microseconds, up to 71 minutes: the kernel's 32-bit qdisc times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u32);

/// A time in nanoseconds: the kernel's 64-bit qdisc times (netem's slots, taprio).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

const KI: f64 = 1024.0;

/// Units of a rate, in bits per second.
const RATE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("bit", 1.0),
    ("kibit", KI),
    ("kbit", 1e3),
    ("mibit", KI * KI),
    ("mbit", 1e6),
    ("gibit", KI * KI * KI),
    ("gbit", 1e9),
    ("tibit", KI * KI * KI * KI),
    ("tbit", 1e12),
    ("bps", 8.0),
    ("kibps", 8.0 * KI),
    ("kbps", 8e3),
    ("mibps", 8.0 * KI * KI),
    ("mbps", 8e6),
    ("gibps", 8.0 * KI * KI * KI),
    ("gbps", 8e9),
    ("tibps", 8.0 * KI * KI * KI * KI),
    ("tbps", 8e12),
];

/// Units of a size, in bytes. `kbit` counts in 1024 here, unlike in a rate.
const SIZE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("k", KI),
    ("kb", KI),
    ("kbit", KI / 8.0),
    ("m", KI * KI),
    ("mb", KI * KI),
    ("mbit", KI * KI / 8.0),
    ("g", KI * KI * KI),
    ("gb", KI * KI * KI),
    ("gbit", KI * KI * KI / 8.0),
];

/// Units of a 32-bit time, in microseconds.
const MICROS_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("s", 1e6),
    ("sec", 1e6),
    ("secs", 1e6),
    ("ms", 1e3),
    ("msec", 1e3),
    ("msecs", 1e3),
    ("us", 1.0),
    ("usec", 1.0),
    ("usecs", 1.0),
];

/// Units of a 64-bit time, in nanoseconds.
const NANOS_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("s", 1e9),
    ("sec", 1e9),
    ("secs", 1e9),
    ("ms", 1e6),
    ("msec", 1e6),
    ("msecs", 1e6),
    ("us", 1e3),
    ("usec", 1e3),
    ("usecs", 1e3),
    ("ns", 1.0),
    ("nsec", 1.0),
    ("nsecs", 1.0),
];

impl FromStr for Rate {
    type Err = UnitError;

    /// Parses `10mbit`, `1.5Gibit`, `125kbps` (bytes), `8000` (bits). Fractions of a byte per second are cut off.
    ///
    /// # Errors
    /// No number, an unknown unit (as in `10m`), a negative rate, or 2^64 bytes per second or more.
    fn from_str(text: &str) -> Result<Rate, UnitError> {
        const REMEDY: &str =
            "use a number with bit, kbit, mbit, gbit or tbit, or with bps to mean bytes, such as 10mbit";
        let bits = scaled(text, RATE_UNITS);
        bits.and_then(|bits| below(bits / 8.0, TWO_POW_64))
            .map(Rate)
            .ok_or_else(|| error(text, "rate", REMEDY))
    }
}

impl FromStr for Size {
    type Err = UnitError;

    /// Parses `1500`, `10k`, `1.5mb`, `8kbit` (1 KiB). Fractions of a byte are cut off.
    ///
    /// # Errors
    /// No number, an unknown unit, a negative size, or 2^32 bytes or more.
    fn from_str(text: &str) -> Result<Size, UnitError> {
        const REMEDY: &str = "use 0 to 4294967295, or a number with k, m or g, such as 10k";
        let bytes = scaled(text, SIZE_UNITS).and_then(|bytes| below(bytes, TWO_POW_32));
        bytes.map(|bytes| Size(bytes as u32)).ok_or_else(|| error(text, "size", REMEDY))
    }
}

impl FromStr for Micros {
    type Err = UnitError;

    /// Parses `5ms`, `1.5s`, `100` (microseconds). Fractions of a microsecond are cut off.
    ///
    /// # Errors
    /// No number, an unknown unit (`ns` is unknown here), a negative time, or 2^32 microseconds or more.
    fn from_str(text: &str) -> Result<Micros, UnitError> {
        const REMEDY: &str = "use a number with s, ms or us below 4294 s, such as 5ms; a bare number is us";
        let micros = scaled(text, MICROS_UNITS).and_then(|micros| below(micros, TWO_POW_32));
        micros.map(|micros| Micros(micros as u32)).ok_or_else(|| error(text, "time", REMEDY))
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    /// Parses `5ms`, `800ns`, `100` (nanoseconds). Fractions of a nanosecond are cut off.
    ///
    /// # Errors
    /// No number, an unknown unit, a negative time, or 2^63 nanoseconds or more.
    fn from_str(text: &str) -> Result<Nanos, UnitError> {
        const REMEDY: &str =
            "use a number with s, ms, us or ns below 9223372036 s, such as 800ns; a bare number is ns";
        let nanos = scaled(text, NANOS_UNITS).and_then(|nanos| below(nanos, TWO_POW_63));
        nanos.map(Nanos).ok_or_else(|| error(text, "time", REMEDY))
    }
}

impl Rate {
    /// Returns the rate in whole bits per second, such as `1000000bit`, which is exact.
    pub fn exact(self) -> String {
        format!("{}bit", u128::from(self.0) * 8)
    }

    /// Returns the rate as `tc -iec` prints it, such as `1Gibit`.
    pub fn iec(self) -> impl fmt::Display {
        IecRate(self)
    }

    fn write(self, f: &mut fmt::Formatter<'_>, kilo: u128, infix: &str) -> fmt::Result {
        const PREFIXES: [&str; 5] = ["", "K", "M", "G", "T"];
        // tc multiplies in 64 bits, which wraps from 2^61 bytes/s on; we print the true value.
        let mut bits = u128::from(self.0) * 8;
        let mut prefix = 0;
        // A rate keeps at least three digits unless the shorter form is exact.
        while prefix < PREFIXES.len() - 1 && bits >= kilo && (bits % kilo == 0 || bits >= kilo * kilo) {
            bits /= kilo;
            prefix += 1;
        }
        let infix = if prefix == 0 { "" } else { infix };
        write!(f, "{bits}{}{infix}bit", PREFIXES[prefix])
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 1000, "")
    }
}

struct IecRate(Rate);

impl fmt::Display for IecRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, 1024, "i")
    }
}

impl fmt::Display for Size {
    /// Prints `10Kb` or `1600b`: with a unit if the size is less than 16 bytes from whole Kb, or less than 1024 bytes from
    /// whole Mb.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_size(f, u64::from(self.0))
    }
}

/// A number of queued bytes for the `backlog` line: printed like [`Size`], but 64 bits wide, as our backlogs are.
pub(super) struct Backlog(pub(super) u64);

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_size(f, self.0)
    }
}

fn write_size(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    for (unit, near, name) in [(1 << 20, 1024, "Mb"), (1 << 10, 16, "Kb")] {
        let whole = (bytes + unit / 2) / unit;
        if bytes >= unit && (whole * unit).abs_diff(bytes) < near {
            return write!(f, "{}{name}", significant(whole as f64, 6));
        }
    }
    write!(f, "{bytes}b")
}

impl fmt::Display for Micros {
    /// Prints three digits and the largest unit not above the time: `5ms`, `1.23s`; 999999 us is `1e+03ms`, as in tc.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = f64::from(self.0);
        match self.0 {
            0..1_000 => write!(f, "{}us", self.0),
            1_000..1_000_000 => write!(f, "{}ms", significant(micros / 1e3, 3)),
            _ => write!(f, "{}s", significant(micros / 1e6, 3)),
        }
    }
}

impl fmt::Display for Nanos {
    /// Prints as [`Micros`] does, with `ns` below one microsecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{}ns", self.0),
            1_000..1_000_000 => write!(f, "{}us", significant(nanos / 1e3, 3)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", significant(nanos / 1e6, 3)),
            _ => write!(f, "{}s", significant(nanos / 1e9, 3)),
        }
    }
}

const TWO_POW_32: f64 = 4_294_967_296.0;
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;

fn error(text: &str, what: &'static str, remedy: &'static str) -> UnitError {
    UnitError { text: text.to_owned(), what, remedy }
}

/// Returns the whole part of a number in `0..bound`, or `None` outside.
fn below(value: f64, bound: f64) -> Option<u64> {
    (0.0..bound).contains(&value).then_some(value as u64)
}

/// Parses `text` as a number times its unit.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = leading_number(text)?;
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    Some(number * scale)
}

/// Splits a text into a number as C reads one (`strtod`: blanks, a sign, decimal with exponent, or hexadecimal) and the
/// rest.
fn leading_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };

    if let Some(hex) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let digits = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 0 {
            let value = u64::from_str_radix(&hex[..digits], 16).ok()?;
            return Some((sign * value as f64, &hex[digits..]));
        }
    }

    let digits = |from: usize| unsigned[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(0);
    if unsigned[end..].starts_with('.') {
        end += 1 + digits(end + 1);
    }
    // An `e` with no digits after it belongs to the unit.
    if unsigned[end..].starts_with(['e', 'E']) {
        let signed = usize::from(unsigned[end + 1..].starts_with(['+', '-']));
        let exponent = digits(end + 1 + signed);
        end += if exponent == 0 { 0 } else { 1 + signed + exponent };
    }
    let value: f64 = unsigned[..end].parse().ok()?;
    Some((sign * value, &unsigned[end..]))
}

/// Formats as C's `%g`: six significant digits.
pub(crate) fn general(value: f64) -> String {
    significant(value, 6)
}

/// Returns a number as tc writes it into JSON, by `%g`.
pub(crate) fn general_json(value: f64) -> crate::json::Value {
    let text = general(value);
    let number = || text.parse::<f64>().unwrap_or_default().into();
    text.parse::<u64>().map_or_else(|_| number(), Into::into)
}

/// Formats as C's `%.{digits}g`: that many significant digits, no trailing zeros, an exponent if the number is too long.
fn significant(value: f64, digits: usize) -> String {
    let rounded = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = rounded.split_once('e').expect("the e format always has an exponent");
    let exponent: i32 = exponent.parse().expect("the e format's exponent is a number");
    let trim = |number: &str| match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number.to_owned(),
    };
    if (-4..digits as i32).contains(&exponent) {
        trim(&format!("{value:.*}", (digits as i32 - 1 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    }
}

#[cfg(test)]
mod tests;
