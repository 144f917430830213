//! Functions that receive on a socket.
//!
//! What the qdisc has released waits in the socket's stand-in, and the call receives from there, by the kernel's call. So all that it does with the
//! program's memory, its waiting, its time limit and its signals are the kernel's. In front of the payload the kernel reads the
//! head, the address and the control messages, which the stand-in has there (`arrive.rs`). No frame here owns anything: all of these calls are
//! points of cancellation. Memory of a call that is cancelled stays mapped.

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::arrive::{CONTROL, HEAD, Head, MAX_NAME, name_len};
use crate::changes::quietly;
use crate::memory::Readable;
use crate::message::{control_len, parts_of};
use crate::process;
use crate::send::named;
use crate::socket::{Socket, Sockets, Watched};
use crate::symbols::left::Left;
use crate::sys::{self, set_errno};
use crate::table::{Entry, TABLE};

/// Parts of a message that are copied to the frame; more are copied to memory of their own.
const COPIED: usize = 16;
/// Maximum number of parts (`UIO_MAXIOV`). A message with the last five of them is EMSGSIZE.
const MAX_PARTS: usize = 1024;
/// The parts in front of the program's: the head; the address and the control messages, each as far as the program wants it, and the rest.
const IN_FRONT: usize = 5;

/// Where a call wants what it receives.
#[derive(Clone, Copy)]
struct Wanted {
    name: *mut c_void,
    name_len: usize,
    control: *mut c_void,
    control_len: usize,
    parts: *const iovec,
    n: usize,
}

/// What a call has received.
struct Received {
    bytes: usize,
    name_len: usize,
    control_len: usize,
    flags: c_int,
}

/// What becomes of a call.
enum Outcome {
    /// The kernel does it, on the program's socket.
    Kernel,
    Received(Received),
    /// It has failed, and `errno` is set.
    Failed,
}

impl Wanted {
    /// Only the payload.
    fn payload(parts: *const iovec, n: usize) -> Self {
        Self { name: ptr::null_mut(), name_len: 0, control: ptr::null_mut(), control_len: 0, parts, n }
    }
}

/// Returns the socket that a descriptor names, if the library receives from it. Takes it if it can.
pub(super) fn taken(fd: c_int) -> Option<&'static Socket> {
    taken_if(fd, Sockets::is_free)
}

/// As `taken`, without a question which epolls wait for the socket: it is about to be registered in one.
pub(super) fn taken_for_epoll(fd: c_int) -> Option<&'static Socket> {
    taken_if(fd, |_| true)
}

fn taken_if(fd: c_int, may: fn(c_int) -> bool) -> Option<&'static Socket> {
    if !process::receives() || TABLE.get(fd) == Entry::Other {
        return None;
    }
    if let (Entry::Socket(index), Some(process)) = (TABLE.get(fd), process::running())
        && let Some(socket) = process.sockets.get(index).filter(|socket| socket.is_taken())
        && socket.is_named(fd)
    {
        return Some(socket);
    }
    let mut found = None;
    quietly(|| {
        found = named(fd)
            .filter(|(process, index, socket)| {
                process.is_here() && process.sockets.take(*index, socket, fd, may)
            })
            .map(|(_, _, socket)| socket);
    });
    found
}

/// Returns whether the first `n` parts can be read.
fn can_read(parts: *const iovec, n: usize) -> bool {
    let mut can = false;
    quietly(|| can = Readable::new().covers(parts, n * size_of::<iovec>()));
    can
}

fn part(at: *mut c_void, len: usize) -> iovec {
    iovec { iov_base: at, iov_len: len }
}

/// Receives a message from the stand-in of a socket.
///
/// # Safety
/// The parts that `wanted` names can be read.
unsafe fn receive(fd: c_int, wanted: Wanted, flags: c_int) -> Outcome {
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0 || wanted.n > MAX_PARTS {
        return Outcome::Kernel;
    }
    let Some(socket) = taken(fd) else { return Outcome::Kernel };
    let (mut head, mut rest) = ([0u8; HEAD], [0u8; MAX_NAME + CONTROL]);
    // SAFETY: all zeros are parts without bytes.
    let mut few: [iovec; IN_FRONT + COPIED] = unsafe { mem::zeroed() };
    let bytes = Some((IN_FRONT + wanted.n) * size_of::<iovec>()).filter(|_| wanted.n > COPIED);
    let parts = bytes.map_or(few.as_mut_ptr(), |bytes| sys::map(bytes).cast());
    if parts.is_null() {
        set_errno(libc::ENOMEM);
        return Outcome::Failed;
    }
    let names = name_len(socket.is_v6.load(Relaxed));
    let (name, control) = (wanted.name_len.min(names), wanted.control_len.min(CONTROL));
    let front: [iovec; IN_FRONT] = [
        part(head.as_mut_ptr().cast(), HEAD),
        part(wanted.name, name),
        part(rest.as_mut_ptr().cast(), names - name),
        part(wanted.control, control),
        part(rest.as_mut_ptr().wrapping_add(MAX_NAME).cast(), CONTROL - control),
    ];
    // SAFETY: `parts` has space for both, and the program's can be read.
    unsafe {
        ptr::copy_nonoverlapping(front.as_ptr(), parts, IN_FRONT);
        ptr::copy_nonoverlapping(wanted.parts, parts.add(IN_FRONT), wanted.n);
    }
    // SAFETY: the parts are those that were just copied.
    let outcome =
        unsafe { from_stand_in(fd, socket, (&raw mut head, wanted, flags), parts, HEAD + names + CONTROL) };
    if let Some(bytes) = bytes {
        let before = sys::errno();
        // SAFETY: the call that used it is over.
        unsafe { sys::unmap(parts.cast(), bytes) };
        set_errno(before);
    }
    outcome
}

/// As `receive`, into `parts`, of which the first is the head, and the first `front` bytes are no payload.
///
/// # Safety
/// The parts can be read.
unsafe fn from_stand_in(
    fd: c_int,
    socket: &'static Socket,
    (head, wanted, flags): (*mut [u8; HEAD], Wanted, c_int),
    parts: *mut iovec,
    front: usize,
) -> Outcome {
    let no_wait = if sys::is_nonblocking(fd) { libc::MSG_DONTWAIT } else { 0 };
    loop {
        // SAFETY: all zeros are a message without anything.
        let mut message: msghdr = unsafe { mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts, (IN_FRONT + wanted.n) as _);
        // SAFETY: the kernel checks the parts of the program; the others are the frame's.
        let got = unsafe { recvmsg_behind(socket.stand_in(), &raw mut message, flags | no_wait) };
        let Ok(got) = usize::try_from(got) else {
            if ![libc::EBADF, libc::ENOTSOCK].contains(&sys::errno()) {
                return Outcome::Failed;
            }
            quietly(|| {
                if let Some(process) = process::running() {
                    process.sockets.leave(socket);
                }
            });
            return Outcome::Kernel;
        };
        if got == 0 && !socket.is_taken() {
            // The library has given it back meanwhile.
            return Outcome::Kernel;
        }
        if got == 0 {
            // The program has ended receiving (`shutdown`).
            return Outcome::Received(Received {
                bytes: 0,
                name_len: 0,
                control_len: 0,
                flags: message.msg_flags,
            });
        }
        // SAFETY: the head is the frame's, and the kernel has written it.
        match Head::of(unsafe { head.read() }) {
            Head::Datagram(len) => {
                // SAFETY: the kernel has just written so many bytes there.
                let whole = unsafe { whole_messages(wanted.control, wanted.control_len.min(len)) };
                let cut = if len > wanted.control_len { libc::MSG_CTRUNC } else { 0 };
                return Outcome::Received(Received {
                    bytes: got.saturating_sub(front),
                    name_len: name_len(socket.is_v6.load(Relaxed)),
                    control_len: whole,
                    flags: message.msg_flags | cut,
                });
            }
            Head::Error => {
                if flags & libc::MSG_PEEK != 0 {
                    sys::discard(socket.stand_in());
                }
                let error = socket.error.swap(0, Relaxed);
                // Another call may have had it.
                if error != 0 {
                    set_errno(error);
                    return Outcome::Failed;
                }
            }
        }
    }
}

/// Returns the length of the control messages that are whole among `len` bytes.
///
/// # Safety
/// The bytes can be read.
unsafe fn whole_messages(control: *const c_void, len: usize) -> usize {
    const FIRST: usize = size_of::<libc::cmsghdr>();
    let mut at = 0;
    while at + FIRST <= len {
        // SAFETY: the header is within the bytes, and any bytes are one.
        let header = unsafe { control.byte_add(at).cast::<libc::cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast, reason = "musl has another type")]
        let end = at + (header.cmsg_len as usize).max(FIRST);
        if end > len {
            break;
        }
        at = end.next_multiple_of(size_of::<usize>()).min(len);
    }
    at
}

unsafe fn recvmsg_behind(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    next!(c"recvmsg", fn(fd => c_int, message => *mut msghdr, flags => c_int) -> ssize_t)
}

/// Receives one payload; `None` if the kernel does it.
///
/// # Safety
/// The parts can be read.
unsafe fn receive_payload(fd: c_int, parts: *const iovec, n: usize, flags: c_int) -> Option<ssize_t> {
    // SAFETY: the caller's promise.
    match unsafe { receive(fd, Wanted::payload(parts, n), flags) } {
        Outcome::Kernel => None,
        Outcome::Received(received) => Some(received.bytes as ssize_t),
        Outcome::Failed => Some(-1),
    }
}

/// # Safety
/// As `recv(2)`.
#[unsafe(export_name = "recv")]
unsafe extern "C-unwind" fn recv_(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    refuse_own!(fd);
    // SAFETY: the part is the frame's.
    match unsafe { receive_payload(fd, &part(bytes, len), 1, flags) } {
        Some(result) => result,
        None => {
            next!(c"recv", fn(fd => c_int, bytes => *mut c_void, len => size_t, flags => c_int) -> ssize_t)
        }
    }
}

/// # Safety
/// As `recvfrom(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    refuse_own!(fd);
    let parts = part(bytes, len);
    let mut wanted = Wanted::payload(&raw const parts, 1);
    if !from.is_null() && process::receives() && TABLE.get(fd) != Entry::Other {
        let mut given = None;
        quietly(|| {
            // SAFETY: any bytes are an integer.
            given = unsafe { Readable::new().read(from_len) }.filter(|_| sys::is_writable(from_len.cast()))
        });
        let given = given.map(|given| usize::try_from(given as c_int));
        let Some(Ok(given)) = given else {
            set_errno(if given.is_none() { libc::EFAULT } else { libc::EINVAL });
            return -1;
        };
        (wanted.name, wanted.name_len) = (from.cast(), given);
    }
    // SAFETY: the part is the frame's.
    match unsafe { receive(fd, wanted, flags) } {
        Outcome::Received(received) => {
            if !from.is_null() {
                // SAFETY: it was found writable.
                unsafe { from_len.write_unaligned(received.name_len as socklen_t) };
            }
            received.bytes as ssize_t
        }
        Outcome::Failed => -1,
        Outcome::Kernel => {
            next!(c"recvfrom", fn(fd => c_int, bytes => *mut c_void, len => size_t, flags => c_int, from => *mut sockaddr, from_len => *mut socklen_t) -> ssize_t)
        }
    }
}

/// Returns a message of the program, and whether it can be written; `None` if it cannot be read, or has too many parts.
fn read_message(message: *mut msghdr) -> Option<(msghdr, bool)> {
    let mut given = None;
    quietly(|| {
        let mut memory = Readable::new();
        // SAFETY: any bytes are a message, as its pointers are not read unchecked.
        let found = unsafe { memory.read(message) }.filter(|found| {
            let n = parts_of(found);
            n <= MAX_PARTS && memory.covers(found.msg_iov, n * size_of::<iovec>())
        });
        given = found.map(|found| {
            // SAFETY: the message is mapped memory. No reference is made.
            let fields = unsafe { [(&raw mut (*message).msg_namelen).cast(), &raw mut (*message).msg_flags] };
            (found, fields.into_iter().all(sys::is_writable))
        });
    });
    given
}

/// Receives a message of the program.
fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> Outcome {
    if !process::receives() || TABLE.get(fd) == Entry::Other {
        return Outcome::Kernel;
    }
    // The kernel refuses a message at once that cannot be read, or has too many parts.
    let Some((given, is_writable)) = read_message(message) else { return Outcome::Kernel };
    let wanted = Wanted {
        name: given.msg_name,
        name_len: if given.msg_name.is_null() { 0 } else { given.msg_namelen as usize },
        control: given.msg_control,
        control_len: if given.msg_control.is_null() { 0 } else { control_len(&given) },
        parts: given.msg_iov,
        n: parts_of(&given),
    };
    if wanted.name_len > c_int::MAX as usize {
        set_errno(libc::EINVAL);
        return Outcome::Failed;
    }
    // SAFETY: `read_message` has found the parts readable.
    let outcome = unsafe { receive(fd, wanted, flags) };
    if let Outcome::Received(received) = &outcome {
        if !is_writable {
            // As in the kernel, the datagram is gone.
            set_errno(libc::EFAULT);
            return Outcome::Failed;
        }
        // SAFETY: `read_message` has found the first and the last of these writable.
        unsafe {
            if !given.msg_name.is_null() {
                (&raw mut (*message).msg_namelen).write_unaligned(received.name_len as socklen_t);
            }
            (&raw mut (*message).msg_controllen).write_unaligned(received.control_len as _);
            (&raw mut (*message).msg_flags).write_unaligned(received.flags);
        }
    }
    outcome
}

/// # Safety
/// As `recvmsg(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    refuse_own!(fd);
    match receive_message(fd, message, flags) {
        Outcome::Received(received) => received.bytes as ssize_t,
        Outcome::Failed => -1,
        // SAFETY: the program's own arguments.
        Outcome::Kernel => unsafe { recvmsg_behind(fd, message, flags) },
    }
}

/// Keeps the error of a call that has received other messages, for the next one.
fn keep_error(fd: c_int) {
    let error = sys::errno();
    if [libc::EAGAIN, libc::EINTR, libc::EFAULT].contains(&error) {
        return;
    }
    quietly(|| {
        if let Some((process, index, socket)) = named(fd) {
            process.sockets.tell_error(Watched::new(index, socket), error);
        }
    });
}

/// As the kernel, it looks at the time after each message only.
///
/// # Safety
/// As `recvmmsg(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    n: c_uint,
    flags: c_int,
    time: *mut timespec,
) -> c_int {
    const MSG_WAITFORONE: c_int = 0x10000;
    refuse_own!(fd);
    let (mut done, mut limit) = (0, Left::new(None));
    let is_taken = n > 0 && taken(fd).is_some();
    if is_taken && !time.is_null() {
        let mut is_writable = false;
        quietly(|| is_writable = sys::can_write(time.cast()));
        match Left::at(time).filter(|_| is_writable) {
            Some(left) => limit = left,
            None => {
                set_errno(if is_writable { libc::EINVAL } else { libc::EFAULT });
                return -1;
            }
        }
    }
    while is_taken && done < n {
        let rest = if done > 0 && flags & MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
        let at = messages.wrapping_add(done as usize);
        // SAFETY: no reference is made.
        let header = unsafe { &raw mut (*at).msg_hdr };
        match receive_message(fd, header, flags & !MSG_WAITFORONE | rest) {
            // SAFETY: the fields of the message were found writable, and this one follows them.
            Outcome::Received(received) => unsafe {
                (&raw mut (*at).msg_len).write_unaligned(received.bytes as c_uint);
            },
            Outcome::Failed if done == 0 => return -1,
            Outcome::Failed => {
                keep_error(fd);
                break;
            }
            Outcome::Kernel if done == 0 => break,
            Outcome::Kernel => return done as c_int,
        }
        done += 1;
        if let Some(left) = limit.next(None) {
            // SAFETY: it was found writable.
            unsafe { time.write_unaligned(left) };
        }
        if limit.is_over() {
            break;
        }
    }
    if done > 0 {
        return done as c_int;
    }
    next!(c"recvmmsg", fn(fd => c_int, messages => *mut mmsghdr, n => c_uint, flags => c_int, time => *mut timespec) -> c_int)
}

/// # Safety
/// As `read(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t {
    refuse_own!(fd);
    // A read of nothing takes no datagram.
    let received = if len == 0 {
        None
    } else {
        // SAFETY: the part is the frame's.
        unsafe { receive_payload(fd, &part(bytes, len), 1, 0) }
    };
    match received {
        Some(result) => result,
        None => next!(c"read", fn(fd => c_int, bytes => *mut c_void, len => size_t) -> ssize_t),
    }
}

/// # Safety
/// As `readv(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t {
    refuse_own!(fd);
    let count = usize::try_from(n).unwrap_or(0);
    let is_taken = (1..=MAX_PARTS).contains(&count) && taken(fd).is_some() && can_read(parts, count);
    // SAFETY: the parts can be read.
    let has_space = is_taken && (0..count).any(|at| unsafe { parts.add(at).read_unaligned() }.iov_len > 0);
    // SAFETY: as above.
    match if has_space { unsafe { receive_payload(fd, parts, count, 0) } } else { None } {
        Some(result) => result,
        None => next!(c"readv", fn(fd => c_int, parts => *const iovec, n => c_int) -> ssize_t),
    }
}

/// `recv` of programs that are compiled with checks of lengths: `space` is the length of the memory.
///
/// # Safety
/// As `recv(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    space: size_t,
    flags: c_int,
) -> ssize_t {
    if len <= space {
        // SAFETY: the program's own arguments.
        return unsafe { recv_(fd, bytes, len, flags) };
    }
    next!(c"__recv_chk", fn(fd => c_int, bytes => *mut c_void, len => size_t, space => size_t, flags => c_int) -> ssize_t)
}

/// As `__recv_chk`.
///
/// # Safety
/// As `recvfrom(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    space: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if len <= space {
        // SAFETY: the program's own arguments.
        return unsafe { recvfrom(fd, bytes, len, flags, from, from_len) };
    }
    next!(
        c"__recvfrom_chk",
        fn(fd => c_int, bytes => *mut c_void, len => size_t, space => size_t, flags => c_int, from => *mut sockaddr, from_len => *mut socklen_t) -> ssize_t
    )
}

/// As `__recv_chk`.
///
/// # Safety
/// As `read(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(fd: c_int, bytes: *mut c_void, len: size_t, space: size_t) -> ssize_t {
    if len <= space {
        // SAFETY: the program's own arguments.
        return unsafe { read(fd, bytes, len) };
    }
    next!(c"__read_chk", fn(fd => c_int, bytes => *mut c_void, len => size_t, space => size_t) -> ssize_t)
}

/// The length of the next datagram (FIONREAD) is that of the payload. It has a fixed number of arguments here: a call with fewer passes them in
/// the same registers.
///
/// # Safety
/// As `ioctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    #[allow(clippy::unnecessary_cast, reason = "musl has another type")]
    let asked = if request == libc::FIONREAD as c_ulong { taken(fd) } else { None };
    let on = asked.map_or(fd, Socket::stand_in);
    let result = {
        let fd = on;
        next!(c"ioctl", fn(fd => c_int, request => c_ulong, argument => *mut c_void) -> c_int)
    };
    if let Some(socket) = asked.filter(|_| result == 0) {
        let front = HEAD + name_len(socket.is_v6.load(Relaxed)) + CONTROL;
        let len = argument.cast::<c_int>();
        // SAFETY: the kernel has just written an integer there.
        unsafe { len.write_unaligned(len.read_unaligned().saturating_sub(front as c_int).max(0)) };
    }
    result
}
