//! A call of the program that sends: through the device, or to the kernel as it is.

use std::ffi::c_int;
use std::sync::atomic::Ordering::*;

use txq::Sender;
use txq::packet::PacketList;
use txq_device::udp::Datagram;

use crate::driver::{Tag, with_verified};
use crate::memory::Readable;
use crate::message::{Parts, Said, control, destination};
use crate::process::{self, Process};
use crate::socket::{Facts, Socket, State};
use crate::stack::on_own_stack;
use crate::sys::{self, Undisturbed};
use crate::table::{Entry, TABLE};

/// Flags of a call that this library carries. MSG_CONFIRM is a hint to the neighbour table, and is left out.
const CARRIED_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM;
/// Maximum number of datagrams that the kernel cuts a message into (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const SEGMENTS: usize = 64;
/// How long a call on a socket that does not block waits, in nanoseconds, so that a program that polls does not turn at once.
const NONBLOCKING: u64 = 1_000_000;
/// The longest sleep of a waiting call before it checks again, in nanoseconds: datagrams that a qdisc drops wake nobody.
const ROOM_CHECK_NS: u64 = 10_000_000;

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
    /// There is no room for the first message: the socket's index, the value of its word of wakes before, and the socket's timeout.
    Full(u32, u32, Option<u64>),
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
            Ok(Attempt::Full(index, seen, timeout)) => {
                if !waited.again(fd, flags, index, seen, timeout) {
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
}

impl Waited {
    /// Sleeps until there may be room; returns false if the call may not wait any longer.
    fn again(&mut self, fd: c_int, flags: c_int, index: u32, seen: u32, timeout: Option<u64>) -> bool {
        let bound = *self.bound.get_or_insert_with(|| {
            let waits = flags & libc::MSG_DONTWAIT == 0 && !sys::is_nonblocking(fd);
            if waits { timeout.unwrap_or(u64::MAX) } else { NONBLOCKING }
        });
        let left = bound.saturating_sub(self.nanos);
        if left == 0 {
            return false;
        }
        let before = txq::Instant::now();
        if let Some(socket) = process::running().and_then(|process| process.sockets.get(index)) {
            sys::sleep_while(&socket.wakes, seen, left.min(ROOM_CHECK_NS));
        }
        let slept = (txq::Instant::now() - before).as_nanos() as u64;
        self.nanos = self.nanos.saturating_add(slept.max(1));
        true
    }
}

/// Returns the index of the socket that a descriptor names, and takes the descriptor into the table.
fn find(fd: c_int, process: Option<&'static Process>) -> Option<(&'static Process, u32)> {
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
            TABLE.set(fd, index.map_or(Entry::Other, Entry::Socket));
            Some((process?, index?))
        }
    }
}

fn attempt(fd: c_int, messages: &impl Messages, flags: c_int) -> Attempt {
    let kernel = Attempt::Over(Outcome::Kernel);
    for _ in 0..2 {
        let Some((process, index)) = find(fd, process::running()) else { return kernel };
        let Some(socket) = process.sockets.get(index) else { return kernel };
        let mut state = socket.state();
        if !socket.is_named(fd) {
            // The number was closed and used again by calls that this library does not see.
            drop(state);
            TABLE.set(fd, Entry::Unknown);
            process.sockets.remove_name(index);
            continue;
        }
        socket.named.store(fd, Relaxed);
        let _ = socket.facts(&mut state, fd);
        state.is_corked |= flags & libc::MSG_MORE != 0;
        if state.is_corked && state.flow.outstanding() > 0 {
            let waiting = state.flow.outstanding() as i32;
            return Attempt::Full(index, wait_for(socket, waiting), None);
        }
        if state.is_corked || flags & !CARRIED_FLAGS != 0 {
            process::count_passed();
            return kernel;
        }
        return process.with_sender(|sender| {
            let Some(sender) = sender else { return kernel };
            with_verified(index, fd, || hand_in(sender, index, socket, &mut state, messages, fd))
        });
    }
    kernel
}

/// Hands the messages of a call to the device, until one does not fit.
fn hand_in(
    sender: &mut Sender,
    index: u32,
    socket: &Socket,
    state: &mut State,
    messages: &impl Messages,
    fd: c_int,
) -> Attempt {
    let over = Attempt::Over;
    let Ok(facts) = socket.facts(state, fd) else { return over(Outcome::Kernel) };
    let met = socket.error.swap(0, Relaxed);
    // An error of an earlier datagram says nothing about another destination, or another length.
    if met != 0 && met != libc::EMSGSIZE && facts.peer.is_some() {
        return over(Outcome::Error(met));
    }
    let mut list = PacketList::new();
    let (mut done, mut first, mut memory) = (0, 0, Readable::new());
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
        let room = room(socket, state, list.len() as u64, facts.limit(planned.segment));
        let full = match room {
            Ok(()) if planned.fill(sender, &facts, &mut list) => None,
            Ok(()) => Some(wait_for(socket, 1)),
            Err(seen) => Some(seen),
        };
        if let Some(seen) = full {
            if done == 0 {
                return Attempt::Full(index, seen, facts.timeout);
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
fn room(socket: &Socket, state: &State, more: u64, limit: u64) -> Result<(), u32> {
    let waiting = state.flow.outstanding() + more;
    if waiting < limit {
        return Ok(());
    }
    // As the kernel, which wakes a sender when half of the send buffer is free.
    let seen = wait_for(socket, (waiting - limit / 2) as i32);
    if state.flow.outstanding() + more < limit { Ok(()) } else { Err(seen) }
}

/// Asks for a wake when `datagrams` have left; returns the value of the word of wakes before. The orderings pair with those in
/// `Socket::left` and `Socket::wake`. A datagram that leaves just before this asks wakes nobody, and one that has left counts as
/// waiting until its buffer is free: the sleeping call checks again after [`ROOM_CHECK_NS`].
fn wait_for(socket: &Socket, datagrams: i32) -> u32 {
    let seen = socket.wakes.load(Acquire);
    socket.wanted.store(datagrams.max(1), Release);
    seen
}

/// Returns the number of a message's parts.
#[allow(clippy::unnecessary_cast, reason = "musl has another type")]
pub(crate) fn parts_of(message: &libc::msghdr) -> usize {
    message.msg_iovlen as usize
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
