//! The socket of a connection: the server's welcome, and the bytes with which the sides ring.

use std::io::IoSlice;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};

use crate::socket::layout::{MAGIC, VERSION};
use crate::socket::{Error, Reason};

/// The length of the welcome: magic, version, reason of a refusal or 0, and the size of the memory.
const WELCOME: usize = 16;
/// The byte that rings.
const RING: u8 = 0;

/// Sends the welcome with the memory's descriptor, or the reason of a refusal. Never waits.
pub(crate) fn welcome(to: &UnixStream, memory: Result<(BorrowedFd<'_>, usize), Reason>) -> io::Result<()> {
    let (status, size) = memory.map_or_else(|reason| (reason as u32, 0), |(_, size)| (0, size as u32));
    let mut bytes = [0; WELCOME];
    let words = [MAGIC, VERSION, status, size];
    bytes.chunks_mut(4).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = memory.ok().map(|(fd, _)| [fd]);
    if let Some(fds) = &fds {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(to, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent == WELCOME { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives the welcome; returns the memory and its size.
pub(crate) fn welcomed(from: &UnixStream) -> Result<(OwnedFd, u32), Error> {
    let (mut bytes, mut got, mut fd) = ([0; WELCOME], 0, None);
    while got < WELCOME {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes[got..])];
        let received = match recvmsg(from, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            received => received.map_err(io::Error::from)?,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.last().or(fd);
            }
        }
        if received.bytes == 0 {
            return Err(Error::Gone);
        }
        got += received.bytes;
    }
    let mut words = bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")));
    let mut word = || words.next().expect("four words");
    let [magic, version, status, size] = [word(), word(), word(), word()];
    if magic != MAGIC || version != VERSION {
        return Err(Error::Protocol(format!(
            "magic {magic:#x}, version {version}: version {VERSION} is known"
        )));
    }
    match (Reason::of(status), fd) {
        (Some(reason), _) => Err(Error::Refused(reason)),
        (None, Some(fd)) if status == 0 => Ok((fd, size)),
        _ => Err(Error::Protocol(format!("a welcome of status {status} without memory"))),
    }
}

/// Wakes the other side; returns whether it is there. Never waits: a socket that takes no byte has bytes that the other side has not
/// read, and they wake it.
pub(crate) fn ring(to: impl AsFd) -> bool {
    use rustix::io::Errno;
    let sent = send(to, &[RING], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    !matches!(sent, Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
}

/// Says why the connection ends. Never waits.
pub(crate) fn farewell(to: impl AsFd, reason: Reason) {
    let _ = send(to, &[reason as u8], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// What the other side has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing new.
    Nothing,
    /// It rang.
    Ring,
    /// It ended the connection, and may have said why.
    End(Option<Reason>),
}

/// Reads what the other side has written, at most 64 bytes. Never waits.
pub(crate) fn listen(from: impl AsFd) -> Heard {
    let mut bytes = [0; 64];
    match recv(from, &mut bytes, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Heard::End(None),
        Ok((n, _)) => match bytes[..n].iter().find(|&&byte| byte != RING) {
            Some(&byte) => Heard::End(Reason::of(byte.into())),
            None => Heard::Ring,
        },
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Heard::Nothing,
        Err(_) => Heard::End(None),
    }
}
