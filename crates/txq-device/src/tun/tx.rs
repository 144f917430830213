//! The transmitting half: one `writev` a packet.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::{Errno, writev};
use txq::driver::{Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::flow::Link;
use txq::flow::layout::Layout;
use txq::packet::{Packet, PacketList};

use super::cut;
use super::{Interface, Kind};
use crate::backoff::Backoff;
use crate::vnet::{self, Vnet};

/// The header of a packet that is complete.
const COMPLETE: [u8; vnet::LEN] = [0; vnet::LEN];

/// Time until a retry on an interface that is down.
const RETRY_DOWN: Duration = Duration::from_millis(10);
/// Length of a VLAN tag, which the MTU does not include.
const VLAN: usize = 4;
/// Longest IP packet, in bytes.
const MAX_IP_PACKET_BYTES: usize = 65_535;

pub(super) struct Tx {
    queue: Arc<OwnedFd>,
    interface: Arc<Interface>,
    /// Length of the longest packet, in bytes, with an Ethernet header; for the MTU that was last read.
    longest: usize,
    /// Whether the kernel cuts UDP packets. Taken for granted until it refuses one.
    cuts_udp: bool,
    retry: Backoff,
    /// The first error to report.
    error: Option<io::Error>,
}

/// Why a packet was not sent.
enum Refusal {
    /// The driver does not hand it to the kernel.
    Unfit(DropReason),
    /// The kernel refused it.
    Kernel(Errno),
    /// The kernel took some of the datagrams that the driver cut it into, and refused the next one.
    InPart(Errno),
}

impl Tx {
    pub(super) fn new(queue: Arc<OwnedFd>, interface: Arc<Interface>) -> Self {
        let longest = interface.mtu as usize + interface.kind.link_header();
        Self { queue, interface, longest, cuts_udp: true, retry: Backoff::new(), error: None }
    }

    /// Sends one packet.
    #[inline]
    fn send(&mut self, packet: &Packet) -> Result<(), Refusal> {
        if packet.segs() > 1 {
            return self.send_segments(packet);
        }
        let data = packet.data();
        self.check(packet.link(), data)?;
        if data.len() > self.longest && !self.fits(data, data.len()) {
            return Err(Refusal::Unfit(DropReason::PktTooBig));
        }
        let written = match self.interface.has_header {
            false => self.write([data]),
            true if packet.is_checksum_partial() => {
                self.write([&Vnet::of(packet).unwrap_or_default().to_bytes(), data])
            }
            true => self.write([&COMPLETE, data]),
        };
        written.map_err(Refusal::Kernel)
    }

    /// Checks what the kernel would refuse without a reason.
    #[inline]
    fn check(&self, link: Link, data: &[u8]) -> Result<(), Refusal> {
        match self.interface.kind {
            kind if link != kind.link() => Err(Refusal::Unfit(DropReason::UnhandledProto)),
            Kind::Tap if data.len() < self.interface.kind.link_header() => {
                Err(Refusal::Unfit(DropReason::HdrTrunc))
            }
            Kind::Tun if data.is_empty() => Err(Refusal::Unfit(DropReason::HdrTrunc)),
            Kind::Tun if !matches!(data[0] >> 4, 4 | 6) => Err(Refusal::Unfit(DropReason::UnhandledProto)),
            _ => Ok(()),
        }
    }

    /// Returns whether a frame of `len` bytes, which begins like `data`, is within the MTU of now.
    #[cold]
    fn fits(&mut self, data: &[u8], len: usize) -> bool {
        let header = self.interface.kind.link_header();
        if let Ok(mtu) = self.interface.mtu_now() {
            self.longest = mtu as usize + header;
        }
        let is_tagged = header > 0 && matches!(data.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        len <= self.longest + if is_tagged { VLAN } else { 0 }
    }

    /// Sends a packet that the kernel cuts into segments.
    #[cold]
    fn send_segments(&mut self, packet: &Packet) -> Result<(), Refusal> {
        let unfit = |reason| Err(Refusal::Unfit(reason));
        let (data, (size, _)) = (packet.data(), packet.gso());
        self.check(packet.link(), data)?;
        let layout = Layout::of(data, &packet.dissect()).filter(|_| size > 0 && self.interface.has_header);
        let Some(layout) = layout else { return unfit(DropReason::PktTooBig) };
        let segment = layout.payload + usize::from(size).min(data.len() - layout.payload);
        let is_long = segment > self.longest && !self.fits(data, segment);
        if is_long || data.len() - layout.network > MAX_IP_PACKET_BYTES {
            return unfit(DropReason::PktTooBig);
        }
        let segs = (data.len() - layout.payload).div_ceil(size.into());
        if layout.is_tcp || self.cuts_udp && segs <= cut::KERNEL_SEGS {
            let header = Vnet::new(&layout, data, if segs > 1 { size } else { 0 }).to_bytes();
            let checksum = vnet::partial(&layout, data, data.len() - layout.payload);
            let (before, after) = data.split_at(layout.checksum_at());
            match self.write([&header, before, &checksum, &after[2..]]) {
                Err(Errno::INVAL) if !layout.is_tcp => {}
                done => return done.map_err(Refusal::Kernel),
            }
        }
        let mut sent = false;
        let done = cut::datagrams(data, &layout, size, |header, headers, payload| {
            self.write([header, headers, payload])?;
            sent = true;
            Ok(())
        });
        match done {
            Ok(()) if segs <= cut::KERNEL_SEGS => self.cuts_udp = false,
            Ok(()) => {}
            Err(error) if sent => return Err(Refusal::InPart(error)),
            Err(error) => return Err(Refusal::Kernel(error)),
        }
        Ok(())
    }

    /// Writes the parts of one packet, which the kernel takes whole or not at all.
    #[inline]
    fn write<const N: usize>(&self, parts: [&[u8]; N]) -> Result<(), Errno> {
        let parts = parts.map(IoSlice::new);
        loop {
            match writev(&*self.queue, &parts) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Decides about the first packet of `batch`, which was not sent: drops it, or returns when to retry.
    #[cold]
    fn refused(&mut self, refusal: Refusal, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Option<Status> {
        let busy = |after| Some(Status::Busy { retry: Some(after) });
        let reason = match refusal {
            Refusal::Kernel(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                return busy(self.retry.after(Backoff::BOUND));
            }
            Refusal::Kernel(Errno::IO) => return busy(RETRY_DOWN),
            Refusal::Kernel(error @ (Errno::BADFD | Errno::NODEV)) => {
                self.note(error.into(), "is gone: its packets are dropped");
                while let Some(packet) = batch.pop_front() {
                    cx.drop(packet, DropReason::DevReady);
                }
                return None;
            }
            Refusal::Unfit(reason) => reason,
            Refusal::Kernel(Errno::MSGSIZE) => DropReason::PktTooBig,
            Refusal::InPart(Errno::IO | Errno::BADFD | Errno::NODEV) => DropReason::DevReady,
            Refusal::InPart(_) => DropReason::NoMem,
            Refusal::Kernel(error) => {
                self.note(error.into(), "does not take a packet, which is dropped");
                DropReason::NotSpecified
            }
        };
        if let Some(packet) = batch.pop_front() {
            cx.drop(packet, reason);
        }
        None
    }

    fn note(&mut self, error: io::Error, what: &str) {
        if self.error.is_none() {
            let name = &self.interface.name;
            let text = format!("interface \"{name}\" {what} ({error}): see `ip -s link` and dmesg");
            self.error = Some(io::Error::new(error.kind(), text));
        }
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        while !batch.is_empty() {
            let mut n = 0;
            let refusal = batch.iter().find_map(|packet| {
                let refusal = self.send(packet).err();
                n += usize::from(refusal.is_none());
                refusal
            });
            if n > 0 {
                self.retry.reset();
                let mut sent = PacketList::new();
                batch.move_front(n, &mut sent);
                cx.sent_all(&mut sent);
            }
            if let Some(busy) = refusal.and_then(|refusal| self.refused(refusal, batch, cx)) {
                return busy;
            }
        }
        Status::Ok
    }

    fn finish(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}
