//! What `txq dev add` makes: devices, which share threads, and a pool where they may; and the sockets of their clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, anyhow, ensure};
use txq::NetDev;
use txq_control::{Builder, NewDevice};

use crate::config;
use crate::daemon::socket::{self, Sockets};
use crate::device::{self, Dummies};

/// Counters of a device, by its name.
pub(crate) type Counters = Box<dyn Fn(&str) -> Vec<(String, u64)> + Send + Sync>;

/// What commands have made.
#[derive(Default)]
struct Added {
    /// `None` until the first device is made.
    shared: Mutex<Option<Arc<Dummies>>>,
    sockets: Mutex<Open>,
}

/// The sockets of devices.
#[derive(Default)]
struct Open {
    sockets: Sockets,
    /// Names of devices and of their sockets.
    names: Vec<(String, String)>,
}

/// Lets commands make devices and sockets. A device has the counters of its socket beside `more`.
pub(crate) fn by_commands(builder: Builder, more: Option<Counters>) -> Builder {
    let added = Arc::new(Added::default());
    let (counted, removed) = (added.clone(), added.clone());
    builder
        .make_devices(move |new| added.make(new).map_err(|error| crate::failure::line(&error).into()))
        .on_remove(move |device| lock(&removed.sockets).remove(device))
        .counters(move |device| {
            let own = lock(&counted.sockets).sockets.stats();
            let own = own.iter().filter(|socket| socket.device == device).flat_map(socket::counters);
            more.iter().flat_map(|more| more(device)).chain(own).collect()
        })
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Added {
    /// Makes a device. No lock is held while the system opens it: counters are read meanwhile.
    fn make(&self, new: &NewDevice) -> anyhow::Result<NetDev> {
        let (device, socket) = config::of_words(new)?;
        let shared = self.shared()?;
        let Some(socket) = socket else { return device::added(&device, &shared, 0) };
        let name = socket::name(&socket);
        let is_taken = |open: &Open| open.names.iter().any(|(_, open)| *open == name);
        let taken = || anyhow!("another device has a socket called \"{name}\": use another file name");
        ensure!(!is_taken(&lock(&self.sockets)), taken());
        let dev = device::added(&device, &shared, socket::buffers(&socket))?;
        let mut open = lock(&self.sockets);
        ensure!(!is_taken(&open), taken());
        open.sockets.open(&socket, &dev)?;
        open.names.push((new.name.clone(), name));
        Ok(dev)
    }

    fn shared(&self) -> anyhow::Result<Arc<Dummies>> {
        let mut shared = lock(&self.shared);
        if shared.is_none() {
            *shared = Some(Arc::new(Dummies::start()?));
        }
        shared.clone().context("started")
    }
}

impl Open {
    /// Closes the socket of a device that is removed.
    fn remove(&mut self, device: &str) {
        self.names.retain(|(of, _)| of != device);
        let names = &self.names;
        self.sockets.close(|name| names.iter().any(|(_, stays)| stays == name));
    }
}
