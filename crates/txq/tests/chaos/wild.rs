//! A device that does everything a driver may do, and one thing that it may not: panic. It checks the order of each flow.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use txq::drop::DropReason;
use txq::generic::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq_core::arch::{Arch, Nanos};
use txq_core::packet::{Packet, PacketList};

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(crate) fn fork(&mut self) -> Random {
        Random(self.next())
    }
}

/// Panics in a way that the test recognises.
pub(crate) fn panic_on_purpose() -> ! {
    std::panic::panic_any(OnPurpose)
}

pub(crate) struct OnPurpose;

/// State that all drivers of a device share.
#[derive(Default)]
pub(crate) struct Judge {
    /// The last number of each flow.
    last: Mutex<HashMap<u64, u64>>,
    pub(crate) wrong: Mutex<Vec<String>>,
    /// Whether faults are off.
    pub(crate) calm: AtomicBool,
}

impl Judge {
    fn sees(&self, cookie: u64) {
        let (flow, number) = (cookie >> 32, cookie & u64::from(u32::MAX));
        let before = lock(&self.last).insert(flow, number);
        if before.is_some_and(|before| before >= number) {
            lock(&self.wrong).push(format!("flow {flow}: {number} after {before:?}"));
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device.
pub(crate) struct Wild {
    pub(crate) txqs: u16,
    pub(crate) ring: Option<u32>,
    pub(crate) random: Random,
    pub(crate) judge: Arc<Judge>,
}

struct Half<A: Arch> {
    kept: Arc<Mutex<VecDeque<Packet<A>>>>,
    ring: Option<u32>,
    random: Random,
    judge: Arc<Judge>,
}

impl<A: Arch> Driver<A> for Wild {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("wild").txqs(self.txqs)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue<A>> {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let mut half = || {
            let (random, judge) = (self.random.fork(), self.judge.clone());
            Box::new(Half { kept: kept.clone(), ring: self.ring, random, judge })
        };
        Ok(DriverQueue { tx: half(), done: half(), ring: self.ring })
    }
}

impl<A: Arch> Transmit<A> for Half<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status {
        let wild = !self.judge.calm.load(Relaxed);
        if wild && self.random.one_in(400) {
            if self.random.one_in(2) {
                drop(batch.pop_front());
            }
            panic_on_purpose();
        }
        let refuse = wild && self.random.one_in(20);
        let left = if refuse { self.random.below(batch.len() + 1) } else { 0 };
        while batch.len() > left {
            let packet = batch.pop_front().expect("more than what is left");
            self.judge.sees(packet.cookie());
            if wild && self.random.one_in(200) {
                cx.drop(packet, DropReason::NoMem);
            } else if let Some(ring) = self.ring {
                let mut kept = lock(&self.kept);
                if kept.len() >= ring as usize {
                    lock(&self.judge.wrong).push(format!("more than the {ring} packets of the ring"));
                }
                kept.push_back(packet);
            } else {
                cx.sent(packet);
            }
        }
        match left {
            0 => Status::Ok,
            _ if self.random.one_in(2) => Status::Busy { retry: None },
            _ => Status::Busy { retry: Some(Duration::from_nanos(self.random.below(20_000) as u64)) },
        }
    }
}

impl<A: Arch> Complete<A> for Half<A> {
    fn poll(&mut self, budget: usize, done: &mut PacketList<A>, _: &mut Clock<A>) -> Option<Nanos> {
        let wild = !self.judge.calm.load(Relaxed);
        let mut kept = lock(&self.kept);
        let most = budget.min(kept.len());
        let n = if wild { self.random.below(most + 1) } else { most };
        done.extend(kept.drain(..n));
        drop(kept);
        if wild && self.random.one_in(400) {
            panic_on_purpose();
        }
        None
    }

    fn inline(&self) -> bool {
        self.ring.is_some_and(|ring| ring % 2 == 0)
    }
}
