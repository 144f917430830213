//! The folder of a socket, as a descriptor. A file is opened, changed and removed there, whatever the folder's path leads to later.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fstat, openat, statat, unlinkat,
};

/// A file, whatever its name is: its device and inode.
pub(crate) type Id = (u64, u64);

/// A folder.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// A file in a folder, or what else a name stands for there. The descriptor refers to it (`O_PATH`) and does not open it.
#[derive(Debug)]
pub(crate) struct Entry {
    fd: OwnedFd,
    found: Stat,
}

impl Folder {
    /// Returns the folder of a file, and the file's name.
    pub(crate) fn of(file: &Path) -> io::Result<(Self, OsString)> {
        let name = file.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok((Self(fd), name))
    }

    pub(crate) fn id(&self) -> io::Result<Id> {
        Ok(id(&fstat(&self.0)?))
    }

    /// Returns what a name stands for, without following a symbolic link; `None` if there is no such name.
    pub(crate) fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => fstat(&fd).map(|found| Some(Entry { fd, found })).map_err(Into::into),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens or creates a file for its owner alone, without following a symbolic link or waiting for the other end of a pipe.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Removes a name, if it stands for the file `of`.
    pub(crate) fn remove(&self, name: &OsStr, of: Id) -> io::Result<()> {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if id(&found) == of {
            unlinkat(&self.0, name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Entry {
    pub(crate) fn id(&self) -> Id {
        id(&self.found)
    }

    pub(crate) fn is_socket(&self) -> bool {
        FileType::from_raw_mode(self.found.st_mode) == FileType::Socket
    }

    /// Returns whether it is this user's and has one name.
    pub(crate) fn is_own(&self) -> bool {
        is_own(&self.found)
    }

    /// Gives the file a group and permissions.
    pub(crate) fn permit(&self, group: Option<u32>, mode: u32) -> io::Result<()> {
        if let Some(group) = group {
            chownat(&self.fd, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
        }
        if self.found.st_mode & 0o777 != mode || group.is_some() {
            // The name of the descriptor: `fchmod` takes none that only refers to a file.
            chmod(format!("/proc/self/fd/{}", self.fd.as_raw_fd()), Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }
}

/// Returns the identity of an open file if it is a regular file of this user with one name; `None` if it is not.
pub(crate) fn own_file(file: &File) -> io::Result<Option<Id>> {
    let found = fstat(file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    Ok((is_file && is_own(&found)).then(|| id(&found)))
}

fn is_own(found: &Stat) -> bool {
    found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1
}

fn id(found: &Stat) -> Id {
    (found.st_dev, found.st_ino)
}
