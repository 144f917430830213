//! An eventfd for programs that drive a [`Worker`](txq::Worker) from their own event loop, or wait there for room
//! ([`Sender::poll_room`](txq::Sender::poll_room)). [`txq::worker`] describes the whole loop, also for mio and tokio.
//!
//! Its descriptor becomes readable when there is work, and stays readable until [`EventFd::drain`]:
//!
//! ```
//! use std::time::Duration;
//! use rustix::event::{PollFd, PollFlags, Timespec, poll};
//! use txq::NetDev;
//! use txq_device::{EventFd, Null};
//!
//! let dev = NetDev::builder(Null { inline: false, ..Null::new(1) }).build()?;
//! let (wake, mut worker) = (EventFd::new()?, dev.worker(0));
//! worker.set_waker(wake.notifier());
//!
//! let mut sender = dev.sender("main");
//! let packet = sender.packet(&[0; 60])?;
//! let _ = sender.xmit(packet);
//! // The event loop: sleep until there is work, then do it.
//! while !dev.is_idle() {
//!     let next = worker.poll().map(|at| at - sender.now());
//!     let timeout = next.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(1));
//!     poll(&mut [PollFd::new(&wake, PollFlags::IN)], Some(&Timespec::try_from(timeout)?))?;
//!     wake.drain();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A loop that sends, and does other work while the queue is full instead of losing packets:
//!
//! ```
//! use std::task::Poll;
//! use rustix::event::{PollFd, PollFlags, Timespec, poll};
//! use txq::{NetDev, Room};
//! use txq_device::{EventFd, Null};
//!
//! let wire = Null { rate: Some(100_000_000), ring: 8, ..Null::new(1) };
//! let dev = NetDev::builder(wire).qdisc("pfifo limit 1000").start()?;
//! let (room, mut sender) = (EventFd::new()?, dev.sender("main"));
//! let waker = room.waker();
//! let mut left = 3000;
//! while left > 0 {
//!     match sender.poll_room(&waker) {
//!         Poll::Ready(Room::Free) => {
//!             let packet = sender.packet(&[0; 60])?;
//!             let _verdict = sender.xmit(packet);
//!             left -= 1;
//!         }
//!         Poll::Ready(_) => break,
//!         Poll::Pending => {
//!             // Sleep, with the loop's other descriptors, until there is room; in any case ask again after a second.
//!             let second = Timespec { tv_sec: 1, tv_nsec: 0 };
//!             poll(&mut [PollFd::new(&room, PollFlags::IN)], Some(&second))?;
//!             room.drain();
//!         }
//!     }
//! }
//! assert_eq!((left, sender.dropped()), (0, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that becomes readable when a thread notifies it.
#[derive(Debug, Clone)]
pub struct EventFd(Arc<OwnedFd>);

impl EventFd {
    /// Creates a descriptor that is not readable yet.
    ///
    /// # Errors
    /// When the process has no descriptor left, or the system has no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Returns a function that makes it readable, from any thread: for [`Worker::set_waker`](txq::Worker::set_waker).
    pub fn notifier(&self) -> impl Fn() + Send + Sync + use<> {
        let fd = Notify(self.0.clone());
        move || fd.notify()
    }

    /// Returns a waker that makes it readable: for [`Sender::poll_room`](txq::Sender::poll_room).
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::new(Notify(self.0.clone())))
    }

    /// Makes it unreadable again; returns whether it was readable. Call it before doing the work, so that notifications that
    /// arrive meanwhile make it readable again.
    pub fn drain(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

/// The notifying half of the descriptor.
struct Notify(Arc<OwnedFd>);

impl Notify {
    fn notify(&self) {
        // It fails only when the counter is full; then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// For mio's `SourceFd` and tokio's `AsyncFd`.
impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(fd: &EventFd) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn it_is_readable_from_a_notification_until_it_is_drained() {
        let fd = EventFd::new().unwrap();
        let notify = fd.notifier();
        assert!(!readable(&fd) && !fd.drain());
        std::thread::spawn(move || (0..3).for_each(|_| notify())).join().unwrap();
        assert!(readable(&fd) && fd.drain());
        assert!(!readable(&fd) && !fd.drain(), "three notifications are one");
        assert_eq!(fd.as_raw_fd(), fd.as_fd().as_raw_fd());
    }
}
