//! The map from CPUs to txqs, as the command line and the configuration give it.
//!
//! `auto`, the default, leaves the choice to the library, which assigns txqs to CPUs by the machine's caches. `none` leaves
//! it to the flow hash. Otherwise there is a CPU mask for each txq, in sysfs's format. Such masks may contain commas, so on
//! the command line colons separate the txqs: `1:2`, `ff,00000000:ff`.

use std::fmt;
use std::str::FromStr;

use crate::common::failure::Refused;
use crate::common::schema::described;
use anyhow::Context;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use txq::cpumask::CpuMask;
use txq::netdev::Builder;
use txq::topology::Topology;
use txq::xps::XpsMap;

/// The requested way to choose a txq.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Xps {
    /// By flow hash alone.
    None,
    /// As the library does by default: by CPU, assigned by the machine's caches, or else by flow hash.
    #[default]
    Auto,
    /// By CPU, with a mask of CPUs for each txq.
    Masks(Vec<String>),
}

described!(Xps, "\"auto\", \"none\", or a list of CPU masks, such as [\"1\", \"2\"]", { "type": ["string", "array"] });

impl Xps {
    /// Gives the builder of a device with `txqs` txqs its map. An error if a mask is wrong, or if masks are given and the
    /// machine's topology cannot be read.
    pub(crate) fn steer(&self, builder: Builder, txqs: u16) -> anyhow::Result<Builder> {
        let map = match self {
            Self::Auto => return Ok(builder),
            Self::None => None,
            Self::Masks(masks) => {
                let topology = Topology::read("/sys").map_err(|error| Refused(error.to_string()))?;
                let nr_cpus = topology.nr_cpus();
                let read =
                    |(txq, mask)| CpuMask::parse(mask, nr_cpus).with_context(|| format!("XPS of txq {txq}"));
                let masks = masks.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
                Some(XpsMap::from_masks(&masks, txqs.into(), nr_cpus)?)
            }
        };
        Ok(builder.xps(map))
    }
}

impl FromStr for Xps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            "" => Err("XPS \"\": use auto, none, or a mask for each txq, such as 1:2".into()),
            masks => Ok(Self::Masks(masks.split(':').map(str::to_owned).collect())),
        }
    }
}

struct WordOrMasks;

impl<'de> Visitor<'de> for WordOrMasks {
    type Value = Xps;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"auto\", \"none\", or a CPU mask for each txq such as [\"1\", \"2\"]")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Xps, E> {
        match word {
            "none" => Ok(Xps::None),
            "auto" => Ok(Xps::Auto),
            _ => Err(E::custom(format!(
                "XPS \"{word}\": use \"auto\", \"none\", or a CPU mask for each txq such as [\"1\", \"2\"]"
            ))),
        }
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Xps, S::Error> {
        let mut masks = Vec::new();
        while let Some(mask) = items.next_element()? {
            masks.push(mask);
        }
        Ok(Xps::Masks(masks))
    }
}

impl<'de> Deserialize<'de> for Xps {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WordOrMasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_is_between_txqs_and_a_comma_within_a_mask() {
        let masks = |list: &[&str]| Xps::Masks(list.iter().map(|&mask| mask.to_owned()).collect());
        assert_eq!("none".parse(), Ok(Xps::None));
        assert_eq!(Xps::default(), Xps::Auto);
        assert_eq!("auto".parse(), Ok(Xps::Auto));
        assert_eq!("1:2".parse(), Ok(masks(&["1", "2"])));
        assert_eq!("ff,00000000:ff".parse(), Ok(masks(&["ff,00000000", "ff"])));
        assert!("".parse::<Xps>().is_err());
    }
}
