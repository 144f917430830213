//! The lengths of a sender's packets.

use std::fmt;

use crate::common::schema::described;
use crate::common::within::Within;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, SeqAccess, Unexpected, Visitor};
use txq::driver::Link;

/// The length of one packet, in bytes, with its link-layer header.
pub(crate) type Length = Within<42, 9014>;

/// The IP packets of the simple Internet mix, spread: seven of 40 bytes, four of 576, one of 1500.
const IMIX: [usize; 12] = [40, 576, 40, 40, 576, 40, 1500, 40, 576, 40, 40, 576];
/// The shortest Ethernet frame, without its checksum.
const SHORTEST_FRAME: usize = 60;
/// Bounds a list, whose lengths have headers of their own for each flow.
const MAX_LENGTHS: usize = 64;

/// The lengths of a sender's packets, one after the other and again from the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// These, in bytes, with the link-layer header.
    Listed(Vec<usize>),
    /// The simple Internet mix.
    Imix,
}

impl Lengths {
    /// Packets of one length.
    pub(crate) fn one(len: Length) -> Self {
        Self::Listed(vec![len.size()])
    }

    /// Returns the lengths on a link, with its header.
    pub(crate) fn on(&self, link: Link) -> Vec<usize> {
        match (self, link) {
            (Self::Listed(lengths), _) => lengths.clone(),
            (Self::Imix, Link::Ethernet) => IMIX.map(|len| (len + 14).max(SHORTEST_FRAME)).to_vec(),
            (Self::Imix, _) => IMIX.to_vec(),
        }
    }

    /// Returns the greatest length on any link.
    pub(crate) fn longest(&self) -> usize {
        self.on(Link::Ethernet).into_iter().max().unwrap_or(0)
    }
}

described!(Lengths, "42 to 9014, a list of them, or \"imix\"", { "type": ["integer", "array", "string"] });

struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = Lengths;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 42 to 9014, a list of 1 to {MAX_LENGTHS} of them, or \"imix\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Lengths, E> {
        Length::deserialize(value.into_deserializer()).map(Lengths::one)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Lengths, E> {
        match word {
            "imix" => Ok(Lengths::Imix),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Lengths, S::Error> {
        let mut lengths = Vec::new();
        while let Some(len) = list.next_element::<Length>()? {
            lengths.push(len.size());
        }
        if lengths.is_empty() || lengths.len() > MAX_LENGTHS {
            return Err(S::Error::invalid_length(lengths.len(), &self));
        }
        Ok(Lengths::Listed(lengths))
    }
}

impl<'de> Deserialize<'de> for Lengths {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<Lengths, String> {
        #[derive(serde::Deserialize)]
        struct File {
            packet: Lengths,
        }
        toml::from_str::<File>(&format!("packet = {value}"))
            .map(|file| file.packet)
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_number_a_list_and_imix_are_read() {
        assert_eq!(read("1514"), Ok(Lengths::one(Length::of(1514))));
        assert_eq!(read("[60, 1514]"), Ok(Lengths::Listed(vec![60, 1514])));
        assert_eq!(read("\"imix\""), Ok(Lengths::Imix));
        assert_eq!(read("41").unwrap_err(), "41 is out of range: use 42 to 9014");
        assert_eq!(read("[60, 9015]").unwrap_err(), "9015 is out of range: use 42 to 9014");
        let expected = "expected a whole number from 42 to 9014, a list of 1 to 64 of them, or \"imix\"";
        assert_eq!(read("\"mix\"").unwrap_err(), format!("invalid value: string \"mix\", {expected}"));
        assert_eq!(read("[]").unwrap_err(), format!("invalid length 0, {expected}"));
    }

    #[test]
    fn imix_has_the_internets_ip_packets_on_every_link() {
        let count = |link, len| Lengths::Imix.on(link).iter().filter(|&&found| found == len).count();
        assert_eq!([40, 576, 1500].map(|len| count(Link::Ip, len)), [7, 4, 1]);
        assert_eq!([60, 590, 1514].map(|len| count(Link::Ethernet, len)), [7, 4, 1]);
        assert_eq!(Lengths::Imix.longest(), 1514);
    }
}
