//! One queue of the device: a socket, its rings, and the buffers that the kernel has of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use txq::packet::PacketList;

use super::interface::Interface;
use super::socket::{self, Flags, Rings};
use super::umem::{Umem, Use, Uses};

/// How long the kernel may take to release a queue after its last socket was closed: on a busy machine more than a second.
const RELEASE: Duration = Duration::from_secs(5);
const UNBIND_STEP: Duration = Duration::from_millis(10);

/// The state of the interface, as the last system call has found it.
const UP: u8 = 0;
const DOWN: u8 = 1;
const GONE: u8 = 2;

/// The result of a kick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kick {
    /// The kernel has sent, or will send, all frames.
    Sent,
    /// The kernel has sent some frames or none, and takes more soon.
    Again,
    /// The interface is down or has no carrier.
    Down,
    /// The interface does not exist any more.
    Gone,
}

/// A bound socket with its mapped rings, shared by the halves of a txq and by its receiver. The last one closes it.
///
/// The kernel reads and writes the buffers given to it until the socket is closed, and it closes the socket when the
/// descriptor is closed and the rings are unmapped. Only then the buffers return to the pool.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) interface: Arc<Interface>,
    pub(super) umem: Umem,
    pub(super) uses: Uses,
    /// The queue's index on the interface.
    pub(super) index: u32,
    pub(super) zero_copy: bool,
    pub(super) need_wakeup: bool,
    /// Whether frames may have metadata. Then each frame has space for it in front.
    pub(super) metadata: bool,
    /// [`UP`], [`DOWN`] or [`GONE`]. Written by the thread that kicks, read by both halves. [`GONE`] is final: Release, so
    /// that a half that reads it knows that the kernel has left the tx ring.
    state: AtomicU8,
    /// The first error to report.
    error: Mutex<Option<io::Error>>,
    /// `None` while the queue is dropped.
    rings: Option<Rings>,
    fd: Option<OwnedFd>,
}

/// The step of [`Queue::open`] that failed.
#[derive(Debug)]
pub(super) enum Step {
    Socket,
    Umem,
    Rings,
    Bind,
}

/// What a queue is opened with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// Slots of each ring.
    pub(super) size: u32,
    pub(super) receive: bool,
    /// Whether to ask for metadata.
    pub(super) metadata: bool,
    pub(super) flags: Flags,
}

impl Queue {
    /// Opens queue `index` of the interface. `first` is an open queue of the same UMEM, if there is one.
    pub(super) fn open(
        interface: &Arc<Interface>,
        umem: &Umem,
        index: u32,
        setup: &Setup,
        first: Option<&Self>,
    ) -> Result<Self, (Step, io::Error)> {
        let at = |step| move |error| (step, error);
        let fd = socket::open().map_err(at(Step::Socket))?;
        let metadata = match first {
            Some(first) => first.metadata,
            None => {
                let headroom = if setup.receive { umem.headroom() } else { 0 };
                socket::register(&fd, umem, headroom, setup.metadata).map_err(at(Step::Umem))?
            }
        };
        socket::create_rings(&fd, setup.size, setup.receive).map_err(at(Step::Rings))?;
        socket::widen(&fd);
        let rings = Rings::map(&fd, setup.size, setup.receive).map_err(at(Step::Rings))?;
        let flags = bind(&fd, interface.index, index, setup.flags, first).map_err(at(Step::Bind))?;
        let zero_copy = socket::is_zero_copy(fd.as_fd()).map_err(at(Step::Bind))?;
        Ok(Self {
            interface: interface.clone(),
            umem: umem.clone(),
            uses: Uses::new(umem.pool.max_buffers() as usize),
            index,
            zero_copy,
            need_wakeup: first.map_or(flags.need_wakeup, |first| first.need_wakeup),
            metadata,
            state: AtomicU8::new(UP),
            error: Mutex::new(None),
            rings: Some(rings),
            fd: Some(fd),
        })
    }

    /// Returns the rings.
    pub(super) fn rings(&self) -> &Rings {
        self.rings.as_ref().expect("open until it is dropped")
    }

    pub(super) fn is_down(&self) -> bool {
        self.state.load(Acquire) == DOWN
    }

    /// Returns whether the interface is gone. Then the kernel does not use the tx ring any more.
    pub(super) fn is_gone(&self) -> bool {
        self.state.load(Acquire) == GONE
    }

    fn set_state(&self, state: u8) {
        if !self.is_gone() {
            self.state.store(state, Release);
        }
    }

    /// Returns whether the kernel waits for a kick. The caller has published frames before.
    pub(super) fn wants_kick(&self) -> bool {
        !self.need_wakeup || self.rings().tx.needs_wakeup()
    }

    /// Makes the kernel send what is in the tx ring, without waiting.
    pub(super) fn kick(&self) -> Kick {
        let Err(error) = socket::kick_tx(self.as_fd()) else {
            self.set_state(UP);
            return Kick::Sent;
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => Kick::Again,
            // The interface has dropped one frame: it is full, or nobody is at the other end.
            Some(libc::EBUSY) if self.interface.has_carrier() => Kick::Again,
            Some(libc::EBUSY | libc::ENETDOWN) => {
                self.set_state(DOWN);
                Kick::Down
            }
            Some(libc::ENXIO | libc::ENODEV) if !self.interface.exists() => {
                self.note(error, "is gone: its packets are dropped");
                self.state.store(GONE, Release);
                Kick::Gone
            }
            // Some drivers send in zero-copy mode only while an XDP program is attached.
            Some(libc::ENXIO) => {
                self.note(error, "does not send: set `receive`, or `mode` to Mode::Copy");
                self.set_state(DOWN);
                Kick::Down
            }
            _ => {
                self.note(error, "does not send");
                Kick::Again
            }
        }
    }

    /// Ends the wait of a queue that was down, if the interface has a carrier again; returns whether it has.
    pub(super) fn check_carrier(&self) -> bool {
        let up = self.interface.has_carrier();
        if up {
            self.set_state(UP);
        }
        up
    }

    fn note(&self, error: io::Error, what: &str) {
        let (name, queue) = (&self.interface.name, self.index);
        let text =
            format!("queue {queue} of interface \"{name}\" {what} ({error}): see `ip -s link` and dmesg");
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| io::Error::new(error.kind(), text));
    }

    /// Takes the first error that was not reported.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("open until it is dropped").as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A mapping holds the socket open as a descriptor does. When both are gone, the kernel has left the buffers.
        self.rings = None;
        self.fd = None;
        let pool = &self.umem.pool;
        let held = (0..self.uses.len()).filter(|&buffer| self.uses.get(buffer) != Use::None);
        // SAFETY: the table names the buffers that `take_offset` gave to the kernel and that it has not returned.
        let packets: PacketList =
            held.map(|buffer| unsafe { pool.packet_at(buffer * self.umem.stride) }).collect();
        drop(packets);
    }
}

/// Binds a socket; waits while the kernel releases the queue of a process that has just ended. Returns the flags that a kernel
/// without wakeups leaves.
fn bind(fd: &OwnedFd, ifindex: u32, index: u32, flags: Flags, first: Option<&Queue>) -> io::Result<Flags> {
    let mut flags = flags;
    let mut waited = Duration::ZERO;
    loop {
        match socket::bind(fd, ifindex, index, flags, first.map(AsFd::as_fd)) {
            Ok(()) => return Ok(flags),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && waited < RELEASE => {
                thread::sleep(UNBIND_STEP);
                waited += UNBIND_STEP;
            }
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL) && flags.need_wakeup && first.is_none() =>
            {
                flags.need_wakeup = false;
            }
            Err(error) => return Err(error),
        }
    }
}
