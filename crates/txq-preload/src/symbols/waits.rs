//! Functions that wait until a descriptor is ready: a full socket is not writable.
//!
//! While no socket is full, `poll` and `select` are the kernel's. Else they wait for a copy of the program's descriptors, in which the room
//! of each full socket takes the place of the wish to write to it. An epoll has the room beside the socket, with the program's data, and the
//! kernel reports either. No frame here owns anything: all of these calls are points of cancellation. Memory of a call that is cancelled, or
//! that a handler leaves by `longjmp`, stays mapped.

use std::ffi::{c_int, c_short};
use std::mem;
use std::ptr;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::changes::quietly;
use crate::memory::Readable;
use crate::process::{self, Process};
use crate::send::{ROOM_CHECK_NS, find};
use crate::socket::{Socket, is_any_full};
use crate::sys::{self, set_errno};
use crate::table::{Entry, TABLE};

/// The wish to write, of `poll`; the kernel reports all of them together.
const POLL_WRITE: c_short = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
/// The same of `epoll_ctl`.
const EPOLL_WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND) as u32;
/// How an epoll reports, which holds for the room, too.
const EPOLL_WAYS: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;
/// The longest sleep of a call that waits for a socket without a room, in nanoseconds.
const NO_ROOM_CHECK_NS: u64 = 1_000_000;
/// Descriptors that `poll` copies to its frame; more are copied to memory of their own.
const COPIED: usize = 32;
/// Descriptors of a set of `select`.
const SET: usize = 1024;
/// Words of a set.
const WORDS: usize = SET / 64;

/// A set of descriptors, as `fd_set`.
type Bits = [u64; WORDS];

/// The time that a call has to wait.
#[derive(Clone, Copy)]
struct Left {
    since: txq::Instant,
    /// `None` for ever.
    limit: Option<u64>,
}

impl Left {
    fn new(limit: Option<u64>) -> Self {
        Self { since: txq::Instant::now(), limit }
    }

    fn millis(timeout: c_int) -> Self {
        Self::new(u64::try_from(timeout).ok().map(|millis| millis * 1_000_000))
    }

    /// Returns the time of a program's `timespec`, or null for ever; `None` if the kernel refuses it.
    fn at(time: *const timespec) -> Option<Self> {
        if time.is_null() {
            return Some(Self::new(None));
        }
        // SAFETY: any bytes are two integers.
        let time = unsafe { Readable::new().read(time) }?;
        Self::of(time.tv_sec, time.tv_nsec, 1_000_000_000)
    }

    /// Returns a time of seconds and parts of a second.
    fn of(seconds: i64, parts: i64, all: u64) -> Option<Self> {
        let (seconds, parts) = (u64::try_from(seconds).ok()?, u64::try_from(parts).ok()?);
        let whole = seconds.saturating_mul(1_000_000_000);
        (parts < all).then(|| Self::new(Some(whole.saturating_add(parts * (1_000_000_000 / all)))))
    }

    /// Returns what is left of it, in nanoseconds; `None` for ever.
    fn nanos(self) -> Option<u64> {
        let passed = (txq::Instant::now() - self.since).as_nanos() as u64;
        self.limit.map(|limit| limit.saturating_sub(passed))
    }

    fn is_over(self) -> bool {
        self.nanos() == Some(0)
    }

    /// Returns the time of the next sleep, `longest` at most; `None` for ever.
    fn next(self, longest: Option<u64>) -> Option<timespec> {
        let nanos = [self.nanos(), longest].into_iter().flatten().min()?;
        Some(timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ })
    }
}

/// Returns a pointer to a time; null for ever.
fn pointer(time: &Option<timespec>) -> *const timespec {
    time.as_ref().map_or(ptr::null(), ptr::from_ref)
}

/// Returns whether the call is the kernel's: no socket is full.
fn is_plain() -> bool {
    !is_any_full() || !process::is_on()
}

/// Returns the full socket that a descriptor names.
fn full(process: &'static Process, fd: c_int) -> Option<(u32, &'static Socket)> {
    let Entry::Socket(index) = TABLE.get(fd) else { return None };
    let socket = process.sockets.get(index)?;
    (process.sockets.is_still_full(socket) && socket.is_named(fd)).then_some((index, socket))
}

/// Returns the process, unless the caller is a child that shares its memory.
fn here() -> Option<&'static Process> {
    process::running().filter(|process| process.is_here())
}

/// Takes the wish to write to full sockets from what the kernel has found; returns how many descriptors are ready, and how many full sockets
/// there are.
///
/// # Safety
/// The kernel has read and written the descriptors.
unsafe fn strip(fds: *mut pollfd, n: usize) -> (c_int, usize) {
    let (mut ready, mut all_full, process) = (0, 0, here());
    for at in 0..n {
        // SAFETY: the caller's promise.
        let mut one = unsafe { fds.add(at).read_unaligned() };
        if one.events & POLL_WRITE != 0 && process.is_some_and(|process| full(process, one.fd).is_some()) {
            all_full += 1;
            one.revents &= !POLL_WRITE;
            // SAFETY: as above.
            unsafe { fds.add(at).write_unaligned(one) };
        }
        ready += c_int::from(one.revents != 0);
    }
    (ready, all_full)
}

/// Copies descriptors, with the room of each full socket in place of the wish to write to it; returns how many the copy has, and the longest
/// time to wait for them.
///
/// # Safety
/// As `strip`. `copy` has space for twice as many.
unsafe fn substitute(fds: *const pollfd, n: usize, copy: *mut pollfd) -> (usize, Option<u64>) {
    let (mut all, mut longest, process) = (n, None, here());
    for at in 0..n {
        // SAFETY: the caller's promise.
        let mut one = unsafe { fds.add(at).read_unaligned() };
        if one.events & POLL_WRITE != 0
            && let Some(process) = process
            && let Some((index, socket)) = full(process, one.fd)
        {
            one.events &= !POLL_WRITE;
            let room = process.sockets.room(index, socket);
            longest = longest.min(Some(ROOM_CHECK_NS)).or(Some(ROOM_CHECK_NS));
            match room {
                Some(fd) => {
                    // SAFETY: at most one for each descriptor.
                    unsafe { copy.add(all).write(pollfd { fd, events: libc::POLLOUT, revents: 0 }) };
                    all += 1;
                }
                None => longest = Some(NO_ROOM_CHECK_NS),
            }
        }
        // SAFETY: the caller's promise.
        unsafe { copy.add(at).write(one) };
    }
    (all, longest)
}

/// As `ppoll(2)`; `None` if the call is the kernel's.
///
/// # Safety
/// As `ppoll(2)`.
unsafe fn polled(fds: *mut pollfd, n: nfds_t, left: Left, mask: *const sigset_t) -> Option<c_int> {
    let count = n as usize;
    // SAFETY: the program's own arguments, and the frame's own memory.
    unsafe {
        let mut few: [pollfd; 2 * COPIED] = mem::zeroed();
        let bytes = count.checked_mul(2 * size_of::<pollfd>()).filter(|_| count > COPIED);
        let mut copy = ptr::null_mut::<pollfd>();
        loop {
            // The kernel finds bad descriptors and pointers, and what is ready now.
            let now = timespec { tv_sec: 0, tv_nsec: 0 };
            let found = ppoll_behind(fds, n, &raw const now, ptr::null());
            let (mut ready, mut all_full) = (found, 0);
            if found >= 0 {
                quietly(|| (ready, all_full) = strip(fds, count));
            }
            if copy.is_null() && (ready != 0 || all_full == 0) {
                // Nothing of this has been waited for.
                return (all_full > 0 || ready < 0).then_some(ready);
            }
            if ready != 0 || left.is_over() {
                give_back(copy, bytes);
                return Some(ready);
            }
            if copy.is_null() {
                copy = bytes.map_or(few.as_mut_ptr(), |bytes| sys::map(bytes).cast());
            }
            if copy.is_null() {
                set_errno(libc::ENOMEM);
                return Some(-1);
            }
            let (mut all, mut longest) = (0, None);
            quietly(|| (all, longest) = substitute(fds, count, copy));
            let time = left.next(longest);
            if ppoll_behind(copy, all as nfds_t, pointer(&time), mask) < 0 {
                give_back(copy, bytes);
                return Some(-1);
            }
        }
    }
}

/// Gives back a copy that is not in the frame.
///
/// # Safety
/// Nothing uses it any more.
unsafe fn give_back(copy: *mut pollfd, bytes: Option<usize>) {
    if let Some(bytes) = bytes.filter(|_| !copy.is_null()) {
        let before = sys::errno();
        // SAFETY: the caller's promise.
        unsafe { sys::unmap(copy.cast(), bytes) };
        set_errno(before);
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
/// The set of descriptors to write to.
const WRITE: usize = 1;

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

/// Takes full sockets out of the set to write to, and adds their rooms with `rooms`; returns how many were full, the number above all
/// descriptors, and the longest time to wait.
fn strip_set(set: &mut Bits, n: usize, rooms: bool) -> (usize, usize, Option<u64>) {
    let (mut all_full, mut above, mut longest) = (0, n, None);
    let Some(process) = here() else { return (0, n, None) };
    let wanted = *set;
    for fd in (0..n).filter(|fd| wanted[fd / 64] >> (fd % 64) & 1 == 1) {
        let Some((index, socket)) = full(process, fd as c_int) else { continue };
        all_full += 1;
        set[fd / 64] &= !(1 << (fd % 64));
        let room = if rooms { process.sockets.room(index, socket) } else { None };
        match room.and_then(|room| usize::try_from(room).ok()).filter(|room| *room < SET) {
            Some(room) => {
                set[room / 64] |= 1 << (room % 64);
                (above, longest) = (above.max(room + 1), longest.or(Some(ROOM_CHECK_NS)));
            }
            None => longest = Some(NO_ROOM_CHECK_NS),
        }
    }
    (all_full, above, longest)
}

/// As `pselect(2)`; `None` if the call is the kernel's. Sets of more than [`SET`] descriptors, which a `fd_set` does not hold, are the
/// kernel's.
///
/// # Safety
/// As `pselect(2)`.
unsafe fn selected(n: c_int, sets: Sets, left: Left, mask: *const sigset_t) -> Option<c_int> {
    let count = usize::try_from(n).ok().filter(|n| *n <= SET && !sets[WRITE].is_null())?;
    let (words, mut wanted, mut waited) = (count.div_ceil(64), None, false);
    quietly(|| wanted = read_sets(sets, words));
    let wanted = wanted?;
    loop {
        let (mut found, mut all_full) = (wanted, 0);
        quietly(|| (all_full, _, _) = strip_set(&mut found[WRITE], count, false));
        if all_full == 0 && !waited {
            return None;
        }
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the frame's own memory.
        let ready = unsafe { pselect_behind(n, &mut found, sets, &raw const now, ptr::null()) };
        if ready > 0 || ready == 0 && left.is_over() {
            for (set, bits) in sets.into_iter().zip(&found) {
                for (at, word) in bits.iter().enumerate().take(if set.is_null() { 0 } else { words }) {
                    // SAFETY: the set was readable and writable at its first and its last word.
                    unsafe { set.cast::<u64>().add(at).write_unaligned(*word) };
                }
            }
        }
        if ready != 0 || left.is_over() {
            return Some(ready);
        }
        let (mut rooms, mut above, mut longest) = (wanted, 0, None);
        quietly(|| (_, above, longest) = strip_set(&mut rooms[WRITE], count, true));
        let time = left.next(longest);
        // SAFETY: the frame's own memory.
        if unsafe { pselect_behind(above as c_int, &mut rooms, sets, pointer(&time), mask) } < 0 {
            return Some(-1);
        }
        waited = true;
    }
}

/// Calls `pselect` with the sets of `bits` that the program has.
unsafe fn pselect_behind(
    n: c_int,
    bits: &mut [Bits; 3],
    sets: Sets,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let [read, write, except] = bits;
    let of = |bits: &mut Bits, set: *mut fd_set| match set.is_null() {
        true => ptr::null_mut::<fd_set>(),
        false => bits.as_mut_ptr().cast(),
    };
    let (read, write, except) = (of(read, sets[0]), of(write, sets[WRITE]), of(except, sets[2]));
    next!(
        c"pselect",
        fn(n => c_int, read => *mut fd_set, write => *mut fd_set, except => *mut fd_set, time => *const timespec, mask => *const sigset_t) -> c_int
    )
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

/// Registers the room of a socket beside the socket, for the wish to write.
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
    let writes = given.filter(|given: &epoll_event| given.events & EPOLL_WRITE != 0);
    let mut room = None;
    quietly(|| room = room_of(fd, writes.is_some()));
    let (Some(room), Some(given)) = (room, writes) else {
        let result = behind(op, event);
        if let Some(room) = room.filter(|_| result == 0) {
            // Not there, if the program did not want to write.
            let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, room, epoll_event { events: 0, u64: 0 });
        }
        return result;
    };
    let mut rest = epoll_event { events: given.events & !EPOLL_WRITE, u64: given.u64 };
    let result = behind(op, &raw mut rest);
    if result != 0 {
        return result;
    }
    let write = epoll_event { events: given.events & (EPOLL_WRITE | EPOLL_WAYS), u64: given.u64 };
    let changed = match sys::epoll_ctl(epoll, op, room, write) {
        Err(libc::ENOENT) => sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, room, write),
        changed => changed,
    };
    if changed.is_err() {
        // The kernel's view of the socket is better than none. A second name of the socket in one epoll comes here.
        return behind(libc::EPOLL_CTL_MOD, event);
    }
    0
}

/// Returns the room of the UDP socket that a descriptor names; without `makes` only one that is there.
fn room_of(fd: c_int, makes: bool) -> Option<c_int> {
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
    if makes { process.sockets.room(index, socket) } else { process.sockets.made_room(socket) }
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
