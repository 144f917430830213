//! The worker: what it does when. [`crate::worker`] says how programs drive it.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Event, Nanos, Native, Work};
use txq_core::pool::Cache;

use crate::generic::datapath::Ctx;
use crate::generic::shared::Shared;
use crate::generic::txqset::TxqSet;
use crate::generic::txqueue::TxQueue;

mod moderation;

use moderation::Moderation;

/// How long a thread pauses after a panic, in nanoseconds.
pub(crate) const PANIC_PAUSE: Nanos = 1_000_000;

/// Does the deferred work of some of a device's queues.
pub struct Worker<A: Arch = Native> {
    pub(crate) dev: Arc<Shared<A>>,
    pub(crate) index: usize,
    cache: Cache<A>,
    /// Txqs whose device keeps packets that no other thread is sure to reap.
    reaping: TxqSet,
    /// When to poll each of them again.
    moderation: Box<[Moderation]>,
    /// Time at which the worker takes further txqs from its schedule; it takes them earlier if there are none now.
    take_at: Nanos,
    /// Queues to run in this turn. A field, to reuse its memory.
    due: Vec<usize>,
}

impl<A: Arch> fmt::Debug for Worker<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("dev", &self.dev.info.name)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl<A: Arch> Worker<A> {
    pub(crate) fn new(dev: Arc<Shared<A>>, index: usize) -> Self {
        let cache = dev.cache(&format!("worker {index}"), 0);
        let reaping = TxqSet::new(dev.txqs.len());
        let moderation = dev.txqs.iter().map(|_| Moderation::default()).collect();
        Self { dev, index, cache, reaping, moderation, take_at: 0, due: Vec::new() }
    }

    /// Sets a function that is called when there is work to do, by the thread that causes the work.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.dev.sched[self.index].set_hook(Arc::new(wake));
    }

    /// Returns whether the device has shut down, so that there is no more work.
    #[inline(never)]
    pub fn is_over(&self) -> bool {
        self.dev.is_stopping()
    }

    /// Does the work that is due.
    #[inline(never)]
    pub fn poll(&mut self) -> Option<Nanos> {
        let (dev, sched) = (&*self.dev, &self.dev.sched[self.index]);
        dev.assert_outside("Worker::poll");
        let mut cx = Ctx::new(dev, &mut self.cache);
        let (reaping, moderation) = (&mut self.reaping, &mut self.moderation);
        let mut next: Option<Nanos> = None;
        let mut sooner = |at: Nanos| next = Some(next.map_or(at, |n| n.min(at)));
        // One time for all: a txq that the worker polls has left no bit in the schedule. So the next sender wakes the worker if
        // this poll is the last. While it is too early for every txq, the bits stay set, and a sender that sets one again does
        // not wake the worker.
        let begun = if reaping.is_empty() { Nanos::MAX } else { cx.clock.now() };
        let (hurried, mut patient) = (sched.take_hurry(), false);
        if hurried || begun >= self.take_at {
            sched.take_reap(|txq| {
                if reaping.insert(txq as u16) {
                    moderation[txq] = Moderation::default();
                }
            });
        }
        let mut take_at = Nanos::MAX;
        reaping.retain(|txq| {
            let moderation = &mut moderation[usize::from(txq)];
            let txq = &dev.txqs[usize::from(txq)];
            if let Some(at) = moderation.too_early(begun, hurried) {
                patient |= moderation.is_patient();
                take_at = take_at.min(moderation.not_before());
                sooner(at);
                return true;
            }
            if let Some(at) = txq.next_check(|| cx.clock.now()) {
                take_at = 0;
                sooner(at);
                return true;
            }
            // In a hurry the worker polls even if senders reap.
            let tended = if hurried || !txq.is_tended(dev.senders_help) {
                None
            } else {
                moderation.note_tended(txq.completed.packets.load(Relaxed), cx.clock.now())
            };
            let Some(at) = tended.or_else(|| poll_txq(txq, moderation, &mut cx)) else { return false };
            if moderation.too_early(cx.clock.now(), false).is_some() {
                sched.hold_reap(txq.index);
            }
            patient |= moderation.is_patient();
            take_at = take_at.min(moderation.not_before());
            sooner(at);
            true
        });
        if patient && !sched.hold() {
            sooner(0);
        }
        // The worker is awake by then: it is the time of the earliest poll.
        self.take_at = take_at;
        cx.clock.advance();
        let due = &mut self.due;
        sched.take_run(|root| due.push(root));
        sched.take_due(A::now, |root| due.push(root));
        due.reverse();
        let has_run = !due.is_empty();
        while let Some(root) = due.pop() {
            let root = &dev.roots[root];
            A::spend(|| Work::Run);
            root.run(dev, &mut cx);
            cx.clock.advance();
        }
        if has_run {
            // As the owner of a queue it has reaped, too.
            let completed = |txq: u16| dev.txqs[usize::from(txq)].completed.packets.load(Relaxed);
            self.reaping.iter().for_each(|txq| self.moderation[usize::from(txq)].note_run(completed(txq)));
        }
        // After the queues have run: a shaper that has sent the packets that were due sets the time of the next.
        sched.earliest().into_iter().for_each(sooner);
        next
    }

    /// Works until the device shuts down.
    #[inline(never)]
    pub fn run(mut self) {
        while !self.dev.is_stopping() {
            let next = self.poll();
            // The wait ends at once when `wake` has passed. So the loop polls until the time itself has come.
            let wake = next.map(|at| at.saturating_sub(self.dev.spin));
            self.dev.sched[self.index].event.wait(wake);
        }
    }
}

/// Reaps a txq and notes the poll. Returns the time of the next poll; `None` if nothing is left to reap and no packet is expected.
fn poll_txq<A: Arch>(txq: &TxQueue<A>, moderation: &mut Moderation, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
    let dev = cx.dev;
    let soonest = dev.inside(|| dev.reap(txq, cx));
    txq.report_bugs(dev);
    let (completed, now) = (txq.completed.packets.load(Relaxed), cx.clock.now());
    if !txq.needs_reaping() && !txq.is_watched() {
        return moderation.note_empty(completed, now);
    }
    let at = moderation.note_poll(completed, txq.in_flight(), now, soonest, || now + txq.next_poll());
    let watch = dev.watchdog.as_ref();
    let end = watch.and_then(|watchdog| txq.watch(watchdog, || now));
    end.into_iter().for_each(|end| moderation.poll_by(end));
    Some(end.map_or(at, |end| end.min(at)))
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
            let end = A::now() + PANIC_PAUSE;
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
        if std::thread::panicking() || !self.reaping.is_empty() {
            // The inbox may hold more work: its token is used up, or there was none, because bits of the worker's own were set.
            sched.notify();
        }
    }
}
