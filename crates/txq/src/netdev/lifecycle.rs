//! A device goes down and comes up again, its queues get longer or shorter, its driver is replaced, and it ends.
//!
//! Any thread may ask for any of this, one at a time (`Shared::tree`), but not from within the device's data path (a driver, a
//! qdisc, a filter, a completion): the call waits for the owners of queues, and the caller is one. It panics there instead
//! ([`Shared::assert_outside`](super::Shared::assert_outside)), and so does a call from within another one. Dropping the
//! device works everywhere.

use std::any::TypeId;
use std::mem::{self, ManuallyDrop};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::{io, process, thread};

use super::tree::Tree;
use super::{BuildError, NetDev};
use crate::arch::{Arch, Atomic, Native};
use crate::ctx::Ctx;
use crate::driver::Driver;
use crate::run::Gate;
use crate::txqueue::TxQueue;

impl Tree {
    /// How queues in force treat what comes.
    pub(super) fn gate(&self) -> Gate {
        if self.up { Gate::Open } else { Gate::Down }
    }
}

impl<A: Arch> NetDev<A> {
    /// Takes the device down, under traffic (`ip link set DEV down`, `dev_deactivate`). What is queued is dropped
    /// (`QUEUE_PURGE`), and so is what is handed in until [`activate`](NetDev::activate) (`QDISC_DROP`, told to the sender
    /// as `noop_qdisc` tells it: [`Verdict::Congested`](crate::qdisc::Verdict::Congested)). What the device keeps
    /// completes. When this returns, nobody is in the driver for a packet that was queued before.
    pub fn deactivate(&self) {
        self.reconfigure(|tree, cx| {
            tree.up = false;
            // Before the queues are empty: a sender that waits for room in one finds the device down, and no room.
            self.shared.reset_fill(true);
            self.close(Gate::Down, cx);
            for root in self.shared.roots_used() {
                let mut running = true;
                while running {
                    root.with_core(&self.shared, |core| running = core.is_running());
                    if running {
                        A::relax();
                    }
                }
            }
        });
    }

    /// Takes the device up again (`ip link set DEV up`, `dev_activate`).
    pub fn activate(&self) {
        self.reconfigure(|tree, _| {
            tree.up = true;
            if self.shared.is_stopping() {
                return;
            }
            for root in self.shared.roots_in_force() {
                root.with_core(&self.shared, |core| core.open(Gate::Open));
                self.shared.hand_over(root.index);
            }
        });
    }

    /// Whether it is up.
    pub fn is_active(&self) -> bool {
        self.control(|tree, _| tree.up)
    }

    /// Sets `tx_queue_len`, in packets, under traffic (`ip link set DEV txqueuelen N`, `dev_change_tx_queue_len`). Each band
    /// of a pfifo_fast holds so many from now on, and what it has beyond that is dropped, the newest first. Other qdiscs
    /// keep the limit that they began with, as in the kernel.
    pub fn set_tx_queue_len(&self, packets: u32) {
        self.reconfigure(|tree, cx| {
            tree.env.tx_queue_len = packets;
            for root in self.shared.roots_in_force() {
                root.with_core(&self.shared, |core| core.set_tx_queue_len(packets, cx));
                cx.free_dropped();
            }
        });
    }

    /// The length, in packets.
    pub fn tx_queue_len(&self) -> u32 {
        self.control(|tree, _| tree.env.tx_queue_len)
    }

    /// Replaces the driver, under traffic: by one for another device, or by one whose rings are of another size. Each txq goes
    /// over when nobody is in its driver; what the old one has completed goes home, what it still keeps goes with it, and
    /// a txq that was stopped goes on. The device keeps its name.
    ///
    /// # Errors
    /// That the new driver has fewer txqs or a ring of no packets, takes only shorter packets, or does not open; nothing has changed then. Or how
    /// the old one finished, when it did with an error.
    pub fn replace_driver(&self, mut driver: impl Driver<A> + 'static) -> io::Result<()> {
        let (info, ours) = (driver.info(), &self.shared.info);
        if info.txqs < self.txqs() || info.mtu < ours.mtu {
            let why = format!(
                "driver \"{}\" has {} txqs and an MTU of {}: device \"{}\" needs at least {} and {}",
                info.name,
                info.txqs,
                info.mtu,
                ours.name,
                self.txqs(),
                ours.mtu
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (horizon, needed) = (driver.pacing_horizon(), self.control(|tree, _| tree.env.pacing_horizon));
        if horizon < needed {
            let why = format!(
                "driver \"{}\" takes packets {horizon} ns before their time: device \"{}\" needs at least {needed}",
                info.name, ours.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let queues = (0..self.txqs()).map(|txq| driver.open(txq)).collect::<io::Result<Vec<_>>>()?;
        if let Some(txq) = queues.iter().position(|queue| queue.ring == Some(0)) {
            let wrong = BuildError::Ring { device: info.name, txq: txq as u16 };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
        }
        self.control(|_, cx| {
            let txqs = self.shared.txqs.iter();
            let replace = |(txq, queue): (&TxQueue<A>, _)| {
                let old = self
                    .shared
                    .with_driver(txq, cx, |tx, done, cx| txq.replace(tx, done, queue, &mut cx.clock));
                self.shared.hand_over(self.shared.root_of(txq.index));
                old
            };
            let old: Vec<_> = txqs.zip(queues).map(replace).collect();
            let mut first = Ok(());
            for old in old {
                // Each finishes, whatever became of those before.
                let finished = old.finish(cx);
                first = first.and(finished);
            }
            first
        })
    }

    /// Times that a worker's thread has gone on after a panic of a driver or a qdisc. What the panic took along is counted
    /// as dropped (`NOT_SPECIFIED`).
    pub fn worker_restarts(&self) -> u64 {
        self.shared.worker_deaths.load(Relaxed)
    }

    fn close(&self, gate: Gate, cx: &mut Ctx<'_, A>) {
        for root in self.shared.roots_in_force() {
            root.with_core(&self.shared, |core| core.close(gate, cx));
        }
        for root in self.shared.roots_used() {
            // What waits for an owner, and what a sender is in the driver with.
            root.run(&self.shared, cx);
            cx.free_dropped();
        }
    }

    /// Ends all sending: what is still queued is dropped (`QUEUE_PURGE`), as is everything handed in afterwards, and
    /// drivers write out what they hold. Returns the first error that one of them met.
    ///
    /// A worker's own thread may call it, from a hook; that thread then ends by itself.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] from within the device's data path (a driver, qdisc, filter or completion): the call
    /// would wait for its caller. Nothing has changed then. [`io::ErrorKind::NotConnected`] in a forked child, which has none of
    /// the device's threads, and none of its locks that were held.
    pub fn shutdown(&mut self) -> io::Result<()> {
        let name = &self.shared.info.name;
        if self.is_forked() {
            // Their threads are the parent's.
            self.threads.drain(..).for_each(mem::forget);
            let made = self.process;
            let why =
                format!("device \"{name}\" is process {made}'s: a forked child has none of its threads");
            return Err(io::Error::new(io::ErrorKind::NotConnected, why));
        }
        if self.shared.is_inside() {
            let why = format!(
                "device \"{name}\" cannot be shut down from its own driver, qdisc, filter or completion: \
                 use another thread"
            );
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let shared = &self.shared;
        let mut panicked = None;
        if shared.stopping.swap(1, Release) == 0 {
            shared.roots.iter().for_each(|root| root.fill.end());
            let close = || self.control(|_, cx| self.close(Gate::Gone, cx));
            panicked = panic::catch_unwind(AssertUnwindSafe(close)).err();
            shared.sched.iter().for_each(|s| s.notify());
        }
        let me = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != me) {
            panicked = thread.join().err().or(panicked);
        }
        if let Some(panic) = panicked {
            panic::resume_unwind(panic);
        }
        self.shared.has_threads.store(0, Relaxed);
        let mut cache = self.shared.pool.cache("control", 0);
        let mut cx = Ctx::new(&self.shared, &mut cache);
        let mut first = Ok(());
        for txq in &self.shared.txqs {
            // Each is finished, whatever became of those before.
            let finished = self.shared.with_driver(txq, &mut cx, |tx, _, _| tx.finish());
            first = first.and(finished);
        }
        first
    }

    fn is_forked(&self) -> bool {
        self.process != process::id()
    }
}

impl<A: Arch> Drop for NetDev<A> {
    /// Shuts down. Where that would wait for the caller, in the device's data path, a thread of its own does it; so it does
    /// while the caller panics, for a second panic would abort.
    fn drop(&mut self) {
        // An error of a driver has been told by `shutdown`, if anybody asked.
        let elsewhere = self.shared.is_inside() || (thread::panicking() && !self.threads.is_empty());
        if self.is_forked() || !(elsewhere || thread::panicking()) {
            let _ = self.shutdown();
        } else if elsewhere && TypeId::of::<A>() == TypeId::of::<Native>() {
            let (shared, threads) = (self.shared.clone(), mem::take(&mut self.threads));
            // If there is no thread for it, the device stays.
            let dev = ManuallyDrop::new(Self { shared, threads, process: self.process });
            let end = move || drop(ManuallyDrop::into_inner(dev));
            let _ = thread::Builder::new().name("txq-shutdown".into()).spawn(end);
        }
    }
}
