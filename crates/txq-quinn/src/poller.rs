//! Waits of a connection that would block.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use quinn::{AsyncTimer, UdpPoller};

use crate::lane::Sent;
use crate::socket::Socket;
use crate::turn::{self, Lacks, Rate, Refusal};

/// The first time after which a connection over its share checks again; the runtime's timers are no finer.
const FIRST_SHARE_CHECK: Duration = Duration::from_millis(1);
/// The longest.
const LONGEST_SHARE_CHECK: Duration = Duration::from_millis(50);
/// Time after which a wait for a buffer or for room checks again, although nothing has woken it: the device may be down, or the connection's
/// packets may have moved to another txq.
const RECHECK_PERIOD: Duration = Duration::from_millis(20);

/// Waits until one connection may send again.
pub(crate) struct Poller {
    socket: Arc<Socket>,
    number: u64,
    /// What the connection waits for.
    wait: Option<Refusal>,
    /// The pace of the transmit that waits.
    rate: Rate,
    alarm: Mutex<Alarm>,
}

/// When a waiting connection checks again. In a mutex because a timer is not `Sync`; the poller alone uses it.
#[derive(Default)]
struct Alarm {
    timer: Option<Pin<Box<dyn AsyncTimer>>>,
    is_set: bool,
    /// How long it was set for.
    delay: Duration,
    /// The remote's packets in the device when it was set.
    outstanding: u64,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("number", &self.number)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl Poller {
    pub(crate) fn new(socket: Arc<Socket>, number: u64) -> Self {
        Self { socket, number, wait: None, rate: None, alarm: Mutex::default() }
    }

    fn alarm(&mut self) -> &mut Alarm {
        self.alarm.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&mut self, refusal: Refusal, cx: &mut Context<'_>) -> Poll<()> {
        let Refusal { lane, remote, lacks } = refusal;
        let socket = self.socket.clone();
        loop {
            // Cloned, and dropped if it is not needed, with no lane held.
            let mut waker = Some(cx.waker().clone());
            let polled = match lacks {
                Lacks::Share => return self.poll_share(lane, &remote, cx),
                Lacks::Buffer(len) => socket.lane(lane).poll_buffer(self.number, len, &mut waker),
                Lacks::Room => socket.lane(lane).poll_room(self.number, &remote, &mut waker),
            };
            match polled {
                Poll::Ready(Sent::Gone) => socket.end(),
                Poll::Ready(Sent::Taken | Sent::Unclassified) => {}
                Poll::Pending => {
                    if self.alarm().poll(&socket, RECHECK_PERIOD, cx).is_pending() {
                        return Poll::Pending;
                    }
                    continue;
                }
            }
            return Poll::Ready(());
        }
    }

    /// Waits until half of the remote's share is free. No thread wakes the task: it checks when that should be so, by the
    /// connection's pace at first, and then by what has left since.
    fn poll_share(&mut self, lane: usize, remote: &SocketAddr, cx: &mut Context<'_>) -> Poll<()> {
        let socket = self.socket.clone();
        let half = socket.share() / 2;
        loop {
            let (outstanding, ahead) = {
                let lane = socket.lane(lane);
                (lane.outstanding(remote), lane.ahead(remote))
            };
            if outstanding <= half {
                return Poll::Ready(());
            }
            let alarm = self.alarm();
            let mut delay = alarm.delay;
            if !alarm.is_set {
                delay = match (u32::try_from(alarm.outstanding.saturating_sub(outstanding)), alarm.delay) {
                    (_, Duration::ZERO) => ahead / 2,
                    (Ok(0) | Err(_), delay) => delay * 2,
                    (Ok(left), delay) => delay * u32::try_from(outstanding - half).unwrap_or(u32::MAX) / left,
                }
                .clamp(FIRST_SHARE_CHECK, LONGEST_SHARE_CHECK);
                alarm.outstanding = outstanding;
            }
            if alarm.poll(&socket, delay, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Alarm {
    /// Sets the alarm for `delay`, unless it is set; returns ready when it rings.
    fn poll(&mut self, socket: &Socket, delay: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match &mut self.timer {
            Some(timer) => {
                if !self.is_set {
                    timer.as_mut().reset(socket.runtime().now() + delay);
                }
                timer
            }
            none => none.insert(socket.runtime().new_timer(socket.runtime().now() + delay)),
        };
        if !self.is_set {
            (self.is_set, self.delay) = (true, delay);
        }
        let rings = timer.as_mut().poll(cx);
        self.is_set = rings.is_pending();
        rings
    }
}

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A transmit that was just made has a pace; one that waited has that from before.
        this.rate = turn::take_rate().or(this.rate);
        if let Some((refusal, rate)) = turn::take_refusal(this.number) {
            (this.wait, this.rate) = (Some(refusal), rate);
            let alarm = this.alarm();
            (alarm.is_set, alarm.delay) = (false, Duration::ZERO);
        }
        if let Some(refusal) = this.wait {
            if this.poll(refusal, cx).is_pending() {
                return Poll::Pending;
            }
            this.wait = None;
        }
        turn::arm(this.number, this.rate.take());
        Poll::Ready(Ok(()))
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Not waited for: the thread that drops the connection may have the lane.
        if let Some(refusal) = self.wait
            && let Some(mut lane) = self.socket.try_lane(refusal.lane)
        {
            lane.forget(self.number);
        }
    }
}
