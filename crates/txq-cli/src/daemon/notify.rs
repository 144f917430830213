//! systemd's notifications of a service's state (sd_notify(3)): ready, alive, reloading, stopping.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, or none: then nothing is sent.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    /// How often the manager wants to hear that the service lives; `None` if it does not watch.
    period: Option<Duration>,
    told: Option<Instant>,
}

impl Manager {
    /// Reads from the environment which manager has started this process. An address that cannot be used is no manager: the service is
    /// worth more than its notifications, and the manager reports a service that is never ready.
    pub(crate) fn of_environment() -> Self {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let socket = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&address),
        };
        let connected = |address: SocketAddr| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect_addr(&address).map(|()| socket)
        };
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        // The variables are inherited: they are for this process only if they name it.
        let watched = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        // Twice in the manager's time, as sd_watchdog_enabled(3) recommends.
        let period = number("WATCHDOG_USEC").filter(|_| watched).map(|time| Duration::from_micros(time / 2));
        Self { socket: socket.and_then(connected).ok(), period, told: None }
    }

    /// The service serves.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The service ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// The service lives. Call it often: it tells the manager in time, and not more often than it must.
    pub(crate) fn alive(&mut self) {
        let Some(period) = self.period else { return };
        if self.told.is_none_or(|told| told.elapsed() >= period) {
            self.told = Some(Instant::now());
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // The manager may be busy: it hears the next one.
            let _ = socket.send(state.as_bytes());
        }
    }
}
