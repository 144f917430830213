//! The control socket: [`txq_control::Server`] for C, so that `txq tc` reaches the devices of the program.

use std::ffi::c_char;

use libc::size_t;
use txq_control::Server;

use crate::device::{txq_dev, with_outside};
use crate::error::{Error, Result, TXQ_E_BUSY, TXQ_E_INVALID, TXQ_E_IO, border};
use crate::handle::{Handle, Value};
use crate::strings::{text, write_text};

/// A socket at which `txq tc`, `txq dev`, `txq contention` and `txq hist` reach devices of the program.
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
    use txq_control::Error::{InUse, Name, SameDevice};
    let code = match error {
        Name(_) | SameDevice(_) => TXQ_E_INVALID,
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
