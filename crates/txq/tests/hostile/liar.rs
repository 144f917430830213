//! A driver that breaks one rule a number of times, and is honest afterwards.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use txq::Instant;
use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::{NetDev, Sender};

use crate::pool;

/// The rule that a driver breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Adds foreign packets behind the batch and refuses it.
    Leaves(usize),
    /// Adds a tag in front of the batch and refuses it.
    Tag,
    /// Takes the batch, and leaves foreign packets in its place.
    Exchanges(usize),
    /// Takes the batch, and reports foreign packets as sent, too.
    Sends(usize),
    /// Takes the batch, and drops foreign packets, too.
    Drops(usize),
    /// Does all of these at once.
    Everything,
    /// Takes half of the batch, and returns `Ok` as if that were all.
    Half,
    /// Lengthens the packets that it refuses.
    Grows,
    /// Shortens the packets that it refuses, and those that it takes.
    Shrinks,
    /// Adds foreign packets to the batch, and panics.
    Panics(usize),
    /// Takes some packets to its ring, and panics.
    PanicsOnTheWay,
    /// Refuses until the end of time.
    Never,
    /// Returns foreign packets from `poll` beside its own.
    Returns(usize),
    /// Returns all packets at once, whatever the budget.
    AllAtOnce,
    /// Returns its packets shorter than they were.
    Shorter,
    /// Returns its packets longer than they were.
    Longer,
}

#[derive(Default)]
pub(crate) struct State {
    lie: Option<Lie>,
    times: usize,
    ring: Option<u32>,
    /// Whether it keeps packets although it has no ring.
    pub(crate) keeps: bool,
    /// Whether it returns no packets for now.
    pub(crate) hoards: bool,
    kept: VecDeque<Packet>,
    /// The source of foreign packets: another pool's, or the device's.
    foreign: Option<Sender>,
    /// Number of packets that it has invented.
    pub(crate) invented: u64,
    /// Cookies of the packets that it sent, without its own.
    pub(crate) sent: Vec<u64>,
    /// The most packets that one call gave it.
    pub(crate) most: usize,
    pub(crate) polls: usize,
}

/// The cookie of the driver's own packets.
const FOREIGN: u64 = u64::MAX;

impl State {
    fn take(&mut self, packet: Packet, cx: &mut TxCx<'_>) {
        if packet.cookie() != FOREIGN {
            self.sent.push(packet.cookie());
        }
        if self.ring.is_some() || self.keeps {
            self.kept.push_back(packet);
        } else {
            cx.sent(packet);
        }
    }

    fn take_all(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) {
        while let Some(packet) = batch.pop_front() {
            self.take(packet, cx);
        }
    }

    fn invent(&mut self, n: usize) -> PacketList {
        self.invented += n as u64;
        let sender = self.foreign.as_mut().expect("the test gives it a sender");
        let one = |_| {
            let mut packet = sender.alloc(100).expect("the pool is large enough");
            packet.set_cookie(FOREIGN);
            packet
        };
        (0..n).map(one).collect()
    }

    fn lies(&mut self, in_poll: bool) -> Option<Lie> {
        let polls = |lie: &Lie| matches!(lie, Lie::Returns(_) | Lie::AllAtOnce | Lie::Shorter | Lie::Longer);
        let lie = self.lie.filter(|lie| self.times > 0 && polls(lie) == in_poll)?;
        self.times -= 1;
        Some(lie)
    }
}

/// The driver, shared with the test.
#[derive(Clone, Default)]
pub(crate) struct Liar(Arc<Mutex<State>>);

impl Liar {
    pub(crate) fn new(ring: Option<u32>) -> Self {
        let liar = Self::default();
        liar.state().ring = ring;
        liar
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next calls lie, with packets of `foreign`.
    pub(crate) fn lie(&self, lie: Lie, times: usize, foreign: Sender) {
        let mut state = self.state();
        (state.lie, state.times, state.foreign) = (Some(lie), times, Some(foreign));
    }

    /// Drops the packets and the sender that keep buffers from home.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        state.kept.clear();
        state.foreign = None;
    }
}

/// Returns a device whose only use is its pool.
pub(crate) fn other_pool() -> NetDev {
    NetDev::builder(Liar::new(None)).pool_config(pool()).build().expect("a device")
}

impl Driver for Liar {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("liar")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        let ring = self.state().ring;
        Ok(DriverQueue::new(self.clone(), self.clone()).ring(ring))
    }
}

impl Transmit for Liar {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let mut state = self.state();
        state.most = state.most.max(batch.len());
        let busy = Status::Busy { retry: Some(Duration::ZERO) };
        match state.lies(false) {
            None => state.take_all(batch, cx),
            Some(Lie::Leaves(n)) => {
                batch.append(&mut state.invent(n));
                return busy;
            }
            Some(Lie::Tag) => {
                batch.push_front(state.invent(1).pop_front().expect("one"));
                return Status::Busy { retry: None };
            }
            Some(Lie::Exchanges(n)) => {
                state.take_all(batch, cx);
                *batch = state.invent(n);
                return busy;
            }
            Some(Lie::Sends(n)) => {
                state.take_all(batch, cx);
                cx.sent_all(&mut state.invent(n));
            }
            Some(Lie::Drops(n)) => {
                state.take_all(batch, cx);
                let mut foreign = state.invent(n);
                while let Some(packet) = foreign.pop_front() {
                    cx.drop(packet, DropReason::NoMem);
                }
            }
            Some(Lie::Everything) => {
                cx.sent_all(&mut state.invent(3));
                cx.drop(state.invent(1).pop_front().expect("one"), DropReason::NoMem);
                batch.push_front(state.invent(1).pop_front().expect("one"));
                batch.append(&mut state.invent(4));
                return Status::Ok;
            }
            Some(Lie::Half) => {
                for _ in 0..batch.len() / 2 {
                    let packet = batch.pop_front().expect("half of them");
                    state.take(packet, cx);
                }
            }
            Some(Lie::Grows) => {
                batch.for_each_mut(|packet| {
                    let _ = packet.push(4);
                });
                return busy;
            }
            Some(Lie::Shrinks) => {
                batch.for_each_mut(|packet| packet.truncate(20));
                if let Some(packet) = batch.pop_front() {
                    state.take(packet, cx);
                }
                return if batch.is_empty() { Status::Ok } else { busy };
            }
            Some(Lie::Panics(n)) => {
                batch.append(&mut state.invent(n));
                cx.sent_all(&mut state.invent(n));
                drop(state);
                panic!("the driver panics, as the test wants");
            }
            Some(Lie::PanicsOnTheWay) => {
                for _ in 0..batch.len().div_ceil(2) {
                    let packet = batch.pop_front().expect("half of them");
                    state.take(packet, cx);
                }
                drop(state);
                panic!("the driver panics, as the test wants");
            }
            Some(Lie::Never) => return Status::Busy { retry: Some(Duration::MAX) },
            Some(lie) => unreachable!("{lie:?} is of poll"),
        }
        Status::Ok
    }
}

impl Complete for Liar {
    fn poll(&mut self, budget: usize, done: &mut PacketList, _: &mut Clock) -> Option<Instant> {
        let mut state = self.state();
        state.polls += 1;
        if state.hoards {
            return None;
        }
        let lie = state.lies(true);
        let n = if lie == Some(Lie::AllAtOnce) { usize::MAX } else { budget };
        let n = n.min(state.kept.len());
        let mut own: PacketList = state.kept.drain(..n).collect();
        match lie {
            Some(Lie::Returns(n)) => own.append(&mut state.invent(n)),
            Some(Lie::Shorter) => own.for_each_mut(|packet| packet.truncate(10)),
            Some(Lie::Longer) => own.for_each_mut(|packet| {
                let _ = packet.push(8);
            }),
            _ => {}
        }
        done.append(&mut own);
        None
    }
}
