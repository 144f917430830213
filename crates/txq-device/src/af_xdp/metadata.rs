//! What a frame to send carries in front of it, for the kernel or the card (`struct xsk_tx_metadata`): where its checksum goes, and
//! when it leaves.

use rustix::time::{ClockId, DynamicClockId, clock_gettime_dynamic};
use std::time::Duration;
use txq::flow::layout::Layout;
use txq::packet::Packet;

/// Length in bytes, of flags, request and launch time.
pub(super) const LEN: usize = 24;

/// The checksum is to be computed (`XDP_TXMD_FLAGS_CHECKSUM`).
const CHECKSUM: u64 = 1 << 1;
/// The card is to keep the frame until its launch time (`XDP_TXMD_FLAGS_LAUNCH_TIME`).
const LAUNCH_TIME: u64 = 1 << 2;

/// What a queue's frames may ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offloads {
    /// The kernel or the card computes checksums ([`Sender::fill_checksum`](txq::Sender::fill_checksum)).
    pub checksum: bool,
    /// The card keeps frames until their departure time.
    pub launch_time: bool,
}

/// The metadata of one frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Where the bytes begin that the checksum covers, and where it goes behind there, if it is to be computed.
    checksum: Option<(u16, u16)>,
    /// Launch time on the card's clock, 0 for none.
    launch_time: u64,
}

impl Metadata {
    /// Returns the metadata of a packet; `None` if it needs none. `launch_at` is its departure time if the card keeps it until then.
    pub(super) fn of(packet: &Packet, launch_at: u64) -> Option<Self> {
        if launch_at == 0 && !packet.is_checksum_partial() {
            return None;
        }
        let layout =
            if packet.is_checksum_partial() { Layout::of(packet.data(), &packet.dissect()) } else { None };
        let checksum = layout.map(|layout| (layout.transport as u16, layout.checksum_offset() as u16));
        Some(Self { checksum, launch_time: launch_at })
    }

    /// Returns the bytes in front of the frame, in the byte order of the machine.
    pub(super) fn to_bytes(self) -> [u8; LEN] {
        let has = |flag, yes| if yes { flag } else { 0 };
        let flags = has(CHECKSUM, self.checksum.is_some()) | has(LAUNCH_TIME, self.launch_time > 0);
        let (start, offset) = self.checksum.unwrap_or_default();
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..10].copy_from_slice(&start.to_ne_bytes());
        bytes[10..12].copy_from_slice(&offset.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.launch_time.to_ne_bytes());
        bytes
    }
}

/// Returns how far the clock of cards is ahead of `CLOCK_MONOTONIC`: PTP sets a card's clock to `CLOCK_TAI`.
pub(super) fn tai_ahead() -> Duration {
    let now = |clock| {
        let time = clock_gettime_dynamic(clock);
        time.map_or(0, |time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    };
    let ahead = now(DynamicClockId::Tai).saturating_sub(now(DynamicClockId::Known(ClockId::Monotonic)));
    Duration::from_nanos(ahead)
}

#[cfg(test)]
mod tests {
    use txq::pool::{Backing, Cache, Pool, PoolConfig};

    use super::*;

    fn packet(cache: &mut Cache, partial: bool) -> Packet {
        let mut packet = cache.alloc(60).unwrap();
        let data = packet.data_mut();
        data.fill(0);
        data[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        data[16..18].copy_from_slice(&46u16.to_be_bytes());
        data[23] = 17;
        data[38..40].copy_from_slice(&26u16.to_be_bytes());
        packet.0.set_checksum_partial(partial);
        packet
    }

    /// The layout of `struct xsk_tx_metadata`.
    #[test]
    fn each_field_is_where_the_kernel_reads_it() {
        let config = PoolConfig { buffers: 8, backing: Backing::Heap, ..PoolConfig::default() };
        let pool = Pool::new(&config).unwrap();
        let mut cache = pool.cache("test", 0);
        let mut of = |partial, launch_at| Metadata::of(&packet(&mut cache, partial), launch_at);
        assert_eq!(of(false, 0), None);
        let read = |metadata: Option<Metadata>| {
            let bytes = metadata.unwrap().to_bytes();
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            (word(0), half(8), half(10), word(16))
        };
        assert_eq!(read(of(true, 0)), (2, 34, 6, 0));
        assert_eq!(read(of(false, 77)), (4, 0, 0, 77));
        assert_eq!(read(of(true, 77)), (6, 34, 6, 77));
    }

    #[cfg(not(miri))]
    #[test]
    fn the_clock_of_cards_is_ahead() {
        // This machine was started after 1970.
        assert!(tai_ahead() > Duration::ZERO);
    }
}
