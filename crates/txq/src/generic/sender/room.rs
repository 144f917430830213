//! Waiting for room: a sender sleeps until its queue has room, instead of losing packets or trying again and again.
//!
//! [`Fill`](txq_core::sync::fill::Fill) is the protocol. This file decides which queues a sender waits for, and how long.
//! Before a sender sleeps, it runs the queue itself or makes the owner check the queue again. So the owner checks it after the
//! sender has registered, and the thread that has the CPU does the work that is due.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use txq_core::arch::{Arch, Nanos};
use txq_core::sync::fill::Waiter;

use super::{Flow, Sender};
use crate::generic::datapath::Ctx;
use crate::generic::tuning::{LONGEST_NAP, RETRY};

/// [`Sender::LONGEST_WAIT`], in nanoseconds.
const LONGEST_WAIT: Nanos = 1_000_000_000;

/// The result of a wait for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the queue may still be full"]
#[non_exhaustive]
pub enum Room {
    /// The queue has room, as far as is known.
    Free,
    /// The queue has no room yet: the deadline or [`LONGEST_WAIT`](Sender::LONGEST_WAIT) has passed.
    Full,
    /// The device is down: packets are dropped until [`activate`](crate::NetDev::activate).
    Down,
    /// The device is gone: all packets are dropped.
    Gone,
}

/// The state of a sender's waits.
pub(super) struct Waits<A: Arch> {
    /// Created at the first wait.
    waiter: Option<Arc<Waiter<A>>>,
    /// The root that holds a waker of this sender.
    pub(super) watched: Option<usize>,
    /// How many packets of the sender had been dropped when there was room last.
    dropped: u64,
}

impl<A: Arch> Default for Waits<A> {
    fn default() -> Self {
        Self { waiter: None, watched: None, dropped: 0 }
    }
}

impl<A: Arch> Sender<A> {
    /// The longest wait for room: 1 s. A queue may never report room: a custom qdisc may misreport its backlog,
    /// and a slow shaper takes its time.
    pub const LONGEST_WAIT: Duration = Duration::from_nanos(LONGEST_WAIT);

    /// Returns how many packets of this sender are known to be dropped so far.
    #[inline(never)]
    pub fn dropped(&self) -> u64 {
        self.counters.dropped()
    }

    /// Lets the next wait for room disregard the packets that this sender has lost so far: only a queue that is full by its
    /// limit in packets holds the sender.
    #[inline(never)]
    pub fn disregard_drops(&mut self) {
        self.waits.dropped = self.counters.dropped();
    }

    /// Sleeps until the queue that this sender's packets go to has room, or until `deadline` on the clock of
    /// [`now`](Sender::now), and at most for [`LONGEST_WAIT`](Sender::LONGEST_WAIT).
    #[inline(never)]
    pub fn wait_room(&mut self, deadline: Option<Nanos>) -> Room {
        self.wait_for(None, deadline)
    }

    /// As [`wait_room`](Sender::wait_room), for the txq of a flow.
    #[inline(never)]
    pub fn wait_room_on(&mut self, flow: &Flow<A>, deadline: Option<Nanos>) -> Room {
        match flow.txq() {
            Some(txq) => self.wait_for(Some(txq), deadline),
            None => Room::Free,
        }
    }

    /// As [`wait_room`](Sender::wait_room), for an event loop: does not sleep, but registers `waker` to be woken when there
    /// is room.
    #[inline(never)]
    pub fn poll_room(&mut self, waker: &Waker) -> Poll<Room> {
        self.poll_room_of(None, waker)
    }

    /// As [`poll_room`](Sender::poll_room), for the txq of a flow.
    #[inline(never)]
    pub fn poll_room_on(&mut self, flow: &Flow<A>, waker: &Waker) -> Poll<Room> {
        match flow.txq() {
            Some(txq) => self.poll_room_of(Some(txq), waker),
            None => Poll::Ready(Room::Free),
        }
    }

    pub(super) fn poll_room_of(&mut self, txq: Option<u16>, waker: &Waker) -> Poll<Room> {
        loop {
            let (root, refused) = match self.check_room(txq) {
                Ok(room) => {
                    self.forget_waker();
                    return Poll::Ready(room);
                }
                Err(full) => full,
            };
            let waiter = self.waiter();
            // A task that is polled without a wake keeps its place.
            let keeps = self.waits.watched == Some(root)
                && self.dev.roots[root].fill.watch_on(&waiter, refused, waker);
            if !keeps {
                self.forget_waker();
                self.waits.watched = Some(root);
                self.dev.roots[root].fill.watch(&waiter, refused, waker);
            }
            if self.run_queue(root) | self.dev.roots[root].fill.word().is_full(refused) {
                return Poll::Pending;
            }
        }
    }

    fn wait_for(&mut self, txq: Option<u16>, deadline: Option<Nanos>) -> Room {
        match self.check_room(txq) {
            Ok(room) => room,
            Err(full) => self.wait_until(txq, full, deadline),
        }
    }

    /// Sleeps until the queue that `check_room` has found full has room, or the wait ends.
    #[cold]
    fn wait_until(
        &mut self,
        txq: Option<u16>,
        (mut root, mut refused): (usize, bool),
        deadline: Option<Nanos>,
    ) -> Room {
        self.forget_waker();
        let nested = A::inside(|inside| inside.depth()) > 0;
        let end = A::now().saturating_add(LONGEST_WAIT).min(deadline.unwrap_or(Nanos::MAX));
        // Without threads of the device there may be no thread that wakes the sender.
        let mut nap = if self.dev.has_threads() { LONGEST_WAIT } else { RETRY };
        loop {
            let now = A::now();
            if nested || now >= end {
                // A worker runs the queue, whatever the queue was waiting for.
                self.dev.hand_over(root);
                return Room::Full;
            }
            let waiter = self.waiter();
            let dev = self.dev.clone();
            let until = now.saturating_add(nap).min(end);
            dev.roots[root].fill.wait(&waiter, refused, until, || self.run_queue(root));
            nap = (nap * 2).min(LONGEST_NAP.max(nap));
            if self.steer.is_stale() && !self.renewing {
                self.check_steering();
            }
            match self.check_room(txq) {
                Ok(room) => return room,
                Err(full) => (root, refused) = full,
            }
        }
    }

    /// Returns whether there is room. The error is the first queue that is full, and whether packets of this sender have
    /// been dropped since there was room last.
    #[inline]
    fn check_room(&mut self, txq: Option<u16>) -> Result<Room, (usize, bool)> {
        let dropped = self.counters.dropped();
        let refused = dropped != self.waits.dropped;
        let (dev, rule) = (&*self.dev, self.dev.rule());
        let check = |txq| {
            let root = dev.root_at(rule, txq);
            let word = dev.roots[root].fill.word();
            match word {
                _ if word.is_gone() => Ok(Room::Gone),
                _ if word.is_down() => Ok(Room::Down),
                _ if word.is_full(refused) || dev.roots[root].is_behind() => Err((root, refused)),
                _ => Ok(Room::Free),
            }
        };
        let room = match txq.or(self.steer.fixed()) {
            Some(txq) => check(txq)?,
            None => {
                let mut room = Room::Free;
                for txq in self.steer.used().iter() {
                    if let other @ (Room::Down | Room::Gone) = check(txq)? {
                        room = other;
                    }
                }
                room
            }
        };
        self.waits.dropped = dropped;
        Ok(room)
    }

    /// Does the work that is due for a queue, as a worker does, or makes its owner check it again. Returns whether the list in
    /// front of the queue is still long.
    pub(super) fn run_queue(&mut self, root: usize) -> bool {
        if A::inside(|inside| inside.depth()) > 0 {
            self.dev.hand_over(root);
            return self.dev.roots[root].is_behind();
        }
        let dev = &*self.dev;
        let root = &dev.roots[root];
        let mut cx = Ctx::new(dev, &mut self.cache);
        dev.inside(|| match root.txq {
            Some(txq) => dev.txqs[usize::from(txq)].reap_if_stopped(&mut cx),
            None => dev.txqs.iter().for_each(|txq| txq.reap_if_stopped(&mut cx)),
        });
        root.run(dev, &mut cx);
        self.counters.settle(&self.cache);
        root.is_behind()
    }

    pub(super) fn waiter(&mut self) -> Arc<Waiter<A>> {
        self.waits.waiter.get_or_insert_with(Waiter::new).clone()
    }

    /// Removes the waker that [`poll_room`](Sender::poll_room) has registered.
    pub(super) fn forget_waker(&mut self) {
        if let (Some(root), Some(waiter)) = (self.waits.watched.take(), &self.waits.waiter) {
            self.dev.roots[root].fill.leave(waiter);
        }
    }
}
