//! The completing half: takes sent packets back from the completion ring, and kicks the kernel again if frames are left.

use std::sync::Arc;
use std::time::Duration;

use txq::Instant;
use txq::driver::{Clock, Complete};
use txq::packet::{Packet, PacketList};
use txq_core::arch::Native;
use txq_core::sync::spsc;

use super::queue::{Kick, Queue};
use super::rings::Consumer;
use super::umem::Use;

/// Time until the next poll while nothing completes; it doubles each time, up to the bound.
const POLL: Duration = Duration::from_micros(20);
const POLL_MOST: Duration = Duration::from_millis(1);
/// Time until the next check of an interface that is down.
const POLL_DOWN: Duration = Duration::from_millis(10);

pub(super) struct Done {
    ring: Consumer<u64>,
    /// Packets of other pools whose copies are being sent.
    originals: spsc::Consumer<Native, Packet>,
    /// Completions so far, modulo 2^32, to compare with the tx ring's cursor.
    completed: u32,
    /// Time until the next poll if this one finds nothing.
    wait: Duration,
    /// When to kick frames that the transmitting half has left, if there are some.
    kick_at: Option<Instant>,
    queue: Arc<Queue>,
}

impl Done {
    /// Returns the completing half of a queue, which must have no other one.
    pub(super) fn new(queue: Arc<Queue>, originals: spsc::Consumer<Native, Packet>) -> Self {
        // SAFETY: the caller's promise; the kernel writes only free slots, any number is an address, and `queue` keeps the
        // ring mapped.
        let ring = unsafe { Consumer::new(queue.rings().completion) };
        Self { ring, originals, completed: queue.rings().tx.consumed(), wait: POLL, kick_at: None, queue }
    }

    /// Appends the packet of a buffer that the kernel has returned.
    fn complete(&mut self, buffer: usize, of: Use, done: &mut PacketList) {
        self.completed = self.completed.wrapping_add(1);
        let umem = &self.queue.umem;
        // SAFETY: the caller has taken the buffer from the table, which names those that `take_offset` gave to the kernel.
        let packet = unsafe { umem.pool.packet_at(buffer * umem.stride) };
        match of {
            Use::Copied => {
                drop(packet);
                done.extend(self.originals.pop());
            }
            _ => done.push_back(packet),
        }
    }

    /// Takes back the frames that an interface that is gone has not sent, up to `budget`.
    fn reclaim(&mut self, budget: usize, done: &mut PacketList) {
        for buffer in 0..self.queue.uses.len() {
            if done.len() >= budget {
                break;
            }
            let of = self.queue.uses.get(buffer);
            if matches!(of, Use::Sent | Use::Copied) && self.queue.uses.take_if(buffer, of) {
                self.complete(buffer, of, done);
            }
        }
    }

    /// Kicks frames that the transmitting half has left in the tx ring; returns the time of the next poll.
    fn push_on(&mut self, now: Instant) -> Instant {
        let (queue, tx) = (&*self.queue, &self.queue.rings().tx);
        if !tx.has_pending() || !(queue.is_down() || queue.wants_kick()) {
            self.kick_at = None;
            return now + self.wait;
        }
        // At first sight the transmitting half may be in the kernel with them.
        let at = *self.kick_at.get_or_insert(now + POLL);
        if now < at {
            return at;
        }
        let before = tx.consumed();
        let wait = match queue.is_down() && !queue.check_carrier() {
            true => POLL_DOWN,
            false => match queue.kick() {
                Kick::Down => POLL_DOWN,
                _ if tx.consumed() != before => POLL,
                _ => self.wait,
            },
        };
        self.kick_at = Some(now + wait);
        now + wait
    }
}

impl Complete for Done {
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant> {
        let before = self.completed;
        while (self.completed.wrapping_sub(before) as usize) < budget
            && let Some(address) = self.ring.pop()
        {
            let buffer = self.queue.umem.locate(address).map(|(buffer, _)| buffer);
            // A frame that was reclaimed may complete afterwards: its buffer is not in use any more, or for a received frame.
            // The transmitting half may take it at the same time, if it has found out that the interface is gone.
            if let Some(buffer) = buffer
                && let of @ (Use::Sent | Use::Copied) = self.queue.uses.get(buffer)
                && self.queue.uses.take_if(buffer, of)
            {
                self.complete(buffer, of, done);
            }
        }
        self.ring.publish();
        let came = self.completed != before;
        self.wait = if came { POLL } else { (self.wait * 2).min(POLL_MOST) };
        if self.queue.is_gone() {
            self.reclaim(budget, done);
        }
        self.originals.publish();
        // A txq whose packets are all complete is not polled.
        let in_flight = self.queue.rings().tx.produced() != self.completed;
        in_flight.then(|| self.push_on(clock.now()))
    }

    fn bql(&self) -> bool {
        self.queue.zero_copy || self.queue.interface.has_hardware()
    }
}
