//! The worker: what softirq and timers do in the kernel, done by one thread that sleeps when there is nothing to do, or
//! by a program's own loop.
//!
//! A worker goes on where a sender's quota ended, runs queues whose txq woke up, tries again what a driver refused,
//! reaps what senders did not, and notices a txq that is stopped for too long. A program that has a loop of its own
//! calls [`Worker::poll`] from it instead of [`Worker::run`]:
//!
//! ```text
//!   worker.set_waker(move || eventfd.write(1))     // when there is something to do
//!   loop {
//!       let next = worker.poll();                  // do it; when to come back without being woken
//!       epoll_wait(.., until next);
//!   }
//! ```

mod pool;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use crate::arch::{Arch, Event, Nanos, Native, Work};
use crate::ctx::Ctx;
use crate::netdev::Shared;
use crate::pool::Cache;
use crate::txqset::TxqSet;

pub use pool::WorkerPool;

/// How long a thread waits before it goes on after a panic, in nanoseconds.
const PAUSE: Nanos = 1_000_000;

/// Does the deferred work of some of a device's queues.
pub struct Worker<A: Arch = Native> {
    dev: Arc<Shared<A>>,
    index: usize,
    cache: Cache<A>,
    /// Txqs whose device keeps packets that nobody else is sure to reap.
    reaping: TxqSet,
    /// Queues to run in this turn; kept for its memory.
    due: Vec<usize>,
}

impl<A: Arch> Worker<A> {
    pub(crate) fn new(dev: Arc<Shared<A>>, index: usize) -> Self {
        let cache = dev.pool.cache(&format!("worker {index}"), 0);
        let reaping = TxqSet::new(dev.txqs.len());
        Self { dev, index, cache, reaping, due: Vec::new() }
    }

    /// Has `wake` called when there is something to do, from whichever thread causes it. It should be quick: an eventfd
    /// write is.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.dev.sched[self.index].set_hook(Box::new(wake));
    }

    /// Whether the device has shut down, so that there is nothing to do any more.
    pub fn is_over(&self) -> bool {
        self.dev.is_stopping()
    }

    /// Does what there is to do and returns when to do so again, on the clock of the `Arch`, if nothing wakes the worker
    /// before: `None` for not at all, a time in the past for at once.
    ///
    /// # Panics
    /// In the device's own data path, and with what a driver or a qdisc panics.
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
        // After the queues have run: a shaper that has sent what is due says when the next is.
        sched.earliest().into_iter().for_each(sooner);
        next
    }

    /// Works until the device shuts down. Sleeps when there is nothing to do, but for the time before a packet's that
    /// [`Builder::spin`](crate::netdev::Builder::spin) says.
    pub fn run(mut self) {
        while !self.dev.is_stopping() {
            let next = self.poll();
            // A wait for what is past ends at once, and so does the next one, until the time has come.
            let wake = next.map(|at| at.saturating_sub(self.dev.spin));
            self.dev.sched[self.index].event.wait(wake);
        }
    }
}

impl<A: Arch> Worker<A> {
    /// The life of a worker's thread. A driver or a qdisc that panics ends one worker and not the work: the next one takes
    /// over what the last had taken and not done.
    pub(crate) fn supervise(dev: &Arc<Shared<A>>, index: usize) {
        while !dev.is_stopping() {
            let worker = Self::new(dev.clone(), index);
            if panic::catch_unwind(AssertUnwindSafe(|| worker.run())).is_ok() {
                return;
            }
            dev.count_worker_death();
            // What panics each time shall not take the whole CPU for it.
            let end = A::now() + PAUSE;
            while A::now() < end && !dev.is_stopping() {
                A::relax();
            }
        }
    }
}

impl<A: Arch> Drop for Worker<A> {
    /// Gives back what it has taken from its inbox and not done, by a panic or because its owner drives it no more.
    fn drop(&mut self) {
        let sched = &self.dev.sched[self.index];
        self.due.iter().for_each(|&root| sched.run(root));
        self.reaping.iter().for_each(|txq| sched.reap(txq));
        if std::thread::panicking() {
            // Not all that is in the inbox came with a token that is still there.
            sched.notify();
        }
    }
}
