//! Servers: one sleeping thread, and a few more while commands run.

mod builder;
mod connection;
mod events;
mod service;
mod streaming;
mod workers;

use std::path::Path;
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use txq::NetDev;

use crate::Error;
use crate::devices::SchedulerError;
use crate::listener::Socket;
use crate::peer::Access;
use crate::scheduler::SchedulerPort;
pub use builder::Builder;
use service::Service;
use workers::Workers;

/// A control server. Dropping it stops the server, waits for its threads, and removes the socket.
///
/// Dropping it waits for the running commands. So do not drop it inside the data path of a device that it serves: a command
/// may wait for the caller.
///
/// The server does not keep devices alive: a device that the program drops or shuts down is no longer listed.
///
/// After a `fork`, the server belongs to the parent. In the child, dropping it does nothing.
#[derive(Debug)]
pub struct Server {
    socket: Option<Arc<Socket>>,
    service: Arc<Service>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

/// A socket that is bound, and not yet served: clients wait until [`Listener::serve`].
///
/// A program reserves the socket before it opens its devices, so that a socket in use is an error before anything is opened.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    access: Access,
    service: Service,
}

impl Listener {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.socket.path
    }

    /// Adds a device.
    ///
    /// # Errors
    /// [`Error::SameDevice`] if another device of the server has the same name.
    pub fn add(&self, dev: &NetDev) -> Result<(), Error> {
        self.service.devices.lend(dev)
    }

    /// Starts the server.
    ///
    /// # Errors
    /// [`Error::Start`] if the system gives no thread or descriptor.
    pub fn serve(self) -> Result<Server, Error> {
        let (socket, service, access) = (Arc::new(self.socket), Arc::new(self.service), self.access);
        let failed = |error| Error::start(&socket.path)(error);
        let workers = Workers::new(service.clone()).map_err(failed)?;
        let (theirs, shared) = (socket.clone(), service.clone());
        let run = move || events::run(&theirs.socket, access, &shared, workers);
        let thread = thread::Builder::new().name("txq-control".into()).spawn(run).map_err(failed)?;
        Ok(Server { socket: Some(socket), service, thread: Some(thread), process: process::id() })
    }
}

impl Server {
    /// Returns a builder.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        self.socket.as_ref().map_or(Path::new(""), |socket| &socket.path)
    }

    /// Adds a device.
    ///
    /// # Errors
    /// [`Error::SameDevice`] if another device of the server has the same name.
    pub fn add(&self, dev: &NetDev) -> Result<(), Error> {
        self.service.devices.lend(dev)
    }
}

impl Server {
    /// Serves a scheduler of the program under a name, until the returned port is dropped. The commands of `txq tc` are executed by
    /// the thread that owns the scheduler, when it calls [`SchedulerPort::poll`]. Other requests, such as `txq stat`, reach devices
    /// only.
    ///
    /// # Errors
    /// [`Error::SameDevice`] if a device or another scheduler of the server has the name, [`Error::DeviceName`] for a name that no
    /// device can have, [`Error::Start`] if the system gives no descriptor.
    pub fn add_scheduler(&self, name: &str) -> Result<SchedulerPort, Error> {
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"/:".contains(&byte);
        if name.is_empty() || name.len() > 15 || !name.bytes().all(is_name) {
            return Err(Error::DeviceName(name.to_owned()));
        }
        self.service.devices.lend_scheduler(name).map_err(|error| match error {
            SchedulerError::Taken => Error::SameDevice(name.to_owned()),
            SchedulerError::System(source) => Error::start(self.path())(source),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.process != process::id() {
            // The threads exist only in the parent.
            std::mem::forget(thread);
            return;
        }
        self.service.stop.set();
        // The caller may be the owner for which a command waits.
        self.service.devices.close_schedulers();
        if let Some(thread) = thread {
            // Commands that panic are caught, so the thread has not panicked.
            let _ = thread.join();
        }
        // The thread's share is gone: this one removes the socket.
        drop(self.socket.take());
    }
}
