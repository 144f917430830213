//! Whether a socket is full, as `poll`, `select` and `epoll` report it.
//!
//! A full socket has as many datagrams in the qdisc as its send buffer would hold. The kernel does not know that, and would report the
//! socket as writable. So a socket has a second descriptor, its room: a UNIX socket that is connected to itself, and that is writable as
//! long as the socket is not full. A program that waits for the socket to be writable waits for the room instead (`symbols/waits.rs`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use super::{Entry, Socket, Sockets, TABLE, cookie, forget};
use crate::sys;

/// The number of full sockets of the process.
static FULL_SOCKETS: AtomicU32 = AtomicU32::new(0);

/// The room of a socket. All but `is_full` is written under [`Sockets::own`].
pub(super) struct Room {
    /// The descriptor; -1 without one.
    fd: AtomicI32,
    /// The kernel's identity of the descriptor's socket.
    cookie: AtomicU64,
    /// Whether the socket is full. Written under [`Sockets::own`], by senders and by the driver.
    is_full: AtomicBool,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { fd: AtomicI32::new(-1), cookie: AtomicU64::new(0), is_full: AtomicBool::new(false) }
    }

    /// Returns the descriptor if it is still one.
    fn own(&self) -> Option<c_int> {
        Some(self.fd.load(Relaxed)).filter(|&fd| fd >= 0 && cookie(fd) == Ok(self.cookie.load(Relaxed)))
    }

    /// Returns whether a descriptor is the room.
    pub(super) fn is(&self, fd: c_int) -> bool {
        self.fd.load(Relaxed) == fd && self.own() == Some(fd)
    }

    /// Makes the descriptor, or copies `from`. An older one stays open.
    pub(super) fn renew(&self, index: u32, from: Option<c_int>) -> Option<c_int> {
        let fd = match from {
            Some(from) => sys::duplicate(from).ok()?,
            None => sys::self_connected().ok()?,
        };
        TABLE.set(fd, Entry::Own(index));
        self.cookie.store(cookie(fd).ok()?, Relaxed);
        self.fd.store(fd, Relaxed);
        if from.is_none() && self.is_full.load(Relaxed) {
            sys::fill(fd);
        }
        Some(fd)
    }

    /// Forgets the descriptor, and closes it if it is still one.
    pub(super) fn close(&self) {
        forget(&self.fd, self.own());
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
        self.room.is_full.load(Relaxed)
    }
}

impl Sockets {
    /// Notes that a socket is full, or is not.
    pub(crate) fn set_full(&self, socket: &Socket, is_full: bool) {
        let room = &socket.room;
        if room.is_full.load(Relaxed) == is_full {
            return;
        }
        let _own = self.own();
        if room.is_full.swap(is_full, Relaxed) == is_full {
            return;
        }
        if is_full {
            FULL_SOCKETS.fetch_add(1, Relaxed);
        } else {
            FULL_SOCKETS.fetch_sub(1, Relaxed);
        }
        match room.own() {
            Some(fd) if is_full => sys::fill(fd),
            Some(fd) => sys::drain(fd),
            None => {}
        }
    }

    /// Returns the room of a socket, and makes it if there is none; `None` if the system gives no descriptor.
    pub(crate) fn room(&self, index: u32, socket: &Socket) -> Option<c_int> {
        let _own = self.own();
        socket.room.own().or_else(|| socket.room.renew(index, None))
    }

    /// Returns the room of a socket if there is one.
    pub(crate) fn made_room(&self, socket: &Socket) -> Option<c_int> {
        let _own = self.own();
        socket.room.own()
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
