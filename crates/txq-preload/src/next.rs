//! The functions of the C library, or of another preloaded library behind this one, that this library replaces.
//!
//! All are found when the library is loaded: later the program may be in a signal handler, on a little stack, or restricted to a few
//! system calls.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::stack::on_own_stack;
use crate::sys::{errno, set_errno};

/// The names of all replaced functions that are called here.
const NAMES: [&CStr; 39] = [
    c"send",
    c"sendto",
    c"sendmsg",
    c"sendmmsg",
    c"write",
    c"writev",
    c"recv",
    c"recvfrom",
    c"recvmsg",
    c"recvmmsg",
    c"read",
    c"readv",
    c"__recv_chk",
    c"__recvfrom_chk",
    c"__read_chk",
    c"ioctl",
    c"syscall",
    c"socket",
    c"connect",
    c"bind",
    c"setsockopt",
    c"getsockopt",
    c"close",
    c"close_range",
    c"dup",
    c"dup2",
    c"dup3",
    c"prctl",
    c"pthread_create",
    c"poll",
    c"ppoll",
    c"__poll_chk",
    c"__ppoll_chk",
    c"select",
    c"pselect",
    c"epoll_ctl",
    c"epoll_wait",
    c"epoll_pwait",
    c"epoll_pwait2",
];

/// The functions by number; null until the first call. Any thread may set one, to the one value.
static FUNCTIONS: [AtomicPtr<c_void>; NAMES.len()] = [const { AtomicPtr::new(ptr::null_mut()) }; NAMES.len()];

/// Returns the number of a function.
pub(crate) const fn number(name: &CStr) -> usize {
    let mut i = 0;
    while !is_same(NAMES[i].to_bytes(), name.to_bytes()) {
        i += 1;
    }
    i
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Finds all functions.
pub(crate) fn find_all() {
    for number in 0..NAMES.len() {
        function(number);
    }
}

/// Returns the function of a number; null if no library has it.
pub(crate) fn function(number: usize) -> *mut c_void {
    let (name, at) = (NAMES[number], &FUNCTIONS[number]);
    let known = at.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    let before = errno();
    let (mut all, mut mask) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // A handler that leaves by `longjmp` would leave the loader's lock taken.
    // SAFETY: both sets are the calling frame's own; `sigfillset` fills the first before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), mask.as_mut_ptr());
    }
    let found = on_own_stack(|| find(name)).unwrap_or(ptr::null_mut());
    // SAFETY: the call above has filled the set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut()) };
    set_errno(before);
    at.store(found, Relaxed);
    found
}

/// Returns the function of a name behind this library; null if no library has it.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in a NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !found.is_null() {
        return found;
    }
    // The C library itself was preloaded, in front of this one.
    const C: &CStr = if cfg!(target_env = "musl") { c"libc.so" } else { c"libc.so.6" };
    // SAFETY: both names end in a NUL; the library is loaded already, and stays.
    unsafe {
        let library = libc::dlopen(C.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() { found } else { libc::dlsym(library, name.as_ptr()) }
    }
}
