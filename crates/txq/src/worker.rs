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
//! A device shares a thread only if the program says so, however many devices there are. A driver that blocks, against its
//! contract, or a slow qdisc holds up all devices of its thread, and a thread of a pool does not spin. A default that
//! changed with the number of devices would begin to do so in silence. For many devices that are mostly idle the pool is two calls:
//! [`Builder::build`] in place of [`Builder::start`], and [`WorkerPool::drive`](crate::WorkerPool::drive).
//!
//! # A loop of the program's own
//!
//! 1. [`Builder::build`] creates the device without threads, and [`NetDev::worker`] its workers: one, unless
//!    [`Builder::workers`] says otherwise. Each must exist once. Under [`Completions::PerQueue`] each txq has a completer
//!    ([`NetDev::completer`]), which is driven like a worker.
//! 2. [`Worker::set_waker`] sets a function that ends the loop's sleep: a write to an eventfd (`txq_device::EventFd`).
//! 3. Each turn resets the eventfd, then calls [`Worker::poll`], then sleeps. In that order a wake that arrives during the
//!    poll ends the next sleep. A poll without work costs little, so a loop may poll in every turn.
//! 4. `poll` returns the deadline: the time of its next work, as an [`Instant`] on `CLOCK_MONOTONIC`, which converts to a
//!    [`std::time::Instant`]. `None` means that only a wake brings work. A time in the past means at once: the quota of a turn is used up, and the
//!    loop may serve its other descriptors first. A loop that polls later than the deadline sends shaped packets later.
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
//! #         Ok(DriverQueue::new(Sink, NoCompletions))
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
//! dev.tc("qdisc replace root handle 1: tbf rate 48mbit burst 1600 limit 60000")?;
//! dev.tc("qdisc replace parent 1:1 pfifo limit 100")?;
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
//!     let at = next.map_or(Duration::ZERO, |at| Duration::from_nanos(at.as_nanos().max(1)));
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
//! #         Ok(DriverQueue::new(Sink, NoCompletions))
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
//! dev.tc("qdisc replace root handle 1: tbf rate 48mbit burst 1600 limit 60000")?;
//! dev.tc("qdisc replace parent 1:1 pfifo limit 100")?;
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

use crate::Instant;
use crate::generic;

/// Does the deferred work of some of a device's queues.
pub struct Worker(pub(crate) generic::Worker);

impl Worker {
    /// Sets a function that is called when there is work to do, by the thread that causes the work. It should be quick: an
    /// eventfd write is.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.0.set_waker(wake);
    }

    /// Returns whether the device has shut down, so that there is no more work.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Does the work that is due. Returns when to do so again if nothing wakes the worker before: `None` for never, a
    /// time in the past for at once.
    ///
    /// # Panics
    /// When called inside the device's own data path, and when a driver or a qdisc panics.
    pub fn poll(&mut self) -> Option<Instant> {
        self.0.poll().map(Instant::from_nanos)
    }

    /// Works until the device shuts down. Sleeps when there is no work, but polls the clock for the last part of a wait, as
    /// long as [`Builder::spin`](crate::netdev::Builder::spin) says.
    pub fn run(self) {
        self.0.run();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
