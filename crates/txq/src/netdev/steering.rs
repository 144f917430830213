//! Which txq a packet takes: the txqs in use, the maps of CPUs and rx queues, and the traffic classes.

use super::NetDev;
use crate::qdisc::{ClassError, TrafficClasses};
use crate::xps::{XpsError, XpsMap};

/// A device's steering. Made by [`NetDev::steering`].
#[derive(Debug)]
pub struct Steering<'d>(&'d NetDev);

impl NetDev {
    /// Returns the steering of the device: which txq a packet takes.
    pub fn steering(&self) -> Steering<'_> {
        Steering(self)
    }
}

impl Steering<'_> {
    /// Returns how many txqs are in use (`real_num_tx_queues`).
    pub fn txqs(&self) -> u16 {
        self.0.0.txqs()
    }

    /// Changes how many txqs are in use (`netif_set_real_num_tx_queues`, `ethtool -L tx N`): from 1 up to the number that
    /// the device was built with. With fewer txqs, XPS forgets the others, and traffic classes that no longer fit end.
    /// Packets queued for a txq that is no longer used still leave by it. A sender moves when that cannot reorder its
    /// packets, or when the reselection interval has passed; a [`Flow`](crate::Flow) moves with its next packet.
    ///
    /// # Errors
    /// When the device has fewer txqs, or `txqs` is 0.
    pub fn set_txqs(&self, txqs: u16) -> Result<(), XpsError> {
        self.0.0.set_txqs(txqs)
    }

    /// Replaces the map from CPUs to txqs, under traffic; `None` removes it. Each sender follows when that cannot reorder
    /// its packets.
    ///
    /// # Errors
    /// When the map is for another number of txqs, for other traffic classes, or of rx queues.
    pub fn set_xps(&self, xps: Option<XpsMap>) -> Result<(), XpsError> {
        self.0.0.set_xps(xps)
    }

    /// Replaces the map from rx queues to txqs, as [`set_xps`](Self::set_xps) does for CPUs. It steers packets that carry
    /// their rx queue ([`Packet::set_rx_queue`](crate::packet::Packet::set_rx_queue)). If it has no txq for such a packet,
    /// the map from CPUs decides.
    ///
    /// # Errors
    /// When the map is for another number of txqs, for other traffic classes, or of CPUs.
    pub fn set_xps_rxqs(&self, xps: Option<XpsMap>) -> Result<(), XpsError> {
        self.0.0.set_xps_rxqs(xps)
    }

    /// Calls `f` with the map from CPUs to txqs; returns its result.
    pub fn with_xps<R>(&self, f: impl FnOnce(Option<&XpsMap>) -> R) -> R {
        self.0.0.with_xps(f)
    }

    /// Calls `f` with the map from rx queues to txqs; returns its result.
    pub fn with_xps_rxqs<R>(&self, f: impl FnOnce(Option<&XpsMap>) -> R) -> R {
        self.0.0.with_xps_rxqs(f)
    }

    /// Returns the traffic classes.
    pub fn classes(&self) -> TrafficClasses {
        self.0.0.classes()
    }

    /// Replaces the traffic classes, as mqprio does; the default is none. Both maps are removed, as in the kernel
    /// (`netdev_set_num_tc`): make new ones for these classes.
    ///
    /// # Errors
    /// When a class has a txq that is not in use.
    pub fn set_classes(&self, classes: &TrafficClasses) -> Result<(), ClassError> {
        self.0.0.set_classes(classes)
    }
}
