//! A `[[replay]]` of a daemon's file: its keys, and their values as the threads need them.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::common::rate::Rate;
use crate::common::schema::described;
use crate::common::span::Span;
use crate::common::within::{Threads, Within};
use serde::{Deserialize, Deserializer, de::Error};

use crate::replay::Tape;

/// A replay: one or several threads that send the frames of a capture, each flow in its order. The file is read as it is sent.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Replay {
    /// The capture: a pcap or pcapng file of Ethernet frames or IP packets.
    pub(crate) file: PathBuf,
    /// The name in counters. Default: the name of the file, up to the last dot.
    pub(crate) name: Option<String>,
    /// The name of its device. Needed if there are several.
    pub(crate) device: Option<String>,
    /// The number of threads; each flow stays on one of them. Default: 1.
    #[serde(default = "one")]
    pub(crate) threads: Threads,
    /// The rate of all threads together: packets or bits per second, "recorded" for the times in the file, or "max". Default: recorded.
    #[serde(default = "recorded")]
    #[cfg_attr(test, schemars(with = "super::words::schema::ReplayRate"))]
    pub(crate) rate: Rate,
    /// With rate = "recorded": how many times as fast as recorded. Default: 1.0.
    pub(crate) speed: Option<Speed>,
    /// With rate = "recorded": the longest gap between two frames; longer ones are cut to it. Default: 60s.
    pub(crate) max_gap: Option<Span>,
    /// How many times to send the file; 0 repeats it without end. Default: 1.
    #[serde(default = "once", rename = "loop")]
    pub(crate) passes: Within<0, { i64::MAX as u64 }>,
    /// The priority of packets, as SO_PRIORITY. Default: 0.
    #[serde(default = "zero")]
    pub(crate) priority: Within<0, { u32::MAX as u64 }>,
    /// The mark of packets that `fw` filters match, as SO_MARK. Default: 0.
    #[serde(default = "zero")]
    pub(crate) mark: Within<0, { u32::MAX as u64 }>,
    /// The CPUs of the threads: the n-th thread runs on the n-th CPU, round robin. Default: any CPU.
    #[serde(default)]
    pub(crate) cpus: Vec<Within<0, 65535>>,
    /// The limit of a thread's outstanding packets, like SO_SNDBUF. Default: 128 at max, none at a rate.
    pub(crate) limit: Option<Within<1, { u32::MAX as u64 }>>,
    /// The file, once it is open.
    #[serde(skip)]
    pub(crate) tape: Option<Arc<Tape>>,
}

impl Replay {
    /// Returns its name, which the check of the file has filled in.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

fn one() -> Threads {
    Within::of(1)
}

fn once() -> Within<0, { i64::MAX as u64 }> {
    Within::of(1)
}

fn zero() -> Within<0, { u32::MAX as u64 }> {
    Within::of(0)
}

fn recorded() -> Rate {
    Rate::Recorded
}

/// A factor of the recorded pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed(pub(crate) f64);

impl Speed {
    const LOWEST: f64 = 0.001;
    const HIGHEST: f64 = 1000.0;
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("speed \"{text}\" is no number")).and_then(Self::of)
    }
}

impl Speed {
    fn of(value: f64) -> Result<Self, String> {
        match (Self::LOWEST..=Self::HIGHEST).contains(&value) {
            true => Ok(Self(value)),
            false => Err(format!("speed {value}: use {} to {}", Self::LOWEST, Self::HIGHEST)),
        }
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::of(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}

described!(Speed, "0.001 to 1000.0", { "type": "number", "minimum": 0.001, "maximum": 1000.0 });
