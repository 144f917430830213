//! The `[[socket]]`s of a daemon's file: one thread serves the clients of all.

use std::path::PathBuf;

use crate::common::failure::Refused;
use txq::NetDev;
use txq_control::Access;
use txq_control::socket::{ClientStats, Server, ServerConfig, SocketStats};

use super::live::Live;
use crate::config::{Config, Socket};
use crate::control;

/// The open sockets. Dropping them ends their connections.
#[derive(Default)]
pub(crate) struct Sockets {
    /// Started with the first socket.
    server: Option<Server>,
    /// Names and paths.
    open: Vec<(String, PathBuf)>,
}

impl Sockets {
    /// Opens the sockets of a file that are not open.
    pub(super) fn open_missing(&mut self, config: &Config, live: &[Live]) -> anyhow::Result<()> {
        for socket in &config.socket {
            let name = name(socket);
            if self.open.iter().any(|(open, _)| *open == name) {
                continue;
            }
            let Some(live) = live.iter().find(|live| Some(live.name()) == socket.device.as_deref()) else {
                continue;
            };
            self.open(socket, &live.dev)?;
        }
        Ok(())
    }

    /// Opens a socket whose clients send through a device.
    pub(crate) fn open(&mut self, socket: &Socket, dev: &NetDev) -> anyhow::Result<()> {
        let server = match self.server.take() {
            Some(server) => server,
            None => Server::start().map_err(|error| {
                Refused(format!("the sockets' thread does not start: {error}: raise `ulimit -u`"))
            })?,
        };
        let server = self.server.insert(server);
        server.open(settings(socket)?, dev).map_err(|error| Refused(error.to_string()))?;
        self.open.push((name(socket), socket.path.clone()));
        Ok(())
    }

    /// Closes the sockets that do not stay. Afterwards none of their clients holds anything of a device.
    pub(crate) fn close(&mut self, stays: impl Fn(&str) -> bool) {
        self.open.retain(|(name, path)| {
            let stays = stays(name);
            if let Some(server) = self.server.as_ref().filter(|_| !stays) {
                server.close(path);
            }
            stays
        });
    }

    /// Returns the counters of all sockets.
    pub(crate) fn stats(&self) -> Vec<SocketStats> {
        self.server.as_ref().map_or_else(Vec::new, Server::stats)
    }

    /// Returns the most buffers of a device that the connected clients may have together.
    pub(super) fn buffers(&self, device: &str) -> u64 {
        let all = self.stats().into_iter().filter(|socket| socket.device == device);
        let each = all.map(|socket| socket.client_buffers.saturating_mul(socket.clients.len() as u64));
        each.fold(0, u64::saturating_add)
    }

    /// Returns a function that returns the counters of all sockets.
    pub(super) fn meter(&self) -> Option<Box<dyn Fn() -> Vec<SocketStats> + Send + Sync>> {
        let server = self.server.as_ref()?;
        Some(Box::new(server.meter()))
    }
}

/// Returns a socket's name, which the check of the file has filled in.
pub(crate) fn name(socket: &Socket) -> String {
    socket.name.clone().unwrap_or_default()
}

fn settings(socket: &Socket) -> anyhow::Result<ServerConfig> {
    let mut config = bounds(socket);
    if let Some(group) = &socket.group {
        config.access = Access::Group(control::group(group)?);
    }
    Ok(config)
}

/// Returns the most buffers that all clients of a socket may have together.
pub(crate) fn buffers(socket: &Socket) -> u64 {
    let config = bounds(socket);
    config.client_buffers().saturating_mul(config.clients.into())
}

/// Returns a socket's settings but for its group.
fn bounds(socket: &Socket) -> ServerConfig {
    let mut config = ServerConfig::new(name(socket), &socket.path);
    if let Some(clients) = socket.clients {
        config.clients = clients.get() as u32;
    }
    if let Some(slots) = socket.slots {
        config.slots = slots.get() as u32;
    }
    if let Some(credit) = socket.credit {
        config.credit = credit.get();
    }
    if let Some(priority) = socket.priority_max {
        config.priority_max = priority.get() as u32;
    }
    config.idle_timeout = socket.idle_timeout.map(|time| time.0);
    config
}

/// Returns the counters of a socket in the list of its device: its own, then those of its clients.
pub(crate) fn counters(stats: &SocketStats) -> Vec<(String, u64)> {
    let all = || stats.clients.iter().chain([&stats.gone]);
    let sum = |of: fn(&ClientStats) -> u64| all().map(of).sum::<u64>();
    let mut counters = Vec::new();
    let mut add = |name: &str, value| counters.push((format!("socket_{}_{name}", stats.name), value));
    add("clients", stats.clients.len() as u64);
    add("connections", stats.connections);
    add("frames", sum(|client| client.frames));
    add("bytes", sum(|client| client.bytes));
    add("stalls", sum(|client| client.stalls));
    for (at, (why, _)) in stats.gone.rejected.iter().enumerate() {
        let rejected = all().filter_map(|client| client.rejected.get(at)).map(|(_, n)| n).sum();
        add(&format!("rejected_{}", why.word()), rejected);
    }
    for (why, n) in &stats.ended {
        add(&format!("ended_{}", why.word()), *n);
    }
    for client in &stats.clients {
        let mut add = |name: &str, value| counters.push((format!("client_{}_{name}", client.name), value));
        add("frames", client.frames);
        add("bytes", client.bytes);
        add("stalls", client.stalls);
        client.rejected.iter().for_each(|(why, n)| add(&format!("rejected_{}", why.word()), *n));
    }
    counters
}
