//! What waits for a worker: queues to run, txqs to reap, and times to run a queue at (`softnet_data`'s output and
//! completion queues, and the qdisc watchdog).
//!
//! The kernel links scheduled qdiscs into a list per CPU. Here a queue is a bit in a word: scheduling sets it, which is
//! also the test whether it was set already; the worker takes a word whole. Whoever makes a word non-zero notifies the
//! worker. The notification is a token, so one given to a worker that is awake ends its next sleep at once, and there is
//! no moment at which a schedule can be missed.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::arch::{Arch, Atomic, Event, Nanos};
use crate::sync::bits::Bits;
use crate::sync::spinlock::SpinLock;
use crate::sync::timers::Timers;

/// One worker's inbox, on lines of its own.
#[repr(align(128))]
pub(crate) struct Schedule<A: Arch> {
    run: Bits<A>,
    reap: Bits<A>,
    /// When to run each queue again.
    timers: Timers<A>,
    pub(crate) event: A::Event,
    /// Called in place of the event where a program's own loop drives the worker.
    hook: SpinLock<A, Option<Box<dyn Fn() + Send + Sync>>>,
    hooked: A::AtomicU32,
}

impl<A: Arch> Schedule<A> {
    pub(crate) fn new(roots: usize, txqs: usize) -> Self {
        Self {
            run: Bits::new(roots),
            reap: Bits::new(txqs),
            timers: Timers::new(roots),
            event: A::Event::new(),
            hook: SpinLock::new(None),
            hooked: A::AtomicU32::new(0),
        }
    }

    /// Names its lines, which are `who`'s ([`Arch::name`]).
    pub(crate) fn name_lines(&self, who: &str) {
        A::name(self, format_args!("{who}: hooks"));
        self.run.name_lines(format_args!("{who}: queues to run"));
        self.reap.name_lines(format_args!("{who}: txqs to reap"));
        self.timers.name_lines(format_args!("{who}: timers"));
        A::name(&self.event, format_args!("{who}: sleep"));
    }

    /// Has the worker run a queue (`__netif_schedule`).
    pub(crate) fn run(&self, root: usize) {
        if self.run.set(root) {
            self.notify();
        }
    }

    /// Has the worker reap a txq until the device keeps nothing of it.
    pub(crate) fn reap(&self, txq: u16) {
        if self.reap.set(txq.into()) {
            self.notify();
        }
    }

    /// Has the worker run a queue at a time, or earlier if an earlier one is set (`qdisc_watchdog_schedule_ns`). The caller
    /// owns the queue.
    pub(crate) fn run_at(&self, root: usize, at: Nanos) {
        if self.timers.set(root, at) {
            self.notify();
        }
    }

    /// Has `hook` called when there is something to do, instead of waking a sleeper.
    pub(crate) fn set_hook(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.hook.with(|held| *held.data() = Some(hook));
        self.hooked.store(1, Release);
    }

    pub(crate) fn notify(&self) {
        self.event.notify();
        if self.hooked.load(Acquire) != 0 {
            self.hook.with(|held| held.data().as_ref().map(|hook| hook()));
        }
    }

    /// Takes the queues to run.
    pub(crate) fn take_run(&self, f: impl FnMut(usize)) {
        self.run.take(f);
    }

    /// Takes the txqs to reap.
    pub(crate) fn take_reap(&self, f: impl FnMut(usize)) {
        self.reap.take(f);
    }

    /// Returns the earliest time that is set.
    pub(crate) fn earliest(&self) -> Option<Nanos> {
        self.timers.earliest()
    }

    /// Takes the queues whose time has come.
    pub(crate) fn take_due(&self, now: impl FnOnce() -> Nanos, f: impl FnMut(usize)) {
        self.timers.take_due(now, f);
    }
}
