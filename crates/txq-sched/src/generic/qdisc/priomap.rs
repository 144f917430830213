//! The band that prio and ets choose for a packet.

use txq_core::arch::Arch;
use txq_core::clock::Clock;
use txq_core::packet::Packet;

use crate::generic::filter::{Choice, Filters};
use crate::generic::qdisc::unknown::UnknownClass;
use crate::tc::Handle;

/// Returns the packet's band of `bands`; `None` if a filter drops the packet. The band is the class that the priority names, where it
/// is a handle of the qdisc, `own`; else the class that the filters name; else the band that `map` gives to the priority modulo 16.
/// Class 1 is band 0. A priority that names a class which does not exist is counted in `unknown`.
pub(super) fn band<A: Arch>(
    packet: &Packet<A>,
    clock: &mut Clock<A>,
    own: Handle,
    filters: &Filters<A>,
    (map, bands): (&[u8; 16], usize),
    unknown: &mut UnknownClass,
) -> Option<usize> {
    let priority = packet.priority();
    let class = Handle(priority);
    let class = match class.major() == own.major() && own != Handle::UNSPEC {
        true => Some(Choice::Class(class)),
        false => filters.classify(packet, clock),
    };
    if let Some(choice) = class {
        let Choice::Class(class) = choice else { return None };
        // As in the kernel, a class that does not exist selects the band of priority 0.
        let band = usize::from(class.minor()).wrapping_sub(1);
        if band < bands {
            return Some(band);
        }
        unknown.note(Handle(priority), own);
        return Some(map[0].into());
    }
    Some(map[(priority & 15) as usize].into())
}
