//! Sockets on a link, in real time, for tests with threads.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use txq_link::{Link, threads};
//!
//! let (left, right) = threads::pair(Link::new("netem delay 5ms", 1)?);
//! let start = Instant::now();
//! left.send(b"ping");
//! assert_eq!(right.recv(Duration::from_secs(10)).as_deref(), Some(&b"ping"[..]));
//! assert!(start.elapsed() >= Duration::from_millis(5));
//! # Ok::<(), txq_link::LinkError>(())
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::packet::Direction;
use crate::wire::{Datagram, PAIR, Wire, lock};

struct Inner {
    wire: Mutex<Wire<()>>,
    /// Notified when a packet is sent: the next arrival may be earlier.
    sent: Condvar,
    start: Instant,
}

/// A socket at an end of a link. Its calls may come from any thread.
pub struct Socket {
    inner: Arc<Inner>,
    number: usize,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Returns a socket at the left end of a link and one at the right end. Time begins now.
pub fn pair(link: Link<Datagram>) -> (Socket, Socket) {
    let mut wire = Wire::new(link);
    let [left, right] = PAIR;
    let numbers = [wire.bind(Direction::Up, left), wire.bind(Direction::Down, right)];
    let inner = Arc::new(Inner { wire: Mutex::new(wire), sent: Condvar::new(), start: Instant::now() });
    let socket = |number, local, peer| Socket { inner: Arc::clone(&inner), number, local, peer };
    (socket(numbers[0], left, right), socket(numbers[1], right, left))
}

impl Socket {
    /// Sends a datagram to the other end.
    pub fn send(&self, data: &[u8]) {
        self.send_datagram(Datagram::new(data.to_vec(), self.local, self.peer));
    }

    /// Sends a datagram with its TOS. Its address `from` is what the other end sees.
    pub fn send_datagram(&self, datagram: Datagram) {
        let mut wire = lock(&self.inner.wire);
        wire.send(self.number, self.now(), datagram);
        self.inner.sent.notify_all();
    }

    /// Waits for a datagram, at most for `timeout`. Returns its bytes.
    pub fn recv(&self, timeout: Duration) -> Option<Vec<u8>> {
        self.recv_datagram(timeout).map(|datagram| datagram.data)
    }

    /// Waits for a datagram, at most for `timeout`.
    pub fn recv_datagram(&self, timeout: Duration) -> Option<Datagram> {
        let end = Instant::now() + timeout;
        let mut wire = lock(&self.inner.wire);
        loop {
            // Another socket's datagrams may have arrived, too.
            if !wire.advance(self.now()).is_empty() {
                self.inner.sent.notify_all();
            }
            if let Some(datagram) = wire.take(self.number) {
                return Some(datagram);
            }
            wire.wait(self.number, ());
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            let until = wire.link.next().map(|at| at - self.now());
            let wait = until.map_or(left, |until| until.min(left));
            wire = self.inner.sent.wait_timeout(wire, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Calls `f` with the link and the time now: to change it, to read its counters, to take its recording.
    pub fn with_link<R>(&self, f: impl FnOnce(&mut Link<Datagram>, crate::Instant) -> R) -> R {
        let mut wire = lock(&self.inner.wire);
        let result = f(&mut wire.link, self.now());
        self.inner.sent.notify_all();
        result
    }

    fn now(&self) -> crate::Instant {
        crate::Instant::ZERO + self.inner.start.elapsed()
    }
}
