//! The classic pcap format.

use std::borrow::Cow;

use pcap_file::TsResolution;
use pcap_file::pcap::PcapParser;

use super::{Begin, Raw, Wrong, begin_of};

pub(super) struct Classic<'a> {
    parser: PcapParser,
    pub(super) rest: &'a [u8],
    begin: Begin,
}

impl<'a> Classic<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Wrong> {
        let (rest, parser) = PcapParser::new(bytes)?;
        let begin = begin_of(parser.header().datalink)?;
        Ok(Self { parser, rest, begin })
    }

    pub(super) fn next(&mut self) -> Result<Option<Raw<'a>>, Wrong> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        // Raw, because the checks of `next_packet` refuse cut frames.
        let (rest, packet) = self.parser.next_raw_packet(self.rest)?;
        let (units, scale) = match self.parser.header().ts_resolution {
            TsResolution::MicroSecond => (1_000_000, 1_000),
            TsResolution::NanoSecond => (1_000_000_000, 1),
        };
        if packet.ts_frac >= units {
            let fraction = packet.ts_frac;
            return Err(Wrong::Field(format!("its time has {fraction} of {units} parts of a second")));
        }
        let Cow::Borrowed(data) = packet.data else { unreachable!("parsed from a slice") };
        self.rest = rest;
        let time = i128::from(packet.ts_sec) * 1_000_000_000 + i128::from(packet.ts_frac) * scale;
        let wire_len = packet.orig_len.max(packet.incl_len);
        Ok(Some(Raw { time: Some(time), begin: self.begin, data, wire_len }))
    }
}
