//! The functions of the C library that this library replaces.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::mem;

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::changes::{
    after_change, before_change, forget, is_socket, quietly, wait_for_closing, wait_for_waiting,
};
use crate::process;
use crate::send::{Messages, Outcome, parts_of, send};
use crate::socket::UDP_CORK;
use crate::sys::{Next, errno, set_errno};

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
#[used]
#[unsafe(link_section = ".fini_array")]
static EXITING: extern "C" fn() = exiting;

extern "C" fn loaded() {
    quietly(process::loaded);
}

extern "C" fn exiting() {
    quietly(process::exiting);
}

/// Calls the function that this library replaces.
macro_rules! next {
    ($name:literal, fn($($arg:expr => $type:ty),*) -> $result:ty) => {{
        static NEXT: Next = Next::new($name);
        let function = NEXT.get();
        if function.is_null() {
            set_errno(libc::ENOSYS);
            return -1;
        }
        // SAFETY: the C library's function of this name has this type.
        let function: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { mem::transmute(function) };
        // SAFETY: the program's own arguments.
        unsafe { function($($arg),*) }
    }};
}

/// One message.
struct One(msghdr);

impl Messages for One {
    fn len(&self) -> usize {
        1
    }

    fn get(&self, _: usize) -> msghdr {
        self.0
    }
}

/// The messages of `sendmmsg`.
struct Many(*const mmsghdr, usize);

impl Messages for Many {
    fn len(&self) -> usize {
        self.1
    }

    fn get(&self, i: usize) -> msghdr {
        // SAFETY: the program passes so many messages, and `i` is less.
        unsafe { (*self.0.add(i)).msg_hdr }
    }
}

/// Returns a message of its parts.
fn message(name: *const sockaddr, namelen: socklen_t, iov: *const iovec, n: usize) -> msghdr {
    // SAFETY: all zeros are a message without anything.
    let mut message: msghdr = unsafe { mem::zeroed() };
    (message.msg_name, message.msg_namelen) = (name.cast_mut().cast(), namelen);
    (message.msg_iov, message.msg_iovlen) = (iov.cast_mut(), n as _);
    message
}

/// Sends one message; returns the result of the call, or `None` for the kernel.
///
/// # Safety
/// The message is as `sendmsg(2)` requires.
unsafe fn send_one(fd: c_int, message: msghdr, flags: c_int) -> Option<ssize_t> {
    // SAFETY: the caller's promise.
    match unsafe { send(fd, &One(message), flags) } {
        Outcome::Kernel => None,
        // SAFETY: as above.
        Outcome::Sent(_) => Some(unsafe { length(&message) }),
        Outcome::Error(error) => {
            set_errno(error);
            Some(-1)
        }
    }
}

/// Returns the length of a message.
///
/// # Safety
/// Its parts can be read.
unsafe fn length(message: &msghdr) -> ssize_t {
    // SAFETY: the caller's promise.
    (0..parts_of(message)).map(|i| unsafe { (*message.msg_iov.add(i)).iov_len }).sum::<usize>() as ssize_t
}

/// # Safety
/// As `sendto(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: the program's own arguments.
    match unsafe { send_one(fd, message(to, to_len, &part, 1), flags) } {
        Some(result) => result,
        None => {
            next!(c"sendto", fn(fd => c_int, bytes => *const c_void, len => size_t, flags => c_int, to => *const sockaddr, to_len => socklen_t) -> ssize_t)
        }
    }
}

/// # Safety
/// As `send(2)`.
#[unsafe(export_name = "send")]
unsafe extern "C-unwind" fn send_(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: the program's own arguments.
    match unsafe { send_one(fd, message(std::ptr::null(), 0, &part, 1), flags) } {
        Some(result) => result,
        None => {
            next!(c"send", fn(fd => c_int, bytes => *const c_void, len => size_t, flags => c_int) -> ssize_t)
        }
    }
}

/// # Safety
/// As `sendmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    let sent = unsafe { message.as_ref().and_then(|message| send_one(fd, *message, flags)) };
    match sent {
        Some(result) => result,
        None => next!(c"sendmsg", fn(fd => c_int, message => *const msghdr, flags => c_int) -> ssize_t),
    }
}

/// # Safety
/// As `sendmmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int {
    // The kernel takes no more at a time.
    const MOST: usize = 1024;
    let all = Many(messages, if messages.is_null() { 0 } else { (n as usize).min(MOST) });
    let outcome = match all.1 {
        0 => Outcome::Kernel,
        // SAFETY: the program's own arguments.
        _ => unsafe { send(fd, &all, flags) },
    };
    match outcome {
        Outcome::Kernel => {
            next!(c"sendmmsg", fn(fd => c_int, messages => *mut mmsghdr, n => c_uint, flags => c_int) -> c_int)
        }
        Outcome::Sent(sent) => {
            for i in 0..sent {
                // SAFETY: the program passes so many messages to be written.
                unsafe { (*messages.add(i)).msg_len = length(&all.get(i)) as c_uint };
            }
            sent as c_int
        }
        Outcome::Error(error) => {
            set_errno(error);
            -1
        }
    }
}

/// # Safety
/// As `write(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: the program's own arguments.
    match unsafe { send_one(fd, message(std::ptr::null(), 0, &part, 1), 0) } {
        Some(result) => result,
        None => next!(c"write", fn(fd => c_int, bytes => *const c_void, len => size_t) -> ssize_t),
    }
}

/// # Safety
/// As `writev(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t {
    let sent = match usize::try_from(n) {
        // SAFETY: the program's own arguments.
        Ok(n @ 1..=1024) => unsafe { send_one(fd, message(std::ptr::null(), 0, parts, n), 0) },
        _ => None,
    };
    match sent {
        Some(result) => result,
        None => next!(c"writev", fn(fd => c_int, parts => *const iovec, n => c_int) -> ssize_t),
    }
}

/// Programs send by this function, too, as those on libuv. It has a fixed number of arguments here: a call with fewer passes them in the
/// same registers.
///
/// # Safety
/// As `syscall(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: the program's own arguments, of the types of that system call.
    unsafe {
        match number {
            libc::SYS_sendto => {
                return sendto(a as _, b as _, c as _, d as _, e as _, f as _) as _;
            }
            libc::SYS_sendmsg => return sendmsg(a as _, b as _, c as _) as _,
            libc::SYS_sendmmsg => return sendmmsg(a as _, b as _, c as _, d as _).into(),
            _ => {}
        }
    }
    next!(
        c"syscall",
        fn(number => c_long, a => c_long, b => c_long, c => c_long, d => c_long, e => c_long, f => c_long) -> c_long
    )
}

/// A new descriptor may have the number of one that was closed by a call that this library does not see.
///
/// # Safety
/// As `socket(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let fd = next!(c"socket", fn(domain => c_int, kind => c_int, protocol => c_int) -> c_int);
    if fd >= 0 && process::is_on() {
        quietly(|| forget(fd, fd));
    }
    fd
}

/// # Safety
/// As `connect(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    if is_socket(fd) {
        quietly(|| before_change(fd));
    }
    let result = next!(c"connect", fn(fd => c_int, to => *const sockaddr, len => socklen_t) -> c_int);
    if is_socket(fd) {
        quietly(|| after_change(fd));
    }
    result
}

/// An address may still belong to a closed socket whose datagrams wait: they get a second to leave.
///
/// # Safety
/// As `bind(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn bind(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    let result = next!(c"bind", fn(fd => c_int, to => *const sockaddr, len => socklen_t) -> c_int);
    if is_socket(fd) {
        quietly(|| after_change(fd));
    }
    if result == 0 || errno() != libc::EADDRINUSE || !process::is_on() {
        return result;
    }
    let mut waited = false;
    quietly(|| waited = wait_for_closing());
    if !waited {
        return result;
    }
    next!(c"bind", fn(fd => c_int, to => *const sockaddr, len => socklen_t) -> c_int)
}

/// # Safety
/// As `setsockopt(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if (level, name) == (libc::SOL_UDP, UDP_CORK) && is_socket(fd) {
        quietly(|| wait_for_waiting(fd));
    }
    let result = next!(c"setsockopt", fn(fd => c_int, level => c_int, name => c_int, value => *const c_void, len => socklen_t) -> c_int);
    if is_socket(fd) {
        quietly(|| after_change(fd));
    }
    result
}

/// `SO_ERROR` has also the error that a waiting datagram met.
///
/// # Safety
/// As `getsockopt(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let result = next!(c"getsockopt", fn(fd => c_int, level => c_int, name => c_int, value => *mut c_void, len => *mut socklen_t) -> c_int);
    if result == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) && is_socket(fd) {
        let value = value.cast::<c_int>();
        // SAFETY: the kernel has written the value and its length.
        let is_clear = unsafe { *len as usize == size_of::<c_int>() && value.read_unaligned() == 0 };
        if is_clear && let Some(error) = process::take_error(fd) {
            // SAFETY: as above.
            unsafe { value.write_unaligned(error) };
        }
    }
    result
}

/// # Safety
/// As `close(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if process::is_on() {
        quietly(|| forget(fd, fd));
    }
    next!(c"close", fn(fd => c_int) -> c_int)
}

/// # Safety
/// As `close_range(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if process::is_on() && flags & CLOEXEC == 0 {
        quietly(|| {
            forget(c_int::try_from(first).unwrap_or(c_int::MAX), c_int::try_from(last).unwrap_or(c_int::MAX))
        });
    }
    next!(c"close_range", fn(first => c_uint, last => c_uint, flags => c_int) -> c_int)
}

/// As `socket`.
///
/// # Safety
/// As `dup(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    let fd = next!(c"dup", fn(old => c_int) -> c_int);
    if fd >= 0 && process::is_on() {
        quietly(|| forget(fd, fd));
    }
    fd
}

/// # Safety
/// As `dup2(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    if old != new && process::is_on() {
        quietly(|| forget(new, new));
    }
    next!(c"dup2", fn(old => c_int, new => c_int) -> c_int)
}

/// # Safety
/// As `dup3(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new && process::is_on() {
        quietly(|| forget(new, new));
    }
    next!(c"dup3", fn(old => c_int, new => c_int, flags => c_int) -> c_int)
}
