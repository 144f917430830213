//! The work that waits for a worker: queues to run, txqs to reap, and times at which to run a queue (`softnet_data`'s output
//! and completion queues, and the qdisc watchdog).
//!
//! The kernel links scheduled qdiscs into a list per CPU. Here a scheduled queue is a bit in a word. The operation that sets
//! the bit also tells whether the word was empty; the worker takes a whole word at once. The thread that makes a word
//! non-zero notifies the worker. The notification is a token: a token given to a worker that is awake ends its next sleep at
//! once, so no schedule is missed.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use txq_core::arch::{Arch, Atomic, Event, Nanos};
use txq_core::sync::bits::Bits;
use txq_core::sync::spinlock::SpinLock;
use txq_core::sync::timers::Timers;

/// The worker holds no poll back.
const CALM: u32 = 0;
/// The worker holds a poll back until its time: the device was empty, or its senders reap.
const HELD: u32 = 1;
/// A txq has stopped, or a sender lacks a buffer or credit, while the worker holds a poll back.
const HURRY: u32 = 2;

/// A program's function that makes it poll its worker.
pub(crate) type WorkHook = Arc<dyn Fn() + Send + Sync>;

/// One worker's inbox, on lines of its own.
#[repr(align(128))]
pub(crate) struct Schedule<A: Arch> {
    /// Queues to run, by the number of their root. Any thread sets a bit, the worker takes all; each operation is AcqRel
    /// ([`Bits`]).
    run: Bits<A>,
    /// Txqs to reap, set and taken as the bits of `run` are. The worker also sets the bit of a txq that it will poll
    /// unasked, and takes no bits before the first of these polls. A sender that finds a bit in the word does not wake the
    /// worker. So a txq whose device gets its first packets meanwhile waits for that poll, for half of `LONGEST_POLL_WAIT` at
    /// most (`worker/moderation.rs`).
    reap: Bits<A>,
    /// [`CALM`], [`HELD`] or [`HURRY`]. The worker swaps in `CALM` before it polls (Acquire), and moves `CALM` to `HELD`
    /// (Relaxed) when it holds a poll back. The owner of a queue whose txq has stopped, and a sender that lacks a buffer or
    /// credit, swap in `HURRY` (Release), so that the poll finds the txq stopped, and notify a worker that had stored `HELD`.
    /// They leave a `HURRY` that they find; a worker that takes it at that moment may miss them, and polls when its wait is over.
    held: A::AtomicU32,
    /// When to run each queue again. Set by the owner of the queue, taken by the worker ([`Timers`]).
    timers: Timers<A>,
    /// The worker sleeps on it.
    pub(crate) event: A::Event,
    /// Called after the event was notified, where a program's own loop drives the worker.
    hook: SpinLock<A, Option<WorkHook>>,
    /// 1 once there is a hook. Stored (Release) after the hook; a thread that loads 1 (Acquire) finds the hook.
    hooked: A::AtomicU32,
}

impl<A: Arch> Schedule<A> {
    pub(crate) fn new(roots: usize, txqs: usize) -> Self {
        Self {
            run: Bits::new(roots),
            reap: Bits::new(txqs),
            held: A::AtomicU32::new(CALM),
            timers: Timers::new(roots),
            event: A::Event::new(),
            hook: SpinLock::new(None),
            hooked: A::AtomicU32::new(0),
        }
    }

    /// Names its lines as `who`'s ([`Arch::name`]).
    pub(crate) fn name_lines(&self, who: &str) {
        A::name(self, format_args!("{who}: hooks"));
        self.run.name_lines(format_args!("{who}: queues to run"));
        self.reap.name_lines(format_args!("{who}: txqs to reap"));
        self.timers.name_lines(format_args!("{who}: timers"));
        A::name(&self.event, format_args!("{who}: sleep"));
    }

    /// Schedules a queue: the worker runs it (`__netif_schedule`).
    pub(crate) fn run(&self, root: usize) {
        if self.run.set(root) {
            self.notify();
        }
    }

    /// Schedules a txq: the worker reaps it until the device keeps none of its packets.
    pub(crate) fn reap(&self, txq: u16) {
        if self.reap.set(txq.into()) {
            self.notify();
        }
    }

    /// Adds a txq that the calling worker will poll unasked, so that no sender wakes the worker meanwhile.
    pub(crate) fn hold_reap(&self, txq: u16) {
        let _ = self.reap.set(txq.into());
    }

    /// Notes that the calling worker holds a poll back. Returns false if the worker must poll at once: there was a
    /// [`hurry`](Schedule::hurry) since its last poll.
    pub(crate) fn hold(&self) -> bool {
        self.held.compare_exchange(CALM, HELD, Relaxed, Relaxed).is_ok()
    }

    /// Ends the waits of polls that the worker holds back: a txq has stopped, or a sender lacks a buffer or credit. A worker that
    /// is awake makes its next poll at once instead of holding it back.
    pub(crate) fn hurry(&self) {
        if self.held.load(Relaxed) != HURRY && self.held.swap(HURRY, Release) == HELD {
            self.notify();
        }
    }

    /// Returns whether there was a [`hurry`](Schedule::hurry) since the last call. The worker calls it before it polls.
    pub(crate) fn take_hurry(&self) -> bool {
        self.held.load(Relaxed) != CALM && self.held.swap(CALM, Acquire) == HURRY
    }

    /// Makes the worker run a queue at a time, or earlier if an earlier one is set (`qdisc_watchdog_schedule_ns`). The
    /// caller owns the queue.
    pub(crate) fn run_at(&self, root: usize, at: Nanos) {
        if self.timers.set(root, at) {
            self.notify();
        }
    }

    /// Sets the function that is called when there is work for the worker.
    pub(crate) fn set_hook(&self, hook: WorkHook) {
        let old = self.hook.with(|held| held.data().replace(hook));
        self.hooked.store(1, Release);
        drop(old);
    }

    /// Wakes the worker, or ends its next sleep if it is awake, and calls the hook.
    pub(crate) fn notify(&self) {
        self.event.notify();
        if self.hooked.load(Acquire) != 0 {
            // Called and dropped with no lock held: it is the program's, and may cause work itself.
            let hook = self.hook.with(|held| held.data().clone());
            hook.iter().for_each(|hook| hook());
        }
    }

    /// Takes all queues to run, and calls `f` with each.
    pub(crate) fn take_run(&self, f: impl FnMut(usize)) {
        self.run.take(f);
    }

    /// Takes all txqs to reap, and calls `f` with each.
    pub(crate) fn take_reap(&self, f: impl FnMut(usize)) {
        self.reap.take(f);
    }

    /// Returns the earliest time that is set.
    pub(crate) fn earliest(&self) -> Option<Nanos> {
        self.timers.earliest()
    }

    /// Takes the queues whose time has come, and calls `f` with each.
    pub(crate) fn take_due(&self, now: impl FnOnce() -> Nanos, f: impl FnMut(usize)) {
        self.timers.take_due(now, f);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use txq_core::arch::Native;

    use super::*;

    /// It wakes a worker that holds a poll back, and keeps one that is at work from holding one back.
    #[test]
    fn a_hurry_is_not_lost_whenever_it_comes() {
        let (sched, wakes) = (Schedule::<Native>::new(1, 1), Arc::new(AtomicU32::new(0)));
        let count = wakes.clone();
        sched.set_hook(Arc::new(move || {
            count.fetch_add(1, Relaxed);
        }));
        assert!(sched.hold());
        sched.hurry();
        sched.hurry();
        assert_eq!(wakes.load(Relaxed), 1);
        assert!(!sched.hold());
        assert!(sched.take_hurry() && !sched.take_hurry());
        sched.hurry();
        assert_eq!(wakes.load(Relaxed), 1, "the worker is at work");
        assert!(!sched.hold());
        assert!(sched.take_hurry() && sched.hold());
        assert!(!sched.take_hurry(), "to hold a poll back is no hurry");
    }

    /// Causes work when it is called and when it is dropped.
    struct Busy {
        sched: Weak<Schedule<Native>>,
        runs: Arc<AtomicU32>,
    }

    impl Busy {
        fn run(&self) {
            if self.runs.fetch_add(1, Relaxed) < 3 {
                self.sched.upgrade().iter().for_each(|sched| sched.notify());
            }
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            self.run();
        }
    }

    #[test]
    fn a_hook_may_cause_work() {
        let (tell, told) = channel();
        let test = thread::spawn(move || {
            let (sched, runs) = (Arc::new(Schedule::<Native>::new(1, 1)), Arc::new(AtomicU32::new(0)));
            let hook = || Busy { sched: Arc::downgrade(&sched), runs: runs.clone() };
            let first = hook();
            sched.set_hook(Arc::new(move || first.run()));
            sched.notify();
            assert_eq!(runs.swap(0, Relaxed), 4, "it calls itself");
            let second = hook();
            sched.set_hook(Arc::new(move || second.run()));
            assert_eq!(runs.load(Relaxed), 4, "the first is dropped, and calls the second");
            let _ = tell.send(());
        });
        // Far longer than it takes: a hook that runs under the lock waits for itself.
        let _ =
            told.recv_timeout(Duration::from_secs(100)).map_err(|_| assert!(test.is_finished(), "it hangs"));
        test.join().unwrap();
    }
}
