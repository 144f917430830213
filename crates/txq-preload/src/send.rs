//! A call of the program that sends: through the device, or to the kernel as it is.

use std::ffi::c_int;
use std::mem;
use std::sync::atomic::Ordering::*;

use txq::Sender;
use txq::packet::PacketList;
use txq_device::udp::Datagram;

use crate::driver::{Tag, with_verified};
use crate::memory::Readable;
use crate::message::{Parts, Said, control, destination, parts_of};
use crate::process::{self, Process};
use crate::socket::{Facts, Socket, Sockets, State};
use crate::stack::on_own_stack;
use crate::sys::{self, Undisturbed};
use crate::table::{Entry, TABLE};

/// Flags of a call that this library carries. MSG_CONFIRM is a hint to the neighbour table, and is left out.
const CARRIED_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM;
/// Maximum number of datagrams that the kernel cuts a message into (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const SEGMENTS: usize = 64;
/// How long a call on a socket that does not block waits if the call before it found no room either, in nanoseconds: the program tries
/// again at once, instead of waiting for the socket to be writable.
const NONBLOCKING: u64 = 1_000_000;
/// How long such a call waits for the buffers of datagrams that have left, in nanoseconds: the program may have been told that there is room.
const FREED: u64 = 1_000_000_000;
/// The longest sleep of that wait, in nanoseconds.
const FREED_CHECK_NS: u64 = 50_000;
/// The longest sleep of a waiting call before it checks again, in nanoseconds: datagrams that a qdisc drops wake nobody.
pub(crate) const ROOM_CHECK_NS: u64 = 10_000_000;

/// What becomes of a call.
pub(crate) enum Outcome {
    /// The kernel does it.
    Kernel,
    /// So many messages are sent, the first of so many bytes.
    Sent(usize, usize),
    /// The call fails with this `errno`.
    Error(c_int),
}

/// The result of one attempt.
enum Attempt {
    Over(Outcome),
    /// There is no room for the first message.
    Full(Full),
}

/// A socket without room.
struct Full {
    index: u32,
    /// The value of the socket's word of wakes before.
    seen: u32,
    /// How long a call on a blocking socket waits, in nanoseconds; `None` for ever.
    timeout: Option<u64>,
    /// How long a call on a socket that does not block waits, in nanoseconds.
    patience: u64,
}

/// Messages of one call.
pub(crate) trait Messages {
    fn len(&self) -> usize;
    /// Returns a message; `None` if the program's memory does not allow it.
    fn get(&self, i: usize, memory: &mut Readable) -> Option<libc::msghdr>;
    /// Notes that a message of `bytes` was accepted.
    fn accepted(&self, _i: usize, _bytes: usize) {}
}

/// Sends messages of the program.
pub(crate) fn send(fd: c_int, messages: &impl Messages, flags: c_int) -> Outcome {
    if !process::is_on() {
        return Outcome::Kernel;
    }
    match TABLE.get(fd) {
        Entry::Other => return Outcome::Kernel,
        Entry::Own(_) if process::is_own(fd) => return Outcome::Error(libc::EBADF),
        _ => {}
    }
    let before = sys::errno();
    let outcome = attempts(fd, messages, flags);
    sys::set_errno(before);
    outcome
}

fn attempts(fd: c_int, messages: &impl Messages, flags: c_int) -> Outcome {
    let mut waited = Waited::default();
    loop {
        let undisturbed = Undisturbed::new();
        let attempt = on_own_stack(|| attempt(fd, messages, flags));
        drop(undisturbed);
        match attempt {
            Ok(Attempt::Over(outcome)) => return outcome,
            Ok(Attempt::Full(full)) => {
                if !waited.again(fd, flags, &full) {
                    return Outcome::Error(libc::EAGAIN);
                }
            }
            Err(_) => {
                // The state of the device is unknown. The program goes on without it.
                process::switch_off();
                return Outcome::Kernel;
            }
        }
    }
}

/// How long a call has waited.
#[derive(Default)]
struct Waited {
    nanos: u64,
    /// How long it may wait; `None` before the first wait.
    bound: Option<u64>,
    /// The longest sleep; `None` before the first wait.
    check: Option<u64>,
}

impl Waited {
    /// Sleeps until there may be room; returns false if the call may not wait any longer.
    fn again(&mut self, fd: c_int, flags: c_int, full: &Full) -> bool {
        let bound = *self.bound.get_or_insert_with(|| {
            let waits = flags & libc::MSG_DONTWAIT == 0 && !sys::is_nonblocking(fd);
            if waits { full.timeout.unwrap_or(u64::MAX) } else { full.patience }
        });
        let check = if full.patience == FREED { FREED_CHECK_NS } else { ROOM_CHECK_NS };
        self.check = self.check.or(Some(check));
        let left = bound.saturating_sub(self.nanos);
        if left == 0 {
            return false;
        }
        let before = txq::Instant::now();
        if let Some(socket) = process::running().and_then(|process| process.sockets.get(full.index)) {
            sys::sleep_while(&socket.wakes, full.seen, left.min(self.check.unwrap_or(check)));
        }
        let slept = (txq::Instant::now() - before).as_nanos() as u64;
        self.nanos = self.nanos.saturating_add(slept.max(1));
        true
    }
}

/// Returns the index of the socket that a descriptor names, and takes the descriptor into the table.
pub(crate) fn find(fd: c_int, process: Option<&'static Process>) -> Option<(&'static Process, u32)> {
    match (TABLE.get(fd), process) {
        (Entry::Other, _) => None,
        (Entry::Socket(index), Some(process)) => Some((process, index)),
        _ => {
            let protocol = sys::option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL);
            let is_udp = protocol == Ok(libc::IPPROTO_UDP);
            if protocol == Ok(libc::IPPROTO_TCP) {
                process::note_tcp();
            }
            let process = if is_udp { process.or_else(process::started) } else { None };
            let index = process.and_then(|process| process.sockets.add(fd));
            if is_udp && index.is_none() {
                // Without a descriptor for the duplicate, the kernel has this socket from now on.
                process::count_passed();
            }
            let before = TABLE.set(fd, index.map_or(Entry::Other, Entry::Socket));
            let (process, index) = (process?, index?);
            if before == Entry::Socket(index) {
                // Another thread has found it at the same time, and has counted the name.
                process.sockets.remove_name(index);
            }
            Some((process, index))
        }
    }
}

/// Returns the socket that a descriptor names, and takes the descriptor into the table.
pub(crate) fn named(fd: c_int) -> Option<(&'static Process, u32, &'static Socket)> {
    for _ in 0..2 {
        let (process, index) = find(fd, process::running())?;
        let socket = process.sockets.get(index)?;
        if socket.is_named(fd) {
            return Some((process, index, socket));
        }
        // The number was closed and used again by calls that this library does not see.
        TABLE.set(fd, Entry::Unknown);
        process.sockets.remove_name(index);
    }
    None
}

fn attempt(fd: c_int, messages: &impl Messages, flags: c_int) -> Attempt {
    let kernel = Attempt::Over(Outcome::Kernel);
    let Some((process, index, socket)) = named(fd) else { return kernel };
    let mut state = socket.state();
    socket.named.store(fd, Relaxed);
    let _ = socket.facts(&mut state, fd);
    state.is_corked |= flags & libc::MSG_MORE != 0;
    if state.is_corked && state.flow.outstanding() > 0 {
        let seen = wait_for(process.sockets, socket, &mut state, 0, 0);
        return Attempt::Full(Full { index, seen, timeout: None, patience: 0 });
    }
    if state.is_corked || flags & !CARRIED_FLAGS != 0 {
        process::count_passed();
        return kernel;
    }
    process.with_sender(|sender| {
        let Some(sender) = sender else { return kernel };
        with_verified(index, fd, || {
            hand_in(sender, (process.sockets, index), socket, &mut state, messages, fd)
        })
    })
}

/// Hands the messages of a call to the device, until one does not fit.
fn hand_in(
    sender: &mut Sender,
    (sockets, index): (&Sockets, u32),
    socket: &Socket,
    state: &mut State,
    messages: &impl Messages,
    fd: c_int,
) -> Attempt {
    let over = Attempt::Over;
    let Ok(facts) = socket.facts(state, fd) else { return over(Outcome::Kernel) };
    let was_full = socket.is_full();
    let met = socket.error.swap(0, Relaxed);
    // An error of an earlier datagram says nothing about another destination, or another length.
    if met != 0 && met != libc::EMSGSIZE && facts.peer.is_some() {
        return over(Outcome::Error(met));
    }
    let mut list = PacketList::new();
    let (mut done, mut first, mut limit, mut memory) = (0, 0, u64::MAX, Readable::new());
    while done < messages.len() {
        let planned = messages
            .get(done, &mut memory)
            .and_then(|message| Planned::new(&message, index, socket, &facts, &mut memory));
        let Some(planned) = planned else {
            if done == 0 {
                process::count_passed();
                return over(Outcome::Kernel);
            }
            break;
        };
        let more = list.len() as u64;
        limit = facts.limit(planned.segment);
        let mut has_buffers = true;
        let full = match room(sockets, socket, state, more, limit) {
            Ok(()) if planned.fill(sender, &facts, &mut list) => None,
            Ok(()) => {
                has_buffers = false;
                let waiting = state.flow.outstanding() + more;
                Some(wait_for(sockets, socket, state, more, waiting.saturating_sub(1)))
            }
            Err(seen) => Some(seen),
        };
        if let Some(seen) = full {
            if done == 0 {
                let is_again = mem::replace(&mut state.was_refused, true);
                let patience = match (was_full, is_again) {
                    (false, _) if has_buffers && limit >= state.limit => FREED,
                    (_, true) => NONBLOCKING,
                    (_, false) => 0,
                };
                return Attempt::Full(Full { index, seen, timeout: facts.timeout, patience });
            }
            break;
        }
        messages.accepted(done, planned.parts.len());
        if done == 0 {
            first = planned.parts.len();
        }
        done += 1;
    }
    // A qdisc's drop is no error of the call, as in the kernel.
    let _verdict = sender.xmit_batch_on(&mut state.flow, &mut list);
    (state.was_refused, state.limit) = (false, limit);
    // The socket is not writable while it has no room for one more like the last.
    let _ = room(sockets, socket, state, 0, limit);
    if done == 1 && state.flow.outstanding() == 0 {
        let met = socket.error.swap(0, Relaxed);
        if met != 0 {
            return over(Outcome::Error(met));
        }
    }
    over(Outcome::Sent(done, first))
}

/// Returns whether a socket of which `more` datagrams are about to be queued has room for one more; the error is the value of its
/// word of wakes from which to wait.
fn room(sockets: &Sockets, socket: &Socket, state: &mut State, more: u64, limit: u64) -> Result<(), u32> {
    if state.flow.outstanding() + more < limit {
        return Ok(());
    }
    // As the kernel, which wakes a sender when half of the send buffer is free.
    let seen = wait_for(sockets, socket, state, more, limit / 2);
    if state.flow.outstanding() + more >= limit {
        return Err(seen);
    }
    sockets.set_full(socket, false);
    Ok(())
}

/// Notes that a socket is full, and asks for a wake when only `room_at` of its datagrams wait, also of the `more` that are about to be
/// queued; returns the value of the word of wakes before. The orderings pair with those in `Sockets::left` and `Socket::wake`. A
/// datagram that leaves just before this asks wakes nobody, and one that has left counts as waiting until its buffer is free: the
/// sleeping call checks again after [`ROOM_CHECK_NS`].
fn wait_for(sockets: &Sockets, socket: &Socket, state: &mut State, more: u64, room_at: u64) -> u32 {
    state.room_at = room_at;
    sockets.set_full(socket, true);
    let seen = socket.wakes.load(Acquire);
    let datagrams = (state.flow.outstanding() + more).saturating_sub(room_at);
    socket.wanted.store(datagrams.max(1) as i32, Release);
    seen
}

/// Returns the longest payload of a datagram with these headers, in bytes.
fn longest(header: &Datagram) -> usize {
    const UDP: usize = 8;
    65_535 - if header.destination().is_ipv4() { header.header_len() } else { UDP }
}

/// A message that the device carries.
struct Planned {
    header: Datagram,
    tag: Tag,
    parts: Parts,
    /// The length of each datagram but the last.
    segment: usize,
    departure: u64,
}

impl Planned {
    /// Returns what to queue for a message; `None` if the kernel has to see it: it is unusual, or an error.
    fn new(
        message: &libc::msghdr,
        index: u32,
        socket: &Socket,
        facts: &Facts,
        memory: &mut Readable,
    ) -> Option<Self> {
        let is_v6 = socket.is_v6.load(Relaxed);
        let mut said = Said::default();
        control(message, &mut said, memory)?;
        let to = destination(message.msg_name.cast(), message.msg_namelen as usize, is_v6, memory).ok()?;
        let parts = Parts::new(message.msg_iov, parts_of(message), memory)?;
        let place = to.or(facts.peer)?;
        if place.address.is_ipv6() && !is_v6 || place.address.port() == 0 {
            return None;
        }
        let (ip, leaves_by) = said.source.unzip();
        if ip.is_some_and(|ip| ip.is_ipv4() != place.address.is_ipv4()) {
            // The kernel ignores a source of the other family.
            return None;
        }
        let leaves_by = leaves_by.unwrap_or(0);
        let interface = if place.interface > 0 { place.interface } else { leaves_by };
        let is_clear = leaves_by == 0 || leaves_by == interface;
        if !is_clear || interface >= Tag::MAX_INTERFACES || (said.departure.is_some() && !facts.txtime) {
            return None;
        }
        let tos = said.tos.unwrap_or(facts.tos[usize::from(place.address.is_ipv6())]);
        let header = Datagram::new(place.address).from(facts.source(place.address, ip)).tos(tos);
        let cut = said.segment.or(Some(facts.segment).filter(|&segment| segment > 0));
        let segment = cut.unwrap_or(parts.len()).min(parts.len());
        // The kernel refuses a message that no IP packet holds also if it cuts it, and a segment above the route's MTU.
        let is_above = |mtu: usize| cut.is_some() && header.header_len() + segment > mtu;
        if parts.len() > longest(&header) || (to.is_none() && facts.mtu.is_some_and(is_above)) {
            return None;
        }
        if segment > 0 && parts.len().div_ceil(segment) > SEGMENTS {
            return None;
        }
        let tag = Tag {
            socket: index as u16,
            uses: socket.uses.load(Relaxed) as u16,
            peer: to.is_none().then(|| socket.peers.load(Relaxed) as u8 & 31),
            is_pinned: said.source.is_some(),
            is_cut: cut.is_some(),
            interface,
        };
        Some(Self { header, tag, parts, segment, departure: said.departure.unwrap_or(0) })
    }

    /// Appends the datagrams of the message to `list`; returns false and appends none if there are too few buffers.
    fn fill(&self, sender: &mut Sender, facts: &Facts, list: &mut PacketList) -> bool {
        let (head, mut packets, mut at) = (self.header.header_len(), PacketList::new(), 0);
        loop {
            let len = self.segment.min(self.parts.len() - at);
            let Ok(mut packet) = sender.alloc(head + len) else { return false };
            let bytes = packet.data_mut();
            self.parts.copy(at, &mut bytes[head..]);
            let written = self.header.write(bytes);
            debug_assert!(written.is_some(), "no segment is longer than `longest`");
            packet.set_cookie(self.tag.cookie());
            packet.set_priority(facts.priority);
            packet.set_mark(facts.mark);
            packet.set_departure(self.departure);
            packets.push_back(packet);
            at += len;
            if at >= self.parts.len() {
                break;
            }
        }
        list.append(&mut packets);
        true
    }
}
