//! u32: compares a word of the packet under a mask, as a key of the filter u32 (kernel: `em_u32`).

use std::fmt;

use txq_core::arch::Arch;

use super::Call;
use super::cmp::width;
use crate::generic::filter::frame::Frame;
use crate::generic::filter::u32::{KeyMatch, signed};
use crate::tc::{ParseError, c_number};

const USAGE: &str = "Usage: u32(ALIGN VALUE MASK at [ nexthdr+ ] OFFSET)
where: ALIGN  := { u8 | u16 | u32 }

Example: u32(u16 0x1122 0xffff at nexthdr+4)";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word(KeyMatch);

impl Word {
    pub(super) fn parse(call: &Call<'_>) -> Result<Self, ParseError> {
        let wrong = |problem: &str, at| call.wrong(problem, at, USAGE);
        let arg = |at: usize, name: &str| match call.args.get(at) {
            None => Err(wrong(&format!("u32: missing {name}"), None)),
            Some(arg) => Ok(arg),
        };
        let number = |at: usize, name: &str| {
            let problem = format!("u32: invalid {name}, must be numeric");
            arg(at, name)?.number().ok_or_else(|| wrong(&problem, Some(at)))
        };
        let bytes = width(call.args[0].word()).ok_or_else(|| wrong("u32: invalid alignment", Some(0)))?;
        let (value, mask) = (number(1, "key")?, number(2, "mask")?);
        if arg(3, "\"at\"")?.word() != "at" {
            return Err(wrong("u32: missing \"at\"", Some(3)));
        }
        let (mut last, mut word) = (4, arg(4, "offset")?.word());
        let nexthdr = word.starts_with("nexthdr+");
        if nexthdr {
            word = &word["nexthdr+".len()..];
            if word.is_empty() {
                last = 5;
                word = arg(5, "offset")?.word();
            }
        }
        let offset = signed(word).filter(|_| c_number(word.trim_start_matches('-')).is_some());
        let offset = offset.ok_or_else(|| wrong("u32: invalid offset, must be numeric", Some(last)))?;
        if call.args.len() > last + 1 {
            return Err(wrong("u32: unexpected trailer", Some(last + 1)));
        }
        let most = u32::MAX >> (32 - 8 * bytes as u32);
        for (number, name) in [(value, "key"), (mask, "mask")] {
            if number > most {
                return Err(wrong(&format!("Illegal {name} (>0x{most:X})"), Some(last)));
            }
        }
        KeyMatch::of(bytes, value, mask, offset, nexthdr)
            .map(Self)
            .ok_or_else(|| wrong("u32: invalid offset, must be a multiple of 4", Some(last)))
    }

    /// `nexthdr+` adds nothing: no link has moved the offsets.
    pub(super) fn matches<A: Arch>(&self, frame: &Frame<'_, A>) -> bool {
        let (untagged, network) = frame.untagged();
        self.0.matches(&untagged, network as i64)
    }
}

impl Word {
    /// Writes it as a command has it.
    pub(super) fn write_input(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyMatch { value, mask, offset, nexthdr } = self.0;
        let from = if nexthdr { "nexthdr+" } else { "" };
        write!(f, "u32(u32 {value:#x} {mask:#x} at {from}{offset})")
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyMatch { value, mask, offset, nexthdr } = self.0;
        let from = if nexthdr { "nexthdr+" } else { "" };
        write!(f, "u32({value:08x}/{mask:08x} at {from}{offset})")
    }
}
