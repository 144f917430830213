//! Sockets on a link in tokio's time, which a test may pause: hours of a slow link pass in a second.
//!
//! ```
//! use std::time::Duration;
//! use txq_link::{Link, tokio as link};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let (client, server) = link::pair(Link::preset("geo", 1)?);
//! let start = tokio::time::Instant::now();
//! client.send(b"ping").await;
//! let (data, from) = server.recv_from().await;
//! assert_eq!((&data[..], from), (&b"ping"[..], client.local_addr()));
//! // tokio's timers count milliseconds, and the link counts nanoseconds.
//! assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < Duration::from_millis(303));
//! # Ok::<(), txq_link::LinkError>(())
//! # }).unwrap();
//! ```
//!
//! A packet leaves the link at its exact time. Its receiver runs at the next millisecond, because tokio's timers are no finer.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::link::Link;
use crate::packet::Direction;
use crate::wire::{Datagram, PAIR, Wire, lock};

/// A shared [`Wire`].
type Shared<W> = Arc<Mutex<Wire<W>>>;

/// A link to whose ends sockets are bound. Cloning it makes another handle on the same link.
#[derive(Clone)]
pub struct Net {
    wire: Shared<Waker>,
    start: Instant,
}

/// A socket at an end of a link.
pub struct Socket {
    pub(crate) net: Net,
    number: usize,
    local: SocketAddr,
    peer: Option<SocketAddr>,
    /// Wakes this socket's receiver at the next event of the link.
    sleep: Mutex<Option<Pin<Box<Sleep>>>>,
}

/// Returns a socket at the left end of a link and one at the right end. Time begins now.
pub fn pair(link: Link<Datagram>) -> (Socket, Socket) {
    let (net, [left, right]) = (Net::new(link), PAIR);
    let (mut up, mut down) = (net.bind(Direction::Up, left), net.bind(Direction::Down, right));
    (up.peer, down.peer) = (Some(right), Some(left));
    (up, down)
}

impl Net {
    /// Returns a link without sockets. Time begins now.
    pub fn new(link: Link<Datagram>) -> Self {
        Self { wire: Arc::new(Mutex::new(Wire::new(link))), start: Instant::now() }
    }

    /// Binds a socket at an end of the link: at the left end if it sends up. Any number of sockets with different addresses may
    /// be at an end. A datagram to an address to which no socket is bound is lost. A dropped socket frees its address.
    pub fn bind(&self, sends: Direction, address: SocketAddr) -> Socket {
        let mut wire = lock(&self.wire);
        // The datagrams that have arrived until now are not for this socket.
        let wakers = wire.advance(self.now());
        let number = wire.bind(sends, address);
        drop(wire);
        wakers.into_iter().for_each(Waker::wake);
        Socket { net: self.clone(), number, local: address, peer: None, sleep: Mutex::new(None) }
    }

    /// Calls `f` with the link and the time now: to change it, to read its counters, to take its recording.
    pub fn with_link<R>(&self, f: impl FnOnce(&mut Link<Datagram>, crate::Instant) -> R) -> R {
        let now = self.now();
        let mut wire = lock(&self.wire);
        let result = f(&mut wire.link, now);
        let wakers = wire.advance(now);
        drop(wire);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    fn now(&self) -> crate::Instant {
        crate::Instant::ZERO + self.start.elapsed()
    }
}

impl Socket {
    /// Returns the socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the link.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// Sends a datagram to the other socket of a pair.
    ///
    /// # Panics
    /// The socket is not of a [`pair`].
    pub async fn send(&self, data: &[u8]) {
        self.send_to(data, self.peer.expect("a socket of a pair")).await;
    }

    /// Sends a datagram.
    pub async fn send_to(&self, data: &[u8], to: SocketAddr) {
        self.send_datagram(Datagram::new(data.to_vec(), self.local, to));
    }

    /// Sends a datagram with its TOS. Never waits: the link has room, or loses the datagram.
    pub fn send_datagram(&self, datagram: Datagram) {
        let now = self.net.now();
        let mut wire = lock(&self.net.wire);
        let mut wakers = wire.send(self.number, now, datagram);
        // The next event may be earlier than that for which receivers wait.
        wakers.extend(wire.take_wakers());
        drop(wire);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits for a datagram. Returns its bytes and the address from which it came.
    pub async fn recv_from(&self) -> (Vec<u8>, SocketAddr) {
        let datagram = self.recv_datagram().await;
        (datagram.data, datagram.from)
    }

    /// Waits for a datagram.
    pub async fn recv_datagram(&self) -> Datagram {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Returns the next datagram, or has the task woken when one may have arrived. One task may wait at a time.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Datagram> {
        loop {
            let now = self.net.now();
            let mut wire = lock(&self.net.wire);
            let wakers = wire.advance(now);
            let (taken, next) = (wire.take(self.number), wire.link.next());
            if taken.is_none() {
                wire.wait(self.number, cx.waker().clone());
            }
            drop(wire);
            wakers.into_iter().filter(|waker| !waker.will_wake(cx.waker())).for_each(Waker::wake);
            if let Some(datagram) = taken {
                return Poll::Ready(datagram);
            }
            let Some(next) = next else { return Poll::Pending };
            // Not rounded down: the event must have come when the task runs.
            let at = self.net.start + (next - crate::Instant::ZERO);
            let mut sleep = self.sleep.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match &mut *sleep {
                Some(sleep) => sleep.as_mut().reset(at),
                None => *sleep = Some(Box::pin(sleep_until(at))),
            }
            let due = sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
            if !due {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let waker = lock(&self.net.wire).unbind(self.number);
        drop(waker);
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("local", &self.local).finish_non_exhaustive()
    }
}
