//! A UDP socket of the program, and the table of all of them.
//!
//! The driver sends through a duplicate of the program's descriptor: the program may close its own, and the number may be used
//! again, while datagrams wait. The duplicate is closed when the program has closed the last descriptor that this library knows
//! and no datagram waits. Sockets are never freed, only used again, so an index in a packet is valid for ever.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use txq::Flow;

use crate::message::{Place, SO_TXTIME, UDP_SEGMENT, place};
use crate::sys::{self, Answer};

/// The kernel's identity of a socket (`asm-generic/socket.h`).
const SO_COOKIE: c_int = 57;
/// Lets datagrams wait in the kernel for more of their bytes (`linux/udp.h`).
pub(crate) const UDP_CORK: c_int = 1;

/// A socket.
pub(crate) struct Socket {
    /// The duplicate that the driver sends through; -1 without one. Written under `state`, read by the driver.
    pub(crate) fd: AtomicI32,
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
    state: Mutex<State>,
}

/// The state of a socket that its senders use, one at a time.
pub(crate) struct State {
    pub(crate) cookie: u64,
    /// The number of descriptors of the program that the table maps to this socket.
    names: u32,
    pub(crate) flow: Flow,
    /// Whether datagrams wait in the kernel for more of their bytes, or did once: then all go to the kernel, because a waiting one
    /// would become a part of another.
    pub(crate) is_corked: bool,
    /// What the kernel says about the socket; `None` if a call may have changed it.
    pub(crate) facts: Option<Facts>,
}

/// What the kernel says about a socket.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) local: SocketAddr,
    pub(crate) peer: Option<Place>,
    pub(crate) tos: [u8; 2],
    pub(crate) priority: u32,
    pub(crate) mark: u32,
    /// The length of datagrams into which messages are cut; 0 for whole messages.
    pub(crate) segment: usize,
    /// Whether departure times are on the clock of qdiscs.
    pub(crate) txtime: bool,
    /// Whether datagrams wait in the kernel for more of their bytes.
    pub(crate) is_corked: bool,
    /// Bytes that the kernel lets wait (`SO_SNDBUF`), with its overhead.
    pub(crate) send_buffer: usize,
    /// How long a call waits for room, in nanoseconds; `None` for ever.
    pub(crate) timeout: Option<u64>,
}

impl Socket {
    fn new() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            is_v6: AtomicBool::new(false),
            tos: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            peers: AtomicU32::new(0),
            error: AtomicI32::new(0),
            uncut: AtomicBool::new(false),
            wanted: AtomicI32::new(0),
            wakes: AtomicU32::new(0),
            state: Mutex::new(State {
                cookie: 0,
                names: 0,
                flow: Flow::new(),
                is_corked: false,
                facts: None,
            }),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the kernel says about the socket.
    pub(crate) fn facts(&self, state: &mut State) -> Answer<Facts> {
        if let Some(facts) = state.facts {
            return Ok(facts);
        }
        let (fd, is_v6) = (self.fd.load(Relaxed), self.is_v6.load(Relaxed));
        let facts = Facts::read(fd, is_v6)?;
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
    pub(crate) fn after_change(&self) {
        let mut state = self.state();
        state.facts = None;
        // An error shows at the next datagram.
        let _ = self.facts(&mut state);
    }

    /// Returns whether datagrams wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.state().flow.outstanding() > 0
    }

    /// Wakes the threads that wait, if enough datagrams have left.
    pub(crate) fn left(&self, datagrams: i32) {
        if self.wanted.load(Relaxed) > 0 && self.wanted.fetch_sub(datagrams, AcqRel) <= datagrams {
            self.wake();
        }
    }

    /// Wakes the threads that wait.
    pub(crate) fn wake(&self) {
        self.wakes.fetch_add(1, Release);
        sys::wake_all(&self.wakes);
    }

    /// Closes the duplicate if nothing needs it any more; returns whether it is closed.
    fn close_if_unused(&self, state: &State) -> bool {
        if state.names > 0 || state.flow.outstanding() > 0 {
            return false;
        }
        let fd = self.fd.swap(-1, Relaxed);
        if fd >= 0 {
            sys::close(fd);
        }
        true
    }
}

impl Facts {
    fn read(fd: c_int, is_v6: bool) -> Answer<Self> {
        let local = || -> Answer<_> {
            Ok(place(&sys::address(fd, libc::SYS_getsockname)?).map(|place| place.address))
        };
        let mut found = local()?;
        if found.is_some_and(|address| address.port() == 0) {
            sys::bind_any(fd, is_v6);
            found = local()?;
        }
        let int = |level, name| sys::option::<c_int>(fd, level, name).unwrap_or(0);
        let [seconds, micros] =
            sys::option::<[i64; 2]>(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO).unwrap_or_default();
        let timeout = (seconds as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000);
        // The clock, and flags.
        let txtime = sys::option::<[c_int; 2]>(fd, libc::SOL_SOCKET, SO_TXTIME);
        Ok(Self {
            local: found.ok_or(libc::EAFNOSUPPORT)?,
            peer: sys::address(fd, libc::SYS_getpeername).ok().and_then(|peer| place(&peer)),
            tos: [
                int(libc::IPPROTO_IP, libc::IP_TOS) as u8,
                if is_v6 { int(libc::IPPROTO_IPV6, libc::IPV6_TCLASS) as u8 } else { 0 },
            ],
            priority: int(libc::SOL_SOCKET, libc::SO_PRIORITY) as u32,
            mark: int(libc::SOL_SOCKET, libc::SO_MARK) as u32,
            segment: int(libc::SOL_UDP, UDP_SEGMENT) as usize,
            txtime: txtime.is_ok_and(|[clock, _]| clock == libc::CLOCK_MONOTONIC),
            is_corked: int(libc::SOL_UDP, UDP_CORK) != 0,
            send_buffer: int(libc::SOL_SOCKET, libc::SO_SNDBUF).max(0) as usize,
            timeout: (timeout > 0).then_some(timeout),
        })
    }

    /// Returns how many datagrams of `len` bytes may wait: as many as the kernel's send buffer holds, with the overhead that the
    /// kernel counts for each, and at least 2.
    pub(crate) fn limit(&self, len: usize) -> u64 {
        const HEADERS: usize = 400;
        const DESCRIPTOR: usize = 256;
        // The kernel's buffers are powers of two, with its headers and a trailer in them, and a descriptor beside.
        let each = (len + HEADERS).next_power_of_two().min(len + 4096) + DESCRIPTOR;
        (self.send_buffer / each).max(2) as u64
    }

    /// Returns the source address for a destination, as far as it is known.
    pub(crate) fn source(&self, to: SocketAddr, said: Option<IpAddr>) -> SocketAddr {
        let like = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let ip = said.filter(like).or(Some(self.local.ip()).filter(like)).unwrap_or(any);
        SocketAddr::new(ip, self.local.port())
    }
}

const CHUNK: usize = 64;
const CHUNKS: usize = 1024;

/// All sockets of a process.
pub(crate) struct Sockets {
    chunks: [AtomicPtr<[Socket; CHUNK]>; CHUNKS],
    known: Mutex<Known>,
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
        Self { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS], known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the socket of an index.
    pub(crate) fn get(&self, index: u32) -> Option<&Socket> {
        let index = index as usize;
        let chunk = self.chunks.get(index / CHUNK)?.load(Acquire);
        // SAFETY: a chunk is never freed. Acquire pairs with the release in `make`, so its sockets are initialised.
        unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % CHUNK])
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
        let Ok(duplicate) = sys::duplicate(fd) else {
            known.free.push(index);
            return None;
        };
        let mut state = socket.state();
        socket.fd.store(duplicate, Relaxed);
        socket.is_v6.store(domain == libc::AF_INET6, Relaxed);
        socket.uses.fetch_add(1, Relaxed);
        socket.error.store(0, Relaxed);
        socket.uncut.store(false, Relaxed);
        *state = State { cookie, names: 1, flow: Flow::new(), is_corked: false, facts: None };
        known.by_cookie.insert(cookie, index);
        Some(index)
    }

    fn make(&self, known: &mut Known) -> Option<u32> {
        let index = known.made;
        let slot = self.chunks.get(index as usize / CHUNK)?;
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
        known.by_cookie.remove(&state.cookie);
        known.closing.push(index);
        drop(state);
        self.sweep_known(&mut known);
    }

    /// Closes the duplicates of sockets that the program has closed and that have sent their datagrams; returns how many still wait.
    pub(crate) fn sweep(&self) -> usize {
        self.sweep_known(&mut self.known())
    }

    fn sweep_known(&self, known: &mut Known) -> usize {
        let Known { closing, free, .. } = known;
        closing.retain(|&index| {
            let closed = self.get(index).is_some_and(|socket| socket.close_if_unused(&socket.state()));
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
            if let Some(socket) = self.get(index) {
                sys::disconnect_number(socket.fd.load(Relaxed));
            }
        }
    }

    /// Closes all duplicates in a child after `fork`, which has them from its parent. Takes no lock.
    pub(crate) fn close_in_child(&self) {
        for chunk in &self.chunks {
            // SAFETY: as in `get`.
            let Some(chunk) = (unsafe { chunk.load(Acquire).as_ref() }) else { continue };
            for socket in chunk {
                let fd = socket.fd.load(Relaxed);
                if fd >= 0 {
                    sys::close(fd);
                }
            }
        }
    }
}

/// Returns the kernel's identity of the socket that a descriptor names now.
pub(crate) fn cookie(fd: c_int) -> Answer<u64> {
    sys::option(fd, libc::SOL_SOCKET, SO_COOKIE)
}
