//! Handles on a device that do not keep it alive, for threads that show and change devices of the program.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use txq_core::arch::{Arch, Native};

use super::NetDev;
use super::control::Control;
use crate::generic::shared::Shared;

/// A handle on a device that does not keep the device alive, as [`std::sync::Weak`] does not keep an `Arc`'s value alive.
///
/// Made by [`NetDev::downgrade`]. A thread that serves other processes, as a control socket does, holds one and upgrades it
/// for the time of one operation. The program drops or shuts down the [`NetDev`] whenever it likes.
pub struct WeakNetDev<A: Arch = Native> {
    shared: Weak<Shared<A>>,
    control: Weak<Control<A>>,
    process: u32,
}

impl<A: Arch> WeakNetDev<A> {
    /// Returns access to the device; `None` after it was shut down or dropped.
    #[inline(never)]
    pub fn upgrade(&self) -> Option<NetDevRef<A>> {
        let shared = self.shared.upgrade().filter(|shared| !shared.is_stopping())?;
        let control = self.control.upgrade()?;
        Some(NetDevRef(NetDev { shared, control, threads: Vec::new(), process: self.process, owner: false }))
    }

    /// Returns whether both are handles on the same device.
    #[inline(never)]
    pub fn is_same(&self, other: &Self) -> bool {
        self.shared.ptr_eq(&other.shared)
    }
}

impl<A: Arch> Clone for WeakNetDev<A> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), control: self.control.clone(), process: self.process }
    }
}

impl<A: Arch> fmt::Debug for WeakNetDev<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shared.upgrade() {
            Some(shared) => f.debug_tuple("WeakNetDev").field(&shared.info.name).finish(),
            None => f.write_str("WeakNetDev(gone)"),
        }
    }
}

/// Access to a device through a [`WeakNetDev`]. Its end does not shut the device down.
///
/// While it exists, the device's memory and driver exist, too. So hold it for one operation only.
#[derive(Debug)]
pub struct NetDevRef<A: Arch = Native>(NetDev<A>);

impl<A: Arch> NetDevRef<A> {
    /// Returns the device. Its end does not shut the device down.
    pub fn into_inner(self) -> NetDev<A> {
        self.0
    }
}

impl<A: Arch> Deref for NetDevRef<A> {
    type Target = NetDev<A>;

    fn deref(&self) -> &NetDev<A> {
        &self.0
    }
}

impl<A: Arch> NetDev<A> {
    /// Returns a handle on the device that does not keep the device alive.
    #[inline(never)]
    pub fn downgrade(&self) -> WeakNetDev<A> {
        WeakNetDev {
            shared: Arc::downgrade(&self.shared),
            control: Arc::downgrade(&self.control),
            process: self.process,
        }
    }
}
