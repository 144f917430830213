//! The load and the end of the library: the program exits, or restricts its own system calls; and the library's own threads.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem;

use libc::{pthread_attr_t, pthread_t};

use crate::changes::quietly;
use crate::sys::{self, set_errno};
use crate::{keeper, next, process};

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
#[used]
#[unsafe(link_section = ".fini_array")]
static EXITING: extern "C" fn() = exiting;

extern "C" fn loaded() {
    quietly(|| {
        next::find_all();
        process::loaded();
    });
}

extern "C" fn exiting() {
    if !process::ending() {
        quietly(process::ended_without);
    }
}

/// The kernel sends what a program has sent before, so the datagrams that wait leave here, too.
///
/// # Safety
/// As `_exit(2)`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn _exit(code: c_int) -> ! {
    // A process without a device has nothing to report that is worth the memory: a handler may have interrupted `malloc`.
    let _ = process::ending();
    sys::exit(code)
}

/// # Safety
/// As `_Exit(3)`.
#[allow(non_snake_case, reason = "the C library's name")]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _Exit(code: c_int) -> ! {
    // SAFETY: the same function.
    unsafe { _exit(code) }
}

/// It has a fixed number of arguments here: a call with fewer passes them in the same registers.
///
/// # Safety
/// As `prctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    before_prctl(option, a, b);
    next!(c"prctl", fn(option => c_int, a => c_ulong, b => c_ulong, c => c_ulong, d => c_ulong) -> c_int)
}

/// Ends the device if a call of `prctl` is about to restrict the program's system calls.
pub(super) fn before_prctl(option: c_int, mode: c_ulong, filter: c_ulong) {
    let is_filter = mode == c_ulong::from(libc::SECCOMP_MODE_FILTER) && filter != 0;
    if option == libc::PR_SET_SECCOMP && (mode == c_ulong::from(libc::SECCOMP_MODE_STRICT) || is_filter) {
        quietly(process::restricting);
    }
}

/// Ends the device if a call of `seccomp` is about to restrict the program's system calls.
pub(super) fn before_seccomp(operation: c_int, filter: *const c_void) {
    const STRICT: c_int = 0;
    const FILTER: c_int = 1;
    // Without a filter it is a question whether the kernel has filters.
    if operation == STRICT || operation == FILTER && !filter.is_null() {
        quietly(process::restricting);
    }
}

/// What a thread runs, and its argument.
type Start = (extern "C" fn(*mut c_void) -> *mut c_void, *mut c_void);

/// Marks threads that the keeper's threads start. All others start as they are.
///
/// # Safety
/// As `pthread_create(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "a sanitizer has its own, which must see all threads"))]
unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    arg: *mut c_void,
) -> c_int {
    extern "C" fn marked(start: *mut c_void) -> *mut c_void {
        // SAFETY: the creator has made this box for this thread alone.
        let (start, arg) = *unsafe { Box::from_raw(start.cast::<Start>()) };
        keeper::enter();
        start(arg)
    }
    let (start, arg, made) = match keeper::is_inside() {
        false => (start, arg, None),
        true => {
            let made = Box::into_raw(Box::new((start, arg)));
            (marked as extern "C" fn(*mut c_void) -> *mut c_void, made.cast(), Some(made))
        }
    };
    let error = next!(
        c"pthread_create",
        fn(thread => *mut pthread_t, attributes => *const pthread_attr_t, start => extern "C" fn(*mut c_void) -> *mut c_void, arg => *mut c_void) -> c_int
    );
    if let Some(made) = made.filter(|_| error != 0) {
        // SAFETY: the thread does not exist.
        drop(unsafe { Box::<Start>::from_raw(made) });
    }
    error
}
