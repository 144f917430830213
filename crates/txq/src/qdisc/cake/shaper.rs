//! What a packet costs on the link, and when the next may leave.
//!
//! Time is virtual: each packet moves it on by as long as it takes on the link, and a packet may leave once the real time
//! has caught up. What was late is made up for, so that the rate is kept however seldom somebody comes; a pause is not saved
//! up, since an empty queue lets the virtual time jump to the real. Times are kept to 2^-32 ns, so no rate is too high.

use crate::arch::{Arch, Nanos};
use crate::flow::dissect;
use crate::packet::Packet;

/// Bits of a fraction of a nanosecond.
const FRACTION: u32 = 32;

/// The slowest rate, in bytes a second, as in the kernel.
const MIN_RATE: u64 = 64;

/// A time with its fraction.
pub(super) type Fine = u128;

/// A real time.
#[inline]
pub(super) fn fine(at: Nanos) -> Fine {
    Fine::from(at) << FRACTION
}

/// The first whole nanosecond that is not before it.
pub(super) fn whole(at: Fine) -> Nanos {
    Nanos::try_from((at + (1 << FRACTION) - 1) >> FRACTION).unwrap_or(Nanos::MAX)
}

/// How long a byte takes; 0 where there is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace(u64);

impl Pace {
    /// Of a rate in bytes a second, 0 for none.
    pub(super) fn new(rate: u64) -> Self {
        Self(if rate == 0 { 0 } else { (1_000_000_000 << FRACTION) / rate.max(MIN_RATE) })
    }

    pub(super) fn is_unlimited(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) fn time(self, bytes: u64) -> Fine {
        Fine::from(bytes) * Fine::from(self.0)
    }

    /// The same, in whole nanoseconds.
    pub(super) fn nanos(self, bytes: u64) -> Nanos {
        Nanos::try_from(self.time(bytes) >> FRACTION).unwrap_or(Nanos::MAX)
    }
}

/// The virtual time of the link.
#[derive(Debug, Default)]
pub(super) struct Shaper {
    pub(super) pace: Pace,
    next: Fine,
    /// A second one, which only packets that leave move on, by half as much again. Where what was dropped is charged for too
    /// (`ingress`), packets leave at two thirds of the rate at least.
    failsafe: Fine,
}

impl Shaper {
    /// When the next packet may leave, if that is not now.
    #[inline]
    pub(super) fn wait(&self, now: Nanos) -> Option<Nanos> {
        let at = self.next.min(self.failsafe);
        (!self.pace.is_unlimited() && at > fine(now)).then(|| whole(at))
    }

    /// The queue was empty: what could have been sent meanwhile is lost.
    #[inline]
    pub(super) fn wake(&mut self, now: Nanos) {
        let now = fine(now);
        if self.next < now {
            (self.next, self.failsafe) = (now, now);
        }
    }

    /// A packet leaves.
    #[inline]
    pub(super) fn sent(&mut self, bytes: u64) {
        let time = self.pace.time(bytes);
        self.next = self.next.saturating_add(time);
        self.failsafe = self.failsafe.saturating_add(time + time / 2);
    }

    /// A packet was dropped that has used the link before this one.
    pub(super) fn lost(&mut self, bytes: u64) {
        self.next = self.next.saturating_add(self.pace.time(bytes));
    }

    /// From now on the link has another rate: what was sent at the old one is forgotten, and what could have been.
    pub(super) fn restart(&mut self, now: Nanos) {
        (self.next, self.failsafe) = (fine(now), fine(now));
    }

    /// Forgets what was sent.
    pub(super) fn reset(&mut self) {
        (self.next, self.failsafe) = (0, 0);
    }
}

/// How a link cuts packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Cells {
    #[default]
    None,
    /// Cells of 53 bytes with 48 of payload (AAL5).
    Atm,
    /// A byte more for each 64 (ITU-T G.992.3, annex N).
    Ptm,
}

/// What a link adds to a packet's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// Lengths are those of whole frames, not of network packets.
    pub(super) raw: bool,
    pub(super) cells: Cells,
    /// -64 to 256.
    pub(super) overhead: i16,
    /// The shortest packet, 0 to 256.
    pub(super) mpu: u16,
}

/// What a packet is on the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    /// Bytes of all its segments.
    pub(super) bytes: u64,
    /// The shortest and the longest segment: before the link adds to it, and after.
    pub(super) network: (u64, u64),
    pub(super) adjusted: (u64, u64),
    /// Where the network header is.
    pub(super) offset: u64,
}

impl Link {
    /// The bytes that a packet of that length takes.
    #[inline]
    pub(super) fn bytes(&self, len: u64) -> u64 {
        let len = len.saturating_add_signed(self.overhead.into()).max(self.mpu.into());
        match self.cells {
            Cells::None => len,
            Cells::Atm => len.div_ceil(48) * 53,
            Cells::Ptm => len + len.div_ceil(64),
        }
    }

    /// The bytes that a packet takes, as [`wire`](Link::wire) says.
    #[inline]
    pub(super) fn wire_bytes<A: Arch>(&self, packet: &Packet<A>) -> u64 {
        if self.raw && packet.segs() == 1 {
            return self.bytes(packet.len() as u64);
        }
        self.wire(packet).bytes
    }

    /// What a packet takes, each of its segments with headers of its own.
    #[inline]
    pub(super) fn wire<A: Arch>(&self, packet: &Packet<A>) -> Wire {
        let offset = packet.protocol_offsets().map_or(0, |(network, ..)| u64::from(network));
        let cut = if self.raw { 0 } else { offset };
        let len = packet.len() as u64;
        let (full, full_len, last_len) = match packet.gso() {
            (0, _) | (_, 0 | 1) => (0, len, len),
            (size, segs) => segments(packet, size.into(), segs.into()),
        };
        let (long, short) = (full_len.saturating_sub(cut), last_len.saturating_sub(cut));
        let (adjusted_long, adjusted_short) = (self.bytes(long), self.bytes(short));
        Wire {
            bytes: full * adjusted_long + adjusted_short,
            network: (long.min(short), long.max(short)),
            adjusted: (adjusted_long.min(adjusted_short), adjusted_long.max(adjusted_short)),
            offset,
        }
    }
}

/// How many segments of a packet are full, their length, and that of the last one.
#[cold]
fn segments<A: Arch>(packet: &Packet<A>, size: u64, segs: u64) -> (u64, u64, u64) {
    let len = packet.len() as u64;
    let found = dissect(packet.data());
    let transport = usize::from(found.transport_offset);
    let header = match (transport, found.ip_proto) {
        (0, _) => u64::from(found.network_offset),
        (at, 6) => packet.data().get(at + 12).map_or(0, |&byte| u64::from(byte >> 4) * 4) + at as u64,
        (at, _) => at as u64 + 8,
    };
    let header = header.min(len);
    let payload = len - header;
    let full = (segs - 1).min(payload / size);
    match full {
        0 => (0, len, len),
        _ => (full, header + size, len - full * size),
    }
}
