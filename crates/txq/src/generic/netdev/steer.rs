//! Changes how a device steers, under traffic: its maps, its traffic classes, the number of txqs in use.

use txq_core::arch::Arch;

use super::NetDev;
use crate::generic::steering::Steering;
use crate::xps::{ClassError, MaskOf, TrafficClasses, XpsError, XpsMap};

impl<A: Arch> NetDev<A> {
    /// Returns how many txqs are in use (`real_num_tx_queues`).
    #[inline(never)]
    pub fn txqs(&self) -> u16 {
        self.shared.steering.reader().get().real
    }

    /// Changes how many txqs are in use (`netif_set_real_num_tx_queues`, `ethtool -L tx N`): from 1 up to the number that
    /// the device was built with.
    #[inline(never)]
    pub fn set_txqs(&self, txqs: u16) -> Result<(), XpsError> {
        let built = self.shared.txqs.len();
        if !(1..=built).contains(&txqs.into()) {
            return Err(XpsError::NotBuilt { txqs, built });
        }
        self.steer(|old| {
            let classes = old.classes.fitted(txqs);
            // Maps for other classes would not fit.
            let kept = classes.len() == old.classes.len();
            let fit = |map: &Option<XpsMap>| map.as_ref().filter(|_| kept)?.without_from(txqs);
            Ok(Steering { real: txqs, cpus: fit(&old.cpus), rxqs: fit(&old.rxqs), classes })
        })
    }

    /// Replaces the map from CPUs to txqs, under traffic; `None` removes it.
    #[inline(never)]
    pub fn set_xps(&self, xps: Option<XpsMap>) -> Result<(), XpsError> {
        self.steer(|old| {
            check(&xps, MaskOf::Cpus, self.shared.txqs.len(), &old.classes)?;
            Ok(Steering { cpus: xps, ..old.clone() })
        })
    }

    /// Replaces the map from rx queues to txqs, as [`set_xps`](Self::set_xps) does for CPUs.
    #[inline(never)]
    pub fn set_xps_rxqs(&self, xps: Option<XpsMap>) -> Result<(), XpsError> {
        self.steer(|old| {
            check(&xps, MaskOf::RxQueues, self.shared.txqs.len(), &old.classes)?;
            Ok(Steering { rxqs: xps, ..old.clone() })
        })
    }

    /// Replaces the traffic classes, as mqprio does; the default is none.
    #[inline(never)]
    pub fn set_classes(&self, classes: &TrafficClasses) -> Result<(), ClassError> {
        self.steer(|old| {
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

    /// Calls `f` with the map from CPUs to txqs; returns its result.
    pub fn with_xps<R>(&self, f: impl FnOnce(Option<&XpsMap>) -> R) -> R {
        f(self.shared.steering.reader().get().cpus.as_ref())
    }

    /// Calls `f` with the map from rx queues to txqs; returns its result.
    pub fn with_xps_rxqs<R>(&self, f: impl FnOnce(Option<&XpsMap>) -> R) -> R {
        f(self.shared.steering.reader().get().rxqs.as_ref())
    }

    /// Returns the traffic classes.
    #[inline(never)]
    pub fn classes(&self) -> TrafficClasses {
        self.shared.steering.reader().get().classes.clone()
    }
}

impl<A: Arch> NetDev<A> {
    /// Replaces the steering configuration by the one that `f` makes of it. One thread at a time does so, so that no change
    /// is lost.
    fn steer<E>(&self, f: impl FnOnce(&Steering) -> Result<Steering, E>) -> Result<(), E> {
        self.control.steer.with(|_| {
            let new = f(self.shared.steering.reader().get())?;
            self.shared.steering.publish(new);
            Ok(())
        })?;
        self.shared.roots.iter().for_each(|root| root.fill.wake_to_recheck());
        Ok(())
    }
}

/// Checks that a map fits the device.
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
