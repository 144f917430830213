//! What a socket is made of.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quinn::Runtime;
use txq::NetDev;
use txq::driver::Link;

use crate::class::{Class, Classify};
use crate::lane::Rules;
use crate::socket::Socket;

/// The default of [`Builder::share`]: with the ten datagrams of one more transmit, less than fq's `flow_limit`.
const SHARE: u64 = 64;
/// The default of [`Builder::bundle`].
const BUNDLE: Duration = Duration::from_micros(50);
/// The most lanes by default: each holds buffers of the pool.
const LANES: usize = 64;

/// The options of a [`Socket`].
#[must_use]
pub struct Builder<'d> {
    dev: &'d NetDev,
    lanes: usize,
    share: u64,
    bundle: Duration,
    classify: Option<Classify>,
}

impl fmt::Debug for Builder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("device", &self.dev.info().name)
            .field("lanes", &self.lanes)
            .field("share", &self.share)
            .field("bundle", &self.bundle)
            .finish_non_exhaustive()
    }
}

impl<'d> Builder<'d> {
    pub(crate) fn new(dev: &'d NetDev) -> Self {
        let cpus = thread::available_parallelism().map_or(1, Into::into);
        Self { dev, lanes: (2 * cpus).min(LANES), share: SHARE, bundle: BUNDLE, classify: None }
    }

    /// Sets the number of lanes, at least 1: twice the CPUs by default, at most 64.
    pub fn lanes(self, lanes: usize) -> Self {
        Self { lanes: lanes.max(1), ..self }
    }

    /// Sets how many packets of a remote may be in the device before its next transmit blocks; 64 by default, at least 1. A
    /// smaller share keeps the queues of slow connections short. A larger one than fq's `flow_limit` loses packets there.
    pub fn share(self, packets: u64) -> Self {
        Self { share: packets.max(1), ..self }
    }

    /// Sets for how long a [paced](crate::Paced) connection's packets are collected to one bundle, which leaves together; 50 us
    /// by default. A connection sends packet by packet below one packet in that time: 230 Mbit/s with packets of 1452 bytes.
    /// Zero paces every packet. Longer bundles cost less CPU time, and are longer bursts.
    pub fn bundle(self, time: Duration) -> Self {
        Self { bundle: time, ..self }
    }

    /// Sets the function that returns the class of a remote address. It is called for the first packet to an address, and again
    /// after an address was idle: it should be quick, and return the same class each time.
    pub fn classify(self, classify: impl Fn(SocketAddr) -> Class + Send + Sync + 'static) -> Self {
        Self { classify: Some(Box::new(classify)), ..self }
    }

    /// Wraps the socket that the device sends through, or another one on the same port, for an endpoint on `runtime`. The
    /// endpoint receives from it. From then on the socket has the options that quinn gives its own sockets: it does not block,
    /// sends no fragments, and receives joined datagrams and marks of congestion.
    ///
    /// # Errors
    /// Those of [`Runtime::wrap_udp_socket`], such as those of socket options;
    /// [`io::ErrorKind::InvalidInput`] for a device whose packets do not begin with IP.
    pub fn wrap(self, socket: UdpSocket, runtime: Arc<dyn Runtime>) -> io::Result<Arc<Socket>> {
        let info = self.dev.info();
        if info.link != Link::Ip {
            let why = format!(
                "device \"{}\" sends Ethernet frames, and a QUIC endpoint datagrams: build the device on txq_device::Udp",
                info.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let local = socket.local_addr()?;
        let inner = runtime.wrap_udp_socket(socket)?;
        let rules = Rules { local, classify: self.classify, share: self.share, bundle: self.bundle };
        Ok(Arc::new(Socket::new(self.dev, self.lanes, inner, runtime, rules)))
    }
}
