//! The server: one thread for all sockets and clients of a program.
//!
//! Each client has a [`Sender`](txq::Sender) of its own: its limit is the client's credit, and its counters are in the device's listing. The
//! thread gives each client that has frames a turn of [`FRAMES_PER_TURN`](events::FRAMES_PER_TURN) frames, in rotation. It waits for no client: it sleeps in
//! one `poll`, and every write to a client returns at once. A client without credit or buffer waits for the thread that frees one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use std::time::Duration;

use crate::{Access, Place, Socket};
use rustix::event::{EventfdFlags, eventfd};
use txq::NetDev;
use txq::netdev::WeakNetDev;
use txq::pool::CACHE_SIZE;

#[expect(unused_imports, reason = "for the documentation")]
use crate::socket::Reason;
use crate::socket::layout::Layout;

mod events;
mod guest;
mod rate;
mod stats;
mod wake;

use events::Events;
use stats::Counters;
pub use stats::{ClientStats, SocketStats};
use wake::Wake;

/// The length of a VLAN tag, which frames may have beyond the device's MTU.
const VLAN: usize = 4;

/// The settings of a socket.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The name in counters, and the begin of the names of its senders.
    pub name: String,
    /// The socket's path.
    pub path: PathBuf,
    /// The users that are served.
    pub access: Access,
    /// The most clients at a time; 16.
    pub clients: u32,
    /// The slots of each client's ring, rounded up to a power of two; 256.
    pub slots: u32,
    /// The most packets of each client on their way through the device; 128.
    pub credit: u64,
    /// The highest priority; 6, as for `SO_PRIORITY` without privileges.
    pub priority_max: u32,
    /// How long a client may hand in nothing and not ring, before its connection ends; without end.
    pub idle_timeout: Option<Duration>,
}

impl ServerConfig {
    /// Returns the default settings of a socket at a path.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            access: Access::Owner,
            clients: 16,
            slots: 256,
            credit: 128,
            priority_max: 6,
            idle_timeout: None,
        }
    }

    /// Returns the most buffers of the device's pool that a client may have: its credit, and the stock of its sender.
    pub fn client_buffers(&self) -> u64 {
        self.credit.saturating_add(CACHE_SIZE as u64)
    }
}

/// Why a socket is not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The socket, its folder or its lock file cannot be used, or another program listens there.
    #[error("socket \"{name}\": {source}", source = plain(.source))]
    Socket {
        /// The socket's name.
        name: String,
        /// The failure.
        source: crate::Error,
    },
    /// The rings would be too large.
    #[error("socket \"{name}\": a ring of {slots} slots for frames of {frame} bytes: use fewer slots")]
    Layout {
        /// The socket's name.
        name: String,
        /// The slots.
        slots: u32,
        /// The longest frame.
        frame: u32,
    },
    /// The server's thread has ended.
    #[error("socket \"{name}\": the server's thread has ended")]
    Ended {
        /// The socket's name.
        name: String,
    },
}

/// Returns an error without the remedies of the control socket's options.
fn plain(error: &crate::Error) -> String {
    match error {
        crate::Error::InUse { path, pid } => {
            let by = pid.map_or(String::new(), |pid| format!(" (process {pid})"));
            format!("{}: another program listens there{by}: use another path", path.display())
        }
        crate::Error::Socket { path, what, source } => {
            format!("{}: {what}: {source}: use another path", path.display())
        }
        other => other.to_string(),
    }
}

/// A socket that the thread serves.
struct Served {
    config: ServerConfig,
    layout: Layout,
    socket: Socket,
    dev: WeakNetDev,
    /// The buffers of the device's pool without clients.
    base: u32,
    counters: Arc<Counters>,
}

/// A request to the thread. It answers when it has done it.
enum Request {
    Open(Box<Served>, SyncSender<()>),
    Close(PathBuf, SyncSender<()>),
    End,
}

/// A thread that serves sockets. Dropping it ends all connections.
#[derive(Debug)]
pub struct Server {
    requests: mpsc::Sender<Request>,
    wake: Wake,
    counters: Arc<Mutex<Vec<Arc<Counters>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Grows the device's pool, as far as it can, for clients that may have `buffers` together; returns whether it has as many.
    fn has_buffers(&self, buffers: u64) -> bool {
        let Some(dev) = self.dev.upgrade() else { return true };
        let pool = dev.pool();
        let wanted = u64::from(self.base).saturating_add(buffers).min(pool.max_buffers().into()) as u32;
        // Without memory for more, the pool stays as it is.
        let grown = pool.buffers() >= wanted || pool.resize(wanted).is_ok();
        grown && buffers <= pool.buffers().into()
    }
}

impl Server {
    /// Starts the thread, with no socket yet.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub fn start() -> io::Result<Self> {
        let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let wake = Wake::new(fd);
        let (requests, asked): (_, Receiver<Request>) = mpsc::channel();
        let events = Events::new(asked, wake.clone());
        let thread = thread::Builder::new().name("sockets".to_owned()).spawn(move || events.run())?;
        Ok(Self { requests, wake, counters: Arc::default(), thread: Some(thread) })
    }

    /// Opens a socket whose clients send through `dev`. Its pool grows with the clients up to
    /// [`PoolConfig::max_buffers`](txq::pool::PoolConfig::max_buffers). A client beyond that is refused ([`Reason::NoBuffers`]), so that
    /// each has its credit.
    ///
    /// # Errors
    /// [`OpenError`] says why.
    pub fn open(&self, config: ServerConfig, dev: &NetDev) -> Result<(), OpenError> {
        let name = || config.name.clone();
        let info = dev.info();
        let header = if info.link.header_len() == 0 { 0 } else { info.link.header_len() as usize + VLAN };
        let frame = (dev.mtu() as usize + header).min(dev.pool().room()) as u32;
        let too_large = || OpenError::Layout { name: name(), slots: config.slots, frame };
        let layout =
            Layout::new(config.slots, frame, config.priority_max, info.link).ok_or_else(too_large)?;
        let socket = Socket::open(&Place::Path(config.path.clone()), config.access)
            .map_err(|source| OpenError::Socket { name: name(), source })?;
        let counters = Arc::new(Counters::new(&config, &info.name));
        let ended = OpenError::Ended { name: name() };
        lock(&self.counters).push(counters.clone());
        let base = dev.pool().buffers();
        let served = Served { config, layout, socket, dev: dev.downgrade(), base, counters };
        if self.ask(|done| Request::Open(Box::new(served), done)) { Ok(()) } else { Err(ended) }
    }

    /// Closes the socket at a path, and ends its connections. Afterwards no client holds anything of the device.
    pub fn close(&self, path: &Path) {
        self.ask(|done| Request::Close(path.to_owned(), done));
        lock(&self.counters).retain(|counters| !counters.is_closed());
    }

    /// Returns the counters of all sockets.
    pub fn stats(&self) -> Vec<SocketStats> {
        lock(&self.counters).iter().map(|counters| counters.stats()).collect()
    }

    /// Returns a function that returns the counters of all sockets, from any thread.
    pub fn meter(&self) -> impl Fn() -> Vec<SocketStats> + Send + Sync + use<> {
        let counters = self.counters.clone();
        move || lock(&counters).iter().map(|counters| counters.stats()).collect()
    }

    /// Asks the thread and waits for its answer; returns false if it has ended.
    fn ask(&self, request: impl FnOnce(SyncSender<()>) -> Request) -> bool {
        let (done, answered) = mpsc::sync_channel(1);
        if self.requests.send(request(done)).is_err() {
            return false;
        }
        self.wake.ring();
        answered.recv().is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::End);
        self.wake.ring();
        // A panic was printed by the thread.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
