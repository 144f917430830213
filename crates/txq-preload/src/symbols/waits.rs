//! Functions that wait until a descriptor is ready: a full socket is not writable, and one from which the library receives is readable when the
//! qdisc has released a datagram.
//!
//! Such wishes are put to the socket's stand-in. Without one, `poll` and `select` are the kernel's. Else they wait for a copy of the program's
//! descriptors, with the stand-ins behind them. An epoll has the stand-in beside the socket, with the program's data, and the kernel reports
//! either. No frame here owns anything: all of these calls are points of cancellation. Memory of a call that is cancelled, or that a handler leaves
//! by `longjmp`, stays mapped.

use std::ffi::{c_int, c_short};
use std::mem;
use std::ptr;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::changes::quietly;
use crate::memory::Readable;
use crate::process::{self, Process};
use crate::send::{ROOM_CHECK_NS, find};
use crate::socket::{Socket, is_any_full};
use crate::symbols::left::Left;
use crate::symbols::receives::{taken, taken_for_epoll};
use crate::sys::{self, set_errno};
use crate::table::{Entry, TABLE};

/// The wish to write, of `poll`; the kernel reports all of them together.
const POLL_WRITE: c_short = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
/// The wish to read.
const POLL_READ: c_short = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
/// The same of `epoll_ctl`.
const EPOLL_WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND) as u32;
const EPOLL_READ: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDBAND) as u32;
/// How an epoll reports, which holds for the stand-in, too.
const EPOLL_WAYS: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;
/// The longest sleep of a call that waits for a full socket without a stand-in, in nanoseconds.
const NO_STAND_IN_CHECK_NS: u64 = 1_000_000;
/// Descriptors that a call copies to its frame; more are copied to memory of their own.
const COPIED: usize = 32;
/// Descriptors of a set of `select`.
const SET: usize = 1024;
/// Words of a set.
const WORDS: usize = SET / 64;

/// A set of descriptors, as `fd_set`.
type Bits = [u64; WORDS];

/// Returns a pointer to a time; null for ever.
fn pointer(time: &Option<timespec>) -> *const timespec {
    time.as_ref().map_or(ptr::null(), ptr::from_ref)
}

/// Returns whether the call is the kernel's: no socket is full, and the library does not receive.
fn is_plain() -> bool {
    !(is_any_full() || process::receives()) || !process::is_on()
}

/// Returns the process, unless the caller is a child that shares its memory.
fn here() -> Option<&'static Process> {
    process::running().filter(|process| process.is_here())
}

/// Returns the full socket that a descriptor names.
fn full(fd: c_int) -> Option<(u32, &'static Socket)> {
    let (Entry::Socket(index), Some(process)) = (TABLE.get(fd), here()) else { return None };
    let socket = process.sockets.get(index)?;
    (process.sockets.is_still_full(socket) && socket.is_named(fd)).then_some((index, socket))
}

/// Returns the wishes for a descriptor that its stand-in answers.
fn moved(fd: c_int, events: c_short) -> c_short {
    let reads = events & POLL_READ != 0 && taken(fd).is_some();
    let writes = events & POLL_WRITE != 0 && full(fd).is_some();
    events & (if reads { POLL_READ } else { 0 } | if writes { POLL_WRITE } else { 0 })
}

/// Returns the stand-in that answers wishes for a descriptor, and the longest time to wait for it.
fn answers(fd: c_int, wishes: c_short) -> (Option<c_int>, Option<u64>) {
    if wishes & POLL_WRITE == 0 {
        return (taken(fd).map(Socket::stand_in), None);
    }
    match full(fd).and_then(|(index, socket)| here()?.sockets.stand_in(index, socket)) {
        Some([near, _]) => (Some(near), Some(ROOM_CHECK_NS)),
        None => (None, Some(NO_STAND_IN_CHECK_NS)),
    }
}

/// Returns whether any wish for these descriptors is a stand-in's to answer.
///
/// # Safety
/// The kernel has read the descriptors.
unsafe fn has_moved(fds: *const pollfd, n: usize) -> bool {
    // SAFETY: the caller's promise.
    (0..n).map(|at| unsafe { fds.add(at).read_unaligned() }).any(|one| moved(one.fd, one.events) != 0)
}

/// Copies descriptors, and puts behind them the stand-in of each that has wishes for it, which the descriptor's copy has not. Returns how many the
/// copy has, and the longest time to wait for them.
///
/// # Safety
/// The kernel has read the descriptors. `copy` has space for twice as many.
unsafe fn substitute(fds: *const pollfd, n: usize, copy: *mut pollfd) -> (usize, Option<u64>) {
    let (mut all, mut longest) = (n, None);
    for at in 0..n {
        // SAFETY: the caller's promise.
        let mut one = unsafe { fds.add(at).read_unaligned() };
        let events = moved(one.fd, one.events);
        if events != 0 {
            let (near, limit) = answers(one.fd, events);
            longest = [longest, limit].into_iter().flatten().min();
            one.events &= !events;
            // The kernel ignores negative numbers.
            let stand_in = pollfd { fd: near.unwrap_or(-1), events, revents: 0 };
            // SAFETY: at most one for each descriptor.
            unsafe { copy.add(all).write(stand_in) };
            all += 1;
        }
        // SAFETY: the caller's promise.
        unsafe { copy.add(at).write(one) };
    }
    (all, longest)
}

/// Writes to the descriptors what the kernel has found for their copies and stand-ins; returns how many are ready.
///
/// # Safety
/// The kernel has read and written the descriptors, and `copy` is of them.
unsafe fn merge(fds: *mut pollfd, n: usize, copy: *const pollfd) -> c_int {
    let (mut ready, mut next) = (0, n);
    for at in 0..n {
        // SAFETY: the caller's promise; each copy with fewer wishes has a stand-in.
        unsafe {
            let (mut one, found) = (fds.add(at).read_unaligned(), copy.add(at).read());
            one.revents = found.revents;
            if found.events != one.events {
                one.revents |= copy.add(next).read().revents & !found.events & one.events;
                next += 1;
            }
            ready += c_int::from(one.revents != 0);
            fds.add(at).write_unaligned(one);
        }
    }
    ready
}

/// As `ppoll(2)`; `None` if the call is the kernel's.
///
/// # Safety
/// As `ppoll(2)`.
unsafe fn polled(fds: *mut pollfd, n: nfds_t, left: Left, mask: *const sigset_t) -> Option<c_int> {
    let count = n as usize;
    // SAFETY: the program's own arguments, and the frame's own memory.
    unsafe {
        // The kernel finds bad descriptors and pointers.
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        let mut found = ppoll_behind(fds, n, &raw const now, ptr::null());
        let mut has = false;
        quietly(|| has = found >= 0 && has_moved(fds, count));
        if !has {
            return (found < 0).then_some(found);
        }
        let mut few: [pollfd; 2 * COPIED] = mem::zeroed();
        let bytes = count.checked_mul(2 * size_of::<pollfd>()).filter(|_| count > COPIED);
        let copy = bytes.map_or(few.as_mut_ptr(), |bytes| sys::map(bytes).cast());
        if copy.is_null() {
            set_errno(libc::ENOMEM);
            return Some(-1);
        }
        loop {
            let (mut all, mut longest) = (0, None);
            quietly(|| (all, longest) = substitute(fds, count, copy));
            let time = left.next(longest);
            found = ppoll_behind(copy, all as nfds_t, pointer(&time), mask);
            if found >= 0 {
                found = merge(fds, count, copy);
            }
            if found != 0 || left.is_over() {
                break;
            }
        }
        if let Some(bytes) = bytes {
            let before = sys::errno();
            sys::unmap(copy.cast(), bytes);
            set_errno(before);
        }
        Some(found)
    }
}

unsafe fn ppoll_behind(fds: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int {
    next!(c"ppoll", fn(fds => *mut pollfd, n => nfds_t, time => *const timespec, mask => *const sigset_t) -> c_int)
}

/// # Safety
/// As `poll(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    if !is_plain()
        // SAFETY: the program's own arguments.
        && let Some(result) = unsafe { polled(fds, n, Left::millis(timeout), ptr::null()) }
    {
        return result;
    }
    next!(c"poll", fn(fds => *mut pollfd, n => nfds_t, timeout => c_int) -> c_int)
}

/// # Safety
/// As `ppoll(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !is_plain()
        && let Some(left) = Left::at(time)
        // SAFETY: the program's own arguments.
        && let Some(result) = unsafe { polled(fds, n, left, mask) }
    {
        return result;
    }
    next!(c"ppoll", fn(fds => *mut pollfd, n => nfds_t, time => *const timespec, mask => *const sigset_t) -> c_int)
}

/// `poll` of programs that are compiled with checks of lengths: `bytes` is the length of the array.
///
/// # Safety
/// As `poll(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, bytes: size_t) -> c_int {
    if bytes / size_of::<pollfd>() >= n as usize {
        // SAFETY: the program's own arguments.
        return unsafe { poll(fds, n, timeout) };
    }
    next!(c"__poll_chk", fn(fds => *mut pollfd, n => nfds_t, timeout => c_int, bytes => size_t) -> c_int)
}

/// As `__poll_chk`.
///
/// # Safety
/// As `ppoll(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
    bytes: size_t,
) -> c_int {
    if bytes / size_of::<pollfd>() >= n as usize {
        // SAFETY: the program's own arguments.
        return unsafe { ppoll(fds, n, time, mask) };
    }
    next!(
        c"__ppoll_chk",
        fn(fds => *mut pollfd, n => nfds_t, time => *const timespec, mask => *const sigset_t, bytes => size_t) -> c_int
    )
}

/// The three sets of a call of `select`.
type Sets = [*mut fd_set; 3];

/// Returns the words of a program's sets that the kernel reads and writes; `None` if they cannot be.
fn read_sets(sets: Sets, words: usize) -> Option<[Bits; 3]> {
    let (mut bits, mut memory) = ([[0; WORDS]; 3], Readable::new());
    for (set, bits) in sets.into_iter().zip(&mut bits) {
        let set = set.cast::<u64>();
        for (at, word) in bits.iter_mut().enumerate().take(if set.is_null() { 0 } else { words }) {
            let from = set.wrapping_add(at);
            // SAFETY: any bytes are an integer.
            *word = unsafe { memory.read(from) }?;
            if (at == 0 || at + 1 == words) && !sys::is_writable(from.cast()) {
                return None;
            }
        }
    }
    Some(bits)
}

/// What each set of `select` asks, and what makes a descriptor stay in it.
const WISHES: [(c_short, c_short); 3] = [
    (POLL_READ, POLL_READ | libc::POLLHUP | libc::POLLERR),
    (POLL_WRITE, POLL_WRITE | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// Returns whether a set has a descriptor.
fn has(set: &Bits, fd: usize) -> bool {
    set[fd / 64] >> (fd % 64) & 1 == 1
}

/// Returns the descriptors in any of the sets, with their wishes.
fn wishes(sets: &[Bits; 3], n: usize) -> impl Iterator<Item = pollfd> {
    (0..n).filter_map(|fd| {
        let asked = sets.iter().zip(WISHES).filter(|(set, _)| has(set, fd));
        let events = asked.fold(0, |all, (_, (asks, _))| all | asks);
        (events != 0).then_some(pollfd { fd: fd as c_int, events, revents: 0 })
    })
}

/// As `pselect(2)`; `None` if the call is the kernel's. Sets of more than [`SET`] descriptors, which a `fd_set` does not hold, are the
/// kernel's.
///
/// # Safety
/// As `pselect(2)`.
unsafe fn selected(n: c_int, sets: Sets, left: Left, mask: *const sigset_t) -> Option<c_int> {
    let count = usize::try_from(n).ok().filter(|n| *n <= SET)?;
    let (words, mut wanted) = (count.div_ceil(64), None);
    quietly(|| wanted = read_sets(sets, words));
    let wanted = wanted?;
    let fds = sys::map(SET * size_of::<pollfd>()).cast::<pollfd>();
    if fds.is_null() {
        return None;
    }
    let mut all = 0;
    for one in wishes(&wanted, count) {
        // SAFETY: there are at most as many as a set has.
        unsafe { fds.add(all).write(one) };
        all += 1;
    }
    // SAFETY: the memory is this call's.
    let polled = unsafe { polled(fds, all as nfds_t, left, mask) };
    let mut found = polled.filter(|found| *found >= 0).map(|_| (0, [[0; WORDS]; 3]));
    for at in 0..all {
        // SAFETY: as above.
        let one = unsafe { fds.add(at).read() };
        if one.revents & libc::POLLNVAL != 0 {
            found = None;
        }
        let Some((ready, left)) = &mut found else { break };
        for ((set, to), (_, stays)) in wanted.iter().zip(left).zip(WISHES) {
            let fd = one.fd as usize;
            if has(set, fd) && one.revents & stays != 0 {
                to[fd / 64] |= 1 << (fd % 64);
                *ready += 1;
            }
        }
    }
    let before = sys::errno();
    // SAFETY: nothing uses it any more.
    unsafe { sys::unmap(fds.cast(), SET * size_of::<pollfd>()) };
    set_errno(before);
    polled?;
    let Some((ready, left)) = found else {
        if polled >= Some(0) {
            set_errno(libc::EBADF);
        }
        return Some(-1);
    };
    for (set, bits) in sets.into_iter().zip(&left) {
        for (at, word) in bits.iter().enumerate().take(if set.is_null() { 0 } else { words }) {
            // SAFETY: the set was readable and writable at its first and its last word.
            unsafe { set.cast::<u64>().add(at).write_unaligned(*word) };
        }
    }
    Some(ready)
}

/// As the kernel, it leaves in `time` what was not waited.
///
/// # Safety
/// As `select(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    let mut left = None;
    if !is_plain() {
        left = match time.is_null() {
            true => Some(Left::new(None)),
            false => {
                let mut given = None;
                // SAFETY: any bytes are two integers.
                quietly(|| given = unsafe { Readable::new().read(time.cast_const()) });
                given.and_then(|given: timeval| Left::of(given.tv_sec, given.tv_usec, 1_000_000))
            }
        };
    }
    if let Some(left) = left
        // SAFETY: the program's own arguments.
        && let Some(result) = unsafe { selected(n, [read, write, except], left, ptr::null()) }
    {
        if let Some(nanos) = left.nanos() {
            let rest =
                timeval { tv_sec: (nanos / 1_000_000_000) as _, tv_usec: (nanos / 1000 % 1_000_000) as _ };
            // SAFETY: the kernel would write it, too.
            unsafe { time.write_unaligned(rest) };
        }
        return result;
    }
    next!(
        c"select",
        fn(n => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, time => *mut timeval) -> c_int
    )
}

/// # Safety
/// As `pselect(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !is_plain()
        && let Some(left) = Left::at(time)
        // SAFETY: the program's own arguments.
        && let Some(result) = unsafe { selected(n, [read, write, except], left, mask) }
    {
        return result;
    }
    next!(
        c"pselect",
        fn(n => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, time => *const timespec, mask => *const sigset_t) -> c_int
    )
}

/// Registers the stand-in of a socket beside the socket, for the wishes that it answers.
///
/// # Safety
/// As `epoll_ctl(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    refuse_own!(fd);
    let behind = |op: c_int, event: *mut epoll_event| -> c_int {
        next!(c"epoll_ctl", fn(epoll => c_int, op => c_int, fd => c_int, event => *mut epoll_event) -> c_int)
    };
    let sets = op == libc::EPOLL_CTL_ADD || op == libc::EPOLL_CTL_MOD;
    if !process::is_on() || TABLE.get(fd) == Entry::Other {
        return behind(op, event);
    }
    let mut given = None;
    if sets {
        // SAFETY: any bytes are an event.
        quietly(|| given = unsafe { Readable::new().read(event.cast_const()) });
    }
    let (mut moved, mut stand_in) = (0, None);
    quietly(|| {
        let wishes = given.map_or(0, |given: epoll_event| given.events);
        let reads = wishes & EPOLL_READ != 0 && taken_for_epoll(fd).is_some();
        moved = wishes & (EPOLL_WRITE | if reads { EPOLL_READ } else { 0 });
        stand_in = stand_in_of(fd, moved != 0);
    });
    let (Some(stand_in), Some(given)) = (stand_in, given.filter(|_| moved != 0)) else {
        let result = behind(op, event);
        if let Some(stand_in) = stand_in.filter(|_| result == 0) {
            // Not there, if it had no wish to answer.
            let none = epoll_event { events: 0, u64: 0 };
            let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, stand_in, none);
        }
        return result;
    };
    let mut rest = epoll_event { events: given.events & !moved, u64: given.u64 };
    let result = behind(op, &raw mut rest);
    if result != 0 {
        return result;
    }
    let asked = epoll_event { events: moved | given.events & EPOLL_WAYS, u64: given.u64 };
    let changed = match sys::epoll_ctl(epoll, op, stand_in, asked) {
        Err(libc::ENOENT) => sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, stand_in, asked),
        changed => changed,
    };
    if changed.is_err() {
        // The kernel's view of the socket is better than none. A second name of the socket in one epoll comes here.
        return behind(libc::EPOLL_CTL_MOD, event);
    }
    0
}

/// Returns the stand-in of the UDP socket that a descriptor names; without `makes` only one that is there.
fn stand_in_of(fd: c_int, makes: bool) -> Option<c_int> {
    let process = process::running();
    if process.is_some_and(|process| !process.is_here()) {
        return None;
    }
    let (process, index) = match (TABLE.get(fd), process) {
        (Entry::Socket(index), Some(process)) => (process, index),
        _ if makes => find(fd, process)?,
        _ => return None,
    };
    let socket = process.sockets.get(index).filter(|socket| socket.is_named(fd))?;
    let ends = if makes {
        process.sockets.stand_in(index, socket)
    } else {
        process.sockets.with_stand_in(socket, |ends| ends)
    };
    ends.map(|[near, _]| near)
}

/// Calls a function of an epoll, in parts of at most [`ROOM_CHECK_NS`] while a socket is full: datagrams that a qdisc drops wake nobody.
fn in_parts(left: Left, mut wait: impl FnMut(Left, Option<u64>) -> c_int) -> c_int {
    loop {
        let mut longest = None;
        if !is_plain() {
            quietly(|| {
                if let Some(process) = here() {
                    process.sockets.check_full();
                }
            });
            longest = Some(ROOM_CHECK_NS).filter(|_| is_any_full());
        }
        let result = wait(left, longest);
        if result != 0 || longest.is_none() || left.is_over() {
            return result;
        }
    }
}

/// Returns a timeout of `epoll_wait`, in milliseconds.
fn millis(left: Left, longest: Option<u64>, timeout: c_int) -> c_int {
    match (longest, left.nanos()) {
        (None, _) => timeout,
        (Some(longest), left) => left.unwrap_or(u64::MAX).min(longest).div_ceil(1_000_000) as c_int,
    }
}

/// # Safety
/// As `epoll_wait(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: c_int,
) -> c_int {
    in_parts(Left::millis(timeout), |left, longest| {
        let part = millis(left, longest, timeout);
        next!(c"epoll_wait", fn(epoll => c_int, events => *mut epoll_event, n => c_int, part => c_int) -> c_int)
    })
}

/// # Safety
/// As `epoll_pwait(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    in_parts(Left::millis(timeout), |left, longest| {
        let part = millis(left, longest, timeout);
        next!(
            c"epoll_pwait",
            fn(epoll => c_int, events => *mut epoll_event, n => c_int, part => c_int, mask => *const sigset_t) -> c_int
        )
    })
}

/// # Safety
/// As `epoll_pwait2(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    n: c_int,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let left = if is_plain() { None } else { Left::at(time) };
    // Without full sockets, and with a bad time, one part is all.
    in_parts(left.unwrap_or(Left::new(Some(0))), |whole, longest| {
        let part = left.and(longest).and_then(|longest| whole.next(Some(longest)));
        let time = if part.is_some() { pointer(&part) } else { time };
        next!(
            c"epoll_pwait2",
            fn(epoll => c_int, events => *mut epoll_event, n => c_int, time => *const timespec, mask => *const sigset_t) -> c_int
        )
    })
}
