//! The shaper: a packet's length on the link, and the time at which the next packet may leave.
//!
//! Each packet advances a virtual time by its transmission time on the link, and the next packet may leave once the real
//! time has reached it. A late dequeue is made up for, so the rate holds however seldom a thread dequeues. A pause is not
//! made up for: when a packet arrives at an empty queue, the virtual time jumps to the real time. Times are kept to 2^-32
//! ns, so no rate is too high.

use txq_core::arch::{Arch, Nanos};
use txq_core::packet::Packet;

/// Fraction bits of a [`Fine`] time.
const FINE_FRACTION: u32 = 32;

/// The slowest rate, in bytes a second, as in the kernel.
const MIN_RATE: u64 = 64;

/// A time in units of 2^-32 ns.
pub(super) type Fine = u128;

/// Converts a real time.
#[inline]
pub(super) fn fine(at: Nanos) -> Fine {
    Fine::from(at) << FINE_FRACTION
}

/// Returns the first whole nanosecond that is not before `at`.
pub(super) fn whole(at: Fine) -> Nanos {
    Nanos::try_from((at + (1 << FINE_FRACTION) - 1) >> FINE_FRACTION).unwrap_or(Nanos::MAX)
}

/// The time that a byte takes on the link, in units of 2^-32 ns; 0 without a rate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace(u64);

impl Pace {
    /// Returns the pace of a rate in bytes a second; 0 for none.
    pub(super) fn new(rate: u64) -> Self {
        Self(if rate == 0 { 0 } else { (1_000_000_000 << FINE_FRACTION) / rate.max(MIN_RATE) })
    }

    pub(super) fn is_unlimited(self) -> bool {
        self.0 == 0
    }

    /// Returns the time that `bytes` take on the link.
    #[inline]
    pub(super) fn time(self, bytes: u64) -> Fine {
        Fine::from(bytes) * Fine::from(self.0)
    }

    /// Returns the time that `bytes` take on the link, in whole nanoseconds.
    pub(super) fn nanos(self, bytes: u64) -> Nanos {
        Nanos::try_from(self.time(bytes) >> FINE_FRACTION).unwrap_or(Nanos::MAX)
    }
}

/// The virtual time of the link.
#[derive(Debug, Default)]
pub(super) struct Shaper {
    pub(super) pace: Pace,
    /// The virtual time: the next packet may leave from here on.
    next: Fine,
    /// A second virtual time, which only packets that leave advance, by one and a half times their time. A packet may leave
    /// at the earlier of the two. So with `ingress`, which charges dropped packets to `next`, packets leave at two thirds
    /// of the rate at least.
    failsafe: Fine,
}

impl Shaper {
    /// Returns when the next packet may leave; `None` if it may leave now.
    #[inline]
    pub(super) fn wait(&self, now: Nanos) -> Option<Nanos> {
        let at = self.next.min(self.failsafe);
        (!self.pace.is_unlimited() && at > fine(now)).then(|| whole(at))
    }

    /// A packet arrives at an empty queue: the virtual time does not stay behind `now`.
    #[inline]
    pub(super) fn wake(&mut self, now: Nanos) {
        let now = fine(now);
        if self.next < now {
            (self.next, self.failsafe) = (now, now);
        }
    }

    /// Charges a packet that leaves.
    #[inline]
    pub(super) fn sent(&mut self, bytes: u64) {
        let time = self.pace.time(bytes);
        self.next = self.next.saturating_add(time);
        self.failsafe = self.failsafe.saturating_add(time + time / 2);
    }

    /// Charges dropped packets, which used the link in front of this qdisc.
    pub(super) fn lost(&mut self, bytes: u64) {
        self.next = self.next.saturating_add(self.pace.time(bytes));
    }

    /// Sets the virtual time to `now`, because the rate changed: neither debts nor savings at the old rate remain.
    pub(super) fn restart(&mut self, now: Nanos) {
        (self.next, self.failsafe) = (fine(now), fine(now));
    }

    /// Sets the virtual time to 0.
    pub(super) fn reset(&mut self) {
        (self.next, self.failsafe) = (0, 0);
    }
}

/// How a link divides packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Cells {
    /// Not at all.
    #[default]
    None,
    /// Cells of 53 bytes with 48 bytes of payload (AAL5).
    Atm,
    /// One byte more for each 64 bytes (ITU-T G.992.3, annex N).
    Ptm,
}

/// The bytes that a link adds to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// Whether lengths are those of whole frames, instead of network packets.
    pub(super) raw: bool,
    pub(super) cells: Cells,
    /// Bytes added to each packet, -64 to 256; more where named links add up.
    pub(super) overhead: i16,
    /// The shortest packet in bytes, 0 to 256.
    pub(super) mpu: u16,
}

/// The length of a packet on the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    /// Bytes of all its segments.
    pub(super) bytes: u64,
    /// The shortest and the longest segment in bytes, before and after the link's overhead.
    pub(super) network: (u64, u64),
    pub(super) adjusted: (u64, u64),
    /// Offset of the network header in bytes.
    pub(super) offset: u64,
}

impl Link {
    /// Returns the bytes that a packet of length `len` takes on the link.
    #[inline]
    pub(super) fn bytes(&self, len: u64) -> u64 {
        let len = len.saturating_add_signed(self.overhead.into()).max(self.mpu.into());
        match self.cells {
            Cells::None => len,
            Cells::Atm => len.div_ceil(48) * 53,
            Cells::Ptm => len + len.div_ceil(64),
        }
    }

    /// Returns the bytes that a packet takes on the link, as [`wire`](Link::wire) does.
    #[inline]
    pub(super) fn wire_bytes<A: Arch>(&self, packet: &Packet<A>) -> u64 {
        if self.raw && packet.segs() == 1 {
            return self.bytes(packet.len() as u64);
        }
        self.wire(packet).bytes
    }

    /// Returns the length of a packet on the link, where each of its segments has headers of its own.
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

/// Returns the number of full segments of a GSO packet, their length, and the length of the last segment, in bytes.
#[cold]
fn segments<A: Arch>(packet: &Packet<A>, size: u64, segs: u64) -> (u64, u64, u64) {
    let len = packet.len() as u64;
    let found = packet.dissect();
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
