//! Values that are words, and their parsers.

use std::str::FromStr;

use crate::common::schema::described;
use serde::de::{Deserialize, Deserializer, Error};
use txq::Discipline;
use txq::bql::{Attr, BqlConfig};
use txq::driver::Link;
use txq::netdev::{Completions, Sampling};
use txq::pool::{Backing, FreeMode};
use txq::tc;

#[cfg(test)]
pub(super) mod schema;

/// The number of a txq, as the key of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TxqIndex(pub(crate) u16);

impl<'de> Deserialize<'de> for TxqIndex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || D::Error::custom(format!("\"{text}\" is no txq: use its number, from 0 on"));
        text.parse().map(Self).map_err(|_| wrong())
    }
}

described!(TxqIndex, "the number of a txq", { "type": "string", "pattern": "^[0-9]+$" });

/// The rate of a link, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRate(pub(crate) u64);

impl<'de> Deserialize<'de> for LinkRate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let rate = tc::Rate::from_str(&text).map_err(D::Error::custom)?;
        match rate.0.checked_mul(8) {
            Some(bits @ 1..) => Ok(Self(bits)),
            _ => Err(D::Error::custom(format!(
                "a link of rate \"{text}\": use a rate above zero, such as 10mbit"
            ))),
        }
    }
}

described!(LinkRate, "a rate, such as \"10gbit\"", { "type": "string" });

/// A probability from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Probability(pub(crate) f64);

impl<'de> Deserialize<'de> for Probability {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(from)?;
        if (0.0..=1.0).contains(&value) {
            return Ok(Self(value));
        }
        Err(D::Error::custom(format!("{value} is no probability: use 0.0 to 1.0")))
    }
}

described!(Probability, "0.0 to 1.0", { "type": "number", "minimum": 0.0, "maximum": 1.0 });

/// Byte queue limits: `"off"`, or a table of sysfs's file names, each with a number or a word that its file accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bql(pub(crate) Option<BqlConfig>);

impl Default for Bql {
    fn default() -> Self {
        Self(Some(BqlConfig::default()))
    }
}

impl<'de> Deserialize<'de> for Bql {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(from)?;
        let table = match &value {
            toml::Value::String(word) if word == "off" => return Ok(Self(None)),
            toml::Value::Table(table) => table,
            _ => {
                let example = "use \"off\", or a table such as { limit_max = 30000 }";
                return Err(D::Error::custom(format!("bql {value}: {example}")));
            }
        };
        let mut config = BqlConfig::default();
        for (name, value) in table {
            let attr: Attr = name.parse().map_err(D::Error::custom)?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            config.set(attr, &text).map_err(D::Error::custom)?;
        }
        Ok(Self(Some(config)))
    }
}

described!(Bql, "\"off\", or a table of sysfs's file names, such as { limit_max = 30000 }", {
    "type": ["string", "object"],
});

/// A word of a file, and its value.
type Word<T> = (&'static str, T);

const LINK_WORDS: [Word<Link>; 2] = [("ethernet", Link::Ethernet), ("ip", Link::Ip)];
const BACKINGS: [Word<Backing>; 4] =
    [("auto", Backing::Auto), ("heap", Backing::Heap), ("mmap", Backing::Mmap), ("huge", Backing::HugePages)];
const FREES: [Word<FreeMode>; 3] =
    [("defer", FreeMode::Defer), ("shared", FreeMode::Shared), ("keep", FreeMode::Keep)];
const REAPERS: [Word<Completions>; 3] =
    [("inline", Completions::Inline), ("worker", Completions::Worker), ("per-queue", Completions::PerQueue)];

/// Reads one of the words of a key.
fn read<'de, D: Deserializer<'de>, T: Copy>(key: &str, of: &[Word<T>], from: D) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    let found = of.iter().find(|(word, _)| *word == text).map(|&(_, value)| value);
    found.ok_or_else(|| D::Error::custom(format!("{key} \"{text}\": use {}", list(names(of)))))
}

fn names<T>(of: &[Word<T>]) -> impl Iterator<Item = &'static str> + Clone {
    of.iter().map(|&(word, _)| word)
}

/// Returns words as a sentence lists them.
fn list(words: impl Iterator<Item = &'static str>) -> String {
    let words: Vec<_> = words.map(|word| format!("\"{word}\"")).collect();
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// Which threads reap completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reapers(pub(crate) Completions);

impl<'de> Deserialize<'de> for Reapers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read("completions", &REAPERS, from).map(Self)
    }
}

/// What a bridge does with packets of several segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Segments {
    /// Cuts them before the qdisc.
    #[default]
    Cut,
    /// Passes them whole.
    Keep,
}

/// Where a bridge's packets get their priority from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Priority {
    /// From the IP header.
    #[default]
    Tos,
    /// From nowhere: it is 0.
    None,
}

const SEGMENTS_WORDS: [Word<Segments>; 2] = [("cut", Segments::Cut), ("keep", Segments::Keep)];
const PRIORITY_WORDS: [Word<Priority>; 2] = [("tos", Priority::Tos), ("none", Priority::None)];

/// Parses what a bridge does with packets of several segments.
pub(super) fn segments<'de, D: Deserializer<'de>>(from: D) -> Result<Segments, D::Error> {
    read("segments", &SEGMENTS_WORDS, from)
}

/// Parses where a bridge's packets get their priority from.
pub(super) fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<Priority, D::Error> {
    read("priority", &PRIORITY_WORDS, from)
}

/// Parses the name of an enqueue discipline.
pub(super) fn discipline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Discipline>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// Parses which calls of a sender are sampled: `"all"`, `"off"`, or n for each n-th call.
pub(super) fn sampling<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Sampling>, D::Error> {
    let value = toml::Value::deserialize(from)?;
    match &value {
        toml::Value::String(word) if word == "all" => Ok(Some(Sampling::All)),
        toml::Value::String(word) if word == "off" => Ok(Some(Sampling::Off)),
        &toml::Value::Integer(n) if u32::try_from(n).is_ok_and(|n| n > 0) => {
            Ok(Some(Sampling::Every(n as u32)))
        }
        _ => {
            Err(D::Error::custom(format!("sampling {value}: use \"all\", \"off\", or n for each n-th call")))
        }
    }
}

/// Parses what a device's packets begin with.
pub(super) fn link<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Link>, D::Error> {
    read("link", &LINK_WORDS, from).map(Some)
}

/// Parses the source of a pool's memory.
pub(super) fn backing<'de, D: Deserializer<'de>>(from: D) -> Result<Backing, D::Error> {
    read("backing", &BACKINGS, from)
}

/// Parses where a buffer goes if its packet is freed on another thread.
pub(super) fn free<'de, D: Deserializer<'de>>(from: D) -> Result<FreeMode, D::Error> {
    read("free", &FREES, from)
}
