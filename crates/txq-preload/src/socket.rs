//! A UDP socket of the program, and the table of all of them.
//!
//! The driver sends through a duplicate of the program's descriptor: the program may close its own, and the number may be used
//! again, while datagrams wait. Calls that this library does not see may replace the duplicate, too. So each use of it compares the kernel's
//! identity of the socket first ([`Sockets::with_own`]). The duplicate is closed when the program has closed the last descriptor that this
//! library knows and no datagram waits. Sockets are never freed, only used again, so an index in a packet is valid for ever.

mod facts;
mod standin;
mod taken;
mod watch;

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use txq::Flow;

use crate::sys::{self, Answer};
use crate::table::{Entry, TABLE};
pub(crate) use facts::Facts;
use standin::StandIn;
pub(crate) use standin::{forget_full, is_any_full};
use taken::Taken;
pub(crate) use taken::{forget_left, left_sockets};
use watch::Watch;
pub(crate) use watch::Watched;

/// The kernel's identity of a socket (`asm-generic/socket.h`).
const SO_COOKIE: c_int = 57;
/// Lets datagrams wait in the kernel for more of their bytes (`linux/udp.h`).
pub(crate) const UDP_CORK: c_int = 1;

/// A socket.
pub(crate) struct Socket {
    /// The duplicate that the driver sends through; -1 without one. Written under [`Sockets::own`].
    fd: AtomicI32,
    /// The number under which the program used the socket last. Written under `state`, read by the driver.
    pub(crate) named: AtomicI32,
    /// The kernel's identity of the socket. Written under `state`, read by the driver.
    pub(crate) cookie: AtomicU64,
    pub(crate) is_v6: AtomicBool,
    /// The type of service that the kernel gives to datagrams without a control message: of IPv4, and of IPv6 << 8. Written under
    /// `state`, read by the driver.
    pub(crate) tos: AtomicU32,
    /// How many sockets of the program this one has been, modulo 2^16, so that a copy of a packet that a qdisc made does not leave
    /// through a later one. Written under `state`, read by the driver.
    pub(crate) uses: AtomicU32,
    /// How often the peer has changed. Written under `state`, read by the driver.
    pub(crate) peers: AtomicU32,
    /// The error that a datagram met after its call had returned, 0 for none. Written by the driver, taken by the next call.
    pub(crate) error: AtomicI32,
    /// Whether the kernel refused to cut messages of this socket. Written and read by the driver.
    pub(crate) uncut: AtomicBool,
    /// Datagrams that must leave until the threads that wait for this socket are woken; 0 or less if none waits. Waiting threads
    /// set it, the driver counts it down.
    pub(crate) wanted: AtomicI32,
    /// The word that waiting threads sleep on; each wake changes it.
    pub(crate) wakes: AtomicU32,
    /// Whether the program has a descriptor of it. Written under [`Sockets::own`].
    is_open: AtomicBool,
    stand_in: StandIn,
    taken: Taken,
    state: Mutex<State>,
}

/// The state of a socket that its senders use, one at a time.
pub(crate) struct State {
    /// The number of descriptors of the program that the table maps to this socket.
    names: u32,
    pub(crate) flow: Flow,
    /// Whether datagrams wait in the kernel for more of their bytes, or did once: then all go to the kernel, because a waiting one
    /// would become a part of another.
    pub(crate) is_corked: bool,
    /// The number of waiting datagrams at which a full socket has room again.
    pub(crate) room_at: u64,
    /// How many datagrams like the last accepted one may wait.
    pub(crate) limit: u64,
    /// Whether the last call found no room.
    pub(crate) was_refused: bool,
    /// What the kernel says about the socket; `None` if a call may have changed it.
    pub(crate) facts: Option<Facts>,
}

impl State {
    fn new(names: u32) -> Self {
        Self {
            names,
            flow: Flow::new(),
            is_corked: false,
            room_at: 0,
            limit: 0,
            was_refused: false,
            facts: None,
        }
    }
}

impl Socket {
    fn new() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            named: AtomicI32::new(-1),
            cookie: AtomicU64::new(0),
            is_v6: AtomicBool::new(false),
            tos: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            peers: AtomicU32::new(0),
            error: AtomicI32::new(0),
            uncut: AtomicBool::new(false),
            wanted: AtomicI32::new(0),
            wakes: AtomicU32::new(0),
            is_open: AtomicBool::new(false),
            stand_in: StandIn::new(),
            taken: Taken::new(),
            state: Mutex::new(State::new(0)),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the kernel says about the socket, which the program names `fd`.
    pub(crate) fn facts(&self, state: &mut State, fd: c_int) -> Answer<Facts> {
        if let Some(facts) = state.facts {
            return Ok(facts);
        }
        let facts = Facts::read(fd, self.is_v6.load(Relaxed))?;
        self.tos.store(u32::from(facts.tos[0]) | u32::from(facts.tos[1]) << 8, Relaxed);
        self.peers.fetch_add(1, Relaxed);
        state.is_corked |= facts.is_corked;
        state.facts = Some(facts);
        Ok(facts)
    }

    /// Lets waiting datagrams keep their destination: from now on the driver states it with each.
    pub(crate) fn before_change(&self) {
        self.peers.fetch_add(1, Relaxed);
    }

    /// Asks the kernel again. At once: the driver compares the type of service of waiting datagrams with the socket's.
    pub(crate) fn after_change(&self, fd: c_int) {
        let mut state = self.state();
        state.facts = None;
        // An error shows at the next datagram.
        let _ = self.facts(&mut state, fd);
        self.mirror(fd);
    }

    /// Returns whether datagrams wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.state().flow.outstanding() > 0
    }

    /// Wakes the threads that wait.
    fn wake(&self) {
        self.wakes.fetch_add(1, Release);
        sys::wake_all(&self.wakes);
    }

    /// Returns whether a descriptor names this socket.
    pub(crate) fn is_named(&self, fd: c_int) -> bool {
        fd >= 0 && cookie(fd) == Ok(self.cookie.load(Relaxed))
    }

    /// Returns the duplicate if it is still one.
    fn own(&self) -> Option<c_int> {
        Some(self.fd.load(Relaxed)).filter(|&fd| self.is_named(fd))
    }

    /// Makes a duplicate of a descriptor that names this socket. An older one stays open, and its number is returned.
    fn renew(&self, index: u32, from: c_int) -> Answer<c_int> {
        let fd = sys::duplicate(from)?;
        TABLE.set(fd, Entry::Own(index));
        Ok(self.fd.swap(fd, Relaxed))
    }

    /// Forgets the duplicate and the stand-in, and closes them if they are still its.
    fn close_own(&self) {
        forget(&self.fd, self.own());
        self.stand_in.close();
    }
}

const SOCKETS_PER_CHUNK: usize = 64;
const SOCKET_CHUNKS: usize = 1024;

/// All sockets of a process.
pub(crate) struct Sockets {
    chunks: [AtomicPtr<[Socket; SOCKETS_PER_CHUNK]>; SOCKET_CHUNKS],
    known: Mutex<Known>,
    watch: Watch,
    /// Held while a duplicate is used, moved or closed. Taken after all other locks.
    own: Mutex<()>,
}

#[derive(Default)]
struct Known {
    by_cookie: HashMap<u64, u32>,
    /// Sockets that may be used again.
    free: Vec<u32>,
    /// Sockets that the program has closed while datagrams waited.
    closing: Vec<u32>,
    made: u32,
}

impl Sockets {
    pub(crate) fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; SOCKET_CHUNKS],
            known: Mutex::default(),
            watch: Watch::new(),
            own: Mutex::default(),
        }
    }

    fn own(&self) -> MutexGuard<'_, ()> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the duplicate of a socket, which stays its while `f` runs, unless a call that this library does not see replaces it
    /// in that moment. Makes a new duplicate if the old one was closed; `None` if the program has closed its own, too.
    pub(crate) fn with_own<R>(&self, index: u32, socket: &Socket, f: impl FnOnce(c_int) -> R) -> Option<R> {
        let _own = self.own();
        self.kept(index, socket).map(f)
    }

    /// Returns the duplicate of a socket, as [`Self::with_own`] passes it. The caller holds [`Self::own`].
    fn kept(&self, index: u32, socket: &Socket) -> Option<c_int> {
        if socket.own().is_none() {
            let named = socket.named.load(Relaxed);
            let is_open = socket.is_open.load(Relaxed) && socket.is_named(named);
            if !is_open || socket.renew(index, named).is_err() {
                return None;
            }
            if socket.is_taken() {
                self.watch.add(index, socket, socket.fd.load(Relaxed));
            }
        }
        Some(socket.fd.load(Relaxed))
    }

    /// Returns whether a descriptor is the library's own, for the socket of this index.
    pub(crate) fn is_own(&self, index: u32, fd: c_int) -> bool {
        match self.get(index) {
            Some(socket) => socket.own() == Some(fd) || socket.stand_in.is(fd),
            None => self.watch.is(fd),
        }
    }

    /// Moves a descriptor of the library's own to another number, because the program is about to use this one. It stays open until then.
    pub(crate) fn move_own(&self, index: u32, fd: c_int) {
        let _own = self.own();
        match self.get(index) {
            Some(socket) if socket.own() == Some(fd) => {
                // A failure closes it: the driver makes a new one.
                let is_renewed = socket.renew(index, fd).is_ok();
                if is_renewed && socket.is_taken() {
                    self.watch.remove(fd);
                    self.watch.add(index, socket, socket.fd.load(Relaxed));
                }
            }
            Some(socket) => socket.stand_in.make_way(index, fd),
            None => self.watch.make_way(fd),
        }
        TABLE.set(fd, Entry::Unknown);
    }

    /// Closes all descriptors of the library: datagrams that wait are dropped.
    pub(crate) fn close_all(&self) {
        let _own = self.own();
        self.each(Socket::close_own);
        self.watch.close();
    }

    fn each(&self, f: impl Fn(&Socket)) {
        for chunk in &self.chunks {
            // SAFETY: as in `get`.
            if let Some(chunk) = unsafe { chunk.load(Acquire).as_ref() } {
                chunk.iter().for_each(&f);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the socket of an index.
    pub(crate) fn get(&self, index: u32) -> Option<&Socket> {
        let index = index as usize;
        let chunk = self.chunks.get(index / SOCKETS_PER_CHUNK)?.load(Acquire);
        // SAFETY: a chunk is never freed. Acquire pairs with the release in `make`, so its sockets are initialised.
        unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % SOCKETS_PER_CHUNK])
    }

    /// Returns the index of the socket that a descriptor of the program names, and counts the name; `None` if it is no UDP socket
    /// of IP, or there are too many.
    pub(crate) fn add(&self, fd: c_int) -> Option<u32> {
        let int = |name| sys::option::<c_int>(fd, libc::SOL_SOCKET, name).ok();
        let domain = int(libc::SO_DOMAIN)?;
        let is_udp = int(libc::SO_TYPE)? == libc::SOCK_DGRAM && int(libc::SO_PROTOCOL)? == libc::IPPROTO_UDP;
        if !is_udp || ![libc::AF_INET, libc::AF_INET6].contains(&domain) {
            return None;
        }
        let cookie = cookie(fd).ok()?;
        let mut known = self.known();
        if let Some(&index) = known.by_cookie.get(&cookie) {
            self.get(index)?.state().names += 1;
            return Some(index);
        }
        self.sweep_known(&mut known);
        let index = match known.free.pop() {
            Some(index) => index,
            None => self.make(&mut known)?,
        };
        let socket = self.get(index)?;
        let mut state = socket.state();
        socket.cookie.store(cookie, Relaxed);
        let own = self.own();
        if socket.renew(index, fd).is_err() {
            known.free.push(index);
            return None;
        }
        socket.uses.fetch_add(1, Relaxed);
        socket.is_open.store(true, Relaxed);
        socket.taken.reset();
        drop(own);
        socket.named.store(fd, Relaxed);
        socket.is_v6.store(domain == libc::AF_INET6, Relaxed);
        socket.error.store(0, Relaxed);
        socket.uncut.store(false, Relaxed);
        *state = State::new(1);
        known.by_cookie.insert(cookie, index);
        Some(index)
    }

    fn make(&self, known: &mut Known) -> Option<u32> {
        let index = known.made;
        let slot = self.chunks.get(index as usize / SOCKETS_PER_CHUNK)?;
        if slot.load(Relaxed).is_null() {
            slot.store(Box::into_raw(Box::new(std::array::from_fn(|_| Socket::new()))), Release);
        }
        known.made += 1;
        Some(index)
    }

    /// Takes back a name of a socket: the program has closed it, or used its number for something else.
    pub(crate) fn remove_name(&self, index: u32) {
        let Some(socket) = self.get(index) else { return };
        let mut known = self.known();
        let mut state = socket.state();
        state.names = state.names.saturating_sub(1);
        if state.names > 0 {
            return;
        }
        known.by_cookie.remove(&socket.cookie.load(Relaxed));
        known.closing.push(index);
        drop(state);
        // An epoll that still has it must not report the closed socket.
        self.set_full(socket, false);
        let own = self.own();
        socket.is_open.store(false, Relaxed);
        if let Some(duplicate) = socket.own().filter(|_| socket.is_taken()) {
            self.watch.remove(duplicate);
        }
        socket.taken.reset();
        socket.stand_in.close();
        drop(own);
        self.sweep_known(&mut known);
    }

    /// Closes the duplicates of sockets that the program has closed and that have sent their datagrams; returns how many still wait.
    pub(crate) fn sweep(&self) -> usize {
        self.sweep_known(&mut self.known())
    }

    fn sweep_known(&self, known: &mut Known) -> usize {
        let Known { closing, free, .. } = known;
        closing.retain(|&index| {
            let closed = self.get(index).is_some_and(|socket| {
                let state = socket.state();
                let is_unused = state.names == 0 && state.flow.outstanding() == 0;
                if is_unused {
                    let _own = self.own();
                    socket.close_own();
                }
                is_unused
            });
            if closed {
                free.push(index);
            }
            !closed
        });
        closing.len()
    }

    /// Gives up the sockets that still wait for their datagrams: the driver drops those. The driver may be using the duplicates, so
    /// their numbers stay in use until then.
    pub(crate) fn abandon(&self) {
        for &index in &self.known().closing {
            let _own = self.own();
            if let Some(own) = self.get(index).and_then(Socket::own) {
                sys::disconnect_number(own);
            }
        }
    }

    /// Closes all descriptors of the library in a child after `fork`, which has them from its parent. Takes no lock.
    pub(crate) fn close_in_child(&self) {
        self.each(Socket::close_own);
        self.watch.close();
    }
}

/// Forgets a descriptor of the library's own, and closes it if it is still one: `own` says so.
fn forget(fd: &AtomicI32, own: Option<c_int>) {
    let fd = fd.swap(-1, Relaxed);
    if let Entry::Own(_) = TABLE.get(fd) {
        TABLE.set(fd, Entry::Unknown);
    }
    if let Some(own) = own {
        sys::close(own);
    }
}

/// Returns the kernel's identity of the socket that a descriptor names now.
pub(crate) fn cookie(fd: c_int) -> Answer<u64> {
    sys::option(fd, libc::SOL_SOCKET, SO_COOKIE)
}
