//! Events as a capture: an interface for each device, and a comment on each packet.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use anyhow::Context;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use txq_control::{TraceEvent, TracedDevice};

use super::text;

/// Times are nanoseconds.
const RESOLUTION: u8 = 9;

/// A pcapng file.
pub(super) struct Capture {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    devices: Vec<String>,
}

impl Capture {
    /// Writes the header, and an interface for each device.
    pub(super) fn new(file: Box<dyn Write>, devices: &[TracedDevice]) -> anyhow::Result<Self> {
        let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(cannot).context(WRITE_FAILED)?;
        for device in devices {
            let options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(&device.name)),
                InterfaceDescriptionOption::IfTsResol(RESOLUTION),
            ];
            let linktype = if device.ethernet { DataLink::ETHERNET } else { DataLink::RAW };
            let snaplen = txq::trace::SNAPLEN as u32;
            let interface = InterfaceDescriptionBlock { linktype, snaplen, options };
            writer.write_pcapng_block(interface).map_err(cannot).context(WRITE_FAILED)?;
        }
        Ok(Self { writer, devices: devices.iter().map(|device| device.name.clone()).collect() })
    }

    /// Writes a packet, with its event as a comment.
    pub(super) fn add(&mut self, event: &TraceEvent) -> anyhow::Result<()> {
        let interface = self.devices.iter().position(|name| *name == event.dev).unwrap_or(0);
        let packet = EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: Duration::from_nanos(event.time_ns),
            original_len: event.len,
            data: Cow::Owned(event.bytes()),
            options: vec![EnhancedPacketOption::Comment(Cow::Owned(text::comment(event)))],
        };
        self.writer.write_pcapng_block(packet).map_err(cannot).context(WRITE_FAILED)?;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.writer.get_mut().flush().context(WRITE_FAILED)
    }
}

const WRITE_FAILED: &str = "the capture cannot be written";

/// Converts an error; those of the system keep their kind.
fn cannot(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
