//! cmp: compares a number in the packet with a given one (kernel: `em_cmp`).

use std::fmt;

use txq_core::arch::Arch;

use super::{Call, Layer, Operator};
use crate::generic::filter::frame::Frame;
use crate::tc::ParseError;

const USAGE: &str = "Usage: cmp(ALIGN at OFFSET [ ATTRS ] { eq | lt | gt } VALUE)
where: ALIGN  := { u8 | u16 | u32 }
       ATTRS  := [ layer LAYER ] [ mask MASK ] [ trans ]
       LAYER  := { link | network | transport | 0..2 }

Example: cmp(u16 at 3 layer 2 mask 0xff00 gt 20)";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cmp {
    /// 1, 2 or 4.
    bytes: usize,
    offset: u16,
    layer: Layer,
    /// 0 for none.
    mask: u32,
    /// Whether the number's bytes are in the order of a little-endian machine.
    trans: bool,
    operator: Operator,
    value: u32,
}

impl Cmp {
    pub(super) fn parse(call: &Call<'_>) -> Result<Self, ParseError> {
        let wrong = |problem: &str, at| call.wrong(problem, at, USAGE);
        let bytes = width(call.args[0].word()).ok_or_else(|| wrong("cmp: invalid alignment", Some(0)))?;
        let (mut offset, mut layer, mut mask, mut trans, mut compared) =
            (None, Layer::Network, 0, false, None);
        let mut at = 1;
        while let Some(arg) = call.args.get(at) {
            let word = arg.word();
            if word == "trans" {
                trans = true;
                at += 1;
                continue;
            }
            let operator = Operator::parse(word);
            if operator.is_none() && !["at", "layer", "mask"].contains(&word) {
                return Err(wrong("nbyte: unknown parameter", Some(at)));
            }
            let Some(value) = call.args.get(at + 1) else {
                return Err(wrong("cmp: missing argument", Some(at)));
            };
            let number = |problem| value.number().ok_or_else(|| wrong(problem, Some(at + 1)));
            match (operator, word) {
                (Some(operator), _) => compared = Some((operator, number("cmp: invalid value")?)),
                // As the kernel, which stores two bytes.
                (_, "at") => offset = Some(number("cmp: invalid offset, must be numeric")? as u16),
                (_, "mask") => mask = number("cmp: invalid mask")?,
                _ => {
                    let problem = "cmp: illegal layer, must be in 0..2";
                    layer = Layer::parse(value.word()).ok_or_else(|| wrong(problem, Some(at + 1)))?;
                }
            }
            at += 2;
        }
        let (Some(offset), Some((operator, value))) = (offset, compared) else {
            return Err(wrong("cmp: offset and value required", None));
        };
        Ok(Self { bytes, offset, layer, mask, trans, operator, value })
    }

    pub(super) fn matches<A: Arch>(&self, frame: &Frame<'_, A>) -> bool {
        let Some(bytes) = self.layer.bytes(frame, self.offset, self.bytes) else { return false };
        let digit = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        let mut value = match self.trans {
            true => bytes.rev().fold(0, digit),
            false => bytes.fold(0, digit),
        };
        if self.mask != 0 {
            value &= self.mask;
        }
        self.operator.holds(value.into(), self.value.into())
    }
}

/// Returns the bytes of `u8`, `u16` or `u32`.
pub(super) fn width(word: &str) -> Option<usize> {
    match word {
        "u8" => Some(1),
        "u16" => Some(2),
        "u32" => Some(4),
        _ => None,
    }
}

impl fmt::Display for Cmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cmp(u{} at {} layer {} ", self.bytes * 8, self.offset, self.layer as u8)?;
        if self.mask != 0 {
            write!(f, "mask {:#x} ", self.mask)?;
        }
        f.write_str(if self.trans { "trans " } else { "" })?;
        write!(f, "{} {})", self.operator.name(), self.value)
    }
}
