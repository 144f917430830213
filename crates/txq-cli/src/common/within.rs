//! Numbers with bounds: an absurd size is an error at the option or key that has it.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::common::schema::described;

/// A number from `LOW` to `HIGH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within<const LOW: u64, const HIGH: u64>(u64);

impl<const LOW: u64, const HIGH: u64> Within<LOW, HIGH> {
    /// Makes a number from a value within the bounds; panics on any other.
    pub const fn of(value: u64) -> Self {
        assert!(LOW <= value && value <= HIGH);
        Self(value)
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the number as a size.
    pub fn size(self) -> usize {
        self.0 as usize
    }
}

fn check(value: i128, low: u64, high: u64) -> Result<u64, String> {
    match u64::try_from(value) {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("{value} is out of range: use {low} to {high}")),
    }
}

impl<const LOW: u64, const HIGH: u64> FromStr for Within<LOW, HIGH> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("\"{text}\" is no whole number: use {LOW} to {HIGH}"))
            .and_then(|value| check(value, LOW, HIGH))
            .map(Self)
    }
}

impl<const LOW: u64, const HIGH: u64> fmt::Display for Within<LOW, HIGH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns whether a text begins like a negative number.
pub fn is_negative(text: &str) -> bool {
    let digits = text.trim_start().strip_prefix('-');
    digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Reads a number within bounds: one type for all bounds, so that a deserializer is compiled for it once.
struct Whole {
    low: u64,
    high: u64,
}

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.low, self.high)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        self.visit_i128(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        self.visit_i128(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<u64, E> {
        check(value, self.low, self.high).map_err(E::custom)
    }
}

impl<'de, const LOW: u64, const HIGH: u64> Deserialize<'de> for Within<LOW, HIGH> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_i64(Whole { low: LOW, high: HIGH }).map(Self)
    }
}

described!(impl [const LOW: u64, const HIGH: u64] Within<LOW, HIGH>, format!("{LOW} to {HIGH}"), {
    "type": "integer", "minimum": LOW, "maximum": HIGH,
});

/// Microseconds for which a worker may poll the clock.
pub type SpinUs = Within<0, 1_000_000>;
/// A number of sending threads. More of them would only test the machine's thread scheduler.
pub type Threads = Within<1, 4096>;
/// A number of txqs of a device. The path allows 65535, at a hundred kilobytes each; no machine has a CPU for each of 4096.
pub type Txqs = Within<1, 4096>;
