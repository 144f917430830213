//! The pcapng format: a sequence of blocks. Only interfaces and packets matter here; all other blocks are skipped unread.

use std::borrow::Cow;

use pcap_file::Endianness;
use pcap_file::pcapng::PcapNgParser;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::{ENHANCED_PACKET_BLOCK, PACKET_BLOCK, SIMPLE_PACKET_BLOCK};

use super::{Begin, Raw, Wrong, begin_of};

/// Default resolution of an interface's times: microseconds.
const DEFAULT_RESOLUTION: u8 = 6;

pub(super) struct Ng<'a> {
    parser: PcapNgParser,
    pub(super) rest: &'a [u8],
}

impl<'a> Ng<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Wrong> {
        let (rest, parser) = PcapNgParser::new(bytes)?;
        Ok(Self { parser, rest })
    }

    pub(super) fn next(&mut self) -> Result<Option<Raw<'a>>, Wrong> {
        while !self.rest.is_empty() {
            let (rest, block) = self.parser.next_raw_block(self.rest)?;
            let Cow::Borrowed(body) = block.body else { unreachable!("parsed from a slice") };
            let fields = Fields { body, big: self.parser.section().endianness == Endianness::Big };
            let raw = match block.type_ {
                ENHANCED_PACKET_BLOCK => Some(self.packet(fields.u32(0)?, &fields)?),
                // Obsolete: half of the interface's field was a count of drops.
                PACKET_BLOCK => Some(self.packet(fields.u16(0)?.into(), &fields)?),
                SIMPLE_PACKET_BLOCK => Some(self.simple_packet(&fields)?),
                _ => None,
            };
            self.rest = rest;
            if raw.is_some() {
                return Ok(raw);
            }
        }
        Ok(None)
    }

    /// Parses a packet with a time: interface, time's upper and lower half, captured length, length, data.
    fn packet(&self, interface: u32, fields: &Fields<'a>) -> Result<Raw<'a>, Wrong> {
        let (interface, begin) = self.interface(interface)?;
        let units = u64::from(fields.u32(4)?) << 32 | u64::from(fields.u32(8)?);
        let (captured, wire_len) = (fields.u32(12)?, fields.u32(16)?);
        let data = fields.bytes(20, captured as usize)?;
        let wire_len = wire_len.max(captured);
        Ok(Raw { time: Some(nanoseconds(interface, units)), begin, data, wire_len })
    }

    /// Parses a packet of the first interface, without a time: length, data.
    fn simple_packet(&self, fields: &Fields<'a>) -> Result<Raw<'a>, Wrong> {
        let (interface, begin) = self.interface(0)?;
        let wire_len = fields.u32(0)?;
        let captured = match interface.snaplen {
            0 => wire_len,
            limit => wire_len.min(limit),
        };
        Ok(Raw { time: None, begin, data: fields.bytes(4, captured as usize)?, wire_len })
    }

    /// Returns an interface, and what its frames begin with.
    fn interface(&self, index: u32) -> Result<(&InterfaceDescriptionBlock<'static>, Begin), Wrong> {
        let known = self.parser.interfaces();
        let Some(interface) = known.get(index as usize) else {
            return Err(Wrong::Field(format!(
                "it is of interface {index}, and {} are described",
                known.len()
            )));
        };
        Ok((interface, begin_of(interface.linktype)?))
    }
}

/// Converts a time in an interface's units to nanoseconds since 1970.
fn nanoseconds(interface: &InterfaceDescriptionBlock, units: u64) -> i128 {
    let (mut resolution, mut offset) = (DEFAULT_RESOLUTION, 0);
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(value) => resolution = *value,
            // Signed seconds, although the parser's type is unsigned.
            InterfaceDescriptionOption::IfTsOffset(seconds) => offset = *seconds as i64,
            _ => {}
        }
    }
    let billions = u128::from(units) * 1_000_000_000;
    let exponent = u32::from(resolution & 0x7f);
    let time = if resolution & 0x80 == 0 {
        // The unit is so short that no 64-bit number of it reaches a nanosecond.
        10_u128.checked_pow(exponent).map_or(0, |units_per_second| billions / units_per_second)
    } else {
        billions >> exponent
    };
    i128::try_from(time).expect("below 2^94") + i128::from(offset) * 1_000_000_000
}

/// A block's body, in the byte order of its section.
struct Fields<'a> {
    body: &'a [u8],
    big: bool,
}

impl<'a> Fields<'a> {
    fn u32(&self, at: usize) -> Result<u32, Wrong> {
        let bytes = self.bytes(at, 4)?.try_into().expect("4 bytes");
        Ok(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u16(&self, at: usize) -> Result<u16, Wrong> {
        let bytes = self.bytes(at, 2)?.try_into().expect("2 bytes");
        Ok(if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn bytes(&self, at: usize, len: usize) -> Result<&'a [u8], Wrong> {
        let rest = self.body.get(at..).unwrap_or_default();
        rest.get(..len).ok_or_else(|| {
            Wrong::Field(format!("it has {len} bytes at {at} of a block whose body has {}", self.body.len()))
        })
    }
}
