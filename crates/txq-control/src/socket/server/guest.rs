//! One client, as the server's thread sees it.

use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use txq::packet::PacketList;
use txq::{Sender, WaitError};

use super::stats::{Counters, OfClient};
use super::wake::{Ready, Wake};
use crate::socket::host::{Frame, Host};
use crate::socket::ring::Broken;
use crate::socket::wire::{self, Heard};
use crate::socket::{Layout, Reason};

/// Rings without a frame, of which a client has so many in a row before they cost it time.
const EMPTY_RINGS: u32 = 32;
/// How long the next ring is not heard then.
const DEAF: Duration = Duration::from_millis(1);

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It may have frames: another turn.
    Turn,
    /// Its ring is empty, and it rings when it is not.
    Asleep,
    /// A frame of it waits for credit or a buffer, and is woken.
    Waiting,
    /// Its device is down: it has another turn a little later.
    Down,
    /// It is gone, and all its frames are taken.
    Gone,
    /// The server ends the connection.
    End(Reason),
}

/// A client.
pub(super) struct Guest {
    /// The socket of its connection.
    socket: UnixStream,
    host: Host,
    sender: Sender,
    ready: Arc<Ready>,
    waker: Waker,
    /// A frame that is taken from the ring and waits for a buffer.
    held: Option<Frame>,
    /// How many frames a client that is gone has left in its ring; `None` while it is connected.
    left: Option<u32>,
    /// When it rang or handed in a frame last.
    active: Instant,
    /// How often it rang since its last frame.
    rings: u32,
    /// Until when its rings are not heard; `None` if they are.
    deaf: Option<Instant>,
    /// Whether it was ended for its silence.
    is_expired: bool,
    pub(super) next: Next,
    stats: Arc<OfClient>,
    socket_stats: Arc<Counters>,
}

impl Guest {
    /// Welcomes a client: makes its ring, and passes the memory on. `sender` makes its sender.
    pub(super) fn welcome(
        socket: UnixStream,
        layout: &Layout,
        counters: &Arc<Counters>,
        wake: &Wake,
        now: Instant,
        sender: impl FnOnce(&str) -> Option<Sender>,
    ) -> Option<Self> {
        let refuse = |reason| {
            counters.end(reason);
            let _ = wire::welcome(&socket, Err(reason));
            None
        };
        let Ok(host) = Host::new(layout) else { return refuse(Reason::NoResources) };
        let (stats, name) = counters.welcome();
        let Some(sender) = sender(&name) else {
            counters.leave(&stats);
            return refuse(Reason::Ended);
        };
        let ready = Arc::new(Ready::new(wake.clone()));
        let waker = Waker::from(ready.clone());
        let guest = Self {
            host,
            sender,
            ready,
            waker,
            held: None,
            left: None,
            active: now,
            rings: 0,
            deaf: None,
            is_expired: false,
            next: Next::Turn,
            stats,
            socket_stats: counters.clone(),
            socket,
        };
        // The client may be gone already: then the first turn finds that out.
        let _ = wire::welcome(&guest.socket, Ok((guest.host.fd(), layout.size())));
        Some(guest)
    }

    /// Returns its connection, while it is connected and its rings are heard.
    pub(super) fn connection(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        (self.left.is_none() && self.deaf.is_none_or(|until| until <= now)).then(|| self.socket.as_fd())
    }

    /// Returns when its rings are heard again; `None` if they are.
    pub(super) fn hears(&self, now: Instant) -> Option<Instant> {
        self.deaf.filter(|until| self.left.is_none() && *until > now)
    }

    /// Reads what the client has written: a ring, or its end.
    pub(super) fn listen(&mut self, now: Instant) {
        match wire::listen(&self.socket) {
            Heard::Nothing => {}
            Heard::Ring => {
                self.active = now;
                self.rings = self.rings.saturating_add(1);
                self.deaf = (self.rings > EMPTY_RINGS).then(|| now + DEAF);
                if self.next == Next::Asleep {
                    self.next = Next::Turn;
                }
            }
            Heard::End(_) => self.leave(),
        }
    }

    /// Lets it be gone once the frames that it has published are sent. Another process may have the memory, too: no more than what is
    /// there now.
    fn leave(&mut self) {
        match self.host.pending() {
            Ok(left) => self.left = Some(left),
            Err(Broken) => self.next = Next::End(Reason::BadCursor),
        }
        if self.next == Next::Asleep {
            self.next = Next::Turn;
        }
    }

    /// Returns when the connection ends of a client that does nothing; `None` if it has frames, or is gone.
    pub(super) fn expires(&self, idle_timeout: Option<Duration>) -> Option<Instant> {
        let is_idle = self.next == Next::Asleep && self.left.is_none();
        idle_timeout.filter(|_| is_idle).and_then(|time| self.active.checked_add(time))
    }

    /// Ends the connection of an idle client. The socket refuses rings first. Then the client is asked to ring, and its cursor is
    /// read: a frame that it has published before is sent, and for any later one it finds that its ring is refused.
    pub(super) fn expire(&mut self) {
        self.end(Reason::Idle);
        let _ = self.socket.shutdown(Shutdown::Both);
        self.host.ask();
        self.is_expired = true;
        self.leave();
    }

    /// Notices that credit or a buffer is there.
    pub(super) fn notice(&mut self) {
        if self.ready.take() && self.next == Next::Waiting {
            self.next = Next::Turn;
        }
    }

    /// Sends up to `budget` frames, and sets what the client does next.
    pub(super) fn turn(&mut self, budget: usize, now: Instant) {
        let mut batch = PacketList::new();
        let taken = self.take(budget, &mut batch);
        if !batch.is_empty() {
            (self.active, self.rings) = (now, 0);
        }
        let bytes: u64 = batch.bytes();
        self.stats.frames.fetch_add(batch.len() as u64, Relaxed);
        self.stats.bytes.fetch_add(bytes, Relaxed);
        // The verdict is for senders that slow down; the limit does that here.
        let _ = self.sender.xmit_batch(&mut batch);
        if self.host.release(self.held.is_some().into()) {
            wire::ring(&self.socket);
        }
        self.next = taken.and_then(|next| self.or_sleep(next)).unwrap_or(Next::End(Reason::BadCursor));
    }

    /// Copies frames into packets.
    fn take(&mut self, budget: usize, batch: &mut PacketList) -> Result<Next, Broken> {
        for _ in 0..budget {
            if self.held.is_none() {
                if self.left == Some(0) {
                    return Ok(Next::Gone);
                }
                let Some(found) = self.host.next()? else { return Ok(Next::Asleep) };
                self.left.iter_mut().for_each(|left| *left -= 1);
                match found {
                    Ok(frame) => self.held = Some(frame),
                    Err(why) => {
                        self.stats.reject(why);
                        continue;
                    }
                }
            }
            let Some(frame) = self.held else { continue };
            match self.sender.poll_buffer(frame.len(), &self.waker) {
                Poll::Ready(Ok(mut packet)) => {
                    self.host.copy(&frame, packet.data_mut());
                    packet.set_priority(frame.priority());
                    batch.push_back(packet);
                    self.held = None;
                }
                Poll::Ready(Err(WaitError::Down { .. })) => return Ok(Next::Down),
                Poll::Ready(Err(_)) => return Ok(Next::End(Reason::Ended)),
                // A packet of this batch that the device completes at once returns its credit without a wake: it wakes nobody but
                // this thread. So the wait counts once the thread holds no packet.
                Poll::Pending if !batch.is_empty() => return Ok(Next::Turn),
                Poll::Pending => {
                    self.stats.stalls.fetch_add(1, Relaxed);
                    return Ok(Next::Waiting);
                }
            }
        }
        Ok(Next::Turn)
    }

    /// Lets a client whose ring is empty ring; returns what it does next.
    fn or_sleep(&mut self, next: Next) -> Result<Next, Broken> {
        if next != Next::Asleep || self.left.is_some() {
            return Ok(next);
        }
        Ok(if self.host.wait()? { Next::Asleep } else { Next::Turn })
    }

    /// Ends the connection, and says why.
    pub(super) fn end(&self, reason: Reason) {
        self.socket_stats.end(reason);
        wire::farewell(&self.socket, reason);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.sender.stop_waiting();
        self.host.give_back(self.next != Next::Gone || self.is_expired);
        self.socket_stats.leave(&self.stats);
    }
}
