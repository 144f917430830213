//! Counters of sockets and clients. The server's thread writes them; any thread reads them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::{ServerConfig, lock};
use crate::socket::{Reason, Rejection};

/// The counters of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketStats {
    /// The socket's name.
    pub name: String,
    /// The name of its device.
    pub device: String,
    /// Connections that were welcomed.
    pub connections: u64,
    /// Connections that were refused or ended, by reason. A client that left is in none.
    pub ended: Vec<(Reason, u64)>,
    /// The sum of all clients that are gone.
    pub gone: ClientStats,
    /// The clients that are connected.
    pub clients: Vec<ClientStats>,
    /// The most buffers of the device's pool that each client may have.
    pub client_buffers: u64,
}

/// The counters of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// The name of its sender in the device's counters, which has the packets sent and dropped.
    pub name: String,
    /// Frames handed to the device.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times that it waited for credit or a buffer.
    pub stalls: u64,
    /// Descriptors that were skipped, by reason.
    pub rejected: Vec<(Rejection, u64)>,
}

/// A client's.
#[derive(Debug)]
pub(super) struct OfClient {
    name: String,
    pub(super) frames: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) stalls: AtomicU64,
    rejected: [AtomicU64; Rejection::ALL.len()],
}

impl OfClient {
    fn new(name: String) -> Self {
        let zero = AtomicU64::default;
        Self { name, frames: zero(), bytes: zero(), stalls: zero(), rejected: Default::default() }
    }

    pub(super) fn reject(&self, why: Rejection) {
        self.rejected[why as usize].fetch_add(1, Relaxed);
    }

    fn stats(&self) -> ClientStats {
        let load = |of: &AtomicU64| of.load(Relaxed);
        let rejected = Rejection::ALL.into_iter().zip(self.rejected.iter().map(load)).collect();
        let (frames, bytes, stalls) = (load(&self.frames), load(&self.bytes), load(&self.stalls));
        ClientStats { name: self.name.clone(), frames, bytes, stalls, rejected }
    }

    fn add(&self, other: &Self) {
        let move_one = |to: &AtomicU64, from: &AtomicU64| {
            to.fetch_add(from.load(Relaxed), Relaxed);
        };
        move_one(&self.frames, &other.frames);
        move_one(&self.bytes, &other.bytes);
        move_one(&self.stalls, &other.stalls);
        self.rejected.iter().zip(&other.rejected).for_each(|(to, from)| move_one(to, from));
    }
}

/// A socket's.
#[derive(Debug)]
pub(super) struct Counters {
    name: String,
    device: String,
    client_buffers: u64,
    connections: AtomicU64,
    ended: [AtomicU64; Reason::ALL.len()],
    closed: AtomicBool,
    /// The clients that are gone, and those that are connected: under one lock, so that a reader counts each once.
    clients: Mutex<(OfClient, Vec<Arc<OfClient>>)>,
}

impl Counters {
    pub(super) fn new(config: &ServerConfig, device: &str) -> Self {
        Self {
            name: config.name.clone(),
            device: device.to_owned(),
            client_buffers: config.client_buffers(),
            connections: AtomicU64::default(),
            ended: Default::default(),
            closed: AtomicBool::new(false),
            clients: Mutex::new((OfClient::new("gone".to_owned()), Vec::new())),
        }
    }

    /// Adds a client; returns its counters, and its name: that of the socket with a serial number.
    pub(super) fn welcome(&self) -> (Arc<OfClient>, String) {
        let name = format!("{}.{}", self.name, self.connections.fetch_add(1, Relaxed));
        let counters = Arc::new(OfClient::new(name.clone()));
        lock(&self.clients).1.push(counters.clone());
        (counters, name)
    }

    /// Adds a client's counters to those of clients that are gone.
    pub(super) fn leave(&self, client: &Arc<OfClient>) {
        let mut clients = lock(&self.clients);
        clients.0.add(client);
        clients.1.retain(|other| !Arc::ptr_eq(other, client));
    }

    /// Counts a connection that was refused or ended.
    pub(super) fn end(&self, reason: Reason) {
        self.ended[reason as usize - 1].fetch_add(1, Relaxed);
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(super) fn stats(&self) -> SocketStats {
        let clients = lock(&self.clients);
        let ended = Reason::ALL.into_iter().zip(self.ended.iter().map(|of| of.load(Relaxed))).collect();
        SocketStats {
            name: self.name.clone(),
            device: self.device.clone(),
            connections: self.connections.load(Relaxed),
            ended,
            gone: clients.0.stats(),
            clients: clients.1.iter().map(|client| client.stats()).collect(),
            client_buffers: self.client_buffers,
        }
    }
}
