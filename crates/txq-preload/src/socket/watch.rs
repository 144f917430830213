//! The sockets from which the library receives: an epoll of their duplicates, on which its receiving thread waits (`receive.rs`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};

use super::standin::StandIn;
use super::{Entry, Socket, Sockets, TABLE, forget};
use crate::sys;
use crate::table::NO_SOCKET;

/// The epoll. All of it is written under [`Sockets::own`].
pub(super) struct Watch {
    epoll: AtomicI32,
    /// It is readable if the thread is to end. Being in the epoll, it also tells whether a descriptor is the epoll.
    bell: StandIn,
    /// Whether no more sockets are taken.
    is_over: AtomicBool,
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self { epoll: AtomicI32::new(-1), bell: StandIn::new(), is_over: AtomicBool::new(false) }
    }

    /// Returns the epoll if it is still one, and makes it if there was none.
    fn made(&self) -> Option<c_int> {
        let epoll = self.epoll.load(Relaxed);
        if epoll >= 0 {
            return self.is_epoll(epoll).then_some(epoll);
        }
        let [near, _] = self.bell.made(NO_SOCKET)?;
        let epoll = sys::epoll().ok()?;
        TABLE.set(epoll, Entry::Own(NO_SOCKET));
        self.epoll.store(epoll, Relaxed);
        sys::epoll_ctl(epoll, EPOLL_CTL_ADD, near, event(Watched::BELL)).is_ok().then_some(epoll)
    }

    fn is_epoll(&self, fd: c_int) -> bool {
        self.bell
            .get()
            .is_some_and(|[near, _]| sys::epoll_ctl(fd, EPOLL_CTL_MOD, near, event(Watched::BELL)).is_ok())
    }

    /// Returns whether a descriptor is one of these.
    pub(super) fn is(&self, fd: c_int) -> bool {
        self.bell.is(fd) || self.epoll.load(Relaxed) == fd && self.is_epoll(fd)
    }

    /// Moves a descriptor to another number if it is one of these. The old one stays open.
    pub(super) fn make_way(&self, fd: c_int) {
        if self.epoll.load(Relaxed) == fd && self.is_epoll(fd) {
            if let Ok(epoll) = sys::duplicate(fd) {
                TABLE.set(epoll, Entry::Own(NO_SOCKET));
                self.epoll.store(epoll, Relaxed);
            }
        } else if let Some([near, _]) = self.bell.get().filter(|[near, _]| *near == fd) {
            self.bell.make_way(NO_SOCKET, near);
            if let (Some([near, _]), epoll @ 0..) = (self.bell.get(), self.epoll.load(Relaxed)) {
                let _ = sys::epoll_ctl(epoll, EPOLL_CTL_ADD, near, event(Watched::BELL));
            }
        } else {
            self.bell.make_way(NO_SOCKET, fd);
        }
    }

    /// Adds the duplicate of a socket; returns false if that is not possible.
    pub(super) fn add(&self, index: u32, socket: &Socket, own: c_int) -> bool {
        let epoll = if self.is_over.load(Relaxed) { None } else { self.made() };
        let event = event(Watched::new(index, socket));
        let add = |epoll| sys::epoll_ctl(epoll, EPOLL_CTL_ADD, own, event);
        epoll.is_some_and(|epoll| matches!(add(epoll), Ok(()) | Err(libc::EEXIST)))
    }

    /// Removes the duplicate of a socket.
    pub(super) fn remove(&self, own: c_int) {
        let epoll = self.epoll.load(Relaxed);
        if epoll >= 0 && self.is_epoll(epoll) {
            let _ = sys::epoll_ctl(epoll, EPOLL_CTL_DEL, own, event(Watched::BELL));
        }
    }

    /// Forgets the descriptors, and closes them if they are still there.
    pub(super) fn close(&self) {
        let epoll = self.epoll.load(Relaxed);
        forget(&self.epoll, Some(epoll).filter(|&epoll| epoll >= 0 && self.is_epoll(epoll)));
        self.bell.close();
    }
}

/// A socket that is watched: its index, and the low 32 bits of [`Socket::uses`], because the index may be another socket's when the thread comes to
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) index: u32,
    pub(crate) uses: u32,
}

impl Watched {
    const BELL: Self = Self { index: NO_SOCKET, uses: 0 };

    pub(crate) fn new(index: u32, socket: &Socket) -> Self {
        Self { index, uses: socket.uses.load(Relaxed) }
    }
}

/// An event for each change: an error that only the program can take must not be reported again and again.
fn event(of: Watched) -> epoll_event {
    let events = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
    epoll_event { events, u64: u64::from(of.uses) << 32 | u64::from(of.index) }
}

impl Sockets {
    /// Waits until sockets have something to receive, and calls `each` with each of them, and whether the program has ended receiving
    /// (`shutdown`); returns false if no more is to be received.
    pub(crate) fn wait(&self, mut each: impl FnMut(Watched, bool)) -> bool {
        const EVENTS: usize = 32;
        let mut events = [epoll_event { events: 0, u64: 0 }; EVENTS];
        let n = match sys::epoll_wait(self.watch.epoll.load(Relaxed), &mut events) {
            Err(libc::EINTR) => 0,
            // A call that this library does not see has closed it.
            Err(_) => return false,
            Ok(n) => n,
        };
        for event in &events[..n] {
            let watched = Watched { index: event.u64 as u32, uses: (event.u64 >> 32) as u32 };
            if watched != Watched::BELL {
                each(watched, event.events & libc::EPOLLRDHUP as u32 != 0);
            }
        }
        !self.watch.is_over.load(Relaxed)
    }

    /// Calls `f` with a watched socket and its duplicate, as [`Self::with_own`] does; `None` if the program has closed it, or receives from it
    /// itself.
    pub(crate) fn with_watched<R>(&self, of: Watched, f: impl FnOnce(&Socket, c_int) -> R) -> Option<R> {
        let socket = self.get(of.index)?;
        let _own = self.own();
        if !socket.is_taken() || Watched::new(of.index, socket) != of {
            return None;
        }
        self.kept(of.index, socket).map(|own| f(socket, own))
    }

    /// Lets [`Self::wait`] report a socket again that has more.
    pub(crate) fn wait_again(&self, of: Watched) {
        self.with_watched(of, |_, own| {
            sys::epoll_ctl(self.watch.epoll.load(Relaxed), EPOLL_CTL_MOD, own, event(of))
        });
    }

    /// Lets the program receive no more from a socket than has been released.
    pub(crate) fn end_receiving(&self, of: Watched) {
        self.with_watched(of, |socket, own| {
            self.watch.remove(own);
            if let Some([near, _]) = socket.stand_in.get() {
                sys::end_receiving(near);
            }
        });
    }

    /// Makes what [`Self::wait`] waits on; returns false if the system does not give it.
    pub(crate) fn can_wait(&self) -> bool {
        let _own = self.own();
        self.watch.made().is_some()
    }

    /// Ends [`Self::wait`]: no more is received from now on.
    pub(crate) fn end_waiting(&self) {
        let _own = self.own();
        self.watch.is_over.store(true, Relaxed);
        if let Some([_, far]) = self.watch.bell.get() {
            sys::fill(far);
        }
    }
}
