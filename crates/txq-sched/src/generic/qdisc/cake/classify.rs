//! Chooses the tin of a packet, and washes its DS field.

use txq_core::arch::Arch;
use txq_core::flow::Dissected;
use txq_core::packet::Packet;

use crate::generic::qdisc::cake::params::Params;
use crate::tc::Handle;

/// The ECN bits of a DS field.
const ECN: u8 = 3;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Returns the tin of a packet, of `tins`. The mark chooses it first (`fwmark`), then a priority that names a class of this
/// qdisc, then the DS field. Mark and priority number the tins from 1.
#[inline]
pub(super) fn tin_of<A: Arch>(
    params: &Params,
    handle: Handle,
    tins: usize,
    packet: &Packet<A>,
    found: &Dissected,
) -> usize {
    let mark = match params.fwmark {
        0 => 0,
        mask => (packet.mark() & mask) >> mask.trailing_zeros(),
    };
    let class = Handle(packet.priority());
    let minor = if class.major() == handle.major() && handle != Handle::UNSPEC { class.minor() } else { 0 };
    let named = |number: u32| (number as usize).checked_sub(1).filter(|&tin| tin < tins);
    named(mark)
        .or_else(|| named(minor.into()))
        .unwrap_or_else(|| params.diffserv.tin(found.tos, found.ethertype))
}

/// Clears the DS field, except the ECN bits. Writing clears the packet's hash and protocol offsets; the caller sets them
/// again.
pub(super) fn wash<A: Arch>(packet: &mut Packet<A>, found: &Dissected) {
    let at = usize::from(found.network_offset);
    if found.tos & !ECN == 0 {
        return;
    }
    match (found.ethertype, packet.data_mut().get_mut(at..)) {
        (IPV4, Some(header)) if header.len() >= 20 => {
            // RFC 1624: HC' = ~(~HC + ~m + m'), where m' lacks the cleared bits of m.
            let sum = u32::from(!u16::from_be_bytes([header[10], header[11]]));
            let sum = sum + u32::from(!u16::from(header[1] & !ECN));
            let sum = (sum >> 16) + (sum & 0xffff);
            let sum = (sum >> 16) + (sum & 0xffff);
            header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            header[1] &= ECN;
        }
        (IPV6, Some(header)) if header.len() >= 40 => {
            header[0] &= 0xf0;
            header[1] &= ECN << 4 | 0x0f;
        }
        _ => {}
    }
}
