//! Parsing of `match` and `sample`: a named field, or a raw value with its mask and offset.

use std::cell::Cell;
use std::net::IpAddr;

use super::{KeyMatch, Mark};
use crate::generic::filter::flower::{mac_octets, mask_prefix};
use crate::tc::{ParseError, Words, c_number, full, radix_number};

/// The samples, in the order in which tc compares their beginnings with a word.
const SHORT: [&str; 10] = ["u32", "u16", "u8", "ip", "ip6", "udp", "tcp", "icmp", "mark", "ether"];
/// The most words that a rule compares.
const MOST_KEYS: usize = 128;

/// The keys of a rule, one for each word that it compares.
#[derive(Default)]
pub(super) struct Selector {
    pub(super) keys: Vec<KeyMatch>,
    pub(super) mark: Option<Mark>,
}

fn illegal(remedy: impl Into<String>) -> ParseError {
    ParseError::new("Illegal \"match\"").with_remedy(remedy)
}

/// Where a field is: an offset from the network header, or with `nexthdr+` from the one behind it.
#[derive(Clone, Copy)]
struct FieldOffset {
    offset: i32,
    nexthdr: bool,
}

impl FieldOffset {
    const fn at(offset: i32) -> Self {
        Self { offset, nexthdr: false }
    }

    const fn behind(offset: i32) -> Self {
        Self { offset, nexthdr: true }
    }

    /// Takes `at [nexthdr+]OFFSET` if it is next; returns `self` without.
    fn or_given(self, words: &mut Words<'_>) -> Result<Self, ParseError> {
        if words.peek() != Some("at") {
            return Ok(self);
        }
        words.next_word();
        let word = words.value("at")?;
        let number = word.strip_prefix("nexthdr+");
        let offset = signed(number.unwrap_or(word))
            .ok_or_else(|| illegal(format!("\"{word}\" is no offset such as 12, -14 or nexthdr+2")))?;
        Ok(Self { offset, nexthdr: number.is_some() })
    }
}

/// Parses a number with a sign. Offsets outside of `i32` are errors: no packet is that long.
pub(in crate::generic::filter) fn signed(word: &str) -> Option<i32> {
    let (sign, digits) = word.strip_prefix('-').map_or((1, word), |digits| (-1, digits));
    c_number(digits).and_then(|number| i32::try_from(number).ok()).map(|number| sign * number)
}

/// The width of a value in bytes.
#[derive(Clone, Copy)]
enum Width {
    One = 1,
    Two = 2,
    Four = 4,
}

impl Selector {
    /// Parses one sample, after the word `match` or `sample`, and adds its keys.
    pub(super) fn parse(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        match full(words.value("match")?, &SHORT) {
            "u32" => self.field(Width::Four, FieldOffset::at(0), words),
            "u16" => self.field(Width::Two, FieldOffset::at(0), words),
            "u8" => self.field(Width::One, FieldOffset::at(0), words),
            "ip" => self.ip(words),
            "ip6" => self.ip6(words),
            "tcp" | "udp" => match words.next_word().unwrap_or_default() {
                "src" => self.field(Width::Two, FieldOffset::behind(0), words),
                "dst" => self.field(Width::Two, FieldOffset::behind(2), words),
                name => Err(illegal(format!("\"{name}\" is neither src nor dst"))),
            },
            "icmp" => match words.next_word().unwrap_or_default() {
                "type" => self.field(Width::One, FieldOffset::behind(0), words),
                "code" => self.field(Width::One, FieldOffset::behind(1), words),
                name => Err(illegal(format!("\"{name}\" is neither type nor code"))),
            },
            "ether" => self.ether(words),
            "mark" => {
                let (value, mask) = number_and_mask(u32::MAX, words)?;
                let (old_value, old_mask) = self.mark.as_ref().map_or((0, 0), |mark| (mark.value, mark.mask));
                if (old_value ^ value) & old_mask & mask != 0 {
                    let error = "Illegal \"mark\" (impossible combination)\nIllegal \"match\"";
                    return Err(ParseError::new(error).with_remedy("a mark cannot be two values at once"));
                }
                let (value, mask) = (old_value | value & mask, old_mask | mask);
                self.mark = Some(Mark { value, mask, success: Cell::new(0) });
                Ok(())
            }
            other => Err(illegal(format!(
                "\"{other}\" is none of ip, ip6, tcp, udp, icmp, ether, mark, u32, u16 and u8"
            ))),
        }
    }

    fn ip(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        let name = full(words.next_word().unwrap_or_default(), &["dsfield", "precedence"]);
        match name {
            "src" => self.address(12, false, words),
            "dst" => self.address(16, false, words),
            "tos" | "dsfield" | "precedence" => self.field(Width::One, FieldOffset::at(1), words),
            "ihl" => self.field(Width::One, FieldOffset::at(0), words),
            "protocol" => self.field(Width::One, FieldOffset::at(9), words),
            "sport" => self.field(Width::Two, FieldOffset::at(20), words),
            "dport" => self.field(Width::Two, FieldOffset::at(22), words),
            "icmp_type" => self.field(Width::One, FieldOffset::at(20), words),
            "icmp_code" => self.field(Width::One, FieldOffset::at(21), words),
            "nofrag" => self.add(Width::Two, 0, 0x3fff, FieldOffset::at(6)),
            "firstfrag" => self.add(Width::Two, 0x2000, 0x3fff, FieldOffset::at(6)),
            "df" => self.add(Width::Two, 0x4000, 0x4000, FieldOffset::at(6)),
            "mf" => self.add(Width::Two, 0x2000, 0x2000, FieldOffset::at(6)),
            _ => Err(illegal(format!(
                "\"{name}\" is none of src, dst, tos, dsfield, precedence, ihl, protocol, sport, dport, nofrag, \
                 firstfrag, df, mf, icmp_type and icmp_code"
            ))),
        }
    }

    fn ip6(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        let name = words.next_word().unwrap_or_default();
        match name {
            "src" => self.address(8, true, words),
            "dst" => self.address(24, true, words),
            "priority" => {
                // The traffic class spans two bytes.
                let (value, mask) = number_and_mask(0xff, words)?;
                self.add(Width::Four, value << 20, mask << 20, FieldOffset::at(0))
            }
            "flowlabel" => {
                let (value, mask) = number_and_mask(u32::MAX, words)?;
                self.add(Width::Four, value, mask & 0xf_ffff, FieldOffset::at(0))
            }
            "protocol" => self.field(Width::One, FieldOffset::at(6), words),
            "sport" => self.field(Width::Two, FieldOffset::at(40), words),
            "dport" => self.field(Width::Two, FieldOffset::at(42), words),
            "icmp_type" => self.field(Width::One, FieldOffset::at(40), words),
            "icmp_code" => self.field(Width::One, FieldOffset::at(41), words),
            _ => Err(illegal(format!(
                "\"{name}\" is none of src, dst, priority, flowlabel, protocol, sport, dport, icmp_type and icmp_code"
            ))),
        }
    }

    fn ether(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        let name = words.next_word().unwrap_or_default();
        let place = match name {
            "src" => FieldOffset::at(-8),
            "dst" => FieldOffset::at(-14),
            _ => return Err(illegal(format!("\"{name}\" is neither src nor dst"))),
        };
        let word = words.next_word().unwrap_or_default();
        let Some([a, b, c, d, e, f]) = mac_octets(word) else {
            return Err(illegal(format!("\"{word}\" is no address such as 02:00:00:00:00:01")));
        };
        let FieldOffset { offset, nexthdr } = place.or_given(words)?;
        for (at, half) in (0..).zip([[a, b], [c, d], [e, f]]) {
            let place = FieldOffset { offset: offset + at * 2, nexthdr };
            self.add(Width::Two, u16::from_be_bytes(half).into(), 0xffff, place)?;
        }
        Ok(())
    }

    fn field(&mut self, width: Width, place: FieldOffset, words: &mut Words<'_>) -> Result<(), ParseError> {
        let (value, mask) = number_and_mask(most(width), words)?;
        let place = place.or_given(words)?;
        self.add(width, value, mask, place)
    }

    fn address(&mut self, offset: i32, v6: bool, words: &mut Words<'_>) -> Result<(), ParseError> {
        let word = words.next_word().unwrap_or_default();
        let Some((address, bits)) = mask_prefix(word, v6) else {
            let example = if v6 { "2001:db8::/32" } else { "192.0.2.0/24" };
            return Err(illegal(format!("\"{word}\" is no prefix such as {example}")));
        };
        let FieldOffset { offset, nexthdr } = FieldOffset::at(offset).or_given(words)?;
        let words = |octets: &[u8]| -> Vec<u32> {
            octets
                .chunks_exact(4)
                .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
                .collect()
        };
        let values = match address {
            IpAddr::V4(address) => words(&address.octets()),
            IpAddr::V6(address) => words(&address.octets()),
        };
        for (at, value) in (0i32..).zip(values) {
            let bits = u32::from(bits).saturating_sub(at as u32 * 32).min(32);
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            // Adds no keys for words of an IPv6 address that the prefix does not cover.
            if bits > 0 || !v6 {
                let place = FieldOffset { offset: offset.saturating_add(at * 4), nexthdr };
                self.add(Width::Four, value, mask, place)?;
            }
        }
        Ok(())
    }

    /// Adds a number to the key of the word that contains it.
    fn add(&mut self, width: Width, value: u32, mask: u32, place: FieldOffset) -> Result<(), ParseError> {
        let FieldOffset { offset, nexthdr } = place;
        let Some(added) = KeyMatch::of(width as usize, value, mask, offset, nexthdr) else {
            return Err(illegal(format!("a u32 is at a multiple of 4, not at {offset}")));
        };
        let same = |key: &&mut KeyMatch| key.offset == added.offset && key.nexthdr == nexthdr;
        let Some(key) = self.keys.iter_mut().find(same) else {
            if self.keys.len() == MOST_KEYS {
                return Err(illegal(format!("a rule compares {MOST_KEYS} words at most")));
            }
            self.keys.push(added);
            return Ok(());
        };
        if (key.value ^ added.value) & key.mask & added.mask != 0 {
            return Err(illegal(format!("the bytes at {offset} cannot be two values at once")));
        }
        key.value |= added.value;
        key.mask |= added.mask;
        Ok(())
    }
}

fn most(width: Width) -> u32 {
    match width {
        Width::One => 0xff,
        Width::Two => 0xffff,
        Width::Four => u32::MAX,
    }
}

/// Parses a value as C reads numbers, and its hexadecimal mask.
fn number_and_mask(most: u32, words: &mut Words<'_>) -> Result<(u32, u32), ParseError> {
    let value = words.next_word().unwrap_or_default();
    let mask = words.next_word().unwrap_or_default();
    let digits = mask.strip_prefix("0x").or_else(|| mask.strip_prefix("0X")).unwrap_or(mask);
    let numbers = c_number(value).zip(radix_number(digits, 16));
    numbers.filter(|&(value, mask)| value <= most && mask <= most).ok_or_else(|| {
        illegal(format!(
            "it wants VALUE and a hexadecimal MASK up to {most:x}: got \"{value}\" and \"{mask}\""
        ))
    })
}
