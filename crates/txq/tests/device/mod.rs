//! A device whose every step a test controls: how much it takes, what it keeps, what it refuses.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::{Instant, NetDev, pool};

#[path = "../../../../tests/support/home.rs"]
pub(crate) mod home;

use home::assert_home;

/// Settings of a txq of the device, and a record of its calls.
#[derive(Default)]
pub(crate) struct Wire {
    /// Number of packets that it keeps until the test completes them; `None` if it keeps none.
    pub(crate) ring: Option<u32>,
    /// Number of coming driver calls that refuse their whole batch.
    pub(crate) busy: usize,
    /// Number of packets of the next batch that the driver refuses.
    pub(crate) refuses: usize,
    /// Packets longer than this are dropped by the driver.
    pub(crate) longest: Option<usize>,
    /// Whether completions come in the reverse order.
    pub(crate) reversed: bool,
    /// The time that the device returns for the next completion, if any.
    pub(crate) next: Option<Instant>,
    /// Whether the driver panics.
    pub(crate) panic: bool,
    /// Whether the driver panics in `poll`.
    pub(crate) panic_in_poll: bool,
    /// Whether each packet is complete as soon as the device has it.
    pub(crate) prompt: bool,
    /// Whether the driver leaves completions to the worker, as it says when it is opened.
    pub(crate) worker_reaps: bool,
    /// Calls of `poll`.
    pub(crate) polls: usize,
    refuse: Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>,
    /// Cookies of the packets taken, in order, by call.
    pub(crate) batches: Vec<Vec<u64>>,
    kept: VecDeque<Packet>,
    completing: VecDeque<Packet>,
}

impl Wire {
    /// Returns the cookies of all packets taken, in order.
    pub(crate) fn sent(&self) -> Vec<u64> {
        self.batches.concat()
    }

    /// Makes the next call report that it has begun, wait, and refuse its batch.
    #[allow(dead_code, reason = "not all tests hold a driver up")]
    pub(crate) fn refuse_after(&mut self, entered: mpsc::Sender<()>, leave: mpsc::Receiver<()>) {
        self.refuse = Some((entered, leave));
    }

    /// Returns the bytes of the packets that it keeps, oldest first.
    #[allow(dead_code, reason = "not all tests read the bytes")]
    pub(crate) fn kept(&self) -> Vec<Vec<u8>> {
        self.kept.iter().map(|packet| packet.data().to_vec()).collect()
    }

    /// Returns the number of packets that were not reaped. Asking the device instead would access the queue.
    #[allow(dead_code, reason = "not all tests count them")]
    pub(crate) fn held(&self) -> usize {
        self.kept.len() + self.completing.len()
    }

    /// Drops packets that are complete and not reaped.
    pub(crate) fn forget(&mut self) {
        self.completing.clear();
    }

    /// Completes the oldest `n` packets that the device keeps, or the youngest if reversed.
    pub(crate) fn complete(&mut self, n: usize) {
        let n = n.min(self.kept.len());
        if self.reversed {
            self.completing.extend((0..n).filter_map(|_| self.kept.pop_back()));
        } else {
            self.completing.extend(self.kept.drain(..n));
        }
    }
}

/// The device: one [`Wire`] for each txq, shared with the test.
#[derive(Clone)]
pub(crate) struct Wires(pub(crate) Vec<Arc<Mutex<Wire>>>);

impl Wires {
    pub(crate) fn new(txqs: usize, ring: Option<u32>) -> Self {
        Self((0..txqs).map(|_| Arc::new(Mutex::new(Wire { ring, ..Wire::default() }))).collect())
    }

    pub(crate) fn at(&self, txq: usize) -> MutexGuard<'_, Wire> {
        self.0[txq].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Driver for Wires {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("wires").txqs(self.0.len() as u16)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let wire = self.0[usize::from(txq)].clone();
        let ring = wire.lock().unwrap().ring;
        Ok(DriverQueue::new(Half(wire.clone()), Half(wire)).ring(ring))
    }
}

struct Half(Arc<Mutex<Wire>>);

impl Transmit for Half {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let mut wire = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((entered, leave)) = wire.refuse.take() {
            drop(wire);
            entered.send(()).unwrap();
            let _ = leave.recv();
            return Status::Busy { retry: Some(Duration::ZERO) };
        }
        assert!(!wire.panic, "the driver panics, as the test wants");
        if wire.busy > 0 {
            wire.busy -= 1;
            return Status::Busy { retry: Some(Duration::ZERO) };
        }
        let (mut taken, refused) = (Vec::new(), std::mem::take(&mut wire.refuses));
        while let Some(packet) = (batch.len() > refused).then(|| batch.pop_front()).flatten() {
            if wire.longest.is_some_and(|longest| packet.len() > longest) {
                cx.drop(packet, DropReason::PktTooBig);
                continue;
            }
            taken.push(packet.cookie());
            match wire.ring {
                Some(ring) => {
                    assert!(wire.kept.len() + wire.completing.len() < ring as usize, "the ring overflows");
                    wire.kept.push_back(packet);
                }
                None => cx.sent(packet),
            }
        }
        wire.batches.push(taken);
        if wire.prompt {
            wire.complete(usize::MAX);
        }
        if batch.is_empty() { Status::Ok } else { Status::Busy { retry: Some(Duration::ZERO) } }
    }
}

impl Complete for Half {
    fn poll(&mut self, budget: usize, done: &mut PacketList, _: &mut Clock) -> Option<Instant> {
        let mut wire = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        wire.polls += 1;
        let n = budget.min(wire.completing.len());
        done.extend(wire.completing.drain(..n));
        assert!(!wire.panic_in_poll, "the driver panics over completions, as the test wants");
        wire.next
    }

    fn inline(&self) -> bool {
        !self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).worker_reaps
    }
}

/// Returns the settings of a small pool of heap memory.
pub(crate) fn pool() -> pool::PoolConfig {
    pool::PoolConfig { room: 256, backing: pool::Backing::Heap, ..Default::default() }
}

/// Checks that nothing is lost: the counters add up, no packet is in flight, and every buffer is home once the senders are
/// gone.
pub(crate) fn assert_conserved(dev: &NetDev) -> txq::stats::device::DeviceStats {
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    // A worker may be polling a queue that is empty.
    assert!(dev.drain(Duration::from_secs(5)), "packets are still on their way: {stats:?}");
    assert_home(dev);
    assert_eq!(dev.tx_packets(), dev.stats().queues.iter().map(|queue| queue.counters.packets).sum::<u64>());
    stats
}
