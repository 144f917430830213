//! A few threads that drive the workers of many devices.
//!
//! A device that was [started](crate::generic::netdev::Builder::start) has a thread for each of its workers. A process with hundreds
//! of devices, most of them idle, builds them without threads, and a [`WorkerPool`] drives their workers. Each thread of the
//! pool keeps the workers that it was given. It polls those that have work, each once in a round, and sleeps until the
//! earliest time that one of them waits for. An idle device costs no thread and no wakeup.
//!
//! The kernel's counterpart is `ksoftirqd`, one for each CPU and not for each device.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use txq_core::arch::{Arch, Nanos, Native};

use crate::generic::worker::{PANIC_PAUSE, Worker};
use crate::netdev::NetDev;
use crate::os;

/// Threads that drive workers. Dropping the pool ends them; the workers of remaining devices are then not driven any more.
pub struct WorkerPool {
    threads: Vec<(Arc<Inbox>, Option<JoinHandle<()>>)>,
    /// Number of workers given to the pool so far.
    given: AtomicU64,
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl WorkerPool {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn new(threads: usize) -> io::Result<Self> {
        let mut pool = Self { threads: Vec::new(), given: AtomicU64::new(0) };
        for number in 0..threads.max(1) {
            let inbox = Arc::new(Inbox::default());
            let own = inbox.clone();
            let life = move || {
                os::sleep_precisely();
                Driver { inbox: own, driven: HashMap::new(), times: BTreeSet::new() }.run();
            };
            let thread = thread::Builder::new().name(format!("txq-pool-{number}")).spawn(life)?;
            pool.threads.push((inbox, Some(thread)));
        }
        Ok(pool)
    }

    /// Drives all workers of a device from now on, until the device shuts down. The device must have been built and not
    /// started, and no other thread may drive its workers. Its [`spin`](crate::generic::netdev::Builder::spin) has no effect.
    pub fn drive(&self, dev: &NetDev) {
        for worker in dev.0.hand_out_workers() {
            let number = self.given.fetch_add(1, Relaxed);
            let (inbox, _) = &self.threads[number as usize % self.threads.len()];
            let waker = Arc::downgrade(inbox);
            worker.set_waker(move || {
                if let Some(inbox) = waker.upgrade() {
                    inbox.wake(number);
                }
            });
            inbox.tell(|news| news.workers.push((number, worker)));
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.threads.iter().for_each(|(inbox, _)| inbox.tell(|news| news.end = true));
        for (_, thread) in &mut self.threads {
            // A thread survives the panics of its workers, so there is no panic to pass on.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

/// Messages to a thread of the pool.
#[derive(Default)]
struct News {
    /// New workers of the thread, by their numbers.
    workers: Vec<(u64, Worker)>,
    /// Workers that have work to do.
    ready: BTreeSet<u64>,
    end: bool,
}

#[derive(Default)]
struct Inbox {
    news: Mutex<News>,
    told: Condvar,
}

impl Inbox {
    fn news(&self) -> MutexGuard<'_, News> {
        // A panic of another thread leaves the news whole.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, what: impl FnOnce(&mut News)) {
        what(&mut self.news());
        self.told.notify_one();
    }

    /// Tells the thread that a worker has work to do. Telling it again before the thread has taken the news costs no wakeup.
    fn wake(&self, number: u64) {
        if self.news().ready.insert(number) {
            self.told.notify_one();
        }
    }

    /// Waits until there are news or `deadline` has passed, and takes them.
    fn wait(&self, deadline: Option<Nanos>) -> News {
        let mut news = self.news();
        while news.workers.is_empty() && news.ready.is_empty() && !news.end {
            let left = deadline.map(|at| at.saturating_sub(Native::now()));
            news = match left {
                Some(0) => break,
                Some(left) => {
                    let left = Duration::from_nanos(left);
                    self.told.wait_timeout(news, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.told.wait(news).unwrap_or_else(PoisonError::into_inner),
            };
        }
        std::mem::take(&mut news)
    }
}

/// A worker, and the time of its next poll if nothing wakes it.
struct Driven {
    worker: Worker,
    next: Option<Nanos>,
    /// After a panic, the time before which it is not polled; else 0.
    rests_until: Nanos,
}

/// One thread of the pool.
struct Driver {
    inbox: Arc<Inbox>,
    driven: HashMap<u64, Driven>,
    /// The workers that wait for a time, ordered by that time.
    times: BTreeSet<(Nanos, u64)>,
}

impl Driver {
    fn run(mut self) {
        loop {
            let News { workers, mut ready, end } = self.inbox.wait(self.times.first().map(|&(at, _)| at));
            if end {
                return;
            }
            for (number, worker) in workers {
                self.driven.insert(number, Driven { worker, next: None, rests_until: 0 });
                // A wake may have come before the worker was here.
                ready.insert(number);
            }
            let now = Native::now();
            ready.extend(self.times.iter().take_while(|&&(at, _)| at <= now).map(|&(_, number)| number));
            ready.into_iter().for_each(|number| self.poll(number));
        }
    }

    /// Polls a worker, or removes it if its device has shut down.
    fn poll(&mut self, number: u64) {
        let Some(driven) = self.driven.get_mut(&number) else { return };
        if let Some(next) = driven.next.take() {
            self.times.remove(&(next, number));
        }
        if driven.worker.is_over() {
            self.driven.remove(&number);
            return;
        }
        driven.next = match driven.rests_until {
            0 => driven.poll(),
            until if until > Native::now() => Some(until),
            _ => {
                driven.rests_until = 0;
                driven.poll()
            }
        };
        self.times.extend(driven.next.map(|next| (next, number)));
    }
}

impl Driven {
    /// Polls the worker; returns the time of its next poll. If it panics, a new worker takes over the work that it had not
    /// done, after a pause: a repeated panic must not use the whole CPU.
    fn poll(&mut self) -> Option<Nanos> {
        let worker = &mut self.worker;
        panic::catch_unwind(AssertUnwindSafe(|| worker.poll())).unwrap_or_else(|_| {
            worker.dev.count_worker_death();
            self.rests_until = Native::now() + PANIC_PAUSE;
            let next = Worker::new(worker.dev.clone(), worker.index);
            *worker = next;
            Some(self.rests_until)
        })
    }
}
