//! Serve and reach a running txq: tc for a program's own devices, from another process, while the program sends.
//!
//! A program serves its devices by one call. `txq tc`, `txq dev`, `txq stat`, `txq trace`, `txq contention`, `txq hist` and `txq ls` then reach them:
//!
//! ```
//! # #[derive(Debug)] struct Null;
//! # impl txq::driver::Driver for Null {
//! #     fn info(&self) -> txq::driver::DeviceInfo { txq::driver::DeviceInfo::new("null0") }
//! #     fn open(&mut self, _: u16) -> std::io::Result<txq::driver::DriverQueue> {
//! #         Ok(txq::driver::DriverQueue::new(Null, txq::driver::NoCompletions))
//! #     }
//! # }
//! # impl txq::driver::Transmit for Null {
//! #     fn start_xmit(&mut self, batch: &mut txq::packet::PacketList, cx: &mut txq::driver::TxCx<'_>) -> txq::driver::Status {
//! #         while let Some(packet) = batch.pop_front() { cx.sent(packet); }
//! #         txq::driver::Status::Ok
//! #     }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("txq-control-doc-{}", std::process::id()));
//! # let place = folder.join("shaper.sock");
//! # let place = place.to_str().unwrap();
//! let dev = txq::NetDev::builder(Null).start()?;
//! let server = txq_control::serve(&dev, place)?; // a path, or a name such as "shaper"
//!
//! // Another process, or this one:
//! let mut client = txq_control::Client::connect(place)?;
//! let words = "qdisc replace dev null0 root tbf rate 1mbit burst 10k latency 50ms";
//! let words: Vec<_> = words.split(' ').collect();
//! let answer = client.tc(&words, Default::default())?;
//! assert_eq!((answer.rc, dev.qdiscs(Default::default())[0].kind.as_str()), (0, "tbf"));
//! drop(server); // The socket is gone.
//! # Ok(())
//! # }
//! ```
//!
//! [`Server::builder`] has more: several devices, the users that are served ([`Access`]), bounds ([`Limits`]), devices that
//! commands make. [`list()`] finds the programs of this user. [`tc::apply`] and [`tc::check`] execute and check tc's commands
//! without a server.
//!
//! [`socket`] lets local programs send through a device of this one.
//!
//! A server is one sleeping thread, and a few more while commands run. The protocol is one JSON object a line in both
//! directions; `docs/control.md` in the repository describes it.

mod answer;
mod changes;
mod client;
pub mod dev;
mod devices;
mod error;
mod folder;
mod info;
mod limits;
mod list;
mod listener;
mod lock;
mod message;
mod monitor;
mod peer;
mod place;
mod record;
mod scheduler;
mod server;
pub mod socket;
mod stat;
mod target;
pub mod tc;
mod trace;

pub use answer::Answer;
pub use client::{Client, Monitored, Monitoring, Traced, Tracing};
pub use devices::NewDevice;
pub use error::Error;
pub use info::{Info, InfoDevice};
pub use limits::Limits;
pub use list::{Program, State, list, list_folder, probe};
pub use listener::Socket;
pub use message::{Interval, VERSION};
pub use monitor::Change;
pub use peer::Access;
pub use place::{Place, runtime_folder};
pub use record::{Contention, Times};
pub use scheduler::SchedulerPort;
pub use server::{Builder, Listener, Server};
pub use stat::Counters;
pub use trace::{TraceEvent, TraceOptions, TracedDevice};

/// Serves a device at a socket until the returned handle is dropped. The socket is a name, or a path with a `/`.
///
/// # Errors
/// [`Error::InUse`] if another server listens there, [`Error::Socket`] if the socket, its folder or its lock file cannot be
/// used, [`Error::Name`] for a name that no socket can have, [`Error::Start`] if the system gives no thread or descriptor.
pub fn serve(dev: &txq::NetDev, place: impl Into<Place>) -> Result<Server, Error> {
    Server::builder().at(place).device(dev).start()
}
