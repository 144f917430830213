//! A namespace as the process outside sees it: its first process, the orders for it, and its end.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use anyhow::bail;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::UnshareFlags;

use super::stage::Orders;
use super::unshare;
use crate::common::failure::{Refused, refused};

/// A namespace and its first process, which ends when this value is dropped, or this program dies: then the kernel closes the pipe for the
/// orders. All other processes of the namespace end with it.
#[derive(Debug)]
pub(super) struct Space {
    pid: u32,
    handle: OwnedFd,
    orders: File,
    /// The other end, which the first process opens by its path.
    _read: OwnedFd,
    /// The first process writes here when it has prepared the namespace. The end of the pipe is its death.
    prepared: File,
    /// The path of the other end of `prepared`.
    prepared_path: PathBuf,
    ended: Receiver<u8>,
    code: Option<u8>,
}

impl Space {
    /// Starts the first process of new namespaces, beside that of processes. It waits for its orders. `name` is that of the thread that
    /// stays in the namespaces with it.
    pub(super) fn start(name: &str, flags: UnshareFlags, mut command: Command) -> anyhow::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (prepared, prepared_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let of_own = |end: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), end.as_raw_fd());
        let (path, prepared_path) = (of_own(&read), PathBuf::from(of_own(&prepared_end)));
        let (started, pid) = mpsc::channel();
        let (tell_end, ended) = mpsc::channel();
        // Namespaces belong to a thread, and a process that it starts is in them.
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut start = || -> io::Result<Child> {
                unshare(flags | UnshareFlags::NEWPID)?;
                command.args(["shell", "--stage", &path]).spawn()
            };
            let child = start();
            let _ =
                started.send(child.as_ref().map(Child::id).map_err(|error| io::Error::from(error.kind())));
            if let Ok(status) = child.and_then(|mut child| child.wait()) {
                let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
                let _ = tell_end.send(code as u8);
            }
            drop(prepared_end);
        })?;
        let pid = pid.recv()?.map_err(refused("a namespace cannot be made"))?;
        let handle =
            Pid::from_raw(pid.cast_signed()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let handle = pidfd_open(handle, PidfdFlags::empty())?;
        Ok(Self {
            pid,
            handle,
            orders: write.into(),
            _read: read,
            prepared: prepared.into(),
            prepared_path,
            ended,
            code: None,
        })
    }

    /// Returns the path of the network namespace.
    pub(super) fn network(&self) -> String {
        format!("/proc/{}/ns/net", self.pid)
    }

    /// Reads a file of the network namespace, as `route` of `/proc/net`; an empty text if there is none.
    pub(super) fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/net/{file}", self.pid)).unwrap_or_default()
    }

    /// Lets the first process do its work; returns when the namespace is prepared, whether the program there has started or not.
    pub(super) fn order(&mut self, orders: Orders) -> anyhow::Result<()> {
        let line = serde_json::to_string(&Orders { prepared: self.prepared_path.clone(), ..orders })? + "\n";
        self.orders.write_all(line.as_bytes())?;
        if self.prepared.read(&mut [0])? == 0 {
            bail!(Refused("a namespace cannot be prepared, for the reason above".to_owned()));
        }
        Ok(())
    }

    /// Returns the exit code of the first process once it has ended.
    pub(super) fn code(&mut self) -> Option<u8> {
        if self.code.is_none() {
            self.code = match self.ended.try_recv() {
                Ok(code) => Some(code),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(1),
            };
        }
        self.code
    }

    /// Sends a signal to the first process, which passes it on.
    pub(super) fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

/// Returns a command for a namespace without a terminal: nothing to read, and its output on stderr.
pub(super) fn in_background() -> Command {
    let mut command = own();
    command.stdin(Stdio::null()).stdout(io::stderr());
    command
}

/// Returns a command that runs this program again.
pub(super) fn own() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("txq");
    command
}
