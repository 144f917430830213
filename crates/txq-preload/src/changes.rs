//! The library's own work beside sending: closed and new descriptors, and changes of a socket.

use std::ffi::c_int;
use std::time::Duration;

use crate::process;
use crate::socket::Socket;
use crate::stack::on_own_stack;
use crate::sys::{Undisturbed, errno, set_errno};
use crate::table::{Entry, TABLE};

/// How long `bind` waits for the datagrams of a closed socket that has the address, and `setsockopt(UDP_CORK)` for those of its
/// socket.
const CLOSED_LINGER: Duration = Duration::from_secs(1);

/// Runs the library's own work in a call of the program, on a stack of the library's: no panic leaves it, `errno` stays, and signals
/// wait.
pub(crate) fn quietly(work: impl FnOnce()) {
    let before = errno();
    let undisturbed = Undisturbed::new();
    if on_own_stack(work).is_err() {
        process::switch_off();
    }
    drop(undisturbed);
    set_errno(before);
}

/// Returns whether a descriptor is a UDP socket, as far as is known.
pub(crate) fn is_socket(fd: c_int) -> bool {
    process::is_on() && matches!(TABLE.get(fd), Entry::Socket(_))
}

/// Forgets descriptors that are about to be closed, or are new.
pub(crate) fn forget(first: c_int, last: c_int) {
    let process = process::running();
    // A child of `vfork` closes its own descriptors, and has its parent's memory.
    if process.is_some_and(|process| !process.is_here()) {
        return;
    }
    if first == last && matches!(TABLE.get(first), Entry::Own(_)) && !process::is_own(first) {
        // The kernel has just given the program this number, so calls that this library does not see have closed its own.
        TABLE.set(first, Entry::Unknown);
    }
    let (Ok(first), Ok(last)) = (usize::try_from(first), usize::try_from(last)) else { return };
    TABLE.forget(first, last, |index| {
        if let Some(process) = process {
            process.sockets.remove_name(index);
        }
    });
}

/// Returns whether something is known about a descriptor, so that it has to be forgotten.
pub(crate) fn is_known(fd: c_int) -> bool {
    process::is_on() && TABLE.get(fd) != Entry::Unknown
}

/// Moves a descriptor of the library to another number, because the program's `dup2` is about to use this one.
pub(crate) fn make_way(fd: c_int) {
    if let (Entry::Own(index), Some(process)) = (TABLE.get(fd), process::running()) {
        process.sockets.move_own(index, fd);
    }
}

/// Returns the library's first descriptor from `first` to `last`.
pub(crate) fn first_own(first: c_int, last: c_int) -> Option<c_int> {
    let (first, last) = (usize::try_from(first).ok()?, usize::try_from(last).ok()?);
    let mut found = None;
    TABLE.walk(first, last, |fd, entry| {
        if found.is_none() && matches!(entry, Entry::Own(_)) && process::is_own(fd) {
            found = Some(fd);
        }
    });
    found
}

/// Returns the socket that a descriptor is known to name.
fn socket(fd: c_int) -> Option<&'static Socket> {
    let Entry::Socket(index) = TABLE.get(fd) else { return None };
    process::running()?.sockets.get(index)
}

/// Lets waiting datagrams keep their destination.
pub(crate) fn before_change(fd: c_int) {
    if let Some(socket) = socket(fd) {
        socket.before_change();
    }
}

/// Asks the kernel again what it knows about a socket.
pub(crate) fn after_change(fd: c_int) {
    if let Some(socket) = socket(fd) {
        socket.after_change(fd);
    }
}

/// Notes that the program has set an option of a socket.
pub(crate) fn after_option(fd: c_int, option: (c_int, c_int)) {
    if let Some(socket) = socket(fd) {
        socket.after_option(fd, option);
    }
}

/// Returns whether an option of a socket is set by the library alone.
pub(crate) fn is_hidden(fd: c_int, option: (c_int, c_int)) -> bool {
    process::receives() && socket(fd).is_some_and(|socket| socket.is_hidden(option))
}

/// Waits for the datagrams of a socket, for at most [`CLOSED_LINGER`].
pub(crate) fn wait_for_waiting(fd: c_int) {
    let Some(socket) = socket(fd) else { return };
    wait(|| socket.has_waiting());
}

/// Waits for the datagrams of closed sockets, and discards those that do not leave in time; returns whether there were any.
pub(crate) fn wait_for_closing() -> bool {
    let Some(process) = process::running() else { return false };
    let mut any = false;
    let is_late = wait(|| {
        let waits = process.sockets.sweep() > 0;
        any |= waits;
        waits
    });
    if is_late {
        quietly(|| process.sockets.abandon());
    }
    any
}

/// Sleeps while `waits`, for at most [`CLOSED_LINGER`], with signals delivered; returns whether it still does.
fn wait(mut waits: impl FnMut() -> bool) -> bool {
    let (step, mut waited, before) = (Duration::from_millis(1), Duration::ZERO, errno());
    loop {
        let mut still = false;
        quietly(|| still = waits());
        if !still || waited >= CLOSED_LINGER {
            set_errno(before);
            return still;
        }
        std::thread::sleep(step);
        waited += step;
    }
}
