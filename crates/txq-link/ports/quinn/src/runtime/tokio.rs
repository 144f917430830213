//! quinn's runtime on tokio, whose sockets are on a [`Link`].

use std::{
    env,
    future::Future,
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::{Sleep, sleep_until},
};
use txq_link::{Datagram, Direction, Link, tokio as link};

use super::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPollHelper};

thread_local! {
    /// The network of a test.
    static NET: link::Net = {
        // The tests' timeouts are of the link's time, and not of a busy machine's.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            tokio::time::pause();
        }
        let text = env::var("TXQ_LINK").unwrap_or_else(|_| "netem delay 1ms".to_owned());
        link::Net::new(Link::new(&text, 1).expect("the text of a link"))
    };
}

#[derive(Debug)]
pub struct TokioRuntime;

impl Runtime for TokioRuntime {
    fn new_timer(&self, t: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(sleep_until(t.into()))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn wrap_udp_socket(&self, port: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let address = key(port.local_addr()?);
        // Any endpoint may connect to any other one and to itself: each is at both ends.
        let ends = NET.with(|net| Direction::BOTH.map(|sends| net.bind(sends, address)));
        Ok(Arc::new(UdpSocket { ends, port }))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl AsyncTimer for Sleep {
    fn reset(self: Pin<&mut Self>, t: Instant) {
        Self::reset(self, t.into())
    }
    fn poll(self: Pin<&mut Self>, cx: &mut Context) -> Poll<()> {
        Future::poll(self, cx)
    }
}

#[derive(Debug)]
struct UdpSocket {
    ends: [link::Socket; 2],
    /// Reserves the port, and has the address that a test expects.
    port: std::net::UdpSocket,
}

impl AsyncUdpSocket for UdpSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn super::UdpPoller>> {
        Box::pin(UdpPollHelper::new(|| async { Ok(()) }))
    }

    fn try_send(&self, transmit: &udp::Transmit) -> io::Result<()> {
        let (local, to) = (self.port.local_addr()?, transmit.destination);
        let ip = if local.ip().is_unspecified() { to.ip() } else { local.ip() };
        let from = SocketAddr::new(ip.to_canonical(), local.port());
        let end = &self.ends[usize::from(to.port() < local.port())];
        for data in transmit.contents.chunks(transmit.segment_size.unwrap_or(usize::MAX)) {
            let mut datagram = Datagram::new(data.to_vec(), from, key(to));
            datagram.tos = transmit.ecn.map_or(0, |ecn| ecn as u8);
            end.send_datagram(datagram);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [udp::RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let local = self.port.local_addr()?;
        for end in &self.ends {
            let Poll::Ready(datagram) = end.poll_recv(cx) else { continue };
            let len = datagram.data.len().min(bufs[0].len());
            bufs[0][..len].copy_from_slice(&datagram.data[..len]);
            let from = match (local, datagram.from.ip()) {
                (SocketAddr::V6(_), IpAddr::V4(ip)) => ip.to_ipv6_mapped().into(),
                (_, ip) => ip,
            };
            meta[0] = udp::RecvMeta {
                addr: SocketAddr::new(from, datagram.from.port()),
                len,
                stride: len,
                ecn: udp::EcnCodepoint::from_bits(datagram.tos),
                dst_ip: Some(local.ip()),
            };
            return Poll::Ready(Ok(1));
        }
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.port.local_addr()
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// All hosts of these tests are one, so a socket is its port.
fn key(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
}
