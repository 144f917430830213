//! The worker: does the work of the kernel's softirqs and timers, on a thread that sleeps when idle, or in a program's own
//! loop.
//!
//! A worker continues where a sender's quota ended, runs queues whose txq was woken, retries packets that a driver refused,
//! reaps completions that senders left, and detects a txq that is stopped for too long. Three kinds of loop drive workers:
//!
//! | loop | call | for |
//! |---|---|---|
//! | a thread for each worker | [`Builder::start`] | programs whose threads block |
//! | a few threads for the workers of many devices | [`WorkerPool::drive`](crate::WorkerPool::drive) | many devices; async programs |
//! | the program's own | [`Builder::build`], [`Worker::poll`] | programs around epoll or mio |
//!
//! # A loop of the program's own
//!
//! 1. [`Builder::build`] creates the device without threads, and [`NetDev::worker`] its workers: one, unless
//!    [`Builder::workers`] says otherwise. Each must exist once. Under [`Completions::PerQueue`] each txq has a completer
//!    ([`NetDev::completer`]), which is driven like a worker.
//! 2. [`Worker::set_waker`] sets a function that ends the loop's sleep: a write to an eventfd (`txq_device::EventFd`).
//! 3. Each turn resets the eventfd, then calls [`Worker::poll`], then sleeps. In that order a wake that arrives during the
//!    poll ends the next sleep. A poll without work costs little, so a loop may poll in every turn.
//! 4. `poll` returns the deadline: the time of its next work, on the clock of [`txq::now`](crate::now), `CLOCK_MONOTONIC`.
//!    `None` means that only a wake brings work. A time in the past means at once: the quota of a turn is used up, and the
//!    loop may look after its other descriptors first. A loop that polls later than the deadline sends shaped packets later.
//! 5. A loop that also sends asks [`Sender::poll_room`] before each packet, with a waker that writes to the same eventfd. While
//!    that is `Pending` the loop does its other work, and loses no packets.
//! 6. The loop ends when [`Worker::is_over`] says that the device has been shut down.
//!
//! # epoll
//!
//! `epoll_wait` counts milliseconds, and a shaper's deadlines are closer together. A timerfd takes a deadline as it is: it has
//! the same clock. (`ppoll` and `epoll_pwait2` take nanoseconds, too.)
//!
//! ```
//! use std::os::fd::OwnedFd;
//! use std::sync::Arc;
//! use std::task::{Poll, Wake, Waker};
//! use std::time::Duration;
//!
//! use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
//! use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
//! use rustix::time::{timerfd_create, timerfd_settime};
//! use txq::{NetDev, Room};
//! # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
//! # use txq::packet::PacketList;
//! # struct Sink;
//! # impl Driver for Sink {
//! #     fn info(&self) -> DeviceInfo { DeviceInfo::new("sink") }
//! #     fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
//! #         Ok(DriverQueue { tx: Box::new(Sink), done: Box::new(NoCompletions), ring: None })
//! #     }
//! # }
//! # impl Transmit for Sink {
//! #     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
//! #         cx.sent_all(batch);
//! #         Status::Ok
//! #     }
//! # }
//! # let driver = Sink;
//!
//! // The crate txq-device has such a type, `EventFd`.
//! struct Bell(OwnedFd);
//! impl Wake for Bell {
//!     fn wake(self: Arc<Self>) {
//!         let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
//!     }
//! }
//!
//! // 100,000 packets of 60 bytes a second.
//! let dev = NetDev::builder(driver).build()?;
//! dev.replace_qdisc("root handle 1: tbf rate 48mbit burst 1600 limit 60000")?;
//! dev.replace_qdisc("parent 1:1 pfifo limit 100")?;
//! let (mut sender, mut worker) = (dev.sender("loop"), dev.worker(0));
//!
//! let bell = Arc::new(Bell(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?));
//! let waker = Waker::from(bell.clone());
//! let work = waker.clone();
//! worker.set_waker(move || work.wake_by_ref());
//! let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
//! let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
//! epoll::add(&epoll, &bell.0, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
//! epoll::add(&epoll, &timer, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
//! // The program adds its own descriptors here.
//!
//! let mut left = 1000;
//! loop {
//!     // Send while there is room.
//!     while left > 0 && sender.poll_room(&waker) == Poll::Ready(Room::Free) {
//!         let packet = sender.packet(&[0; 60])?;
//!         let _verdict = sender.xmit(packet);
//!         left -= 1;
//!     }
//!     // Do the device's work, and set the timer to the deadline. 0 would disarm the timer.
//!     let next = worker.poll();
//!     if left == 0 && dev.is_idle() {
//!         break;
//!     }
//!     let at = next.map_or(Duration::ZERO, |at| Duration::from_nanos(at.max(1)));
//!     let at = Itimerspec { it_interval: Timespec::default(), it_value: Timespec::try_from(at)? };
//!     timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at)?;
//!     // Sleep: for a second at most, because a sender asks for room again after `Sender::LONGEST_WAIT` in any case.
//!     let second = Timespec { tv_sec: 1, tv_nsec: 0 };
//!     let mut events = Vec::with_capacity(16);
//!     epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&second))?;
//!     for event in events {
//!         // An error says that the descriptor was not readable.
//!         let _ = match event.data.u64() {
//!             0 => rustix::io::read(&bell.0, &mut [0; 8]),
//!             _ => rustix::io::read(&timer, &mut [0; 8]),
//!         };
//!     }
//! }
//! assert_eq!((dev.audit()?.sent, sender.dropped()), (1000, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # mio
//!
//! The loop is the same: register the eventfd and the timerfd as `SourceFd` with `Interest::READABLE`. mio reports edges, so
//! read both descriptors at each event, as above. Without a timerfd, the timeout of mio's `Poll::poll` rounds a deadline up
//! to the next millisecond.
//!
//! # tokio and other executors
//!
//! A task that drives a worker competes with all other tasks, and a busy executor polls it late. The timers of executors are
//! coarse, too: tokio's count milliseconds. Leave the workers to threads beside the runtime, to those of [`Builder::start`] or
//! to a [`WorkerPool`](crate::WorkerPool): they sleep until a departure time itself. Then tasks only send, and await buffers
//! and room ([`Sender::buffer`], [`Sender::send`]):
//!
//! ```
//! use txq::{NetDev, WorkerPool};
//! # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
//! # use txq::packet::PacketList;
//! # struct Sink;
//! # impl Driver for Sink {
//! #     fn info(&self) -> DeviceInfo { DeviceInfo::new("sink") }
//! #     fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
//! #         Ok(DriverQueue { tx: Box::new(Sink), done: Box::new(NoCompletions), ring: None })
//! #     }
//! # }
//! # impl Transmit for Sink {
//! #     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
//! #         cx.sent_all(batch);
//! #         Status::Ok
//! #     }
//! # }
//! # let driver = Sink;
//! # use std::{pin::pin, sync::Arc, task::{Context, Wake, Waker}, thread, time::Duration};
//! # struct Unpark(thread::Thread);
//! # impl Wake for Unpark {
//! #     fn wake(self: Arc<Self>) { self.0.unpark() }
//! # }
//! # // An executor of one task.
//! # fn block_on<T>(task: impl Future<Output = T>) -> T {
//! #     let (mut task, waker) = (pin!(task), Waker::from(Arc::new(Unpark(thread::current()))));
//! #     loop {
//! #         if let std::task::Poll::Ready(done) = task.as_mut().poll(&mut Context::from_waker(&waker)) { return done; }
//! #         thread::park_timeout(Duration::from_secs(1));
//! #     }
//! # }
//!
//! let pool = WorkerPool::new(1)?;
//! let dev = NetDev::builder(driver).build()?;
//! dev.replace_qdisc("root handle 1: tbf rate 48mbit burst 1600 limit 60000")?;
//! dev.replace_qdisc("parent 1:1 pfifo limit 100")?;
//! pool.drive(&dev);
//!
//! let mut sender = dev.sender("task");
//! let task = async {
//!     for _ in 0..1000 {
//!         let mut packet = sender.buffer(60).await?;
//!         packet.data_mut().fill(0);
//!         let _verdict = sender.send(packet).await?;
//!     }
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! };
//! block_on(task)?;
//! assert!(dev.drain(Duration::from_secs(10)));
//! assert_eq!((dev.audit()?.sent, sender.dropped()), (1000, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where a task must drive the worker itself, it waits for an eventfd and for a timerfd, both under
//! `tokio::io::unix::AsyncFd`, as the loop above does. `examples/async_send.rs` has that task, and measures the departure error
//! of the three ways.
//!
//! [`Builder::start`]: crate::netdev::Builder::start
//! [`Builder::build`]: crate::netdev::Builder::build
//! [`Builder::workers`]: crate::netdev::Builder::workers
//! [`NetDev::worker`]: crate::NetDev::worker
//! [`NetDev::completer`]: crate::NetDev::completer
//! [`Completions::PerQueue`]: crate::netdev::Completions::PerQueue
//! [`Sender::buffer`]: crate::Sender::buffer
//! [`Sender::poll_room`]: crate::Sender::poll_room
//! [`Sender::send`]: crate::Sender::send

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Event, Nanos, Native, Work};
use txq_core::pool::Cache;

use crate::datapath::Ctx;
use crate::shared::Shared;
use crate::txqset::TxqSet;
use crate::txqueue::TxQueue;

mod looks;

use looks::Looks;

/// How long a thread pauses after a panic, in nanoseconds.
pub(crate) const PAUSE: Nanos = 1_000_000;

/// Does the deferred work of some of a device's queues.
pub struct Worker<A: Arch = Native> {
    pub(crate) dev: Arc<Shared<A>>,
    pub(crate) index: usize,
    cache: Cache<A>,
    /// Txqs whose device keeps packets that no other thread is sure to reap.
    reaping: TxqSet,
    /// When to look at each of them again.
    looks: Box<[Looks]>,
    /// The worker takes further ones from its schedule at this time, or earlier if there are none now.
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
        let looks = dev.txqs.iter().map(|_| Looks::default()).collect();
        Self { dev, index, cache, reaping, looks, take_at: 0, due: Vec::new() }
    }

    /// Sets a function that is called when there is work to do, by the thread that causes the work. It should be quick: an
    /// eventfd write is.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.dev.sched[self.index].set_hook(Box::new(wake));
    }

    /// Returns whether the device has shut down, so that there is no more work.
    #[inline(never)]
    pub fn is_over(&self) -> bool {
        self.dev.is_stopping()
    }

    /// Does the work that is due. Returns when to do so again if nothing wakes the worker before, on the clock of the
    /// `Arch`: `None` for never, a time in the past for at once.
    ///
    /// # Panics
    /// When called inside the device's own data path, and when a driver or a qdisc panics.
    #[inline(never)]
    pub fn poll(&mut self) -> Option<Nanos> {
        let (dev, sched) = (&*self.dev, &self.dev.sched[self.index]);
        dev.assert_outside("Worker::poll");
        let mut cx = Ctx::new(dev, &mut self.cache);
        let (reaping, looks) = (&mut self.reaping, &mut self.looks);
        let mut next: Option<Nanos> = None;
        let mut sooner = |at: Nanos| next = Some(next.map_or(at, |n| n.min(at)));
        // One time for all: a txq at which the worker looks has left no bit in the schedule, so that the next sender wakes it if
        // this look is the last. While it is too early for every txq, the bits stay set, and no sender that sets one again wakes
        // this worker.
        let begun = if reaping.is_empty() { Nanos::MAX } else { cx.clock.now() };
        let (hurried, mut patient) = (sched.take_hurry(), false);
        if hurried || begun >= self.take_at {
            sched.take_reap(|txq| {
                if reaping.insert(txq as u16) {
                    looks[txq] = Looks::default();
                }
            });
        }
        let mut take_at = Nanos::MAX;
        reaping.retain(|txq| {
            let looks = &mut looks[usize::from(txq)];
            let txq = &dev.txqs[usize::from(txq)];
            if let Some(at) = looks.too_early(begun, hurried) {
                patient |= looks.is_patient();
                take_at = take_at.min(looks.not_before());
                sooner(at);
                return true;
            }
            if let Some(at) = txq.next_look(|| cx.clock.now()) {
                take_at = 0;
                sooner(at);
                return true;
            }
            // In a hurry the worker itself looks, whatever senders reap.
            let tended = if hurried || !txq.is_tended(dev.senders_help) {
                None
            } else {
                looks.note_tended(txq.completed.packets.load(Relaxed), cx.clock.now())
            };
            let Some(at) = tended.or_else(|| look(txq, looks, &mut cx)) else { return false };
            if looks.too_early(cx.clock.now(), false).is_some() {
                sched.hold_reap(txq.index);
            }
            patient |= looks.is_patient();
            take_at = take_at.min(looks.not_before());
            sooner(at);
            true
        });
        if patient && !sched.hold() {
            sooner(0);
        }
        // The worker is awake by then: it is the time of the earliest look.
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
            self.reaping.iter().for_each(|txq| self.looks[usize::from(txq)].note_run(completed(txq)));
        }
        // After the queues have run: a shaper that has sent the packets that were due sets the time of the next.
        sched.earliest().into_iter().for_each(sooner);
        next
    }

    /// Works until the device shuts down. Sleeps when there is no work, but polls the clock for the last part of a wait, as
    /// long as [`Builder::spin`](crate::netdev::Builder::spin) says.
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

/// Reaps a txq, and notes the look. Returns when to look again; `None` if nothing is left to reap and no packet is expected.
fn look<A: Arch>(txq: &TxQueue<A>, looks: &mut Looks, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
    let dev = cx.dev;
    let soonest = dev.inside(|| dev.reap(txq, cx));
    txq.report_bugs(dev);
    let (completed, now) = (txq.completed.packets.load(Relaxed), cx.clock.now());
    if !txq.needs_reaping() && !txq.is_watched() {
        return looks.note_empty(completed, now);
    }
    let at = looks.note(completed, txq.in_flight(), now, soonest, || now + txq.next_poll());
    let watch = dev.watchdog.as_ref();
    let end = watch.and_then(|watchdog| txq.watch(watchdog, || now));
    end.into_iter().for_each(|end| looks.look_by(end));
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
        if std::thread::panicking() || !self.reaping.is_empty() {
            // The inbox may hold more work: its token is used up, or there was none, because bits of the worker's own were set.
            sched.notify();
        }
    }
}
