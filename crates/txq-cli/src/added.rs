//! What `txq dev add` makes: devices, which share threads, and a pool where they may; and the sockets of their clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
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
    shared: Option<Dummies>,
    sockets: Sockets,
    /// Names of devices and of their sockets.
    open: Vec<(String, String)>,
}

/// Lets commands make devices and sockets. A device has the counters of its socket beside `more`.
pub(crate) fn by_commands(builder: Builder, more: Option<Counters>) -> Builder {
    let added = Arc::new(Mutex::new(Added::default()));
    let (counted, removed) = (added.clone(), added.clone());
    builder
        .make_devices(move |new| lock(&added).make(new).map_err(|error| format!("{error:#}").into()))
        .on_remove(move |device| lock(&removed).remove(device))
        .counters(move |device| {
            let own = lock(&counted).sockets.stats();
            let own = own.iter().filter(|socket| socket.device == device).flat_map(socket::counters);
            more.iter().flat_map(|more| more(device)).chain(own).collect()
        })
}

fn lock(added: &Mutex<Added>) -> MutexGuard<'_, Added> {
    added.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Added {
    fn make(&mut self, new: &NewDevice) -> anyhow::Result<NetDev> {
        let (device, socket) = config::of_words(new)?;
        let shared = match self.shared.take() {
            Some(shared) => shared,
            None => Dummies::start()?,
        };
        let shared = self.shared.insert(shared);
        let Some(socket) = socket else { return device::added(&device, shared, 0) };
        let name = socket::name(&socket);
        ensure!(
            !self.open.iter().any(|(_, open)| *open == name),
            "another device has a socket called \"{name}\": use another file name"
        );
        let dev = device::added(&device, shared, socket::buffers(&socket))?;
        self.sockets.open(&socket, &dev)?;
        self.open.push((new.name.clone(), name));
        Ok(dev)
    }

    /// Closes the socket of a device that is removed.
    fn remove(&mut self, device: &str) {
        self.open.retain(|(of, _)| of != device);
        let open = &self.open;
        self.sockets.close(|name| open.iter().any(|(_, stays)| stays == name));
    }
}
