//! Waiting for credit, for a buffer and for room: as an await, as a poll with a waker, and as a sleep with a deadline.
//!
//! | a sender needs | at once | sleeps, with a deadline | polls, with a waker | awaits |
//! |---|---|---|---|---|
//! | credit ([`set_limit`](Sender::set_limit)) | [`alloc`](Sender::alloc) | [`wait_credit`](Sender::wait_credit) | [`poll_credit`](Sender::poll_credit) | [`credit`](Sender::credit) |
//! | a buffer, and credit for it | [`alloc`](Sender::alloc) | [`wait_buffer`](Sender::wait_buffer) | [`poll_buffer`](Sender::poll_buffer) | [`buffer`](Sender::buffer) |
//! | room in the qdisc | [`wait_room`](Sender::wait_room) with a past deadline | [`wait_room`](Sender::wait_room) | [`poll_room`](Sender::poll_room) | [`room`](Sender::room) |
//! | room for its packet, and sends | [`xmit`](Sender::xmit) | | | [`send`](Sender::send) |
//!
//! The futures need no particular executor: they use the task's [`Waker`] and nothing else. Dropping a future ends its wait. A
//! buffer that the sender had got meanwhile goes to the next sender that waits.
//!
//! A thread other than the task's must work for the device: the workers of a started device, a
//! [`WorkerPool`](crate::WorkerPool), or a task or thread that polls the [`Worker`](crate::Worker).
//!
//! The protocols are those of the pool (`pool/line.rs`, `pool/credit.rs`) and of the queue's fill word. This file adds the
//! device: a sender that waits for credit or a buffer is woken when its device goes down or ends.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use thiserror::Error;
use txq_core::arch::{Arch, Nanos, Native};
use txq_core::packet::Packet;
use txq_core::pool::AllocError;
use txq_core::sync::waiter::Waiter;

use super::{Flow, Room, Sender};
use crate::generic::tuning::{LONGEST_NAP, RETRY};

/// Why a wait ended without what the sender waited for.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The device is down: it would drop the packet. [`NetDev::activate`](crate::NetDev::activate) takes it up.
    #[error("device \"{device}\" is down: wait until it is up")]
    Down {
        /// The device's name.
        device: String,
    },
    /// The device has been shut down: it would drop the packet.
    #[error("device \"{device}\" has been shut down")]
    Gone {
        /// The device's name.
        device: String,
    },
    /// The deadline has passed.
    #[error("the deadline passed before the sender had a buffer and credit")]
    Deadline,
    /// No wait helps: the packet is longer than a buffer.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// Why a packet was not sent, and the packet.
#[derive(Error)]
#[error("{error}")]
pub struct SendError<A: Arch = Native> {
    /// The packet, which was not handed in.
    pub packet: Packet<A>,
    /// [`WaitError::Down`] or [`WaitError::Gone`].
    #[source]
    pub error: WaitError,
}

impl<A: Arch> std::fmt::Debug for SendError<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendError").field("error", &self.error).finish_non_exhaustive()
    }
}

/// Ends the sender's waits when dropped: when a future is complete, and when it is cancelled.
pub(super) struct Waiting<'s, A: Arch>(pub(super) &'s mut Sender<A>);

impl<A: Arch> Drop for Waiting<'_, A> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}

impl<A: Arch> Sender<A> {
    /// Waits until the sender has a buffer and credit for it; returns a packet of `len` bytes to fill.
    pub async fn buffer(&mut self, len: usize) -> Result<Packet<A>, WaitError> {
        let wait = Waiting(self);
        poll_fn(|cx| wait.0.poll_buffer(len, cx.waker())).await
    }

    /// Waits until the [limit](Sender::set_limit) allows an allocation: until half of the limit is free, if the sender has
    /// reached it.
    pub async fn credit(&mut self) -> Result<(), WaitError> {
        let wait = Waiting(self);
        poll_fn(|cx| wait.0.poll_credit(cx.waker())).await
    }

    /// Waits until the queue that this sender's packets go to has room, as [`wait_room`](Sender::wait_room) does, but
    /// without a limit in time: a qdisc of the program's own that misreports its backlog may keep the task waiting.
    pub async fn room(&mut self) -> Room {
        let wait = Waiting(self);
        poll_fn(|cx| wait.0.poll_room(cx.waker())).await
    }

    /// As [`room`](Sender::room), for the txq of a flow.
    pub async fn room_on(&mut self, flow: &Flow<A>) -> Room {
        let wait = Waiting(self);
        poll_fn(|cx| wait.0.poll_room_on(flow, cx.waker())).await
    }

    /// Waits until the sender has credit, and then until its queue has room.
    pub async fn ready(&mut self) -> Result<(), WaitError> {
        self.credit().await?;
        let room = self.room().await;
        self.refusal(room).map_or(Ok(()), Err)
    }

    /// As [`buffer`](Sender::buffer), for a task that polls: if there is no buffer or no credit, registers `waker` to be
    /// woken when the next call may succeed.
    #[inline(never)]
    pub fn poll_buffer(&mut self, len: usize, waker: &Waker) -> Poll<Result<Packet<A>, WaitError>> {
        loop {
            let mut polled = self.cache.poll_alloc(len, waker);
            if !matches!(polled, Poll::Ready(Ok(_)) | Poll::Ready(Err(AllocError::TooLong { .. }))) {
                self.reclaim();
                if polled.is_pending() {
                    polled = self.cache.poll_alloc(len, waker);
                }
            }
            return match polled {
                Poll::Ready(Err(AllocError::Limit { .. })) => match self.poll_credit(waker) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                },
                Poll::Ready(result) => Poll::Ready(result.map_err(WaitError::from)),
                Poll::Pending => self.unless_closed(),
            };
        }
    }

    /// As [`credit`](Sender::credit), for a task that polls: registers `waker` if the sender has no credit.
    #[inline(never)]
    pub fn poll_credit(&mut self, waker: &Waker) -> Poll<Result<(), WaitError>> {
        self.reclaim();
        if self.cache.poll_credit(waker) { Poll::Ready(Ok(())) } else { self.unless_closed() }
    }

    /// As [`buffer`](Sender::buffer), for a thread: sleeps until the sender has a buffer and credit, or until `deadline` on
    /// the clock of [`now`](Sender::now).
    #[inline(never)]
    pub fn wait_buffer(&mut self, len: usize, deadline: Option<Nanos>) -> Result<Packet<A>, WaitError> {
        self.block_on(deadline, |sender, waker| sender.poll_buffer(len, waker))
            .unwrap_or(Err(WaitError::Deadline))
    }

    /// Gives up what [`poll_buffer`](Sender::poll_buffer), [`poll_credit`](Sender::poll_credit) and
    /// [`poll_room`](Sender::poll_room) wait for, and drops their wakers.
    #[inline(never)]
    pub fn stop_waiting(&mut self) {
        self.forget_waker();
        self.cache.stop_waiting();
    }

    /// Returns pending, or an error if the device is down or has ended; then the sender does not wait any more. The sender
    /// has registered before: so either it finds here that the device is closed, or the thread that closes the device finds
    /// the sender ([`Registry::wake_to_recheck`](crate::generic::registry::Registry::wake_to_recheck)).
    fn unless_closed<T>(&mut self) -> Poll<Result<T, WaitError>> {
        match self.closed() {
            None => Poll::Pending,
            Some(error) => {
                self.cache.stop_waiting();
                Poll::Ready(Err(error))
            }
        }
    }

    /// Returns why the device takes no packets, if it does not.
    pub(super) fn closed(&self) -> Option<WaitError> {
        let word = self.dev.roots[self.dev.root_at(self.dev.rule(), 0)].fill.word();
        match () {
            () if self.dev.is_stopping() || word.is_gone() => self.refusal(Room::Gone),
            () if word.is_down() => self.refusal(Room::Down),
            () => None,
        }
    }

    /// Returns the error of a wait that has ended with `room`.
    pub(super) fn refusal(&self, room: Room) -> Option<WaitError> {
        let device = || self.dev.info.name.clone();
        match room {
            Room::Down => Some(WaitError::Down { device: device() }),
            Room::Gone => Some(WaitError::Gone { device: device() }),
            Room::Free | Room::Full => None,
        }
    }

    /// Sleeps until `poll` is ready, or until `deadline`; returns `None` then. If the device has no threads, it wakes up by
    /// itself and runs the queues, as a worker does.
    fn block_on<T>(
        &mut self,
        deadline: Option<Nanos>,
        mut poll: impl FnMut(&mut Self, &Waker) -> Poll<T>,
    ) -> Option<T> {
        let waiter: Arc<Waiter<A>> = self.waiter();
        let waker = Waker::from(waiter.clone());
        let nested = A::inside(|inside| inside.depth()) > 0;
        let mut nap = RETRY;
        loop {
            if let Poll::Ready(done) = poll(self, &waker) {
                return Some(done);
            }
            if nested || deadline.is_some_and(|at| A::now() >= at) {
                self.stop_waiting();
                return None;
            }
            if self.dev.has_threads() {
                waiter.sleep(deadline);
                continue;
            }
            let until = A::now().saturating_add(nap);
            waiter.sleep(Some(deadline.map_or(until, |at| at.min(until))));
            nap = (nap * 2).min(LONGEST_NAP);
            // Whichever queue holds the buffers.
            let roots: Vec<_> = self.dev.roots_in_force().iter().map(|root| root.index).collect();
            for root in roots {
                self.run_queue(root);
            }
        }
    }
}
