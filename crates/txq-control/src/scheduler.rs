//! Schedulers that a server serves: a command goes to the thread that owns the scheduler.
//!
//! A [`Scheduler`] has no lock and no thread, so no thread but its owner's may touch it. The thread that executes a client's command
//! puts a job into a mailbox, makes a descriptor readable, and sleeps. The owner takes the job in its next
//! [`poll`](SchedulerPort::poll). A client gets an error if the owner does not poll for some seconds.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, process};

use rustix::event::{EventfdFlags, eventfd};
use txq::filter::FilterInfo;
use txq::tc::{ClassInfo, Handle, ParseError, QdiscInfo, Style};
use txq::{Instant, Scheduler};

/// How long a command waits for the scheduler's owner.
const OWNER_WAIT: Duration = Duration::from_secs(5);

/// What commands need of a scheduler, whatever its packets are.
pub(crate) trait Tree {
    fn qdiscs(&mut self, style: Style) -> Vec<QdiscInfo>;
    fn classes(&mut self, style: Style) -> Vec<ClassInfo>;
    fn filters(&mut self, parent: Option<Handle>, style: Style) -> Vec<FilterInfo>;
    /// Executes a command; returns tc's warnings.
    fn tc(&mut self, command: &str) -> Result<Vec<String>, ParseError>;
}

/// A scheduler, and the time of its owner's call.
struct At<'s, T>(&'s mut Scheduler<T>, Instant);

impl<T> Tree for At<'_, T> {
    fn qdiscs(&mut self, style: Style) -> Vec<QdiscInfo> {
        self.0.qdiscs(style)
    }

    fn classes(&mut self, style: Style) -> Vec<ClassInfo> {
        self.0.classes(style)
    }

    fn filters(&mut self, parent: Option<Handle>, style: Style) -> Vec<FilterInfo> {
        self.0.filters(parent, style)
    }

    fn tc(&mut self, command: &str) -> Result<Vec<String>, ParseError> {
        self.0.tc(self.1, command)
    }
}

type Job = Box<dyn FnOnce(&mut dyn Tree) + Send>;

/// The commands that wait for the owner of one scheduler.
pub(crate) struct Mailbox {
    name: String,
    /// Readable while commands wait.
    wake: OwnedFd,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<(u64, Job)>,
    /// The number of the last job.
    last: u64,
    /// Whether the owner's end or the server is gone.
    closed: bool,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(crate) fn new(name: &str) -> io::Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { name: name.to_owned(), wake, waiting: Mutex::default() }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.waiting().closed
    }

    /// Ends all waits of commands, and refuses later ones.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        let jobs = std::mem::take(&mut waiting.jobs);
        drop(waiting);
        drop(jobs);
    }

    /// Lets the owner call `f` with the scheduler; returns the result of `f`.
    ///
    /// # Errors
    /// The owner does not poll, or is gone.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut dyn Tree) -> R + Send + 'static,
    ) -> Result<R, ParseError> {
        let (answer, answered) = sync_channel(1);
        let job: Job = Box::new(move |tree| {
            // The command may have given up.
            let _ = answer.send(f(tree));
        });
        let mut waiting = self.waiting();
        if waiting.closed {
            return Err(self.gone());
        }
        waiting.last += 1;
        let number = waiting.last;
        waiting.jobs.push_back((number, job));
        drop(waiting);
        // It fails only if the counter is at its end, which also wakes.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        match answered.recv_timeout(OWNER_WAIT) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut waiting = self.waiting();
        let before = waiting.jobs.len();
        waiting.jobs.retain(|(other, _)| *other != number);
        if waiting.jobs.len() < before {
            drop(waiting);
            let error = ParseError::new("RTNETLINK answers: Connection timed out");
            return Err(error.with_remedy(format!(
                "the program has not polled the scheduler \"{}\" for {OWNER_WAIT:?}: it must when its descriptor is readable",
                self.name
            )));
        }
        drop(waiting);
        // The owner executes the command now.
        answered.recv().map_err(|_| self.gone())
    }

    fn gone(&self) -> ParseError {
        let error = ParseError::new("RTNETLINK answers: No such device");
        error.with_remedy(format!("the program no longer serves the scheduler \"{}\"", self.name))
    }

    fn take(&self) -> Option<Job> {
        let mut waiting = self.waiting();
        let job = waiting.jobs.pop_front();
        if waiting.jobs.is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
        job.map(|(_, job)| job)
    }
}

/// The end of the thread that owns a scheduler which a [`Server`](crate::Server) serves. Dropping it ends the service of the
/// scheduler; commands that wait get an error.
///
/// Its descriptor ([`AsFd`]) is readable while commands wait.
///
/// ```
/// use txq::Scheduler;
/// use txq_control::Server;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("txq-control-sched-doc-{}", std::process::id()));
/// # let place = folder.join("shaper.sock");
/// # let place = place.to_str().unwrap();
/// let mut scheduler: Scheduler<u64> = Scheduler::new("handle 1: htb default 10")?;
/// let server = Server::builder().at(place).start()?;
/// let mut port = server.add_scheduler("mbufs")?;
///
/// // Another process, by `txq tc --name shaper qdisc show dev mbufs`, or another thread:
/// let place = place.to_owned();
/// let client = std::thread::spawn(move || {
///     let words = ["qdisc", "show", "dev", "mbufs"];
///     txq_control::Client::connect(place).and_then(|mut client| client.tc(&words, Default::default()))
/// });
/// // The owner's loop, which also enqueues and dequeues:
/// while !client.is_finished() {
///     while port.poll(txq::Instant::now(), &mut scheduler) {
///         for packet in scheduler.dropped() { /* free packet.value */ }
///     }
/// #   std::thread::yield_now();
/// }
/// let answer = client.join().unwrap()?;
/// assert!(answer.out.starts_with("qdisc htb 1: root"), "{answer:?}");
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SchedulerPort {
    mailbox: Arc<Mailbox>,
    process: u32,
}

impl SchedulerPort {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, process: process::id() }
    }

    /// Executes one command that waits, at the time `now`; returns whether there was one. Call it until it returns false. A command
    /// may drop packets: take [`Scheduler::dropped`] after each call.
    ///
    /// In a child after `fork` it returns false: commands go to the parent.
    #[inline]
    pub fn poll<T>(&mut self, now: impl Into<Instant>, scheduler: &mut Scheduler<T>) -> bool {
        self.poll_at(now.into(), scheduler)
    }

    fn poll_at<T>(&mut self, now: Instant, scheduler: &mut Scheduler<T>) -> bool {
        if self.process != process::id() {
            return false;
        }
        let job = self.mailbox.take();
        job.map(|job| job(&mut At(scheduler, now))).is_some()
    }
}

impl AsFd for SchedulerPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.wake.as_fd()
    }
}

impl Drop for SchedulerPort {
    fn drop(&mut self) {
        if self.process == process::id() {
            self.mailbox.close();
        }
    }
}
