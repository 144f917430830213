//! The bit of a packet that netem has flipped, where the program keeps the packet's bytes.
//!
//! A scheduler keeps the number of the program's value in the low half of the packet's cookie. The high half has the bit's number
//! and 1; it is 0 for a packet without damage.

use txq_core::arch::Arch;
use txq_core::packet::Packet;

/// Notes that the bit is flipped. Of two qdiscs that damage a packet the last one counts. A bit beyond 2^32 - 2 is not noted.
pub(super) fn note<A: Arch>(packet: &mut Packet<A>, bit: u64) {
    if let Some(high) = u32::try_from(bit).ok().and_then(|bit| bit.checked_add(1)) {
        packet.set_cookie(packet.cookie() & u64::from(u32::MAX) | u64::from(high) << 32);
    }
}

/// Returns the bit of a packet that is flipped, if one is.
pub(crate) fn of<A: Arch>(packet: &Packet<A>) -> Option<u32> {
    ((packet.cookie() >> 32) as u32).checked_sub(1)
}
