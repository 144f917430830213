//! The worker: does the work of the kernel's softirqs and timers, on a thread that sleeps when idle, or in a program's own
//! loop.
//!
//! A worker continues where a sender's quota ended, runs queues whose txq was woken, retries packets that a driver refused,
//! reaps completions that senders left, and detects a txq that is stopped for too long. A program that has a loop of its own
//! calls [`Worker::poll`] from it instead of [`Worker::run`]:
//!
//! ```text
//!   worker.set_waker(move || eventfd.write(1))     // when there is something to do
//!   loop {
//!       let next = worker.poll();                  // do it; when to come back without being woken
//!       epoll_wait(.., until next);
//!   }
//! ```

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use txq_core::arch::{Arch, Event, Nanos, Native, Work};
use txq_core::pool::Cache;

use crate::datapath::Ctx;
use crate::shared::Shared;
use crate::txqset::TxqSet;

/// How long a thread pauses after a panic, in nanoseconds.
pub(crate) const PAUSE: Nanos = 1_000_000;

/// Does the deferred work of some of a device's queues.
pub struct Worker<A: Arch = Native> {
    pub(crate) dev: Arc<Shared<A>>,
    pub(crate) index: usize,
    cache: Cache<A>,
    /// Txqs whose device keeps packets that no other thread is sure to reap.
    reaping: TxqSet,
    /// Queues to run in this turn. A field, to reuse its memory.
    due: Vec<usize>,
}

impl<A: Arch> Worker<A> {
    pub(crate) fn new(dev: Arc<Shared<A>>, index: usize) -> Self {
        let cache = dev.pool.cache(&format!("worker {index}"), 0);
        let reaping = TxqSet::new(dev.txqs.len());
        Self { dev, index, cache, reaping, due: Vec::new() }
    }

    /// Sets a function that is called when there is work to do, by the thread that causes the work. It should be quick: an
    /// eventfd write is.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.dev.sched[self.index].set_hook(Box::new(wake));
    }

    /// Returns whether the device has shut down, so that there is no more work.
    pub fn is_over(&self) -> bool {
        self.dev.is_stopping()
    }

    /// Does the work that is due. Returns when to do so again if nothing wakes the worker before, on the clock of the
    /// `Arch`: `None` for never, a time in the past for at once.
    ///
    /// # Panics
    /// When called inside the device's own data path, and when a driver or a qdisc panics.
    pub fn poll(&mut self) -> Option<Nanos> {
        let (dev, sched) = (&*self.dev, &self.dev.sched[self.index]);
        dev.assert_outside("Worker::poll");
        let mut cx = Ctx::new(dev, &mut self.cache);
        let reaping = &mut self.reaping;
        sched.take_reap(|txq| reaping.insert(txq as u16));
        let mut next: Option<Nanos> = None;
        let mut sooner = |at: Nanos| next = Some(next.map_or(at, |n| n.min(at)));
        reaping.retain(|txq| {
            let txq = &dev.txqs[usize::from(txq)];
            if let Some(at) = txq.next_look(|| cx.clock.now()) {
                sooner(at);
                return true;
            }
            let at = dev.inside(|| dev.reap(txq, &mut cx));
            txq.report_bugs(dev);
            let more = txq.needs_reaping() || txq.is_watched();
            if more {
                sooner(at.unwrap_or_else(|| cx.clock.now() + txq.look_again()));
                let watch = dev.watchdog.as_ref();
                if let Some(at) = watch.and_then(|watchdog| txq.watch(watchdog, || cx.clock.now())) {
                    sooner(at);
                }
            }
            more
        });
        cx.clock.advance();
        let due = &mut self.due;
        sched.take_run(|root| due.push(root));
        sched.take_due(A::now, |root| due.push(root));
        due.reverse();
        while let Some(root) = due.pop() {
            let root = &dev.roots[root];
            A::spend(|| Work::Run);
            root.run(dev, &mut cx);
            cx.clock.advance();
        }
        // After the queues have run: a shaper that has sent the packets that were due sets the time of the next.
        sched.earliest().into_iter().for_each(sooner);
        next
    }

    /// Works until the device shuts down. Sleeps when there is no work, but polls the clock for the last part of a wait, as
    /// long as [`Builder::spin`](crate::netdev::Builder::spin) says.
    pub fn run(mut self) {
        while !self.dev.is_stopping() {
            let next = self.poll();
            // The wait ends at once when `wake` has passed. So the loop polls until the time itself has come.
            let wake = next.map(|at| at.saturating_sub(self.dev.spin));
            self.dev.sched[self.index].event.wait(wake);
        }
    }
}

impl<A: Arch> Worker<A> {
    /// Runs a worker on the calling thread until the device shuts down. If a driver or a qdisc panics, the worker ends, and
    /// a new one takes over the work that it had taken and not done.
    pub(crate) fn supervise(dev: &Arc<Shared<A>>, index: usize) {
        while !dev.is_stopping() {
            let worker = Self::new(dev.clone(), index);
            if panic::catch_unwind(AssertUnwindSafe(|| worker.run())).is_ok() {
                return;
            }
            dev.count_worker_death();
            // A repeated panic must not use the whole CPU.
            let end = A::now() + PAUSE;
            while A::now() < end && !dev.is_stopping() {
                A::relax();
            }
        }
    }
}

impl<A: Arch> Drop for Worker<A> {
    /// Gives back the work that it has taken from its inbox and not done, after a panic or because the program no longer
    /// drives it.
    fn drop(&mut self) {
        let sched = &self.dev.sched[self.index];
        self.due.iter().for_each(|&root| sched.run(root));
        self.reaping.iter().for_each(|txq| sched.reap(txq));
        if std::thread::panicking() {
            // The inbox may hold more work, whose token the worker has already used.
            sched.notify();
        }
    }
}
