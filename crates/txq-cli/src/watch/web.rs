//! A web server for one running program: a page with its queues and live charts, their state as JSON, and metrics for
//! Prometheus.
//!
//! | path | content |
//! |---|---|
//! | `/` | the page, which shows `/api/snapshot` each second |
//! | `/metrics` | [`metrics`](crate::watch::metrics); `txq_up 0` while the program cannot be reached or does not answer in time |
//! | `/api/snapshot` | the [`Snapshot`](crate::watch::snapshot::Snapshot) as JSON; status 503 while there is none |
//! | `/healthz` | `ok` while the server runs |
//!
//! The parameters of these two and of the page choose devices and queues ([`Selection`](crate::watch::select::Selection)).
//!
//! The server changes nothing, and the page loads nothing from elsewhere. On a loopback address it answers only requests for
//! such an address by name or number, so that a page of another site cannot read it by a name of its own (DNS rebinding).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use txq_control::Place;

mod answer;
mod source;

use source::Source;

/// The most connections that are open at a time.
const CONNECTIONS: usize = 64;
/// How long a connection may take for the head of a request, and stay without one.
const IDLE: Duration = Duration::from_secs(60);
/// A pause after a connection that could not be accepted, for want of descriptors for example.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A web server that has its address and serves nothing yet.
#[derive(Debug)]
pub struct Web {
    listener: TcpListener,
    address: SocketAddr,
    source: Arc<Source>,
}

impl Web {
    /// Listens on an address, for the program that serves its devices at `place`. The program need not run. It is asked at most
    /// twice a second, whatever the number of readers, and has `timeout` for each answer.
    ///
    /// # Errors
    /// The error of the system that refuses the address.
    pub fn bind(address: SocketAddr, place: impl Into<Place>, timeout: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, source: Arc::new(Source::new(place.into(), timeout)) })
    }

    /// Returns the address, with the port that the system has chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` can be read or is closed at its other end.
    ///
    /// # Errors
    /// The error of the system that gives no descriptor or thread.
    pub fn serve(self, stop: UnixStream) -> io::Result<()> {
        stop.set_nonblocking(true)?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        // A request waits for the program in a thread; the others wait for the same answer.
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(4).build()?;
        runtime.block_on(async {
            let stop = tokio::net::UnixStream::from_std(stop)?;
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            tokio::select! {
                done = stop.readable() => done,
                _ = accept(listener, self.address, self.source) => Ok(()),
            }
        })?;
        // A thread that waits for a silent program is not waited for.
        runtime.shutdown_background();
        Ok(())
    }
}

/// Accepts connections for ever. Beyond the most that are open at a time, a new one takes the place of the oldest, whose client may not
/// read: so there is always one for a question about health.
async fn accept(listener: tokio::net::TcpListener, address: SocketAddr, source: Arc<Source>) -> Infallible {
    let mut open = VecDeque::<AbortHandle>::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS {
            open.pop_front().into_iter().for_each(|oldest| oldest.abort());
        }
        let source = source.clone();
        let connection = tokio::spawn(async move {
            let service = service_fn(|request| {
                let source = source.clone();
                async move { Ok::<_, Infallible>(answer::answer(&request, address, source).await) }
            });
            let mut http = http1::Builder::new();
            let http = http.timer(TokioTimer::new()).header_read_timeout(IDLE);
            // A client that breaks the connection, or the rules of HTTP, is no error of the server.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
        open.push_back(connection.abort_handle());
    }
}
