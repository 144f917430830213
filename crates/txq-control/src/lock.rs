//! The lock file beside a socket: one server for each socket, in this process and in all others.
//!
//! The kernel releases the lock of a process that ends. The lock belongs to the process (`F_SETLK`), so a child that the
//! program forks neither holds it nor releases it. Within the process a table does the same, because such locks do not
//! exclude threads of one process.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};

use crate::Error;

/// The socket of a lock: the folder's device and inode, and the file's name, whatever path leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    process: u32,
    folder: (u64, u64),
    name: OsString,
}

/// The locks that this process holds.
static HELD: Mutex<Vec<Key>> = Mutex::new(Vec::new());

/// The lock of a socket. Dropping it releases the lock and removes the file.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    key: Key,
    /// `None` only while the lock is dropped.
    file: Option<File>,
}

impl Lock {
    /// Takes the lock of the socket `socket`.
    ///
    /// # Errors
    /// [`Error::InUse`] if another server holds it; [`Error::Socket`] if the lock file is a symbolic link or no regular file,
    /// or if the system refuses.
    pub(crate) fn take(socket: &Path) -> Result<Self, Error> {
        let locked = |error| Error::socket(socket, "cannot be locked")(error);
        let folder =
            socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = fs::metadata(folder).map_err(locked)?;
        let name = socket.file_name().ok_or_else(|| locked(ErrorKind::InvalidInput.into()))?.to_owned();
        let key = Key { process: process::id(), folder: (folder.dev(), folder.ino()), name };
        // Held until the end: closing a second descriptor of the file would release the first one's lock.
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains(&key) {
            return Err(Error::InUse { path: socket.to_owned(), pid: Some(process::id()) });
        }
        let mut path = socket.to_owned().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let mut file = open(&path).map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => Error::socket(socket, "its lock file is a symbolic link")(error),
                _ => locked(error),
            })?;
            let found = file.metadata().map_err(locked)?;
            if !found.is_file() {
                let error = ErrorKind::AlreadyExists.into();
                return Err(Error::socket(socket, "its lock file is no regular file")(error));
            }
            match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied) => {
                    let mut text = String::new();
                    let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                    return Err(Error::InUse { path: socket.to_owned(), pid });
                }
                Err(error) => return Err(locked(error)),
            }
            // The previous holder may have removed the file between the two calls; the lock of a removed file is worth nothing.
            if fs::symlink_metadata(&path).is_ok_and(|now| same(&now, &found)) {
                let written = file.set_len(0).and_then(|()| file.rewind());
                written.and_then(|()| writeln!(file, "{}", process::id())).map_err(locked)?;
                held.push(key.clone());
                return Ok(Self { path, key, file: Some(file) });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // In a forked child, the file is the parent's.
        if self.key.process == process::id() {
            let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock, so that it is this server's file. A failure leaves a file that the next server takes over.
            let _ = fs::remove_file(&self.path);
            drop(self.file.take());
            held.retain(|key| *key != self.key);
        }
    }
}

/// Opens or creates the file, without following a symbolic link and without waiting for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true).mode(0o600).custom_flags(flags.bits() as i32);
    options.open(path)
}

/// Returns whether both are of the same file.
pub(crate) fn same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
