//! The control socket: [`txq_control::Server`] for C, so that `txq tc` reaches the devices and schedulers of the program.

use std::ffi::c_char;
use std::os::fd::{AsFd, AsRawFd};

use libc::size_t;
use txq_control::Server;

use crate::device::{txq_dev, with_outside};
use crate::error::{Error, Result, TXQ_E_BUSY, TXQ_E_INVALID, TXQ_E_IO, border};
use crate::handle::{Handle, Value};
use crate::sched::{self, txq_sched};
use crate::strings::{text, write_text};

/// A socket at which `txq tc`, `txq dev`, `txq contention` and `txq hist` reach devices of the program, and `txq tc` its schedulers.
pub struct txq_server {
    _handle: Handle<Control>,
}

struct Control(Server);

impl Value for Control {
    const TAG: u32 = 0x7478_7107;
    const NAME: &'static str = "txq_server";
    const OF_PROCESS: bool = true;
}

fn with<R>(server: *mut txq_server, f: impl FnOnce(&mut Control) -> Result<R>) -> Result<R> {
    // A `txq_server` is nothing but its handle.
    Handle::with(server.cast::<Handle<Control>>(), f)
}

fn failed(error: &txq_control::Error) -> Error {
    use txq_control::Error::{DeviceName, InUse, Name, SameDevice};
    let code = match error {
        Name(_) | DeviceName(_) | SameDevice(_) => TXQ_E_INVALID,
        InUse { .. } => TXQ_E_BUSY,
        _ => TXQ_E_IO,
    };
    Error::new(code, error.to_string())
}

/// Opens a control socket: `place` is a name, as `txq ls` lists it and `txq tc --name` takes it, or a path with a `/`. Its user and
/// root may use it. Returns NULL for an error.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_server_new(place: *const c_char) -> *mut txq_server {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let place = unsafe { text(place, "the place") }?;
        let server = Server::builder().at(place).start().map_err(|error| failed(&error))?;
        Ok(Handle::create(Control(server)).cast())
    })
}

/// Serves a device at the socket, until the device is shut down or freed. Each device of a socket has a name of its own. Returns 0.
///
/// Threads: one at a time for the server. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_server_add(server: *mut txq_server, dev: *mut txq_dev) -> i32 {
    border(|| {
        with(server, |Control(server)| {
            with_outside(dev, |dev| server.add(&dev.net()).map(|()| 0).map_err(|error| failed(&error)))
        })
    })
}

/// Serves a scheduler at the socket as the device `name`, until the scheduler or the server is freed: `txq tc qdisc show dev NAME`
/// shows it. A scheduler has one owner at a time, so commands wait until the owner calls `txq_sched_control_poll`. A command fails if
/// that takes more than 5 s. A second call serves the scheduler at the other socket, and no longer at the first one. Returns 0.
///
/// Threads: one at a time for the server; the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_server_add_sched(
    server: *mut txq_server,
    sched: *mut txq_sched,
    name: *const c_char,
) -> i32 {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let name = unsafe { text(name, "the name") }?;
        with(server, |Control(server)| {
            sched::with(sched, |sched| {
                sched.port = Some(server.add_scheduler(name).map_err(|error| failed(&error))?);
                Ok(0)
            })
        })
    })
}

/// Returns the descriptor that is readable while commands wait for `txq_sched_control_poll`, for poll and epoll. It belongs to the
/// scheduler and must not be closed. TXQ_E_INVALID if no server serves the scheduler.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_control_fd(sched: *mut txq_sched) -> i32 {
    border(|| {
        sched::with(sched, |sched| match &sched.port {
            Some(port) => Ok(port.as_fd().as_raw_fd()),
            None => Err(unserved()),
        })
    })
}

/// Executes the commands that wait for the owner of the scheduler, at the time `now`; does not wait. Returns how many it has
/// executed; a command line may take several. Packets that a command drops are in `txq_sched_dropped`. TXQ_E_INVALID if no server
/// serves the scheduler.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_control_poll(sched: *mut txq_sched, now: u64) -> i64 {
    border(|| sched::with(sched, |sched| sched.poll_control(now).ok_or_else(unserved)))
}

fn unserved() -> Error {
    Error::invalid("no server serves the scheduler: call txq_server_add_sched")
}

/// Writes the path of the socket, as `txq_sched_show` writes texts.
///
/// Threads: one at a time for the server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_server_path(server: *mut txq_server, buffer: *mut c_char, n: size_t) -> i64 {
    border(|| {
        let path = with(server, |Control(server)| Ok(server.path().display().to_string()))?;
        // SAFETY: the caller passes a buffer of `n` bytes.
        unsafe { write_text(&path, buffer, n) }
    })
}

/// Closes a socket and frees the server; NULL is allowed. Waits for the commands that run. Returns 0.
///
/// Threads: one at a time for the server. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_server_free(server: *mut txq_server) -> i32 {
    border(|| {
        crate::device::refuse_inside()?;
        Handle::take(server.cast::<Handle<Control>>()).map(|_| 0)
    })
}
