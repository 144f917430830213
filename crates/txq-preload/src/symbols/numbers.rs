//! Functions that make, copy and close descriptors.
//!
//! To the program, the numbers of the library's own descriptors are not open. A call that would close one fails or passes over it, and a
//! copy to such a number moves the library's descriptor first.

use std::ffi::{c_int, c_uint};
use std::mem;

use crate::changes::{first_own, forget, is_known, make_way, quietly};
use crate::process;
use crate::sys::{self, set_errno};

/// A new descriptor may have the number of one that was closed by a call that this library does not see.
///
/// # Safety
/// As `socket(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let fd = next!(c"socket", fn(domain => c_int, kind => c_int, protocol => c_int) -> c_int);
    if fd >= 0 && is_known(fd) {
        quietly(|| forget(fd, fd));
    }
    fd
}

/// # Safety
/// As `close(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    refuse_own!(fd);
    if is_known(fd) {
        quietly(|| forget(fd, fd));
    }
    next!(c"close", fn(fd => c_int) -> c_int)
}

/// # Safety
/// As `close_range(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const UNSHARE: c_int = 2;
    // All descriptors of the library are closed by exec.
    if !process::is_on() || first > last || flags & !UNSHARE != 0 {
        return next!(c"close_range", fn(first => c_uint, last => c_uint, flags => c_int) -> c_int);
    }
    let number = |n: c_uint| c_int::try_from(n).unwrap_or(c_int::MAX);
    quietly(|| forget(number(first), number(last)));
    let (mut from, mut flags) = (first, flags);
    loop {
        let mut own = None;
        quietly(|| own = first_own(number(from), number(last)));
        let to = own.map_or(Some(last), |own| (own as c_uint).checked_sub(1).filter(|&to| to >= from));
        if let Some(to) = to {
            let closed = next!(c"close_range", fn(from => c_uint, to => c_uint, flags => c_int) -> c_int);
            if closed != 0 {
                return closed;
            }
            flags = 0;
        }
        match own {
            Some(own) if (own as c_uint) < last => from = own as c_uint + 1,
            _ => return 0,
        }
    }
}

/// A function of glibc and the BSDs. Here it is `close_range`, and for kernels without that a loop.
///
/// # Safety
/// As `closefrom(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = first.max(0);
    // SAFETY: the program wants these closed.
    unsafe {
        if close_range(first as c_uint, c_uint::MAX, 0) != 0 {
            let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, 1 << 20) as c_int;
            for fd in first..most {
                close(fd);
            }
        }
    }
}

/// As `socket`.
///
/// # Safety
/// As `dup(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    refuse_own!(old);
    let fd = next!(c"dup", fn(old => c_int) -> c_int);
    if fd >= 0 && is_known(fd) {
        quietly(|| forget(fd, fd));
    }
    fd
}

/// # Safety
/// As `dup2(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    refuse_own!(old);
    before_copy(old, new);
    next!(c"dup2", fn(old => c_int, new => c_int) -> c_int)
}

/// # Safety
/// As `dup3(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    refuse_own!(old);
    before_copy(old, new);
    next!(c"dup3", fn(old => c_int, new => c_int, flags => c_int) -> c_int)
}

/// Prepares for a copy of `old` to the number `new`.
fn before_copy(old: c_int, new: c_int) {
    if old == new || !is_known(new) || !sys::is_open(old) {
        return;
    }
    if process::is_own(new) {
        quietly(|| make_way(new));
    } else {
        quietly(|| forget(new, new));
    }
}
