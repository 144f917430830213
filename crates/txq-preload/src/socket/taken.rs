//! Whether the library receives from a socket, in the program's place.
//!
//! With a qdisc for what the process receives, a socket is taken when the program first receives from it, or first waits for a datagram: a
//! process that never does leaves the datagrams to those that have the socket, too. From then on the library's thread receives from the socket, and what the
//! qdisc has released waits in the stand-in.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use super::{Socket, Sockets};
use crate::epolls;
use crate::sys;

/// It is not known yet whether the program receives from the socket.
const UNKNOWN: u8 = 0;
const TAKEN: u8 = 1;
/// The program receives from the kernel.
const LEFT: u8 = 2;

/// Sockets of which the program receives past the qdisc.
static LEFT_SOCKETS: AtomicU64 = AtomicU64::new(0);

/// Returns how many sockets the program receives from past the qdisc.
pub(crate) fn left_sockets() -> u64 {
    LEFT_SOCKETS.load(Relaxed)
}

/// Forgets the parent's sockets in a child.
pub(crate) fn forget_left() {
    LEFT_SOCKETS.store(0, Relaxed);
}

/// The options by which a socket reports the type of service of a datagram: that of IPv4, and that of IPv6.
const REPORTS: [(c_int, c_int); 2] =
    [(libc::IPPROTO_IP, libc::IP_RECVTOS), (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)];

/// The state of a socket. Written under [`Sockets::own`].
pub(super) struct Taken {
    /// [`TAKEN`] is a release that pairs with the acquire in [`Socket::is_taken`]: the stand-in is there.
    is: AtomicU8,
    /// Bits of [`REPORTS`] that the library has set, and the program has not.
    hidden: AtomicU32,
}

impl Taken {
    pub(super) const fn new() -> Self {
        Self { is: AtomicU8::new(UNKNOWN), hidden: AtomicU32::new(0) }
    }

    /// Begins anew, for another socket of the program.
    pub(super) fn reset(&self) {
        self.is.store(UNKNOWN, Relaxed);
        self.hidden.store(0, Relaxed);
    }
}

impl Socket {
    /// Returns whether the library receives from it.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.is.load(Acquire) == TAKEN
    }

    /// Returns whether the program has not asked for the type of service of IPv4, and of IPv6.
    pub(crate) fn hides_tos(&self) -> [bool; 2] {
        let hidden = self.taken.hidden.load(Relaxed);
        [hidden & 1 != 0, hidden & 2 != 0]
    }

    /// Returns whether an option is set by the library alone.
    pub(crate) fn is_hidden(&self, option: (c_int, c_int)) -> bool {
        REPORTS.iter().zip(self.hides_tos()).any(|(report, hides)| *report == option && hides)
    }

    /// Gives the stand-in what the socket has: the space for datagrams that the program has not received, and how long it waits for one.
    pub(super) fn mirror(&self, from: c_int) {
        let Some([near, far]) = self.stand_in.get().filter(|_| self.is_taken()) else { return };
        if let Ok(space) = sys::option::<c_int>(from, libc::SOL_SOCKET, libc::SO_RCVBUF) {
            // The kernel doubles the number that it is given. Twice the space, since the kernel joins datagrams in a socket's own buffer.
            let set = |name| sys::set_option(far, libc::SOL_SOCKET, name, space);
            let _ = set(libc::SO_SNDBUFFORCE).or_else(|_| set(libc::SO_SNDBUF));
        }
        if let Ok(time) = sys::option::<[i64; 2]>(from, libc::SOL_SOCKET, libc::SO_RCVTIMEO) {
            let _ = sys::set_option(near, libc::SOL_SOCKET, libc::SO_RCVTIMEO, time);
        }
    }

    /// Notes which reports the program wants, and lets the socket make all of them.
    fn report(&self, from: c_int) {
        let mut hidden = 0;
        for (bit, (level, name)) in
            REPORTS.into_iter().enumerate().take(1 + usize::from(self.is_v6.load(Relaxed)))
        {
            if sys::option::<c_int>(from, level, name) == Ok(0)
                && sys::set_option::<c_int>(from, level, name, 1).is_ok()
            {
                hidden |= 1 << bit;
            }
        }
        self.taken.hidden.store(hidden, Relaxed);
    }

    /// Lets the socket report only what the program wants.
    fn report_no_more(&self, from: c_int) {
        for ((level, name), hides) in REPORTS.into_iter().zip(self.hides_tos()) {
            if hides {
                let _ = sys::set_option::<c_int>(from, level, name, 0);
            }
        }
        self.taken.hidden.store(0, Relaxed);
    }

    /// Notes that the program has set an option.
    pub(crate) fn after_option(&self, fd: c_int, option: (c_int, c_int)) {
        let Some(bit) = REPORTS.iter().position(|report| *report == option).filter(|_| self.is_taken())
        else {
            return;
        };
        let (level, name) = option;
        let wants = sys::option::<c_int>(fd, level, name) != Ok(0);
        if wants {
            self.taken.hidden.fetch_and(!(1 << bit), Relaxed);
        } else if sys::set_option::<c_int>(fd, level, name, 1).is_ok() {
            self.taken.hidden.fetch_or(1 << bit, Relaxed);
        }
    }
}

impl Sockets {
    /// Returns whether no epoll waits for the socket itself, which would never be reported.
    pub(crate) fn is_free(fd: c_int) -> bool {
        let reads = |one: &epolls::Registered| one.target == fd && one.events & libc::EPOLLIN as u32 != 0;
        !epolls::all().iter().any(reads)
    }

    /// Takes a socket that the program names `fd` if it `may`, unless that was decided before; returns whether the library receives from it.
    pub(crate) fn take(&self, index: u32, socket: &Socket, fd: c_int, may: fn(c_int) -> bool) -> bool {
        if socket.taken.is.load(Relaxed) != UNKNOWN {
            return socket.is_taken();
        }
        let may = may(fd);
        let _own = self.own();
        if socket.taken.is.load(Relaxed) != UNKNOWN {
            return socket.is_taken();
        }
        let own = socket.own().filter(|_| may);
        let is_taken = own
            .is_some_and(|own| socket.stand_in.made(index).is_some() && self.watch.add(index, socket, own));
        // The thread that receives waits for the end of this.
        if let Some(own) = own.filter(|_| is_taken) {
            socket.report(own);
        }
        // Other threads receive from the stand-in from now on.
        socket.taken.is.store(if is_taken { TAKEN } else { LEFT }, Release);
        if is_taken {
            socket.mirror(fd);
        } else {
            LEFT_SOCKETS.fetch_add(1, Relaxed);
        }
        is_taken
    }

    /// Notes that the program receives from the kernel, because a call that this library does not see has closed the stand-in.
    pub(crate) fn leave(&self, socket: &Socket) {
        let _own = self.own();
        if socket.taken.is.swap(LEFT, Relaxed) == TAKEN {
            LEFT_SOCKETS.fetch_add(1, Relaxed);
            if let Some(own) = socket.own() {
                self.watch.remove(own);
                socket.report_no_more(own);
            }
        }
    }

    /// Gives all sockets back: the program receives from the kernel from now on, and the epolls wait for the sockets themselves.
    pub(crate) fn give_back(&self) {
        let registered = epolls::all();
        self.each(|socket| {
            let own = self.own();
            if socket.taken.is.swap(LEFT, Relaxed) != TAKEN {
                return;
            }
            let (Some([near, _]), Some(duplicate)) = (socket.stand_in.get(), socket.own()) else { return };
            self.watch.remove(duplicate);
            socket.report_no_more(duplicate);
            drop(own);
            let named = socket.named.load(Relaxed);
            for one in registered.iter().filter(|one| one.target == near) {
                let rest = registered.iter().find(|rest| rest.epoll == one.epoll && rest.target == named);
                let events = one.events | rest.map_or(0, |rest| rest.events);
                let event = libc::epoll_event { events, u64: one.data };
                let _ = sys::epoll_ctl(one.epoll, libc::EPOLL_CTL_MOD, named, event);
                let none = libc::epoll_event { events: 0, u64: 0 };
                let _ = sys::epoll_ctl(one.epoll, libc::EPOLL_CTL_DEL, near, none);
            }
            // Threads that wait for the stand-in go on to the socket.
            sys::end_receiving(near);
        });
    }
}
