//! Sockets that servers listen on.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::folder::{Folder, Id};
use crate::lock::Lock;
use crate::peer::Peer;
use crate::{Access, Error, Place};

/// The connections that the kernel keeps for a server that does not accept them yet.
const LISTEN_BACKLOG: i32 = 128;

/// A socket on which no other server listens, for a program that speaks a protocol of its own there. Dropping it removes the socket.
#[derive(Debug)]
pub struct Socket {
    pub(crate) path: PathBuf,
    access: Access,
    pub(crate) socket: UnixListener,
    folder: Arc<Folder>,
    name: OsString,
    /// The socket's file, to remove no other one.
    file: Id,
    process: u32,
    /// Released when the socket is removed.
    _lock: Lock,
    /// Removed last.
    _folders: Folders,
}

impl Socket {
    /// Listens. Creates the folder, which it removes at the end if it is empty then (the runtime folder stays), and removes the socket of
    /// a process of this user that died.
    ///
    /// # Errors
    /// [`Error::InUse`] if another program listens there; [`Error::Socket`] if a file is there that is not a socket or is another user's,
    /// or if the system refuses; [`Error::Name`] for a name that none can have.
    pub fn open(place: &Place, access: Access) -> Result<Self, Error> {
        let path = place.path()?;
        let folders = make_folder(&path, matches!(place, Place::Name(_)))?;
        let cannot_listen = |error| Error::socket(&path, "cannot listen")(error);
        let (folder, name) = Folder::of(&path).map_err(cannot_listen)?;
        let folder = Arc::new(folder);
        let lock = Lock::take(&path, &folder, &name)?;
        if let Some(old) = folder.entry(&name).map_err(cannot_listen)? {
            let stays = |what| Err(Error::socket(&path, what)(ErrorKind::AlreadyExists.into()));
            if !old.is_socket() {
                return stays("there is a file that is no socket");
            }
            if !old.is_own() {
                return stays("there is another user's socket");
            }
            if let Some(pid) = served(&path, lock.before()).map_err(cannot_listen)? {
                return Err(Error::InUse { path: path.into_owned(), pid });
            }
            let removed = folder.remove(&name, old.id());
            removed.map_err(Error::socket(&path, "the old one cannot be removed"))?;
        }
        let socket = bound(&path, access).map_err(cannot_listen)?;
        // What the name stands for now, unless another user may write to the folder and has replaced it.
        let made = folder.entry(&name).map_err(cannot_listen)?;
        let Some(made) = made.filter(|made| made.is_socket() && made.is_own()) else {
            return Err(Error::socket(&path, "other users may write to its folder")(
                ErrorKind::PermissionDenied.into(),
            ));
        };
        let (path, process) = (path.into_owned(), process::id());
        let file = made.id();
        let socket =
            Self { path, access, socket, folder, name, file, process, _lock: lock, _folders: folders };
        let group = if let Access::Group(group) = access { Some(group) } else { None };
        let permitted = made.permit(group, access.mode());
        permitted.map_err(Error::socket(&socket.path, "its permissions cannot be set"))?;
        Ok(socket)
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts a connection, and returns it with whether the socket serves its user (`SO_PEERCRED`). Neither the socket nor the connection
    /// blocks.
    ///
    /// # Errors
    /// Those of `accept`: [`ErrorKind::WouldBlock`] if no connection waits.
    pub fn accept(&self) -> io::Result<(UnixStream, bool)> {
        let (client, _) = self.socket.accept()?;
        client.set_nonblocking(true)?;
        let own = rustix::process::geteuid().as_raw();
        let allowed = self.access.allows(Peer::of(&client)?, own);
        Ok((client, allowed))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // In a forked child, the socket is the parent's. A socket of another inode is another server's.
        if self.process == process::id() {
            // A failure has no remedy here: the next server on this path removes the socket.
            let _ = self.folder.remove(&self.name, self.file);
        }
    }
}

/// Returns whether a program listens at a path, and which, if the system names it. A socket that the server `before` left to a child
/// does not count: that server is dead.
fn served(path: &Path, before: Option<u32>) -> io::Result<Option<Option<u32>>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {
            let pid = Peer::of(&socket.into())?.pid;
            Ok((pid.is_none() || pid != before).then_some(pid))
        }
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => Ok(None),
        // Its queue is full, or it is a socket of another type.
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::PROTOTYPE) => Ok(Some(None)),
        Err(error) => Err(error.into()),
    }
}

/// Returns a listening socket. The file has its owner's permissions from the start, so no other user can ever open it: the
/// kernel gives the file the permissions of the socket. (A umask would be that of all threads of the program.)
fn bound(path: &Path, access: Access) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::from_raw_mode(access.mode() & 0o600))?;
    bind(&socket, &address)?;
    listen(&socket, LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Creates the folder of a socket, for its user alone.
///
/// # Errors
/// [`Error::Socket`] if the runtime folder belongs to another user, or other users may write to it: they could replace the
/// socket.
fn make_folder(path: &Path, named: bool) -> Result<Folders, Error> {
    let mut folders = Folders { process: process::id(), made: Vec::new() };
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(folders);
    };
    if !named {
        let is_new = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        folders.made = folder.ancestors().take_while(is_new).map(Path::to_owned).collect();
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(Error::socket(path, "its folder cannot be made"))?;
    if named {
        let found = fs::metadata(folder).map_err(Error::socket(path, "its folder cannot be read"))?;
        let own = rustix::process::geteuid().as_raw();
        if ![0, own].contains(&found.uid()) || found.mode() & 0o022 != 0 {
            let denied = ErrorKind::PermissionDenied.into();
            return Err(Error::socket(path, "other users may write to its folder")(denied));
        }
    }
    Ok(folders)
}

/// The folders that a socket has created, the innermost first. Dropping it removes those that are empty.
#[derive(Debug)]
struct Folders {
    process: u32,
    made: Vec<PathBuf>,
}

impl Drop for Folders {
    fn drop(&mut self) {
        if self.process == process::id() {
            // One that holds a file stays, and those around it.
            let _ = self.made.iter().try_for_each(fs::remove_dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("txq-socket-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_socket_is_its_owners_before_it_is_permitted() {
        let folder = folder("mode");
        let path = folder.join("s");
        let _socket = bound(&path, Access::Everyone).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_the_servers_own_socket_is_removed() {
        let folder = folder("own");
        let place = Place::from(folder.join("s"));
        let socket = Socket::open(&place, Access::Owner).unwrap();
        assert!(matches!(Socket::open(&place, Access::Owner), Err(Error::InUse { pid: Some(_), .. })));
        fs::remove_file(&socket.path).unwrap();
        let other = UnixListener::bind(&socket.path).unwrap();
        drop(socket);
        assert!(folder.join("s").exists());
        drop(other);
        // A socket without a listener is replaced, and the lock file is gone with its server.
        drop(Socket::open(&place, Access::Everyone).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    /// Folders that the socket made go with it; those that were there stay, and one that holds another file.
    #[test]
    fn folders_go_with_the_socket_that_made_them() {
        let folder = folder("made");
        let socket = Socket::open(&Place::from(folder.join("a/b/s")), Access::Owner).unwrap();
        drop(socket);
        assert!(folder.exists() && !folder.join("a").exists());
        let socket = Socket::open(&Place::from(folder.join("a/b/s")), Access::Owner).unwrap();
        fs::write(folder.join("a/other"), "").unwrap();
        drop(socket);
        assert!(folder.join("a/other").exists() && !folder.join("a/b").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn another_programs_socket_stays() {
        let folder = folder("served");
        let (path, datagrams) = (folder.join("s"), folder.join("d"));
        let other = UnixListener::bind(&path).unwrap();
        let _other = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
        for path in [&path, &datagrams] {
            let refused = Socket::open(&Place::from(path.clone()), Access::Owner);
            assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
        }
        UnixStream::connect(&path).expect("the listener's socket is still there");
        assert!(datagrams.exists());
        drop(other);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_lock_file_with_a_second_name_keeps_its_text() {
        let folder = folder("hard");
        let victim = folder.join("victim");
        fs::write(&victim, "mine").unwrap();
        fs::hard_link(&victim, folder.join("s.lock")).unwrap();
        let refused = Socket::open(&Place::from(folder.join("s")), Access::Owner).unwrap_err();
        assert!(refused.to_string().contains("of this user alone"), "{refused}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Between two steps of a server, another user may replace its socket in a folder that the user may write to.
    #[test]
    fn permissions_are_set_on_no_link() {
        let folder = folder("swapped");
        let (path, victim) = (folder.join("s"), folder.join("victim"));
        fs::write(&victim, "mine").unwrap();
        fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let (of, name) = Folder::of(&path).unwrap();
        let _socket = bound(&path, Access::Owner).unwrap();
        let made = of.entry(&name).unwrap().unwrap();
        fs::rename(&path, folder.join("moved")).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        made.permit(None, 0o666).unwrap();
        let mode = |path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(victim), mode(folder.join("moved"))), (0o600, 0o666));
        let link = of.entry(&name).unwrap().unwrap();
        assert!(!link.is_socket());
        // Nor is the link removed as the socket.
        of.remove(&name, made.id()).unwrap();
        assert!(fs::symlink_metadata(&path).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn links_and_pipes_are_refused() {
        let folder = folder("links");
        let (path, target) = (folder.join("s"), folder.join("target"));
        let told = || Socket::open(&Place::from(path.clone()), Access::Owner).unwrap_err().to_string();
        std::os::unix::fs::symlink(&target, folder.join("s.lock")).unwrap();
        assert!(told().contains("symbolic link"), "{}", told());
        assert!(!target.exists());
        fs::remove_file(folder.join("s.lock")).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(told().contains("no socket"), "{}", told());
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("s.lock"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(told().contains("no regular file"), "{}", told());
        fs::remove_dir_all(folder).unwrap();
    }
}
