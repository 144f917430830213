//! Credentials of the process at the other end of a socket, and the users that a server serves.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The process at the other end of a socket, as the kernel recorded it when the socket was connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its process; `None` for one in another PID namespace.
    pub(crate) pid: Option<u32>,
    pub(crate) uid: u32,
}

impl Peer {
    /// Returns the peer's credentials (`SO_PEERCRED`).
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        // Not rustix's call: its process id cannot be 0, and the kernel's is 0 for a process of another namespace.
        let mut found = MaybeUninit::<libc::ucred>::uninit();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `found` has room for `length` bytes, which the kernel writes; both outlive the call.
        let rc = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                found.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if rc != 0 || length as usize != size_of::<libc::ucred>() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded and wrote the whole of the structure.
        let found = unsafe { found.assume_init() };
        Ok(Self { pid: u32::try_from(found.pid).ok().filter(|&pid| pid != 0), uid: found.uid })
    }
}

/// The users that a server serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// The user that runs the program, and root.
    #[default]
    Owner,
    /// Members of this group, too. They also need permission to enter the socket's folder.
    Group(u32),
    /// All users of the machine that may enter the socket's folder.
    Everyone,
}

impl Access {
    /// Returns the permissions of the socket's file.
    pub(crate) fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group(_) => 0o660,
            Self::Everyone => 0o666,
        }
    }

    /// Returns whether a server of user `own` serves `peer`. For groups and for all users, the kernel has checked the file's
    /// permissions when the peer connected.
    pub(crate) fn allows(self, peer: Peer, own: u32) -> bool {
        self != Self::Owner || peer.uid == 0 || peer.uid == own
    }
}

/// Returns whether a process is stopped, as by SIGSTOP.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (one, other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer, Peer::of(&other).unwrap());
        assert_eq!(peer.pid, Some(std::process::id()));
        assert!(!is_stopped(std::process::id()));
    }

    #[test]
    fn the_owner_and_root_are_served() {
        let peer = |uid| Peer { pid: None, uid };
        for (access, uid, allowed) in [
            (Access::Owner, 1000, true),
            (Access::Owner, 0, true),
            (Access::Owner, 1001, false),
            (Access::Group(7), 1001, true),
            (Access::Everyone, 1001, true),
        ] {
            assert_eq!(access.allows(peer(uid), 1000), allowed, "{access:?} {uid}");
        }
    }
}
