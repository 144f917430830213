//! An eventfd for programs that drive a [`Worker`](txq::Worker) from a loop of their own.
//!
//! Its descriptor becomes readable when there is work, and stays so until [`EventFd::drain`]:
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
//! // What a loop does: sleep until there is work, and then do it.
//! while !dev.is_idle() {
//!     let next = worker.poll().map(|at| Duration::from_nanos(at.saturating_sub(sender.now())));
//!     let timeout = next.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(1));
//!     poll(&mut [PollFd::new(&wake, PollFlags::IN)], Some(&Timespec::try_from(timeout)?))?;
//!     wake.drain();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that is readable when somebody has notified it.
#[derive(Debug, Clone)]
pub struct EventFd(Arc<OwnedFd>);

impl EventFd {
    /// A descriptor that is not readable yet.
    ///
    /// # Errors
    /// The process has no descriptor left, or the system no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// What makes it readable, from any thread: for [`Worker::set_waker`](txq::Worker::set_waker).
    pub fn notifier(&self) -> impl Fn() + Send + Sync + use<> {
        let fd = self.0.clone();
        // It fails only when the counter is full, and then it is readable anyway.
        move || {
            let _ = rustix::io::write(&fd, &1_u64.to_ne_bytes());
        }
    }

    /// Makes it unreadable again, and tells whether it was readable. Call it before doing the work, so that what comes
    /// meanwhile is told anew.
    pub fn drain(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
    }
}
