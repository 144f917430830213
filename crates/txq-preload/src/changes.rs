//! The library's own work beside sending: closed and new descriptors, and changes of a socket.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::process::{self, TABLE};
use crate::socket::Socket;
use crate::sys::{Undisturbed, errno, set_errno};
use crate::table::Entry;

/// How long `bind` waits for the datagrams of a closed socket that has the address, and `setsockopt(UDP_CORK)` for those of its
/// socket.
const LINGER: Duration = Duration::from_secs(1);

/// Runs the library's own work in a call of the program: no panic leaves it, and `errno` stays.
pub(crate) fn quietly(work: impl FnOnce()) {
    let before = errno();
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        process::switch_off();
    }
    set_errno(before);
}

/// Returns whether a descriptor is a UDP socket, as far as is known.
pub(crate) fn is_socket(fd: c_int) -> bool {
    process::is_on() && matches!(TABLE.get(fd), Entry::Socket(_))
}

/// Forgets descriptors that are about to be closed, or are new.
pub(crate) fn forget(first: c_int, last: c_int) {
    if first == last && TABLE.get(first) == Entry::Unknown {
        return;
    }
    let process = process::running();
    // A child of `vfork` closes its own descriptors, and has its parent's memory.
    if process.is_some_and(|process| !process.is_here()) {
        return;
    }
    let (Ok(first), Ok(last)) = (usize::try_from(first), usize::try_from(last)) else { return };
    let _undisturbed = Undisturbed::new();
    TABLE.forget(first, last, |index| {
        if let Some(process) = process {
            process.sockets.remove_name(index);
        }
    });
}

/// Lets waiting datagrams keep their destination.
pub(crate) fn before_change(fd: c_int) {
    let _undisturbed = Undisturbed::new();
    if let (Entry::Socket(index), Some(process)) = (TABLE.get(fd), process::running())
        && let Some(socket) = process.sockets.get(index)
    {
        socket.before_change();
    }
}

/// Asks the kernel again what it knows about a socket.
pub(crate) fn after_change(fd: c_int) {
    let _undisturbed = Undisturbed::new();
    if let (Entry::Socket(index), Some(process)) = (TABLE.get(fd), process::running())
        && let Some(socket) = process.sockets.get(index)
    {
        socket.after_change();
    }
}

/// Waits for the datagrams of a socket, for at most [`LINGER`].
pub(crate) fn wait_for_waiting(fd: c_int) {
    let (Entry::Socket(index), Some(process)) = (TABLE.get(fd), process::running()) else { return };
    let (step, mut waited) = (Duration::from_millis(1), Duration::ZERO);
    let waits = || {
        let _undisturbed = Undisturbed::new();
        process.sockets.get(index).is_some_and(Socket::has_waiting)
    };
    while waits() && waited < LINGER {
        std::thread::sleep(step);
        waited += step;
    }
}

/// Waits for the datagrams of closed sockets, and discards those that do not leave in time; returns whether there were any.
pub(crate) fn wait_for_closing() -> bool {
    let Some(process) = process::running() else { return false };
    let mut waited = Duration::ZERO;
    let step = Duration::from_millis(1);
    loop {
        let undisturbed = Undisturbed::new();
        let left = process.sockets.sweep();
        if left > 0 && waited >= LINGER {
            process.sockets.abandon();
            return true;
        }
        drop(undisturbed);
        if left == 0 {
            return !waited.is_zero();
        }
        std::thread::sleep(step);
        waited += step;
    }
}
