//! nbyte: compares bytes of the packet (kernel: `em_nbyte`).

use std::fmt;

use txq_core::arch::Arch;

use super::{Call, Layer};
use crate::generic::filter::frame::Frame;
use crate::tc::ParseError;

const USAGE: &str = "Usage: nbyte(NEEDLE at OFFSET [layer LAYER])
where: NEEDLE := { string | \"c-escape-sequence\" }
       OFFSET := int
       LAYER  := { link | network | transport | 0..2 }

Example: nbyte(\"ababa\" at 12 layer 1)";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Nbyte {
    needle: Vec<u8>,
    offset: u16,
    layer: Layer,
}

impl Nbyte {
    pub(super) fn parse(call: &Call<'_>) -> Result<Self, ParseError> {
        let wrong = |problem: &str, at| call.wrong(problem, at, USAGE);
        let (mut offset, mut layer) = (None, Layer::Network);
        let mut at = 1;
        while let Some(arg) = call.args.get(at) {
            if !["at", "layer"].contains(&arg.word()) {
                return Err(wrong("nbyte: unknown parameter", Some(at)));
            }
            let Some(value) = call.args.get(at + 1) else {
                return Err(wrong("nbyte: missing argument", Some(at)));
            };
            if arg.word() == "at" {
                let problem = "nbyte: invalid offset, must be numeric";
                // As the kernel, which stores two bytes.
                offset = Some(value.number().ok_or_else(|| wrong(problem, Some(at + 1)))? as u16);
            } else {
                let problem = "nbyte: illegal layer, must be in 0..2";
                layer = Layer::parse(value.word()).ok_or_else(|| wrong(problem, Some(at + 1)))?;
            }
            at += 2;
        }
        let offset = offset.ok_or_else(|| wrong("nbyte: offset required", None))?;
        Ok(Self { needle: call.args[0].bytes.clone(), offset, layer })
    }

    pub(super) fn matches<A: Arch>(&self, frame: &Frame<'_, A>) -> bool {
        self.layer.bytes(frame, self.offset, self.needle.len()).is_some_and(|bytes| bytes.eq(&self.needle))
    }

    /// Writes it as a command has it, without a blank in the text.
    pub(super) fn write_input(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nbyte(\"")?;
        self.needle.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        write!(f, "\" at {} layer {})", self.offset, self.layer as u8)
    }
}

impl fmt::Display for Nbyte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nbyte(")?;
        self.needle.iter().try_for_each(|byte| write!(f, "{byte:02x} "))?;
        let shown = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
        let text: String = self.needle.iter().map(shown).collect();
        write!(f, "\"{text}\" at {} layer {})", self.offset, self.layer as u8)
    }
}
