//! What sockets on one link share: the link, and the datagrams that have arrived at each socket.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use txq_sched::Instant;

use crate::link::Link;
use crate::packet::{Direction, Packet, Payload};

/// A UDP datagram. A receiver does not see those that the link damages, as UDP's checksum has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram {
    /// Its bytes.
    pub data: Vec<u8>,
    /// The address of the socket that sent it.
    pub from: SocketAddr,
    /// The address of the socket for which it is.
    pub to: SocketAddr,
    /// Its TOS; its lowest two bits are ECN's.
    pub tos: u8,
}

impl Datagram {
    /// Returns a datagram without ECN.
    pub fn new(data: Vec<u8>, from: SocketAddr, to: SocketAddr) -> Self {
        Self { data, from, to, tos: 0 }
    }
}

impl Payload for Datagram {
    fn bytes(&self) -> &[u8] {
        &self.data
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.from, self.to))
    }
}

/// The addresses of a pair of sockets.
pub(crate) const PAIR: [SocketAddr; 2] = {
    use std::net::{IpAddr, Ipv4Addr};
    [
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000),
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 443),
    ]
};

/// The most datagrams that wait at a socket. Further ones are dropped, as a kernel's socket drops them.
const INBOX: usize = 4096;

/// The shared state. `W` wakes the task or thread that receives at a socket.
pub(crate) struct Wire<W> {
    pub(crate) link: Link<Datagram>,
    sockets: Vec<Inbox<W>>,
}

struct Inbox<W> {
    address: SocketAddr,
    /// The direction of what arrives here.
    direction: Direction,
    arrived: VecDeque<Datagram>,
    waker: Option<W>,
    /// False once the socket is dropped.
    bound: bool,
}

impl<W> Wire<W> {
    /// Returns a wire without sockets.
    pub(crate) fn new(link: Link<Datagram>) -> Self {
        Self { link, sockets: Vec::new() }
    }

    /// Adds a socket that sends in `direction`. Returns its number.
    pub(crate) fn bind(&mut self, direction: Direction, address: SocketAddr) -> usize {
        let direction = direction.opposite();
        self.sockets.push(Inbox { address, direction, arrived: VecDeque::new(), waker: None, bound: true });
        self.sockets.len() - 1
    }

    /// Frees the address of a socket that is dropped. Returns its waker: the caller drops it without the lock, because a task may
    /// end with it, and drop other sockets.
    #[cfg(feature = "tokio")]
    pub(crate) fn unbind(&mut self, socket: usize) -> Option<W> {
        let inbox = &mut self.sockets[socket];
        inbox.bound = false;
        inbox.arrived.clear();
        inbox.waker.take()
    }

    /// Sends a datagram of a socket at the time `now`. Returns the wakers of sockets at which datagrams have arrived.
    pub(crate) fn send(&mut self, socket: usize, now: Instant, datagram: Datagram) -> Vec<W> {
        let direction = self.sockets[socket].direction.opposite();
        let header = if datagram.to.is_ipv4() { 28 } else { 48 };
        let packet = Packet { header, tos: datagram.tos, flow: flow(&datagram), ..Packet::new(datagram) };
        self.link.send(now, direction, packet);
        self.advance(now)
    }

    /// Moves the datagrams that have arrived at the time `now` to their sockets. Returns the wakers of those sockets.
    pub(crate) fn advance(&mut self, now: Instant) -> Vec<W> {
        let mut wakers = Vec::new();
        while let Some(arrival) = self.link.poll(now) {
            // UDP's checksum finds each flipped bit.
            if arrival.damaged {
                continue;
            }
            let is_for = |inbox: &&mut Inbox<W>| {
                inbox.bound && inbox.direction == arrival.direction && inbox.address == arrival.data.to
            };
            // Nobody answers for a port that is closed.
            let Some(inbox) = self.sockets.iter_mut().find(is_for) else { continue };
            if inbox.arrived.len() < INBOX {
                inbox.arrived.push_back(Datagram { tos: arrival.tos, ..arrival.data });
            }
            wakers.extend(inbox.waker.take());
        }
        wakers
    }

    /// Takes the wakers of all sockets.
    #[cfg(feature = "tokio")]
    pub(crate) fn take_wakers(&mut self) -> Vec<W> {
        self.sockets.iter_mut().filter_map(|inbox| inbox.waker.take()).collect()
    }

    /// Takes the first datagram that has arrived at a socket.
    pub(crate) fn take(&mut self, socket: usize) -> Option<Datagram> {
        self.sockets[socket].arrived.pop_front()
    }

    /// Sets what wakes the receiver of a socket.
    pub(crate) fn wait(&mut self, socket: usize, waker: W) {
        self.sockets[socket].waker = Some(waker);
    }
}

/// Locks a wire. A panic of another test thread leaves it usable.
pub(crate) fn lock<W>(wire: &Mutex<Wire<W>>) -> MutexGuard<'_, Wire<W>> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of a datagram's flow, the same on every system.
fn flow(datagram: &Datagram) -> u64 {
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        bytes.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    };
    for address in [datagram.from, datagram.to] {
        match address.ip() {
            std::net::IpAddr::V4(ip) => add(&ip.octets()),
            std::net::IpAddr::V6(ip) => add(&ip.octets()),
        }
        add(&address.port().to_be_bytes());
    }
    hash
}
