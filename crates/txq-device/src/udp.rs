//! A UDP socket: a device for VPNs, QUIC servers and other programs that send datagrams.
//!
//! A packet of the device is an IPv4 or IPv6 packet with a UDP header ([`Link::Ip`]), so qdiscs, filters, flow hashes and marks
//! of congestion work on it as they do in the kernel. The driver takes the headers off. It sends the payload through the
//! socket to the destination in the headers, with the DSCP and ECN of the IP header, from the source address of the IP header if
//! that is not unspecified. The system writes all other fields of the headers that leave: source port, TTL, checksums. [`packet()`] and
//! [`Datagram::push`] write the headers of a packet to send.
//!
//! ```
//! use txq::NetDev;
//! use txq_device::udp::{self, Udp};
//!
//! let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! let to = peer.local_addr()?;
//!
//! // 20 Mbit/s, shared fairly by all flows, whose queues are kept short.
//! let mut dev = NetDev::builder(Udp::bind("127.0.0.1:0")?).qdisc("cake bandwidth 20mbit").start()?;
//! let mut sender = dev.sender("main");
//! let packet = udp::packet(&mut sender, to, b"a datagram")?;
//! let _verdict = sender.xmit(packet);
//!
//! let mut bytes = [0; 1500];
//! let n = peer.recv(&mut bytes)?;
//! assert_eq!(bytes[..n], *b"a datagram");
//! dev.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Options
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `local` of [`Udp::bind`], [`Udp::connect`] | | none | the address and port of the socket; `[::]:PORT` serves IPv6 and IPv4 |
//! | `remote` of [`Udp::connect`] | | none | the peer. The system then looks up its route once, and reports that nobody listens |
//! | [`name`](Udp::name) | | `udp:` and `local` | the device's name, in messages and in tc's output |
//! | [`txqs`](Udp::txqs) | | 1, or one a socket | the number of txqs |
//! | [`mtu`](Udp::mtu) | bytes | 1500 | the longest packet that the program sends, with its IP header; qdiscs derive quanta from it |
//! | [`join`](Udp::join) | | true | whether packets are joined to messages that the kernel cuts |
//! | [`txtime`](Udp::txtime) | | false | whether departure times are handed down to the kernel's fq |
//! | [`horizon`](Udp::horizon) | | 10 s with `txtime`, else 0 | how early a packet may be handed down |
//! | [`dont_fragment`](Udp::dont_fragment) | | false | whether a datagram longer than the path's MTU is dropped, instead of sent in fragments |
//! | [`send_buffer`](Udp::send_buffer) | bytes | `net.core.wmem_default` | the socket's send buffer |
//! | [`receive_buffer`](Udp::receive_buffer) | bytes | 4 MiB, with CAP_NET_ADMIN or as far as `net.core.rmem_max` allows | the socket's receive buffer, of [`Udp::bind`] and [`Udp::connect`]. Datagrams that find it full are counted in [`RxStats::missed`](txq::receive::RxStats::missed) |
//!
//! All txqs share one socket: the kernel takes no lock of the socket to send, and a second socket on the same port
//! (`SO_REUSEPORT`) would get half of the datagrams that come in. A program that wants a socket a txq, and receives from all of
//! them, opens them itself ([`Udp::from_sockets`]). A program with a socket of its own, as a QUIC endpoint, passes a duplicate
//! ([`UdpSocket::try_clone`]) to [`Udp::from_socket`], and receives as before. The driver never waits, whether the
//! socket blocks or not.
//!
//! # Joined packets
//!
//! `sendmmsg` sends up to 64 messages. Consecutive packets of the same addresses, type of service and length are one
//! message (`UDP_SEGMENT`), up to 64 packets and 65,487 bytes, of which the last may be shorter. A packet with segments
//! ([`Packet::gso`](txq::packet::Packet::gso)) is one message, too. The kernel or the card cuts it. If the kernel refuses to cut, the driver sends
//! the datagrams one by one, and remembers: for good if the card computes no checksums (`EIO`), for a second and for datagrams
//! of this length or longer otherwise (`EINVAL`, as for datagrams longer than the path's MTU). [`Udp::counters`] counts calls, messages and
//! datagrams.
//!
//! # Errors
//!
//! [`Udp::bind`] and [`Udp::connect`] return the errors of `bind(2)` and `connect(2)`. Afterwards:
//!
//! | the kernel's error | cause | the packet |
//! |---|---|---|
//! | `EAGAIN`, `ENOBUFS`, `ENOMEM` | the socket's buffer or the memory is full | is refused, tried again in 50 us to 1 ms |
//! | `ECONNREFUSED` | an earlier datagram of a connected socket met no listener | is sent by a second call; [`DropReason::NoSocket`] if that fails, too |
//! | `EMSGSIZE` | longer than 65,507 bytes of payload, or than the path's MTU with [`dont_fragment`](Udp::dont_fragment) | is dropped: [`DropReason::PktTooBig`] |
//! | `EPERM` | the firewall | is dropped: [`DropReason::NetfilterDrop`] |
//! | `ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`, `EACCES` | no route, none from the source address, a prohibited one, or broadcast | is dropped: [`DropReason::IpOutnoroutes`] |
//! | anything else | as an IPv6 source address that is not the machine's | is dropped: [`DropReason::NotSpecified`] |
//! | none | not UDP, a fragment, IPv6 extension headers | is dropped: [`DropReason::UnhandledProto`] |
//! | none | headers cut or wrong | is dropped: [`DropReason::HdrTrunc`] |
//!
//! [`Transmit::finish`](txq::driver::Transmit::finish), and so [`NetDev::shutdown`](txq::NetDev::shutdown), returns the first error of the kind "anything else".
//!
//! # Receiving
//!
//! [`Udp::receiver`] returns the receiving half, whose packets have headers as they had on the wire, as far as the
//! socket tells: addresses, ports, DSCP, ECN. They can be inspected, and sent on through a device whose packets begin with IP. The system
//! joins datagrams of a flow (`UDP_GRO`); the receiver cuts them. With [`record_times`](txq::receive::Receive::record_times) each
//! carries the time at which the system received it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, NoCompletions};
#[cfg(doc)]
use txq::drop::DropReason;

use crate::sys;

mod control;
mod counters;
mod datagram;
mod messages;
mod receive;
mod socket;
mod transmit;

pub use counters::{Counters, Counts};
pub use datagram::{Datagram, packet};
pub use receive::Receiver;

use datagram::canonical;
use messages::Rules;
use socket::{UDP_SEGMENT, set_txtime};
use transmit::Tx;

/// How far in the future the kernel's fq accepts a departure time (`horizon`).
const HORIZON: Duration = Duration::from_secs(10);

/// The receive buffer of a socket that the device opens, in bytes: several bursts of 64 KiB, while the receiving thread waits for a
/// CPU.
const UDP_RECEIVE_BUFFER: libc::c_int = 4 << 20;

/// Opens a socket. Without the permission for a large buffer it has what the kernel allows.
fn opened(local: impl ToSocketAddrs) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    sys::set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, UDP_RECEIVE_BUFFER)?;
    Ok(socket)
}

/// The device.
#[derive(Debug, Clone)]
pub struct Udp {
    sockets: Vec<Arc<UdpSocket>>,
    /// Each socket's own address.
    local: Vec<SocketAddr>,
    name: String,
    txqs: u16,
    mtu: u32,
    joins: bool,
    txtime: bool,
    pacing_horizon: Option<Duration>,
    counters: Counters,
}

impl Udp {
    /// Opens a socket on `local`, which sends to any destination. The unspecified address of IPv6 serves IPv4, too, unless
    /// `net.ipv6.bindv6only` is set.
    ///
    /// # Errors
    /// When the address is not the machine's, or the port is taken.
    pub fn bind(local: impl ToSocketAddrs) -> io::Result<Self> {
        Self::from_socket(opened(local)?)
    }

    /// Opens a socket on `local` that is connected to `remote`, and receives from nowhere else. It still sends packets with another
    /// destination there.
    ///
    /// # Errors
    /// As [`bind`](Udp::bind), or when there is no route to `remote`.
    pub fn connect(local: impl ToSocketAddrs, remote: impl ToSocketAddrs) -> io::Result<Self> {
        let socket = opened(local)?;
        socket.connect(remote)?;
        Self::from_socket(socket)
    }

    /// Sends through an open socket, connected or not.
    ///
    /// # Errors
    /// When the socket has no address.
    pub fn from_socket(socket: UdpSocket) -> io::Result<Self> {
        Self::from_sockets([socket])
    }

    /// Sends through several sockets, with a txq for each. More txqs ([`txqs`](Udp::txqs)) share the sockets evenly.
    ///
    /// # Errors
    /// When there is no socket, or one has no address.
    pub fn from_sockets(sockets: impl IntoIterator<Item = UdpSocket>) -> io::Result<Self> {
        let sockets: Vec<_> = sockets.into_iter().map(Arc::new).collect();
        let local = sockets.iter().map(|socket| socket.local_addr()).collect::<io::Result<Vec<_>>>()?;
        let Some(first) = local.first() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a UDP device needs at least one socket",
            ));
        };
        let txqs = u16::try_from(sockets.len()).map_err(|_| {
            let text =
                format!("{} sockets are more than a device has txqs: use at most 65,535", sockets.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(Self {
            name: format!("udp:{first}"),
            local,
            sockets,
            txqs,
            mtu: 1500,
            joins: true,
            txtime: false,
            pacing_horizon: None,
            counters: Counters::default(),
        })
    }

    /// Sets the device's name.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the number of txqs, at least 1.
    #[must_use]
    pub fn txqs(self, txqs: u16) -> Self {
        Self { txqs, ..self }
    }

    /// Sets the longest packet that the program sends, in bytes, with its IP header. The driver sends longer ones, too.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// Sets whether packets are joined to messages that the kernel cuts, which they are by default if the kernel can.
    #[must_use]
    pub fn join(self, join: bool) -> Self {
        Self { joins: join, ..self }
    }

    /// Sets whether packets carry their departure times down to the kernel (`SO_TXTIME`, `CLOCK_MONOTONIC`), for a network
    /// interface with fq as its qdisc. Other qdiscs of the kernel ignore the times and send at once. A qdisc above hands packets
    /// down early if asked to (fq's `offload_horizon`). Off by default.
    #[must_use]
    pub fn txtime(self, txtime: bool) -> Self {
        Self { txtime, ..self }
    }

    /// Sets how long before its departure time a packet may be handed to the kernel.
    #[must_use]
    pub fn horizon(self, horizon: Duration) -> Self {
        Self { pacing_horizon: Some(horizon), ..self }
    }

    /// Sets whether datagrams longer than the path's MTU are dropped, and never fragmented (`IP_MTU_DISCOVER`), as QUIC
    /// requires.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dont_fragment(self, yes: bool) -> io::Result<Self> {
        for (socket, local) in self.sockets.iter().zip(&self.local) {
            let value = if yes { libc::IP_PMTUDISC_DO } else { libc::IP_PMTUDISC_WANT };
            sys::set(&**socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)?;
            if local.is_ipv6() {
                sys::set(&**socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, value)?;
            }
        }
        Ok(self)
    }

    /// Sets the send buffer of each socket, in bytes of datagrams with the kernel's overhead: to `bytes` with
    /// CAP_NET_ADMIN, else to at most `net.core.wmem_max`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send_buffer(self, bytes: u32) -> io::Result<Self> {
        self.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
    }

    /// Sets the receive buffer of each socket, in bytes of datagrams with the kernel's overhead: to `bytes` with
    /// CAP_NET_ADMIN, else to at most `net.core.rmem_max`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive_buffer(self, bytes: u32) -> io::Result<Self> {
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
    }

    fn set_buffer(self, force: libc::c_int, option: libc::c_int, bytes: u32) -> io::Result<Self> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        for socket in &self.sockets {
            sys::set_buffer(&**socket, force, option, bytes)?;
        }
        Ok(self)
    }

    /// Returns the address of the socket, the first one if there are several.
    pub fn local_addr(&self) -> SocketAddr {
        self.local[0]
    }

    /// Returns a handle on the counters.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Returns the receiving half of the socket, the first one if there are several. The device may be built before or
    /// after. From then on other readers of the socket must cope with joined datagrams (`UDP_GRO`), unless
    /// [`join`](Udp::join) is off.
    ///
    /// # Errors
    /// When the kernel has no `IP_PKTINFO`, `IP_RECVTOS` or `SO_RXQ_OVFL`.
    pub fn receiver(&self) -> io::Result<Receiver> {
        Receiver::new(self.sockets[0].clone(), 0, self.joins)
    }

    /// Returns the receiving halves of all sockets, which are rx queues 0 and up.
    ///
    /// # Errors
    /// As [`receiver`](Udp::receiver).
    pub fn receivers(&self) -> io::Result<Vec<Receiver>> {
        let sockets = self.sockets.iter().enumerate();
        sockets.map(|(i, socket)| Receiver::new(socket.clone(), i as u16, self.joins)).collect()
    }

    /// Returns what the messages of a socket need.
    fn rules(&self, socket: &UdpSocket, local: SocketAddr) -> Rules {
        let peer = socket.peer_addr().ok();
        let scope = |address| match address {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let tos = |level, option| sys::get::<libc::c_int>(socket, level, option).map_or(0, |tos| tos as u8);
        // Kernels before 4.18 would ignore the control message, and send one long datagram.
        let cuts = sys::get::<libc::c_int>(socket, libc::SOL_UDP, UDP_SEGMENT).is_ok();
        Rules {
            is_v6: local.is_ipv6(),
            peer: peer.map(canonical),
            local: Some(local.ip().to_canonical()).filter(|ip| !ip.is_unspecified()),
            tos: [
                tos(libc::IPPROTO_IP, libc::IP_TOS),
                if local.is_ipv6() { tos(libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { 0 },
            ],
            scope: [Some(local), peer].into_iter().flatten().map(scope).max().unwrap_or(0),
            txtime: self.txtime,
            joins: self.joins && cuts,
            longest_segment: if cuts { usize::from(u16::MAX) } else { 0 },
        }
    }
}

impl Driver for Udp {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(self.name.clone())
            .txqs(self.txqs)
            .mtu(self.mtu)
            .link(Link::Ip)
            .gso(true)
            .checksum(true)
            // Peers know a flow by its address and port.
            .by_flow(self.local.iter().any(|local| *local != self.local[0]))
    }

    fn pacing_horizon(&self) -> Duration {
        self.pacing_horizon.unwrap_or(if self.txtime { HORIZON } else { Duration::ZERO })
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let index = usize::from(txq) % self.sockets.len();
        let socket = self.sockets[index].clone();
        if self.txtime {
            set_txtime(&*socket)?;
        }
        let rules = self.rules(&socket, self.local[index]);
        let tx = Tx::new(socket, self.name.clone(), rules, self.counters.clone());
        Ok(DriverQueue::new(tx, NoCompletions))
    }
}
