//! Forwarding: a thread that sends through one device what another device receives.
//!
//! A [`Forwarder`] has a receiver and a sender. Two of them are a bridge, one for each direction, and each direction has the
//! qdisc of the device that sends:
//!
//! ```no_run
//! use txq::NetDev;
//! use txq::pool::{Pool, PoolConfig};
//! use txq_device::forward::{Forwarder, Hooks};
//! use txq_device::port;
//!
//! let pool = Pool::new(&PoolConfig { buffers: 16384, ..PoolConfig::default() })?;
//! let (mut lan, mut wan) = (port::open("eth0", 1, &pool)?, port::open("eth1", 1, &pool)?);
//! let (from_lan, from_wan) = (lan.receivers.remove(0), wan.receivers.remove(0));
//! let up = NetDev::builder(wan.driver).pool(pool.clone()).qdisc("cake bandwidth 20mbit").start()?;
//! let down = NetDev::builder(lan.driver).pool(pool).qdisc("cake bandwidth 100mbit").start()?;
//! let up = Forwarder::start("up", from_lan, up.sender("up"), Hooks::new())?;
//! let down = Forwarder::start("down", from_wan, down.sender("down"), Hooks::new())?;
//! // Both forward until they are dropped.
//! # drop((up, down));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The thread goes on after an error of the receiver, and tries again each 100 ms: an interface that was down may be up again.
//! One that is removed and made again needs another receiver ([`Forwarder::replace`]).
//!
//! Packets that the qdisc refuses are dropped there, with a reason. A sender without buffers leaves packets in the receiving
//! device, whose queue is a queue in front of the qdisc. So give the sender's pool more buffers than its qdiscs may queue
//! ([`NetDev::fit_pool`](txq::NetDev::fit_pool)).

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use txq::packet::PacketList;
use txq::receive::{Receive, RxStats};
use txq::{Ingress, Sender};

/// Packets that are received and sent at a time.
const BUDGET: usize = 64;
/// How long the thread sleeps without packets; so a stop takes as long at most.
const RECEIVE_WAIT: Duration = Duration::from_millis(100);
/// How long a sender waits for a buffer before it checks for a stop.
const WAIT_BUFFER: Duration = Duration::from_millis(10);
/// How old the counters of a busy forwarder are at most.
const COUNTERS_AGE: Duration = Duration::from_millis(10);

type OnBatch = dyn FnMut(&mut PacketList) + Send;
type OnError = dyn FnMut(&io::Error) + Send;

/// Functions of the program that the thread calls.
pub struct Hooks {
    ingress: Option<Ingress>,
    batch: Option<Box<OnBatch>>,
    error: Option<Box<OnError>>,
}

impl Hooks {
    /// Returns hooks that do nothing.
    pub fn new() -> Self {
        Self { ingress: None, batch: None, error: None }
    }

    /// Runs the ingress filters of the device that receives ([`NetDev::ingress`](txq::NetDev::ingress)), before
    /// [`on_batch`](Self::on_batch).
    #[must_use]
    pub fn ingress(self, filters: Ingress) -> Self {
        Self { ingress: Some(filters), ..self }
    }

    /// Calls `f` with the packets that were received, before they are sent: to set priorities and marks, or to remove
    /// packets, which are then freed.
    #[must_use]
    pub fn on_batch(self, f: impl FnMut(&mut PacketList) + Send + 'static) -> Self {
        Self { batch: Some(Box::new(f)), ..self }
    }

    /// Calls `f` with the first of several consecutive errors of the receiver.
    #[must_use]
    pub fn on_error(self, f: impl FnMut(&io::Error) + Send + 'static) -> Self {
        Self { error: Some(Box::new(f)), ..self }
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batch, error) = (self.batch.is_some(), self.error.is_some());
        f.debug_struct("Hooks").field("on_batch", &batch).field("on_error", &error).finish()
    }
}

/// Counters of a forwarder.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Those of all its receivers.
    pub rx: RxStats,
    /// Packets that the sender added by cutting packets with segments, for a device that does not
    /// ([`Sender::added_by_cuts`]). The device accepts this many more than were received.
    pub added_by_cuts: u64,
    /// How often packets waited in the receiving device, because the sender had no buffer.
    pub starved: u64,
    /// Calls that returned an error.
    pub errors: u64,
}

/// What the thread and the program share.
#[derive(Default)]
struct Shared {
    /// The program sets it once, and the thread reads it before each call of the receiver. It guards no data.
    stop: AtomicBool,
    /// The receiver to go on with.
    next: Mutex<Option<Box<dyn Receive>>>,
    /// Whether `next` may hold a receiver. The program sets it after it has filled `next`; the thread clears it and then locks
    /// `next`, so that the lock orders the data.
    changed: AtomicBool,
    stats: Mutex<Stats>,
}

/// A thread that forwards. Dropping it ends the thread, which takes 100 ms at most.
pub struct Forwarder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Box<dyn Receive>>>,
}

/// A view of a forwarder's counters, for other threads. It does not keep the forwarder running.
#[derive(Clone)]
pub struct Meter(Arc<Shared>);

impl Meter {
    /// Returns the counters, which are 100 ms old at most.
    pub fn stats(&self) -> Stats {
        *lock(&self.0.stats)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.stats()).finish()
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Starts a thread called `name` that sends through `sender` what `receiver` receives. The receiver and the sender's device
    /// should have the same [`Link`](txq::driver::Link).
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn start(name: &str, receiver: Box<dyn Receive>, sender: Sender, hooks: Hooks) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Loop { receiver, sender, hooks, shared: shared.clone(), before: Stats::default() };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || theirs.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Goes on with another receiver: that of an interface that is back. The old one is dropped; its counters stay in the sums.
    pub fn replace(&self, receiver: Box<dyn Receive>) {
        let unused = lock(&self.shared.next).replace(receiver);
        self.shared.changed.store(true, Relaxed);
        // With no lock held: it is the program's.
        drop(unused);
    }

    /// Returns the counters, which are 100 ms old at most.
    pub fn stats(&self) -> Stats {
        *lock(&self.shared.stats)
    }

    /// Returns a view of the counters for other threads.
    pub fn meter(&self) -> Meter {
        Meter(self.shared.clone())
    }

    /// Ends the thread and returns its receiver; `None` if the thread has panicked.
    pub fn stop(mut self) -> Option<Box<dyn Receive>> {
        self.join()
    }

    fn join(&mut self) -> Option<Box<dyn Receive>> {
        self.shared.stop.store(true, Relaxed);
        // A panic of a qdisc or a hook was printed by the thread.
        self.thread.take()?.join().ok()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        drop(self.join());
    }
}

/// The thread's part.
struct Loop {
    receiver: Box<dyn Receive>,
    sender: Sender,
    hooks: Hooks,
    shared: Arc<Shared>,
    /// The counters without those of the present receiver.
    before: Stats,
}

impl Loop {
    /// Forwards until the stop; returns the receiver.
    fn run(mut self) -> Box<dyn Receive> {
        let mut batch = PacketList::new();
        // Whether the receiver has said that there are packets, and whether its last call was an error.
        let (mut ready, mut failing) = (false, false);
        let mut told = Instant::now();
        while !self.shared.stop.load(Relaxed) {
            if self.shared.changed.swap(false, Relaxed) {
                self.change();
                (ready, failing) = (false, false);
            }
            match self.receiver.receive(BUDGET, &mut self.sender, &mut batch) {
                Ok(0) if ready => {
                    self.before.starved += u64::from(self.wait_buffer());
                    ready = false;
                }
                Ok(0) => ready = self.receiver.wait(Some(RECEIVE_WAIT)).unwrap_or(false),
                Ok(_) => {
                    (ready, failing) = (false, false);
                    if let Some(filters) = &self.hooks.ingress {
                        filters.filter(&mut self.sender, &mut batch);
                    }
                    self.hooks.batch.iter_mut().for_each(|hook| hook(&mut batch));
                    // The verdict is for senders that slow down.
                    let _ = self.sender.xmit_batch(&mut batch);
                }
                Err(error) => {
                    self.before.errors += 1;
                    if !failing {
                        self.hooks.error.iter_mut().for_each(|hook| hook(&error));
                    }
                    failing = true;
                    thread::sleep(RECEIVE_WAIT);
                }
            }
            if told.elapsed() >= COUNTERS_AGE {
                self.publish();
                told = Instant::now();
            }
        }
        self.publish();
        self.receiver.release();
        self.receiver
    }

    /// Waits for a buffer of the sender. Returns whether there was none at first.
    fn wait_buffer(&mut self) -> bool {
        if self.sender.alloc(1).is_ok() {
            return false;
        }
        let deadline = self.sender.now() + WAIT_BUFFER;
        if self.sender.wait_buffer(1, Some(deadline)).is_err() {
            // Without a buffer in time, or with the device down: either may change.
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn change(&mut self) {
        // Not in the condition, which would hold the lock while the old receiver is dropped.
        let next = lock(&self.shared.next).take();
        if let Some(next) = next {
            self.before = self.stats();
            self.receiver = next;
        }
    }

    fn stats(&self) -> Stats {
        let mut stats = self.before;
        stats.added_by_cuts = self.sender.added_by_cuts();
        stats.rx += self.receiver.stats();
        stats
    }

    fn publish(&self) {
        *lock(&self.shared.stats) = self.stats();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(miri)))]
mod tests;
