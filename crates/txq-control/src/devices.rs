//! The devices that commands can reach: the devices of a run, and devices that a command made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use txq::NetDev;

use crate::device::Dummies;

/// All devices that commands can reach; each has a name of its own.
#[derive(Default)]
pub(crate) struct Devices<'a> {
    lent: Vec<&'a NetDev>,
    made: Mutex<Made>,
}

/// The devices that a command made.
#[derive(Default)]
struct Made {
    devices: Vec<Arc<NetDev>>,
    /// The threads and the pool that these devices share; `None` until the first device is made.
    shared: Option<Dummies>,
}

/// Why a device is not removed.
pub(crate) enum NotRemoved {
    Absent,
    InUse,
}

impl<'a> Devices<'a> {
    /// Makes a set of the devices of a run, which commands cannot remove.
    pub(crate) fn lent(lent: impl Iterator<Item = &'a NetDev>) -> Self {
        Self { lent: lent.collect(), made: Mutex::default() }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the device called `name` and returns its result; `None` if there is no such device. Other commands may
    /// add and remove devices during the call.
    pub(crate) fn with<R>(&self, name: &str, f: impl FnOnce(&NetDev) -> R) -> Option<R> {
        if let Some(dev) = self.lent.iter().find(|dev| dev.info().name == name) {
            return Some(f(dev));
        }
        let dev = self.made().devices.iter().find(|dev| dev.info().name == name).cloned()?;
        Some(f(&dev))
    }

    /// Calls `f` with each device and returns the results: the run's devices first, then those made, in order of creation.
    pub(crate) fn all<R>(&self, f: impl FnMut(&NetDev) -> R) -> Vec<R> {
        let made = self.made().devices.clone();
        let made = made.iter().map(|dev| &**dev);
        self.lent.iter().copied().chain(made).map(f).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.all(|dev| dev.info().name.clone())
    }

    /// Adds the device that `make` returns; returns false, without a call, if the name is taken.
    pub(crate) fn add(
        &self,
        name: &str,
        make: impl FnOnce(&Dummies) -> anyhow::Result<NetDev>,
    ) -> anyhow::Result<bool> {
        let made = &mut *self.made();
        let mut others = self.lent.iter().copied().chain(made.devices.iter().map(|dev| &**dev));
        if others.any(|dev| dev.info().name == name) {
            return Ok(false);
        }
        let shared = match made.shared.take() {
            Some(shared) => shared,
            None => Dummies::start()?,
        };
        let dev = make(made.shared.insert(shared))?;
        made.devices.push(Arc::new(dev));
        Ok(true)
    }

    /// Removes a device that a command made. Its queued packets are dropped.
    pub(crate) fn remove(&self, name: &str) -> Result<(), NotRemoved> {
        let mut made = self.made();
        match made.devices.iter().position(|dev| dev.info().name == name) {
            Some(index) => {
                let gone = made.devices.remove(index);
                // The lock is released first, so that commands for other devices do not wait while this one is freed.
                drop(made);
                drop(gone);
                Ok(())
            }
            None if self.lent.iter().any(|dev| dev.info().name == name) => Err(NotRemoved::InUse),
            None => Err(NotRemoved::Absent),
        }
    }
}
