//! Taking a device down and up, changing its queue length, replacing its driver, and shutting it down.
//!
//! Any thread may call these methods; the lock of `Shared::tree` admits one at a time. A call waits for the owners of
//! queues. Inside the device's data path (a driver, a qdisc, a filter, a completion) the caller is such an owner, so the
//! call panics ([`Shared::assert_outside`](super::Shared::assert_outside)). A call inside another one panics, too. Dropping
//! the device works everywhere.

use std::any::TypeId;
use std::mem::{self, ManuallyDrop};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::{io, process, thread};

use txq_core::arch::{Arch, Atomic, Native};

use super::tree::Tree;
use super::{BuildError, NetDev};
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::driver::Driver;
use crate::generic::panics::Panics;
use crate::generic::txqueue::TxQueue;

impl Tree {
    /// Returns how queues in force treat arriving packets.
    pub(super) fn gate(&self) -> Gate {
        if self.up { Gate::Open } else { Gate::Down }
    }
}

impl<A: Arch> NetDev<A> {
    /// Takes the device down, under traffic (`ip link set DEV down`, `dev_deactivate`).
    #[inline(never)]
    pub fn deactivate(&self) {
        self.reconfigure(|tree, cx| {
            tree.up = false;
            // Before the queues are empty, so that a sender that waits for room finds the device down, not room.
            self.shared.reset_fill(true);
            self.shared.senders.wake_to_recheck();
            let mut panics = Panics::default();
            panics.catch(|| self.close(Gate::Down, cx));
            for root in self.shared.roots_used() {
                let mut running = true;
                while running {
                    panics.catch(|| root.with_core(&self.shared, |core| running = core.is_running()));
                    if running {
                        A::relax();
                    }
                }
            }
            panics.raise();
        });
    }

    /// Takes the device up again (`ip link set DEV up`, `dev_activate`).
    #[inline(never)]
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

    /// Returns whether the device is up.
    #[inline(never)]
    pub fn is_active(&self) -> bool {
        self.control(|tree, _| tree.up)
    }

    /// Sets `tx_queue_len`, in packets, under traffic (`ip link set DEV txqueuelen N`, `dev_change_tx_queue_len`).
    #[inline(never)]
    pub fn set_tx_queue_len(&self, packets: u32) {
        self.reconfigure(|tree, cx| {
            tree.env.tx_queue_len = packets;
            for root in self.shared.roots_in_force() {
                root.with_core(&self.shared, |core| core.set_tx_queue_len(packets, cx));
                cx.free_dropped();
            }
        });
    }

    /// Returns `tx_queue_len`, in packets.
    #[inline(never)]
    pub fn tx_queue_len(&self) -> u32 {
        self.control(|tree, _| tree.env.tx_queue_len)
    }

    /// Returns the MTU: the longest packet without its link-layer header, in bytes.
    #[inline(never)]
    pub fn mtu(&self) -> u32 {
        let header = self.shared.info.link.header_len();
        self.control(|tree, _| tree.env.mtu.saturating_sub(header))
    }

    /// Sets the MTU, in bytes, under traffic (`dev_set_mtu`).
    #[inline(never)]
    pub fn set_mtu(&self, mtu: u32) {
        let header = self.shared.info.link.header_len();
        self.control(|tree, _| tree.env.mtu = mtu.saturating_add(header));
    }

    /// Replaces the driver, under traffic: by one for another device, or by one whose rings are of another size.
    pub fn replace_driver(&self, mut driver: impl Driver<A> + 'static) -> io::Result<()> {
        let (info, ours) = (driver.info(), &self.shared.info);
        let built = self.shared.txqs.len() as u16;
        if info.link != ours.link {
            let why = format!(
                "driver \"{}\" sends packets that begin with {}: those of device \"{}\" begin with {}",
                info.name, info.link, ours.name, ours.link
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mtu = self.mtu();
        if info.txqs < built || info.mtu < mtu {
            let why = format!(
                "driver \"{}\" has {} txqs and an MTU of {}: device \"{}\" needs at least {} and {}",
                info.name, info.txqs, info.mtu, ours.name, built, mtu
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (horizon, needed) = (driver.pacing_horizon(), self.control(|tree, _| tree.env.pacing_horizon));
        if horizon < needed {
            let why = format!(
                "driver \"{}\" takes packets {horizon:?} before their time: device \"{}\" needs at least {needed:?}",
                info.name, ours.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let queues = (0..built).map(|txq| driver.open(txq)).collect::<io::Result<Vec<_>>>()?;
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
                // Each driver finishes, even if one before it failed.
                let finished = old.finish(cx);
                first = first.and(finished);
            }
            first
        })
    }

    /// Returns how often a worker's thread, or a control call that runs a queue in its place, has continued after a panic of
    /// a driver or a qdisc.
    #[inline(never)]
    pub fn worker_restarts(&self) -> u64 {
        self.shared.worker_deaths.load(Relaxed)
    }

    fn close(&self, gate: Gate, cx: &mut Ctx<'_, A>) {
        let mut panics = Panics::default();
        for root in self.shared.roots_in_force() {
            panics.catch(|| root.with_core(&self.shared, |core| core.close(gate, cx)));
        }
        for root in self.shared.roots_used() {
            // For packets that wait for an owner, and for packets that a sender has in the driver.
            panics.catch(|| root.run(&self.shared, cx));
            cx.free_dropped();
        }
        panics.raise();
    }

    /// Ends all sending.
    #[inline(never)]
    pub fn shutdown(&mut self) -> io::Result<()> {
        let name = &self.shared.info.name;
        if self.is_forked() {
            // The threads exist only in the parent.
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
        let mut panics = Panics::default();
        if shared.stopping.swap(1, Release) == 0 {
            shared.roots.iter().for_each(|root| root.fill.end());
            shared.senders.wake_to_recheck();
            panics.catch(|| self.control(|_, cx| self.close(Gate::Gone, cx)));
            shared.sched.iter().for_each(|s| s.notify());
        }
        let me = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != me) {
            panics.note(thread.join());
        }
        self.shared.has_threads.store(0, Relaxed);
        let mut cache = self.shared.cache("control", 0);
        let mut cx = Ctx::new(&self.shared, &mut cache);
        let mut first = Ok(());
        for txq in &self.shared.txqs {
            // Each driver finishes, even if one before it failed.
            let finished = panics.catch(|| self.shared.with_driver(txq, &mut cx, |tx, _, _| tx.finish()));
            first = first.and(finished.unwrap_or(Ok(())));
        }
        panics.raise();
        first
    }

    fn is_forked(&self) -> bool {
        self.process != process::id()
    }
}

impl<A: Arch> Drop for NetDev<A> {
    /// Shuts the device down. Inside the device's data path that would wait for the caller, so a new thread does it. The
    /// same holds while the caller panics and the device has threads, because a second panic would abort.
    fn drop(&mut self) {
        if !self.owner {
            return;
        }
        // A program that wants a driver's error calls `shutdown` before.
        let elsewhere = self.shared.is_inside() || (thread::panicking() && !self.threads.is_empty());
        if self.is_forked() || !(elsewhere || thread::panicking()) {
            let _ = self.shutdown();
        } else if elsewhere && TypeId::of::<A>() == TypeId::of::<Native>() {
            let (shared, control) = (self.shared.clone(), self.control.clone());
            let threads = mem::take(&mut self.threads);
            // If the thread does not start, the device is not shut down.
            let dev =
                ManuallyDrop::new(Self { shared, control, threads, process: self.process, owner: true });
            let end = move || drop(ManuallyDrop::into_inner(dev));
            let _ = thread::Builder::new().name("txq-shutdown".into()).spawn(end);
        }
    }
}
