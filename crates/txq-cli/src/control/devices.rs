//! The devices that commands are about: those that something sends through, and those made by a command.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use txq::NetDev;

use crate::device::Dummies;

/// All devices, by their names.
#[derive(Default)]
pub(crate) struct Devices<'a> {
    lent: Vec<&'a NetDev>,
    made: Mutex<Made>,
}

/// Those made by a command.
#[derive(Default)]
struct Made {
    devices: Vec<Arc<NetDev>>,
    /// What they share, from the first of them on.
    shared: Option<Dummies>,
}

/// Why a device does not go.
pub(crate) enum NotRemoved {
    Absent,
    InUse,
}

impl<'a> Devices<'a> {
    /// Those that belong to somebody else.
    pub(crate) fn lent(lent: impl Iterator<Item = &'a NetDev>) -> Self {
        Self { lent: lent.collect(), made: Mutex::default() }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with a device. Others may be made and removed meanwhile.
    pub(crate) fn with<R>(&self, name: &str, f: impl FnOnce(&NetDev) -> R) -> Option<R> {
        if let Some(dev) = self.lent.iter().find(|dev| dev.info().name == name) {
            return Some(f(dev));
        }
        let dev = self.made().devices.iter().find(|dev| dev.info().name == name).cloned()?;
        Some(f(&dev))
    }

    /// Calls `f` with each, in the order in which they came.
    pub(crate) fn all<R>(&self, f: impl FnMut(&NetDev) -> R) -> Vec<R> {
        let made = self.made().devices.clone();
        let made = made.iter().map(|dev| &**dev);
        self.lent.iter().copied().chain(made).map(f).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.all(|dev| dev.info().name.clone())
    }

    /// Adds a device that `make` makes, unless there is one of its name.
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

    /// Removes a device that was added. What it has queued is dropped.
    pub(crate) fn remove(&self, name: &str) -> Result<(), NotRemoved> {
        let mut made = self.made();
        match made.devices.iter().position(|dev| dev.info().name == name) {
            Some(index) => {
                let gone = made.devices.remove(index);
                // It need not be waited for by those who want another device.
                drop(made);
                drop(gone);
                Ok(())
            }
            None if self.lent.iter().any(|dev| dev.info().name == name) => Err(NotRemoved::InUse),
            None => Err(NotRemoved::Absent),
        }
    }
}
