//! The pcapng format: a sequence of blocks. Only sections, interfaces and packets matter here; all other blocks are skipped unread.

use std::ops::Range;

use pcap_file::Endianness;
use pcap_file::pcapng::PcapNgParser;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::{
    ENHANCED_PACKET_BLOCK, INTERFACE_DESCRIPTION_BLOCK, PACKET_BLOCK, SECTION_HEADER_BLOCK,
    SIMPLE_PACKET_BLOCK,
};

use super::{Begin, MAX_RECORD_BYTES, Raw, Record, Wrong, begin_of};

/// Default resolution of an interface's times: microseconds.
const DEFAULT_RESOLUTION: u8 = 6;

/// The length of a block's type and length, in bytes.
const BLOCK_HEADER_BYTES: usize = 8;

pub(super) struct Ng {
    parser: PcapNgParser,
    /// The bytes of the section's interfaces, which the parser keeps.
    described: usize,
}

impl Ng {
    /// Reads the header at the beginning of a file; returns its length, too.
    pub(super) fn new(bytes: &[u8]) -> Result<(usize, Self), Wrong> {
        section_len(bytes)?;
        let (rest, parser) = PcapNgParser::new(bytes)?;
        Ok((bytes.len() - rest.len(), Self { parser, described: 0 }))
    }

    /// Parses the block at the beginning of some bytes.
    pub(super) fn record(&mut self, bytes: &[u8]) -> Result<Record, Wrong> {
        let big = self.parser.section().endianness == Endianness::Big;
        let header = Fields { body: bytes.get(..BLOCK_HEADER_BYTES).ok_or(Wrong::Cut)?, big };
        let (kind, len) = (header.u32(0)?, header.u32(4)?);
        match kind {
            SECTION_HEADER_BLOCK => section_len(bytes)?,
            INTERFACE_DESCRIPTION_BLOCK | ENHANCED_PACKET_BLOCK | PACKET_BLOCK | SIMPLE_PACKET_BLOCK => {
                bounded(len)?;
            }
            // The parser would need the whole block.
            _ if len % 4 == 0 && len >= 12 => return Ok(Record { len: len.into(), frame: None }),
            _ => {}
        }
        let (rest, block) = self.parser.next_raw_block(bytes)?;
        let len = bytes.len() - rest.len();
        let fields = Fields { body: &block.body, big };
        let frame = match kind {
            ENHANCED_PACKET_BLOCK => Some(self.packet(fields.u32(0)?, &fields)?),
            // Obsolete: half of the interface's field was a count of drops.
            PACKET_BLOCK => Some(self.packet(fields.u16(0)?.into(), &fields)?),
            SIMPLE_PACKET_BLOCK => Some(self.simple_packet(&fields)?),
            _ => None,
        };
        match kind {
            SECTION_HEADER_BLOCK => self.described = 0,
            INTERFACE_DESCRIPTION_BLOCK => self.described += len,
            _ => {}
        }
        if self.described > MAX_RECORD_BYTES {
            let what = format!("its section describes interfaces in more than {MAX_RECORD_BYTES} bytes");
            return Err(Wrong::Field(what));
        }
        Ok(Record { len: len as u64, frame })
    }

    /// Parses a packet with a time: interface, time's upper and lower half, captured length, length, data.
    fn packet(&self, interface: u32, fields: &Fields<'_>) -> Result<Raw, Wrong> {
        let (interface, begin) = self.interface(interface)?;
        let units = u64::from(fields.u32(4)?) << 32 | u64::from(fields.u32(8)?);
        let (captured, wire_len) = (fields.u32(12)?, fields.u32(16)?);
        let data = fields.data(20, captured as usize)?;
        let wire_len = wire_len.max(captured);
        Ok(Raw { time: Some(nanoseconds(interface, units)), begin, data, wire_len })
    }

    /// Parses a packet of the first interface, without a time: length, data.
    fn simple_packet(&self, fields: &Fields<'_>) -> Result<Raw, Wrong> {
        let (interface, begin) = self.interface(0)?;
        let wire_len = fields.u32(0)?;
        let captured = match interface.snaplen {
            0 => wire_len,
            limit => wire_len.min(limit),
        };
        Ok(Raw { time: None, begin, data: fields.data(4, captured as usize)?, wire_len })
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

/// Checks the length of a section's header, which has its own byte order.
fn section_len(bytes: &[u8]) -> Result<(), Wrong> {
    let fields = |big| Fields { body: bytes.get(..BLOCK_HEADER_BYTES + 4).unwrap_or_default(), big };
    let magic = fields(true).u32(8).map_err(|_| Wrong::Cut)?;
    bounded(fields(magic == 0x1a2b_3c4d).u32(4)?)
}

/// Checks the length of a block that is parsed as a whole.
fn bounded(len: u32) -> Result<(), Wrong> {
    match len as usize > MAX_RECORD_BYTES {
        true => Err(Wrong::Field(format!("it has {len} bytes, and a record {MAX_RECORD_BYTES} at most"))),
        false => Ok(()),
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

    /// Returns where in the block `len` bytes of the body lie.
    fn data(&self, at: usize, len: usize) -> Result<Range<usize>, Wrong> {
        self.bytes(at, len)?;
        Ok(BLOCK_HEADER_BYTES + at..BLOCK_HEADER_BYTES + at + len)
    }

    fn bytes(&self, at: usize, len: usize) -> Result<&'a [u8], Wrong> {
        let rest = self.body.get(at..).unwrap_or_default();
        rest.get(..len).ok_or_else(|| {
            Wrong::Field(format!("it has {len} bytes at {at} of a block whose body has {}", self.body.len()))
        })
    }
}
