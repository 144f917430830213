//! System calls that several devices make: options of sockets, queries about interfaces, and waiting for input.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

pub(crate) mod interface;
pub(crate) mod netdev;
mod option;

pub(crate) use option::{Plain, get, get_prefix, set, set_buffer};

/// Options of sockets since Linux 3.11 and 5.11 (`asm-generic/socket.h`).
const SO_BUSY_POLL: libc::c_int = 46;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Sleeps until there is something to read, until a signal arrives, or until `timeout` has passed. Returns false only after the
/// timeout.
pub(crate) fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    // A timeout that the kernel cannot represent ends in no one's lifetime.
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        // There may be input, and the caller may want to end.
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Makes the kernel poll the socket's queue of the card for `time` in a call that finds nothing, as far as it can and the permissions
/// allow.
pub(crate) fn busy_poll(fd: impl AsFd, time: Duration) {
    let time = libc::c_int::try_from(time.as_micros()).unwrap_or(libc::c_int::MAX);
    for (option, value) in [(SO_BUSY_POLL, time), (SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL_BUDGET, 64)] {
        let _ = set(&fd, libc::SOL_SOCKET, option, value);
    }
}

/// Lets messages that are received carry the time at which they came in (`SCM_TIMESTAMPNS`).
pub(crate) fn record_times(fd: impl AsFd) -> io::Result<()> {
    set::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Returns a time in nanoseconds.
#[allow(clippy::unnecessary_cast, reason = "the fields have other types on 32 bits")]
pub(crate) fn nanos(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sends messages without waiting; returns how many the kernel took, counted from the first. An error concerns the first
/// message, and then none was taken.
///
/// # Safety
/// Each message's pointers are null or valid for reads of the lengths beside them.
pub(crate) unsafe fn send_messages(fd: impl AsFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (fd, n) = (fd.as_fd().as_raw_fd(), messages.len() as libc::c_uint);
    again(|| {
        // SAFETY: `messages` are `n`, and the caller answers for their pointers; the kernel writes only their `msg_len`.
        unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), n, libc::MSG_DONTWAIT as _) }
    })
}

/// Receives messages without waiting; returns how many.
///
/// # Safety
/// Each message's pointers are null or valid for writes of the lengths beside them.
pub(crate) unsafe fn receive_messages(fd: impl AsFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (fd, n) = (fd.as_fd().as_raw_fd(), messages.len() as libc::c_uint);
    again(|| {
        let (first, no_timeout) = (messages.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: `messages` are `n`, and the caller answers for their pointers.
        unsafe { libc::recvmmsg(fd, first, n, libc::MSG_DONTWAIT as _, no_timeout) }
    })
}

/// Repeats a call until no signal interrupts it.
fn again(mut call: impl FnMut() -> libc::c_int) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(n) => return Ok(n),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Returns the error of a call that returned a negative number.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
