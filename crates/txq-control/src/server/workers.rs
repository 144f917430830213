//! Threads that execute requests. They start on demand, and end when there is nothing to do.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::connection::send_some;
use super::service::{Event, Service};

/// How long a thread waits for another request before it ends.
const WORKER_LINGER: Duration = Duration::from_secs(2);

/// A request to execute.
#[derive(Debug)]
pub(super) struct Job {
    /// The connection's number.
    pub(super) id: u64,
    pub(super) line: Vec<u8>,
    pub(super) client: Arc<UnixStream>,
}

/// The end of a request.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) id: u64,
    /// The part of the answer for which the client has no room yet; `None` if the client is gone.
    pub(super) rest: Option<Vec<u8>>,
}

/// The threads, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    service: Arc<Service>,
    queue: Mutex<Queue>,
    /// Signalled for each request, and for all threads when the server stops.
    wake: Condvar,
    /// Set when a request is done.
    done: Event,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Requests whose answer is being sent: the client may have it already.
    answering: usize,
    done: Vec<Outcome>,
    /// The threads that exist, and those of them that wait for a request.
    threads: usize,
    idle: usize,
    stopping: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workers {
    pub(super) fn new(service: Arc<Service>) -> io::Result<Self> {
        let (queue, wake, done) = (Mutex::default(), Condvar::new(), Event::new()?);
        Ok(Self { shared: Arc::new(Shared { service, queue, wake, done }), threads: Vec::new() })
    }

    /// Executes a request on a thread; returns the request if no thread exists and none can be started.
    pub(super) fn submit(&mut self, job: Job) -> Result<(), Job> {
        let mut queue = self.shared.queue();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads >= self.shared.service.limits.commands.max(1) {
            self.shared.wake.notify_one();
            return Ok(());
        }
        let shared = self.shared.clone();
        match thread::Builder::new().name("txq-control-cmd".into()).spawn(move || work(&shared)) {
            Ok(thread) => {
                queue.threads += 1;
                drop(queue);
                self.threads.retain(|thread| !thread.is_finished());
                self.threads.push(thread);
                Ok(())
            }
            // A thread that works now takes the request later.
            Err(_) if queue.threads > 0 => Ok(()),
            Err(_) => match queue.jobs.pop_back() {
                Some(job) => Err(job),
                None => Ok(()),
            },
        }
    }

    /// Returns the event that is set when a request is done.
    pub(super) fn done(&self) -> &Event {
        &self.shared.done
    }

    /// Returns the requests that are done since the last call.
    pub(super) fn take_done(&self) -> Vec<Outcome> {
        self.shared.done.clear();
        std::mem::take(&mut self.shared.queue().done)
    }

    /// Returns whether a request is done that [`take_done`](Self::take_done) has not returned, or that is done but for its answer.
    pub(super) fn has_answers(&self) -> bool {
        let queue = self.shared.queue();
        queue.answering > 0 || !queue.done.is_empty()
    }

    /// Waits until the running requests are done, and the threads have ended. Requests that wait are not executed.
    pub(super) fn end(mut self) {
        self.shared.queue().stopping = true;
        self.shared.wake.notify_all();
        self.threads.drain(..).for_each(|thread| {
            // Requests that panic are caught; so the thread has not.
            let _ = thread.join();
        });
    }
}

/// Executes requests until none arrives for [`WORKER_LINGER`], or the server stops.
fn work(shared: &Shared) {
    let mut queue = shared.queue();
    loop {
        if queue.stopping {
            break;
        }
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            let answer = shared.service.answer(&job.line, &job.client);
            shared.queue().answering += 1;
            let rest = answer.and_then(|mut last| {
                let sent = send_some(&job.client, &last)?;
                last.drain(..sent);
                Ok(last)
            });
            queue = shared.queue();
            queue.answering -= 1;
            queue.done.push(Outcome { id: job.id, rest: rest.ok() });
            shared.done.set();
            continue;
        }
        queue.idle += 1;
        let (again, time) =
            shared.wake.wait_timeout(queue, WORKER_LINGER).unwrap_or_else(PoisonError::into_inner);
        queue = again;
        queue.idle -= 1;
        if time.timed_out() && queue.jobs.is_empty() {
            break;
        }
    }
    queue.threads -= 1;
}
