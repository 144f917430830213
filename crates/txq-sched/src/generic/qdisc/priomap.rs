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
    let band = choose(packet.priority(), own, (map, bands), || filters.classify(packet, clock));
    if let Band::Unknown(_) = band {
        unknown.note(Handle(packet.priority()), own);
    }
    band.number()
}

/// Returns the band that [`band`] would choose for a packet that is not here yet.
pub(super) fn foresee<A: Arch>(
    packet: &Packet<A>,
    clock: &mut Clock<A>,
    own: Handle,
    filters: &Filters<A>,
    bands: (&[u8; 16], usize),
) -> Option<usize> {
    choose(packet.priority(), own, bands, || filters.foresee(packet, clock)).number()
}

/// The band of a packet.
enum Band {
    Known(usize),
    /// Of a class that does not exist.
    Unknown(usize),
    Dropped,
}

impl Band {
    fn number(self) -> Option<usize> {
        match self {
            Self::Known(band) | Self::Unknown(band) => Some(band),
            Self::Dropped => None,
        }
    }
}

/// Chooses the band of a packet of `priority`; `classify` asks the filters.
fn choose(
    priority: u32,
    own: Handle,
    (map, bands): (&[u8; 16], usize),
    classify: impl FnOnce() -> Option<Choice>,
) -> Band {
    let class = Handle(priority);
    let class = match class.major() == own.major() && own != Handle::UNSPEC {
        true => Some(Choice::Class(class)),
        false => classify(),
    };
    match class {
        None => Band::Known(map[(priority & 15) as usize].into()),
        Some(Choice::Class(class)) => {
            let band = usize::from(class.minor()).wrapping_sub(1);
            // As in the kernel, a class that does not exist selects the band of priority 0.
            if band < bands { Band::Known(band) } else { Band::Unknown(map[0].into()) }
        }
        Some(_) => Band::Dropped,
    }
}
