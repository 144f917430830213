//! Sockets for quinn's endpoints: a client and a server on a link, with ECN.
//!
//! ```no_run
//! use std::sync::Arc;
//! use quinn::{Endpoint, EndpointConfig, TokioRuntime};
//! use txq_link::{Link, quinn as link};
//!
//! # fn configs() -> (quinn::ServerConfig, quinn::ClientConfig) { unimplemented!() }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let (server_config, client_config) = configs();
//! let (client, server) = link::pair(Link::preset("lte", 1)?);
//! let address = server.local_addr();
//! let runtime = Arc::new(TokioRuntime);
//! let server =
//!     Endpoint::new_with_abstract_socket(EndpointConfig::default(), Some(server_config), server.into(), runtime.clone())?;
//! let mut client = Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, client.into(), runtime)?;
//! client.set_default_client_config(client_config);
//! let connection = client.connect(address, "localhost")?.await?;
//! # let _ = (server, connection);
//! # Ok(())
//! # }
//! ```
//!
//! Under a runtime whose time is paused (`start_paused`), quinn's timers and the link share the paused time.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use crate::link::Link;
use crate::packet::Direction;
use crate::tokio::Net;
use crate::wire::Datagram;

/// A socket at an end of a link: convert it into an `Arc<dyn AsyncUdpSocket>`.
#[derive(Debug)]
pub struct Socket(crate::tokio::Socket);

/// Returns a socket at the left end of a link, for a client, and one at the right end.
pub fn pair(link: Link<Datagram>) -> (Socket, Socket) {
    let (left, right) = crate::tokio::pair(link);
    (Socket(left), Socket(right))
}

impl Socket {
    /// Binds a socket at an end of a link: at the left end if it sends up.
    pub fn bind(net: &Net, sends: Direction, address: SocketAddr) -> Self {
        Self(net.bind(sends, address))
    }

    /// Returns the socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Returns the link.
    pub fn net(&self) -> &Net {
        self.0.net()
    }
}

impl From<Socket> for Arc<dyn AsyncUdpSocket> {
    fn from(socket: Socket) -> Self {
        Arc::new(socket)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let size = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        for data in transmit.contents.chunks(size) {
            let mut datagram = Datagram::new(data.to_vec(), self.0.local_addr(), transmit.destination);
            datagram.tos = transmit.ecn.map_or(0, |ecn| ecn as u8);
            self.0.send_datagram(datagram);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut received = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            match self.0.poll_recv(cx) {
                Poll::Ready(datagram) => {
                    let len = datagram.data.len().min(buf.len());
                    buf[..len].copy_from_slice(&datagram.data[..len]);
                    *meta = RecvMeta {
                        addr: datagram.from,
                        len,
                        stride: len,
                        ecn: EcnCodepoint::from_bits(datagram.tos & 3),
                        dst_ip: Some(self.0.local_addr().ip()),
                    };
                    received += 1;
                }
                Poll::Pending if received > 0 => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.local_addr())
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// A link takes or loses what is sent, and never asks to wait.
#[derive(Debug)]
struct Writable;

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
