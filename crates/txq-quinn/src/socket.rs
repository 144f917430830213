//! The socket: quinn's side of a device.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSliceMut};
use std::mem;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker, ready};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, UdpPoller};
use txq::NetDev;

use crate::builder::Builder;
use crate::counts::Counts;
use crate::lane::{Lane, Rules, Sent};
use crate::later::Held;
use crate::poller::Poller;
use crate::turn::{self, Refusal};

/// The most datagrams that a transmit may have: as many as the device joins to a message.
const TRANSMIT_SEGMENTS: usize = 64;

/// A UDP socket for quinn's endpoints that sends through a device, and receives from the system ([`crate`]).
pub struct Socket {
    lanes: Box<[Mutex<Lane>]>,
    rules: Rules,
    /// Hashes remotes: no stranger can choose addresses that share a lane or a flow.
    hasher: RandomState,
    /// quinn's own socket, which receives.
    inner: Arc<dyn AsyncUdpSocket>,
    runtime: Arc<dyn Runtime>,
    /// The device's name.
    device: String,
    /// Whether the device is gone. Set by any task that finds out; read by the task that receives, which it then wakes.
    gone: AtomicBool,
    /// The task that receives.
    reader: Mutex<Option<Waker>>,
    /// The number of the next poller, from 1.
    pollers: AtomicU64,
}

/// A lane that is locked. The fields are dropped in this order: wakers that are due run when the lane is released.
pub(crate) struct LaneGuard<'s> {
    lane: MutexGuard<'s, Lane>,
    _held: Held,
}

impl Deref for LaneGuard<'_> {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        &self.lane
    }
}

impl DerefMut for LaneGuard<'_> {
    fn deref_mut(&mut self) -> &mut Lane {
        &mut self.lane
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("device", &self.device)
            .field("local", &self.rules.local)
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl Socket {
    /// Begins a socket that sends through `dev`.
    pub fn builder(dev: &NetDev) -> Builder<'_> {
        Builder::new(dev)
    }

    pub(crate) fn new(
        dev: &NetDev,
        lanes: usize,
        inner: Arc<dyn AsyncUdpSocket>,
        runtime: Arc<dyn Runtime>,
        rules: Rules,
    ) -> Self {
        let lane = |n| Mutex::new(Lane::new(dev.sender(&format!("quinn/{n}"))));
        Self {
            lanes: (0..lanes).map(lane).collect(),
            rules,
            hasher: RandomState::new(),
            inner,
            runtime,
            device: dev.info().name.clone(),
            gone: AtomicBool::new(false),
            reader: Mutex::new(None),
            pollers: AtomicU64::new(1),
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        (0..self.lanes.len()).for_each(|lane| sum.add(self.lane(lane).counts()));
        sum
    }

    pub(crate) fn runtime(&self) -> &dyn Runtime {
        &*self.runtime
    }

    pub(crate) fn share(&self) -> u64 {
        self.rules.share
    }

    pub(crate) fn lane(&self, lane: usize) -> LaneGuard<'_> {
        // A panic in a qdisc of the program's leaves the lane usable: the sender counts its packets itself.
        let lane = self.lanes[lane].lock().unwrap_or_else(PoisonError::into_inner);
        LaneGuard { lane, _held: Held::new() }
    }

    /// As [`lane`](Socket::lane), without waiting.
    pub(crate) fn try_lane(&self, lane: usize) -> Option<LaneGuard<'_>> {
        let lane = match self.lanes[lane].try_lock() {
            Ok(lane) => lane,
            Err(TryLockError::Poisoned(lane)) => lane.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(LaneGuard { lane, _held: Held::new() })
    }

    /// Ends the endpoint: its task finds the error when it receives. An error from `try_send` would end one connection's
    /// task, and leave its streams waiting.
    pub(crate) fn end(&self) {
        // Relaxed: the reader's lock, taken below and in `register`, orders this store before the load of a reader that registers
        // later.
        if !self.gone.swap(true, Ordering::Relaxed) {
            let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(reader) = reader {
                reader.wake();
            }
        }
    }

    /// Registers the task that receives; an error if the device is gone.
    fn register(&self, waker: &Waker) -> io::Result<()> {
        // Cloned and dropped with the lock released: both are the executor's code.
        let mut fresh = None;
        loop {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            if self.gone.load(Ordering::Relaxed) {
                let why = format!(
                    "device \"{}\" has been shut down: close the endpoint before its device",
                    self.device
                );
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, why));
            }
            if reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
                return Ok(());
            }
            if fresh.is_some() {
                mem::swap(&mut *reader, &mut fresh);
                return Ok(());
            }
            drop(reader);
            fresh = Some(waker.clone());
        }
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        let number = self.pollers.fetch_add(1, Ordering::Relaxed);
        Box::pin(Poller::new(self, number))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let (poller, rate) = (turn::disarm(), turn::take_rate());
        if self.gone.load(Ordering::Relaxed) {
            return Ok(());
        }
        let remote = transmit.destination;
        let hash = self.hasher.hash_one(remote);
        let lane = ((u128::from(hash) * self.lanes.len() as u128) >> 64) as usize;
        // 0 would mean that the hash is not known.
        let flow = (hash as u32).max(1);
        // In statements of their own, which release the lane.
        let mut sent = self.lane(lane).send(transmit, flow, None, rate, &self.rules);
        if sent == Ok(Sent::Unclassified) {
            let class = Some(self.rules.class(remote));
            sent = self.lane(lane).send(transmit, flow, class, rate, &self.rules);
        }
        match sent {
            Ok(Sent::Taken | Sent::Unclassified) => Ok(()),
            Ok(Sent::Gone) => {
                self.end();
                Ok(())
            }
            Err(lacks) => {
                if let Some(poller) = poller {
                    turn::refuse(poller, Refusal { lane, remote, lacks }, rate);
                }
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.register(cx.waker())?;
        Poll::Ready(ready!(self.inner.poll_recv(cx, bufs, meta)))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        TRANSMIT_SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
