//! The lock file beside a socket: one server for each socket, in this process and in all others.
//!
//! The kernel releases the lock of a process that ends. The lock belongs to the process (`F_SETLK`), so a child that the
//! program forks neither holds it nor releases it. Within the process a table does the same, because such locks do not
//! exclude threads of one process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::Error;
use crate::folder::{Folder, Id, own_file};

/// The socket of a lock: its folder, and the file's name, whatever path leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    process: u32,
    folder: Id,
    name: OsString,
}

/// The locks that this process holds.
static HELD_LOCKS: Mutex<Vec<Key>> = Mutex::new(Vec::new());

/// The lock of a socket. Dropping it releases the lock and removes the file.
#[derive(Debug)]
pub(crate) struct Lock {
    folder: Arc<Folder>,
    name: OsString,
    id: Id,
    key: Key,
    /// `None` only while the lock is dropped.
    file: Option<File>,
    /// The process that held the lock before and died with it.
    before: Option<u32>,
}

impl Lock {
    /// Takes the lock of the socket `name` in `folder`; `socket` is its path, for errors.
    ///
    /// # Errors
    /// [`Error::InUse`] if another server holds it; [`Error::Socket`] if the lock file is a symbolic link, no regular file, another
    /// user's or one with a second name, or if the system refuses.
    pub(crate) fn take(socket: &Path, folder: &Arc<Folder>, name: &OsString) -> Result<Self, Error> {
        let locked = |error| Error::socket(socket, "cannot be locked")(error);
        let key = Key { process: process::id(), folder: folder.id().map_err(locked)?, name: name.clone() };
        // Held until the end: closing a second descriptor of the file would release the first one's lock.
        let mut held = HELD_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains(&key) {
            return Err(Error::InUse { path: socket.to_owned(), pid: Some(process::id()) });
        }
        let mut name = name.clone();
        name.push(".lock");
        loop {
            let mut file = folder.create(&name).map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => Error::socket(socket, "its lock file is a symbolic link")(error),
                _ => locked(error),
            })?;
            // The previous holder may remove the file between the two calls: then it has no name, and is nobody's.
            let Some(id) = own_file(&file).map_err(locked)? else {
                if is_removed(&file).map_err(locked)? {
                    continue;
                }
                let error = ErrorKind::AlreadyExists.into();
                return Err(Error::socket(socket, "its lock file is no regular file of this user alone")(
                    error,
                ));
            };
            match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied) => {
                    return Err(Error::InUse { path: socket.to_owned(), pid: holder(&file) });
                }
                Err(error) => return Err(locked(error)),
            }
            let before = holder(&file);
            // The previous holder may have removed the file before it released the lock; the lock of a removed file is worth nothing.
            if folder.entry(&name).is_ok_and(|now| now.is_some_and(|now| now.id() == id)) {
                let written = file.set_len(0).and_then(|()| file.rewind());
                written.and_then(|()| writeln!(file, "{}", process::id())).map_err(locked)?;
                held.push(key.clone());
                return Ok(Self { folder: folder.clone(), name, id, key, file: Some(file), before });
            }
        }
    }

    /// Returns the process that held the lock before, if it died with it.
    pub(crate) fn before(&self) -> Option<u32> {
        self.before
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // In a forked child, the file is the parent's.
        if self.key.process == process::id() {
            let mut held = HELD_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock, so that it is this server's file. A failure leaves a file that the next server takes over.
            let _ = self.folder.remove(&self.name, self.id);
            drop(self.file.take());
            held.retain(|key| *key != self.key);
        }
    }
}

/// Returns the process that a lock file names.
fn holder(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Returns whether an open file has no name left.
fn is_removed(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fstat(file)?.st_nlink == 0)
}
