//! The functions of the C library that this library replaces.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::mem;

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::memory::Readable;
use crate::process;
use crate::send::{Messages, Outcome, send};
use crate::sys::{self, set_errno};

/// Calls the function that this library replaces.
macro_rules! next {
    ($name:literal, fn($($arg:expr => $type:ty),*) -> $result:ty) => {{
        let function = crate::next::function(const { crate::next::number($name) });
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

/// Ends a call that names a descriptor of the library's own: to the program, its number is not open.
macro_rules! refuse_own {
    ($fd:expr) => {
        if process::is_on() && process::is_own($fd) {
            set_errno(libc::EBADF);
            return -1;
        }
    };
}

mod ends;
mod left;
mod numbers;
mod options;
mod receives;
mod waits;

/// One message, of the library's making.
struct One(msghdr);

impl Messages for One {
    fn len(&self) -> usize {
        1
    }

    fn get(&self, _: usize, _: &mut Readable) -> Option<msghdr> {
        Some(self.0)
    }
}

/// The message of `sendmsg`.
struct Given(*const msghdr);

impl Messages for Given {
    fn len(&self) -> usize {
        1
    }

    fn get(&self, _: usize, memory: &mut Readable) -> Option<msghdr> {
        // SAFETY: any bytes are a message, as its pointers are not read unchecked.
        unsafe { memory.read(self.0) }
    }
}

/// The messages of `sendmmsg`.
struct Many {
    first: *mut mmsghdr,
    n: usize,
    /// The page that was last found writable: the lengths are written to it.
    writable: Cell<usize>,
}

impl Messages for Many {
    fn len(&self) -> usize {
        self.n
    }

    fn get(&self, i: usize, memory: &mut Readable) -> Option<msghdr> {
        const PAGE: usize = 4096;
        let at = self.first.wrapping_add(i);
        // SAFETY: as for `Given`.
        let message = unsafe { memory.read(at) }?;
        // SAFETY: the message is mapped memory. No reference is made.
        let len = unsafe { &raw mut (*at).msg_len };
        if self.writable.get() != len.addr() / PAGE {
            if !sys::is_writable(len.cast()) {
                return None;
            }
            self.writable.set(len.addr() / PAGE);
        }
        Some(message.msg_hdr)
    }

    fn accepted(&self, i: usize, bytes: usize) {
        let at = self.first.wrapping_add(i);
        // SAFETY: `get` has found the message readable, and its length writable, in this call.
        unsafe { (&raw mut (*at).msg_len).write_unaligned(bytes as c_uint) };
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
fn send_one(fd: c_int, message: &impl Messages, flags: c_int) -> Option<ssize_t> {
    match send(fd, message, flags) {
        Outcome::Kernel => None,
        Outcome::Sent(_, bytes) => Some(bytes as ssize_t),
        Outcome::Error(error) => {
            set_errno(error);
            Some(-1)
        }
    }
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
    // An address of length 0 is none to `sendmsg`, and an error of this call, as one of length 1 is.
    match send_one(fd, &One(message(to, to_len.max(1), &part, 1)), flags) {
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
    match send_one(fd, &One(message(std::ptr::null(), 0, &part, 1)), flags) {
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
    match send_one(fd, &Given(message), flags) {
        Some(result) => result,
        None => next!(c"sendmsg", fn(fd => c_int, message => *const msghdr, flags => c_int) -> ssize_t),
    }
}

/// # Safety
/// As `sendmmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int {
    // The kernel takes no more at a time.
    const MAX_VLEN: usize = 1024;
    refuse_own!(fd);
    let all = Many { first: messages, n: (n as usize).min(MAX_VLEN), writable: Cell::new(usize::MAX) };
    // Without a message the kernel checks the descriptor.
    let outcome = if n == 0 { Outcome::Kernel } else { send(fd, &all, flags) };
    match outcome {
        Outcome::Kernel => {
            next!(c"sendmmsg", fn(fd => c_int, messages => *mut mmsghdr, n => c_uint, flags => c_int) -> c_int)
        }
        Outcome::Sent(sent, _) => sent as c_int,
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
    match send_one(fd, &One(message(std::ptr::null(), 0, &part, 1)), 0) {
        Some(result) => result,
        None => next!(c"write", fn(fd => c_int, bytes => *const c_void, len => size_t) -> ssize_t),
    }
}

/// # Safety
/// As `writev(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t {
    refuse_own!(fd);
    let sent = match usize::try_from(n) {
        Ok(n @ 1..=1024) => send_one(fd, &One(message(std::ptr::null(), 0, parts, n)), 0),
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
            libc::SYS_write => return write(a as _, b as _, c as _) as _,
            libc::SYS_writev => return writev(a as _, b as _, c as _) as _,
            libc::SYS_recvfrom => {
                return receives::recvfrom(a as _, b as _, c as _, d as _, e as _, f as _) as _;
            }
            libc::SYS_recvmsg => return receives::recvmsg(a as _, b as _, c as _) as _,
            libc::SYS_recvmmsg => {
                return receives::recvmmsg(a as _, b as _, c as _, d as _, e as _).into();
            }
            libc::SYS_read => return receives::read(a as _, b as _, c as _) as _,
            libc::SYS_readv => return receives::readv(a as _, b as _, c as _) as _,
            libc::SYS_close => return numbers::close(a as _).into(),
            libc::SYS_close_range => return numbers::close_range(a as _, b as _, c as _).into(),
            libc::SYS_dup => return numbers::dup(a as _).into(),
            libc::SYS_dup3 => return numbers::dup3(a as _, b as _, c as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => return numbers::dup2(a as _, b as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => return waits::poll(a as _, b as _, c as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => return waits::epoll_wait(a as _, b as _, c as _, d as _).into(),
            libc::SYS_epoll_pwait => {
                return waits::epoll_pwait(a as _, b as _, c as _, d as _, e as _).into();
            }
            libc::SYS_epoll_ctl => return waits::epoll_ctl(a as _, b as _, c as _, d as _).into(),
            libc::SYS_prctl => ends::before_prctl(a as _, b as _, c as _),
            libc::SYS_seccomp => ends::before_seccomp(a as _, c as _),
            libc::SYS_exit_group => ends::_exit(a as _),
            _ => {}
        }
    }
    next!(
        c"syscall",
        fn(number => c_long, a => c_long, b => c_long, c => c_long, d => c_long, e => c_long, f => c_long) -> c_long
    )
}
