//! Parsing of `match`: a named field, or a raw value with its mask and offset.

use std::net::IpAddr;

use super::KeyMatch;
use crate::filter::flower::mask_prefix;
use crate::tc::{ParseError, Words, c_number, radix_number};

/// The keys of a rule, one for each word that it compares.
#[derive(Default)]
pub(super) struct Selector {
    pub(super) keys: Vec<KeyMatch>,
}

fn illegal(remedy: impl Into<String>) -> ParseError {
    ParseError::new("Illegal \"match\"").with_remedy(remedy)
}

/// The width of a value in bytes.
#[derive(Clone, Copy)]
enum Width {
    One,
    Two,
    Four,
}

impl Selector {
    /// Parses one sample, after the word `match`, and adds its keys.
    pub(super) fn parse(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        match words.value("match")? {
            "u32" => self.raw(Width::Four, words),
            "u16" => self.raw(Width::Two, words),
            "u8" => self.raw(Width::One, words),
            "ip" => self.ip(words),
            "ip6" => self.ip6(words),
            other => Err(illegal(format!("\"{other}\" is none of ip, ip6, u32, u16 and u8"))),
        }
    }

    fn ip(&mut self, words: &mut Words<'_>) -> Result<(), ParseError> {
        let name = words.next_word().unwrap_or_default();
        match name {
            "src" => self.address(12, false, words),
            "dst" => self.address(16, false, words),
            "tos" | "dsfield" | "precedence" => self.field(Width::One, 1, words),
            "ihl" => self.field(Width::One, 0, words),
            "protocol" => self.field(Width::One, 9, words),
            "sport" => self.field(Width::Two, 20, words),
            "dport" => self.field(Width::Two, 22, words),
            "icmp_type" => self.field(Width::One, 20, words),
            "icmp_code" => self.field(Width::One, 21, words),
            "nofrag" => self.add(Width::Two, 0, 0x3fff, 6, false),
            "firstfrag" => self.add(Width::Two, 0, 0x1fff, 6, false),
            "df" => self.add(Width::Two, 0x4000, 0x4000, 6, false),
            "mf" => self.add(Width::Two, 0x2000, 0x2000, 6, false),
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
                self.add(Width::Four, value << 20, mask << 20, 0, false)
            }
            "flowlabel" => {
                let (value, mask) = number_and_mask(u32::MAX, words)?;
                self.add(Width::Four, value, mask & 0xf_ffff, 0, false)
            }
            "protocol" => self.field(Width::One, 6, words),
            "sport" => self.field(Width::Two, 40, words),
            "dport" => self.field(Width::Two, 42, words),
            "icmp_type" => self.field(Width::One, 40, words),
            "icmp_code" => self.field(Width::One, 41, words),
            _ => Err(illegal(format!(
                "\"{name}\" is none of src, dst, priority, flowlabel, protocol, sport, dport, icmp_type and icmp_code"
            ))),
        }
    }

    fn field(&mut self, width: Width, offset: i32, words: &mut Words<'_>) -> Result<(), ParseError> {
        let (value, mask) = number_and_mask(most(width), words)?;
        self.add(width, value, mask, offset, false)
    }

    fn raw(&mut self, width: Width, words: &mut Words<'_>) -> Result<(), ParseError> {
        let (value, mask) = number_and_mask(most(width), words)?;
        let (mut offset, mut nexthdr) = (0, false);
        if words.peek() == Some("at") {
            words.next_word();
            let word = words.value("at")?;
            let number = word.strip_prefix("nexthdr+");
            nexthdr = number.is_some();
            let number = number.unwrap_or(word);
            let (sign, digits) = number.strip_prefix('-').map_or((1, number), |digits| (-1, digits));
            // Offsets outside of `i32` are errors: no packet is that long.
            offset = c_number(digits)
                .and_then(|number| i32::try_from(number).ok())
                .map(|number| sign * number)
                .ok_or_else(|| illegal(format!("\"{word}\" is no offset such as 12, -14 or nexthdr+2")))?;
        }
        self.add(width, value, mask, offset, nexthdr)
    }

    fn address(&mut self, offset: i32, v6: bool, words: &mut Words<'_>) -> Result<(), ParseError> {
        let word = words.next_word().unwrap_or_default();
        let Some((address, bits)) = mask_prefix(word, v6) else {
            let example = if v6 { "2001:db8::/32" } else { "192.0.2.0/24" };
            return Err(illegal(format!("\"{word}\" is no prefix such as {example}")));
        };
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
        for (at, value) in values.into_iter().enumerate() {
            let bits = u32::from(bits).saturating_sub(at as u32 * 32).min(32);
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            // Adds no keys for words of an IPv6 address that the prefix does not cover.
            if bits > 0 || !v6 {
                self.add(Width::Four, value, mask, offset + at as i32 * 4, false)?;
            }
        }
        Ok(())
    }

    /// Adds a number to the key of the word that contains it.
    fn add(
        &mut self,
        width: Width,
        value: u32,
        mask: u32,
        offset: i32,
        nexthdr: bool,
    ) -> Result<(), ParseError> {
        let within = offset & 3;
        let shift = match width {
            Width::Four if within != 0 => {
                return Err(illegal(format!("a u32 is at a multiple of 4, not at {offset}")));
            }
            Width::Four => 0,
            Width::Two if within == 0 => 16,
            Width::Two => 0,
            Width::One => 24 - 8 * within,
        };
        let (value, mask, offset) = ((value & mask) << shift, mask << shift, offset & !3);
        let same = |key: &&mut KeyMatch| key.offset == offset && key.nexthdr == nexthdr;
        let Some(key) = self.keys.iter_mut().find(same) else {
            self.keys.push(KeyMatch { value, mask, offset, nexthdr });
            return Ok(());
        };
        if (key.value ^ value) & key.mask & mask != 0 {
            return Err(illegal(format!("the bytes at {offset} cannot be two values at once")));
        }
        key.value |= value;
        key.mask |= mask;
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
