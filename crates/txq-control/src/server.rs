//! The server's side of the control socket, in the process that has the devices.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use txq_cli_common::failure::Refused;
use txq_cli_common::stop::Stop;

use super::{Devices, Request, path};
use crate::tc::{self, Answer};

/// How often the server checks for a stop.
const TICK: Duration = Duration::from_millis(50);
/// The longest time that an answer waits for its reader.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request, in bytes, and the most connections at a time.
const LONGEST: usize = 1 << 20;
const CLIENTS: usize = 64;

/// A socket on which no other process listens. Dropping the listener removes the socket.
pub(crate) struct Listener {
    path: PathBuf,
    socket: UnixListener,
    /// The lock file, held while the socket is in use. The kernel releases the lock of a process that dies; its socket
    /// stays, and the next listener removes it.
    _lock: File,
}

impl Listener {
    /// Listens on `socket`, or on the default path. Creates the folder and removes the socket of a dead process.
    ///
    /// # Errors
    /// [`Refused`] if another process listens there, if a file that is not a socket is there, or if the system refuses.
    pub(crate) fn open(socket: Option<&Path>) -> anyhow::Result<Self> {
        let path = socket.map_or_else(path::default, Path::to_path_buf);
        let failed = |what: &str, error: io::Error| {
            Refused(format!(
                "control socket {}: {what}: {error}: use --socket with another path",
                path.display()
            ))
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| failed("its folder cannot be made", error))?;
        }
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        let mut options = File::options();
        let lock = options.create(true).truncate(false).write(true).mode(0o600).open(lock);
        let lock = lock.map_err(|error| failed("cannot be locked", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let place = path.display();
                let error =
                    format!("control socket {place}: another txq listens there: end it, or use --socket");
                return Err(Refused(error).into());
            }
            Err(TryLockError::Error(error)) => return Err(failed("cannot be locked", error).into()),
        }
        // The lock was free, so no process listens on an old socket. Anything but a socket stays.
        match fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_socket() => {
                fs::remove_file(&path).map_err(|error| failed("the old one cannot be removed", error))?;
            }
            Ok(_) => {
                let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(failed("there is a file that is no socket", exists).into());
            }
            Err(_) => {}
        }
        // The socket has its permissions from the start, so other users can never open it.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let socket = UnixListener::bind(&path);
        rustix::process::umask(before);
        let socket = socket.map_err(|error| failed("cannot listen", error))?;
        socket.set_nonblocking(true).map_err(|error| failed("cannot listen", error))?;
        Ok(Self { path, socket, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers requests until `stop` is requested, each connection on a thread of its own.
    pub(crate) fn serve(&self, devices: &Devices<'_>, stop: &Stop) {
        let clients = AtomicUsize::new(0);
        thread::scope(|scope| {
            while !stop.asked() {
                let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
                let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
                if !matches!(poll(&mut ready, Some(&tick)), Ok(1..)) {
                    continue;
                }
                let Ok((stream, _)) = self.socket.accept() else {
                    // Out of descriptors, perhaps for a while only.
                    thread::sleep(TICK);
                    continue;
                };
                if clients.fetch_add(1, Relaxed) >= CLIENTS {
                    clients.fetch_sub(1, Relaxed);
                    let _ = send(&stream, &Answer::bad(2, "too many commands at a time", Some("try again")));
                    continue;
                }
                let clients = &clients;
                let talk = move || {
                    talk(&stream, devices, stop);
                    clients.fetch_sub(1, Relaxed);
                };
                if thread::Builder::new().name("control".into()).spawn_scoped(scope, talk).is_err() {
                    clients.fetch_sub(1, Relaxed);
                }
            }
        });
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A failure has no remedy here: the next listener on this path removes the socket.
        let _ = fs::remove_file(&self.path);
    }
}

/// Answers the requests of one client until it closes the connection, or until `stop` is requested.
fn talk(stream: &UnixStream, devices: &Devices<'_>, stop: &Stop) {
    let times = stream.set_read_timeout(Some(TICK)).and(stream.set_write_timeout(Some(PATIENCE)));
    if times.is_err() {
        return;
    }
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while !stop.asked() {
        let room = (LONGEST - line.len()) as u64;
        match reader.by_ref().take(room).read_until(b'\n', &mut line) {
            // The part of a line that has arrived stays in `line` until the rest arrives.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                ) => {}
            Ok(0) | Err(_) => return,
            Ok(_) if line.ends_with(b"\n") => {
                if send(stream, &answer(&line, devices)).is_err() {
                    return;
                }
                line.clear();
            }
            Ok(_) if line.len() >= LONGEST => {
                let error = format!("a request is longer than {LONGEST} bytes");
                let _ = send(stream, &Answer::bad(1, &error, None));
                return;
            }
            Ok(_) => {}
        }
    }
}

fn answer(line: &[u8], devices: &Devices<'_>) -> Answer {
    match serde_json::from_slice(line) {
        Ok(Request::Tc { words, show }) => tc::run(devices, &words, &show),
        Ok(Request::Dev { words }) => crate::dev::run(devices, &words),
        Err(error) => {
            let remedy = "is the other side of the same version?";
            Answer::bad(1, &format!("not a request: {error}"), Some(remedy))
        }
    }
}

fn send(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}
