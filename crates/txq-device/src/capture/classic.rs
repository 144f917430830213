//! The classic pcap format.

use pcap_file::pcap::PcapParser;
use pcap_file::{Endianness, TsResolution};

use super::{Begin, MAX_RECORD_BYTES, Raw, Record, Wrong, begin_of};

/// The length of a record's header, in bytes.
const RECORD_HEADER_BYTES: usize = 16;

pub(super) struct Classic {
    parser: PcapParser,
    begin: Begin,
}

impl Classic {
    /// Reads the header at the beginning of a file; returns its length, too.
    pub(super) fn new(bytes: &[u8]) -> Result<(usize, Self), Wrong> {
        let (rest, parser) = PcapParser::new(bytes)?;
        let begin = begin_of(parser.header().datalink)?;
        Ok((bytes.len() - rest.len(), Self { parser, begin }))
    }

    /// Parses the record at the beginning of some bytes.
    pub(super) fn record(&self, bytes: &[u8]) -> Result<Record, Wrong> {
        let header = bytes.get(..RECORD_HEADER_BYTES).ok_or(Wrong::Cut)?;
        let field = |at: usize| {
            let field = header[at..at + 4].try_into().expect("4 bytes");
            match self.parser.header().endianness {
                Endianness::Big => u32::from_be_bytes(field),
                Endianness::Little => u32::from_le_bytes(field),
            }
        };
        let [seconds, fraction, kept, wire_len] = [0, 4, 8, 12].map(field);
        let (units, scale) = match self.parser.header().ts_resolution {
            TsResolution::MicroSecond => (1_000_000, 1_000),
            TsResolution::NanoSecond => (1_000_000_000, 1),
        };
        if fraction >= units {
            return Err(Wrong::Field(format!("its time has {fraction} of {units} parts of a second")));
        }
        let len = RECORD_HEADER_BYTES + kept as usize;
        if len > MAX_RECORD_BYTES {
            return Err(Wrong::Field(format!(
                "it has {kept} bytes, and a record {MAX_RECORD_BYTES} at most"
            )));
        }
        if bytes.len() < len {
            return Err(Wrong::Cut);
        }
        let time = i128::from(seconds) * 1_000_000_000 + i128::from(fraction) * scale;
        let (data, wire_len) = (RECORD_HEADER_BYTES..len, wire_len.max(kept));
        Ok(Record {
            len: len as u64,
            frame: Some(Raw { time: Some(time), begin: self.begin, data, wire_len }),
        })
    }
}
