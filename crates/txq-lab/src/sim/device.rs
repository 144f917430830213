//! A network card: txqs with rings, one wire for all of them, and coalesced interrupts.
//!
//! The card's own work costs no CPU. It takes descriptors in the order of their doorbells, sends at the link's rate with
//! Ethernet's overhead, and completes a packet at the next multiple of its interrupt's period. The driver's cost to the CPU
//! that calls it is in the price list, and charged where the queue layer calls the driver.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use txq::generic::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq_core::arch::{Arch, Nanos};
use txq_core::packet::{Packet, PacketList};

use crate::sim::arch::read_packet;
use crate::sim::machine::Picos;
use crate::sim::times::Times;

mod null;

pub(crate) use null::NullCard;

/// Overhead of a packet on an Ethernet wire, in bytes: preamble 8, frame check sequence 4, gap 12.
const WIRE: u64 = 24;
/// Picoseconds in a nanosecond.
const PICOS: u64 = 1000;

/// Called for each frame that leaves the wire: its bytes, and when.
pub type OnWire = Arc<dyn Fn(&[u8], Nanos) + Send + Sync>;

/// The properties of a card.
#[derive(Clone)]
pub struct Card {
    /// Number of txqs.
    pub txqs: u16,
    /// Number of packets that a txq's ring holds.
    pub ring: u32,
    /// Rate of the link in bits per second, shared by all txqs; `None` for no limit.
    pub rate: Option<u64>,
    /// Period of its interrupts, in nanoseconds; 0: an interrupt for each packet.
    pub coalesce: Nanos,
    /// Whether senders reap completions, instead of an interrupt's CPU.
    pub inline: bool,
    /// The far end of the wire.
    pub peer: Option<OnWire>,
    wire: Arc<Wire>,
    counted: Arc<Counted>,
    times: Arc<Times>,
}

/// Packets and bytes that the card has sent. Counting costs no virtual time.
#[derive(Debug, Default)]
pub struct Counted {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    /// Returns packets and bytes.
    pub fn get(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// Time when the wire will have sent every packet given to it, in picoseconds. The mutex is held for a few instructions of
/// the host, during which no virtual time passes.
#[derive(Debug, Default)]
struct Wire(Mutex<u64>);

impl Card {
    /// Returns the card's counters.
    pub fn counted(&self) -> Arc<Counted> {
        self.counted.clone()
    }

    /// Returns the times of the card's packets.
    pub(crate) fn times(&self) -> Arc<Times> {
        self.times.clone()
    }

    /// Creates a card with these txqs, rings and rate.
    pub fn new(txqs: u16, ring: u32, rate: Option<u64>, coalesce: Nanos, inline: bool) -> Self {
        let (wire, counted, times) = (Arc::default(), Arc::default(), Arc::default());
        Self { txqs, ring, rate, coalesce, inline, peer: None, wire, counted, times }
    }
}

impl<A: Arch> Driver<A> for Card {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sim0").txqs(self.txqs)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue<A>> {
        let ring = Ring(Arc::new(Mutex::new(VecDeque::with_capacity(self.ring as usize))));
        // Interrupts of different txqs do not occur at the same moment.
        let phase = if self.coalesce == 0 { 0 } else { u64::from(txq) * 997 % self.coalesce };
        let tx = Tx { ring: ring.clone(), card: self.clone(), phase };
        Ok(DriverQueue {
            tx: Box::new(tx),
            done: Box::new(Done { ring, inline: self.inline }),
            ring: Some(self.ring),
        })
    }
}

/// Packets in flight, and when each completes.
type Queue<A> = VecDeque<(Packet<A>, Nanos)>;

/// A txq's ring, shared by its two halves.
struct Ring<A: Arch>(Arc<Mutex<Queue<A>>>);

impl<A: Arch> Clone for Ring<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A: Arch> Ring<A> {
    fn lock(&self) -> MutexGuard<'_, Queue<A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Tx<A: Arch> {
    ring: Ring<A>,
    card: Card,
    phase: Nanos,
}

impl<A: Arch> Tx<A> {
    /// Returns when a packet that is given to the card now completes. The caller reads the packet before it locks anything
    /// of the card, because virtual time may pass in that read, and other tasks run.
    fn done_at(&self, packet: &Packet<A>, now: Nanos) -> Nanos {
        let len = packet.len() as u64;
        self.card.counted.packets.fetch_add(1, Relaxed);
        self.card.counted.bytes.fetch_add(len, Relaxed);
        let bits = (len + WIRE) * 8;
        let takes = self.card.rate.map_or(0, |rate| bits * 1_000_000_000_000 / rate.max(1));
        let sent = {
            let mut free = self.card.wire.0.lock().unwrap_or_else(PoisonError::into_inner);
            *free = (*free).max(now * PICOS) + takes;
            free.div_ceil(PICOS)
        };
        if let Some(peer) = &self.card.peer {
            peer(packet.data(), sent);
        }
        self.card.times.sent(packet.data(), sent * PICOS as Picos);
        match self.card.coalesce {
            0 => sent,
            period => sent.saturating_sub(self.phase).next_multiple_of(period) + self.phase,
        }
    }
}

impl<A: Arch> Transmit<A> for Tx<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status {
        let now = cx.clock.now();
        while let Some(packet) = batch.pop_front() {
            if self.ring.lock().len() >= self.card.ring as usize {
                batch.push_front(packet);
                return Status::Busy { retry: None };
            }
            read_packet(packet.data());
            let at = self.done_at(&packet, now);
            self.ring.lock().push_back((packet, at));
        }
        Status::Ok
    }
}

struct Done<A: Arch> {
    ring: Ring<A>,
    inline: bool,
}

impl<A: Arch> Complete<A> for Done<A> {
    fn poll(&mut self, budget: usize, done: &mut PacketList<A>, clock: &mut Clock<A>) -> Option<Nanos> {
        let now = clock.now();
        for _ in 0..budget {
            let mut ring = self.ring.lock();
            match ring.front() {
                None => return None,
                Some(&(_, at)) if at > now => return Some(at),
                Some(_) => {
                    let packet = ring.pop_front();
                    drop(ring);
                    done.extend(packet.map(|(packet, _)| packet));
                }
            }
        }
        None
    }

    fn inline(&self) -> bool {
        self.inline
    }
}
