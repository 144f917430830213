//! Construction of servers.

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;

use txq::NetDev;
use txq::netdev::WeakNetDev;

use super::service::{Event, Reload, Service};
use super::{Listener, Server};
use crate::devices::{Devices, Make, More, Removed};
use crate::listener::Socket;
use crate::{Access, Error, Limits, NewDevice, Place};

/// Settings of a server.
///
/// ```
/// use txq_control::{Access, Server};
///
/// fn serve(wan: &txq::NetDev, lan: &txq::NetDev) -> Result<Server, txq_control::Error> {
///     Server::builder().at("router").device(wan).device(lan).access(Access::Group(1000)).start()
/// }
/// ```
pub struct Builder {
    place: Place,
    devices: Vec<WeakNetDev>,
    program: Option<String>,
    access: Access,
    limits: Limits,
    make: Option<Box<Make>>,
    more: Option<Box<More>>,
    removed: Option<Box<Removed>>,
    reload: Option<Reload>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            place: Place::default(),
            devices: Vec::new(),
            program: None,
            access: Access::default(),
            limits: Limits::default(),
            make: None,
            more: None,
            removed: None,
            reload: None,
        }
    }

    /// Sets the socket: a name, or a path with a `/`. The default is the name `control`, which commands try first.
    pub fn at(mut self, place: impl Into<Place>) -> Self {
        self.place = place.into();
        self
    }

    /// Adds a device.
    pub fn device(mut self, dev: &NetDev) -> Self {
        self.devices.push(dev.downgrade());
        self
    }

    /// Sets the program's name in `txq ls`. The default is the name of the executable.
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.program = Some(name.into());
        self
    }

    /// Sets the users that are served. The default is the user of the program, and root.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the bounds of connections, sizes and times.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Lets `txq dev add` make devices with `make`; `txq dev del` drops them. Without it, both are refused.
    pub fn make_devices(
        mut self,
        make: impl Fn(&NewDevice) -> Result<NetDev, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.make = Some(Box::new(make));
        self
    }

    /// Lets `txq dev del` call `removed` with the name of a device that a command has made, before the device is dropped: to end
    /// what uses it.
    pub fn on_remove(mut self, removed: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.removed = Some(Box::new(removed));
        self
    }

    /// Adds counters of the program to those of a device ([`Client::stat`](crate::Client::stat)): `counters` returns names and
    /// values for the device of a name, such as what a bridge receives on it.
    pub fn counters(mut self, counters: impl Fn(&str) -> Vec<(String, u64)> + Send + Sync + 'static) -> Self {
        self.more = Some(Box::new(counters));
        self
    }

    /// Lets `txq reload` call `reload`, which reads the program's configuration again and returns a text for the caller, or why
    /// nothing has changed. Several calls may come at a time. Without it, `txq reload` is refused.
    pub fn on_reload(
        mut self,
        reload: impl Fn() -> Result<String, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.reload = Some(Reload(Box::new(reload)));
        self
    }

    /// Binds the socket. Clients can connect, and wait until [`Listener::serve`].
    ///
    /// # Errors
    /// [`Error::InUse`] if another server listens there, [`Error::Socket`] if the socket, its folder or its lock file cannot be
    /// used, [`Error::Name`] for a name that no socket can have, [`Error::SameDevice`] for two devices of one name.
    pub fn bind(self) -> Result<Listener, Error> {
        let mut devices = Devices::default();
        if let Some(make) = self.make {
            devices.set_make(make);
        }
        if let Some(more) = self.more {
            devices.set_more(more);
        }
        if let Some(removed) = self.removed {
            devices.set_removed(removed);
        }
        for dev in self.devices.iter().filter_map(WeakNetDev::upgrade) {
            devices.lend(&dev)?;
        }
        let socket = Socket::open(&self.place, self.access)?;
        let service = Service {
            devices,
            program: self.program.unwrap_or_else(program),
            limits: self.limits,
            recordings: Default::default(),
            reload: self.reload,
            recording: Default::default(),
            unread: Default::default(),
            stop: Event::new().map_err(Error::start(&socket.path))?,
        };
        Ok(Listener { socket, access: self.access, service })
    }

    /// Binds the socket and starts the server.
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind), and [`Error::Start`] if the system gives no thread or descriptor.
    pub fn start(self) -> Result<Server, Error> {
        self.bind()?.serve()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Builder");
        all.field("place", &self.place).field("devices", &self.devices).field("program", &self.program);
        all.field("access", &self.access).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Returns the name of the executable.
fn program() -> String {
    let name = |path: PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    std::env::current_exe().ok().and_then(name).unwrap_or_else(|| "unknown".to_owned())
}
