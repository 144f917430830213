//! Functions that change or ask what the kernel knows of a socket.

use std::ffi::{c_int, c_void};
use std::mem;

use libc::{sockaddr, socklen_t};

use crate::changes::{
    after_change, after_option, before_change, is_hidden, is_socket, quietly, wait_for_closing,
    wait_for_waiting,
};
use crate::process;
use crate::socket::UDP_CORK;
use crate::sys::{errno, set_errno};

/// # Safety
/// As `connect(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    refuse_own!(fd);
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
    refuse_own!(fd);
    let result = next!(c"bind", fn(fd => c_int, to => *const sockaddr, len => socklen_t) -> c_int);
    if is_socket(fd) {
        quietly(|| after_change(fd));
    }
    if result == 0 || errno() != libc::EADDRINUSE || !process::is_on() {
        return result;
    }
    if !wait_for_closing() {
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
    refuse_own!(fd);
    if (level, name) == (libc::SOL_UDP, UDP_CORK) && is_socket(fd) {
        wait_for_waiting(fd);
    }
    let result = next!(c"setsockopt", fn(fd => c_int, level => c_int, name => c_int, value => *const c_void, len => socklen_t) -> c_int);
    if is_socket(fd) {
        quietly(|| {
            after_change(fd);
            after_option(fd, (level, name));
        });
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
    refuse_own!(fd);
    let result = next!(c"getsockopt", fn(fd => c_int, level => c_int, name => c_int, value => *mut c_void, len => *mut socklen_t) -> c_int);
    if result == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) && is_socket(fd) {
        let value = value.cast::<c_int>();
        // SAFETY: the call has succeeded, so the kernel has written the length, and as many bytes of the value.
        let is_clear = unsafe { *len as usize == size_of::<c_int>() && value.read_unaligned() == 0 };
        if is_clear && let Some(error) = process::take_error(fd) {
            // SAFETY: as above.
            unsafe { value.write_unaligned(error) };
        }
    }
    if result == 0 && is_hidden(fd, (level, name)) {
        // SAFETY: as above; the library has set the option to 1, whose first byte alone is not 0, or the value is that byte.
        unsafe { value.cast::<u8>().write(0) };
    }
    result
}
