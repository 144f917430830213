//! Changing how a device steers, under traffic: maps, traffic classes, the number of txqs in use.

use super::NetDev;
use crate::arch::Arch;
use crate::netdev::Shared;
use crate::steering::Steering;
use crate::xps::{ClassError, MaskOf, TrafficClasses, XpsError, XpsMap};

impl<A: Arch> NetDev<A> {
    /// How many txqs are in use (`real_num_tx_queues`).
    pub fn txqs(&self) -> u16 {
        self.shared.steering.reader().get().real
    }

    /// Changes how many txqs are in use (`netif_set_real_num_tx_queues`, `ethtool -L tx N`): 1 up to those that the
    /// device was built with. With fewer, XPS forgets the others, and traffic classes that do not fit any more end. What
    /// is queued for a txq that is used no longer still leaves by it. A sender goes elsewhere when that cannot reorder
    /// its packets, or when the reselection interval has passed; a [`Flow`](crate::Flow) with its next packet.
    ///
    /// # Errors
    /// When the device has not so many txqs, or `txqs` is 0.
    pub fn set_txqs(&self, txqs: u16) -> Result<(), XpsError> {
        let built = self.shared.txqs.len();
        if !(1..=built).contains(&txqs.into()) {
            return Err(XpsError::NotBuilt { txqs, built });
        }
        self.shared.steer(|old| {
            let classes = old.classes.fitted(txqs);
            // Maps by other classes would be of no use.
            let kept = classes.len() == old.classes.len();
            let fit = |map: &Option<XpsMap>| map.as_ref().filter(|_| kept)?.without_from(txqs);
            Ok(Steering { real: txqs, cpus: fit(&old.cpus), rxqs: fit(&old.rxqs), classes })
        })
    }

    /// Replaces the map from CPUs to txqs, under traffic; `None` for none. Each sender follows when that cannot reorder
    /// its packets.
    ///
    /// # Errors
    /// When the map is for another number of txqs, for other traffic classes, or of rx queues.
    pub fn set_xps(&self, xps: Option<XpsMap>) -> Result<(), XpsError> {
        self.shared.steer(|old| {
            check(&xps, MaskOf::Cpus, self.shared.txqs.len(), &old.classes)?;
            Ok(Steering { cpus: xps, ..old.clone() })
        })
    }

    /// Replaces the map from rx queues to txqs, as [`set_xps`](Self::set_xps) does that of CPUs. Packets that say
    /// the rx queue they belong to ([`Packet::set_rx_queue`](crate::packet::Packet::set_rx_queue)) go by it, and by the
    /// map of CPUs where it has no txq for them.
    ///
    /// # Errors
    /// When the map is for another number of txqs, for other traffic classes, or of CPUs.
    pub fn set_xps_rxqs(&self, xps: Option<XpsMap>) -> Result<(), XpsError> {
        self.shared.steer(|old| {
            check(&xps, MaskOf::RxQueues, self.shared.txqs.len(), &old.classes)?;
            Ok(Steering { rxqs: xps, ..old.clone() })
        })
    }

    /// Replaces the traffic classes, as mqprio does; the default is none. Both maps are forgotten, as in the kernel
    /// (`netdev_set_num_tc`): make them anew, for these classes.
    ///
    /// # Errors
    /// When a class has a txq that is not in use.
    pub fn set_classes(&self, classes: &TrafficClasses) -> Result<(), ClassError> {
        self.shared.steer(|old| {
            let beyond = |&class: &usize| classes.txqs(class).is_some_and(|txqs| txqs.end > old.real);
            if let Some((class, range)) =
                (0..classes.len()).find(beyond).and_then(|c| Some((c, classes.txqs(c)?)))
            {
                let (count, offset) = (range.end - range.start, range.start);
                return Err(ClassError::Beyond { class, count, offset, txqs: old.real });
            }
            Ok(Steering { classes: classes.clone(), cpus: None, rxqs: None, ..*old })
        })
    }

    /// The map from CPUs to txqs.
    pub fn with_xps<R>(&self, f: impl FnOnce(Option<&XpsMap>) -> R) -> R {
        f(self.shared.steering.reader().get().cpus.as_ref())
    }

    /// The map from rx queues to txqs.
    pub fn with_xps_rxqs<R>(&self, f: impl FnOnce(Option<&XpsMap>) -> R) -> R {
        f(self.shared.steering.reader().get().rxqs.as_ref())
    }

    /// The traffic classes.
    pub fn classes(&self) -> TrafficClasses {
        self.shared.steering.reader().get().classes.clone()
    }
}

impl<A: Arch> Shared<A> {
    /// Replaces what steering goes by with what `f` makes of it; one at a time, so that no change is lost.
    fn steer<E>(&self, f: impl FnOnce(&Steering) -> Result<Steering, E>) -> Result<(), E> {
        self.steer_lock.with(|_| {
            let new = f(self.steering.reader().get())?;
            self.steering.publish(new);
            Ok(())
        })?;
        self.roots.iter().for_each(|root| root.fill.wake_to_look());
        Ok(())
    }
}

/// Whether a map is one for this device.
pub(super) fn check(
    xps: &Option<XpsMap>,
    of: MaskOf,
    txqs: usize,
    classes: &TrafficClasses,
) -> Result<(), XpsError> {
    let Some(map) = xps else { return Ok(()) };
    if map.of() != of {
        return Err(XpsError::OtherType { of: map.of() });
    }
    if map.txqs() != txqs {
        return Err(XpsError::OtherTxqs { map: map.txqs(), txqs });
    }
    if map.classes() != classes {
        return Err(XpsError::OtherClasses);
    }
    Ok(())
}
