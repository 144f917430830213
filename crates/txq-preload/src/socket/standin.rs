//! The stand-in of a socket, which `poll`, `select` and `epoll` ask in its place.
//!
//! The kernel knows nothing of the qdiscs. It would report a socket as writable whose send buffer is full with datagrams in the qdisc, and as
//! readable when a datagram has arrived that the qdisc of `--down` still holds. So a socket has a pair of UNIX sockets. One is the stand-in:
//! it is writable as long as the socket is not full, and it receives what the program is to receive. A program that waits for the socket waits for the
//! stand-in (`symbols/waits.rs`). The library uses the other one, the far end.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use super::{Entry, Socket, Sockets, TABLE, cookie, forget};
use crate::sys;

/// The number of full sockets of the process.
static FULL_SOCKETS: AtomicU32 = AtomicU32::new(0);

/// The stand-in of a socket. All but `is_full` is written under [`Sockets::own`].
pub(super) struct StandIn {
    near: Held,
    far: Held,
    /// Whether the socket is full. Written under [`Sockets::own`], by senders and by the driver.
    is_full: AtomicBool,
}

/// A descriptor of the library's own.
pub(crate) struct Held {
    /// Its number; -1 without one.
    fd: AtomicI32,
    /// The kernel's identity of its socket.
    cookie: AtomicU64,
}

impl Held {
    pub(crate) const fn new() -> Self {
        Self { fd: AtomicI32::new(-1), cookie: AtomicU64::new(0) }
    }

    /// Returns the descriptor if it is still one.
    pub(crate) fn get(&self) -> Option<c_int> {
        Some(self.fd.load(Relaxed)).filter(|&fd| fd >= 0 && cookie(fd) == Ok(self.cookie.load(Relaxed)))
    }

    /// Returns whether a descriptor is this one.
    pub(crate) fn is(&self, fd: c_int) -> bool {
        self.fd.load(Relaxed) == fd && self.get() == Some(fd)
    }

    /// Takes a descriptor. An older one stays open.
    pub(crate) fn set(&self, index: u32, fd: c_int) {
        TABLE.set(fd, Entry::Own(index));
        // An error shows at the next use.
        self.cookie.store(cookie(fd).unwrap_or(0), Relaxed);
        self.fd.store(fd, Relaxed);
    }

    /// Moves the descriptor to another number. The old one stays open.
    pub(crate) fn renew(&self, index: u32) {
        if let Ok(fd) = sys::duplicate(self.fd.load(Relaxed)) {
            self.set(index, fd);
        }
    }

    /// Forgets the descriptor, and closes it if it is still one.
    pub(crate) fn close(&self) {
        forget(&self.fd, self.get());
    }
}

impl StandIn {
    pub(super) const fn new() -> Self {
        Self { near: Held::new(), far: Held::new(), is_full: AtomicBool::new(false) }
    }

    /// Returns the stand-in and its far end, if both are still there.
    pub(super) fn get(&self) -> Option<[c_int; 2]> {
        Some([self.near.get()?, self.far.get()?])
    }

    /// Returns the stand-in and its far end, and makes them if they are not there; `None` if the system gives no descriptors.
    pub(super) fn made(&self, index: u32) -> Option<[c_int; 2]> {
        self.get().or_else(|| {
            self.close();
            let [near, far] = sys::pair().ok()?;
            self.near.set(index, near);
            self.far.set(index, far);
            // The least: one datagram fills it.
            let _ = sys::set_option::<c_int>(near, libc::SOL_SOCKET, libc::SO_SNDBUF, 1);
            if self.is_full.load(Relaxed) {
                sys::fill(near);
            }
            Some([near, far])
        })
    }

    /// Returns whether a descriptor is the stand-in or its far end.
    pub(super) fn is(&self, fd: c_int) -> bool {
        self.near.is(fd) || self.far.is(fd)
    }

    /// Moves the stand-in or its far end to another number, whichever has this one.
    pub(super) fn make_way(&self, index: u32, fd: c_int) {
        for held in [&self.near, &self.far] {
            if held.is(fd) {
                held.renew(index);
            }
        }
    }

    /// Forgets the descriptors, and closes them if they are still there.
    pub(super) fn close(&self) {
        self.near.close();
        self.far.close();
    }
}

/// Returns whether any socket is full.
#[inline]
pub(crate) fn is_any_full() -> bool {
    FULL_SOCKETS.load(Relaxed) > 0
}

/// Forgets the parent's sockets in a child.
pub(crate) fn forget_full() {
    FULL_SOCKETS.store(0, Relaxed);
}

impl Socket {
    /// Returns whether the socket is full.
    pub(crate) fn is_full(&self) -> bool {
        self.stand_in.is_full.load(Relaxed)
    }

    /// Returns the stand-in and its far end if they are there. The caller holds [`Sockets::own`].
    pub(crate) fn ends(&self) -> Option<[c_int; 2]> {
        self.stand_in.get()
    }

    /// Returns the stand-in as it was made, without a question to the kernel.
    pub(crate) fn stand_in(&self) -> c_int {
        self.stand_in.near.fd.load(Relaxed)
    }
}

impl Sockets {
    /// Notes that a socket is full, or is not.
    pub(crate) fn set_full(&self, socket: &Socket, is_full: bool) {
        let stand_in = &socket.stand_in;
        if stand_in.is_full.load(Relaxed) == is_full {
            return;
        }
        let _own = self.own();
        if stand_in.is_full.swap(is_full, Relaxed) == is_full {
            return;
        }
        if is_full {
            FULL_SOCKETS.fetch_add(1, Relaxed);
        } else {
            FULL_SOCKETS.fetch_sub(1, Relaxed);
        }
        match stand_in.get() {
            Some([near, _]) if is_full => sys::fill(near),
            Some([_, far]) => sys::drain(far),
            None => {}
        }
    }

    /// Returns the stand-in of a socket and its far end, and makes them if they are not there; `None` if the system gives no descriptors.
    pub(crate) fn stand_in(&self, index: u32, socket: &Socket) -> Option<[c_int; 2]> {
        let _own = self.own();
        socket.stand_in.made(index)
    }

    /// Calls `f` with the stand-in of a socket and its far end, which stay its while `f` runs; `None` if they are not there.
    pub(crate) fn with_stand_in<R>(&self, socket: &Socket, f: impl FnOnce([c_int; 2]) -> R) -> Option<R> {
        let _own = self.own();
        socket.stand_in.get().map(f)
    }

    /// Notes that datagrams of a socket have left, and wakes the threads that wait if enough have.
    pub(crate) fn left(&self, socket: &Socket, datagrams: i32) {
        if socket.wanted.load(Relaxed) > 0 && socket.wanted.fetch_sub(datagrams, AcqRel) <= datagrams {
            self.set_full(socket, false);
            socket.wake();
        }
    }

    /// Returns whether a socket is full; notes that it is not if datagrams have ended that nobody counted, as those that a qdisc
    /// drops.
    pub(crate) fn is_still_full(&self, socket: &Socket) -> bool {
        if socket.is_full() {
            let state = socket.state();
            if state.flow.outstanding() <= state.room_at {
                self.set_full(socket, false);
            }
        }
        socket.is_full()
    }

    /// Checks all full sockets as [`Self::is_still_full`] does.
    pub(crate) fn check_full(&self) {
        self.each(|socket| {
            self.is_still_full(socket);
        });
    }
}
