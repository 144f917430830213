//! A device without a wire: it takes packets, keeps them for a set time, and completes them.
//!
//! Its ring, its link's rate, the delay and the coalescing of its completions, and whether senders reap them, can be set. So
//! every state of a txq can be reached: stopped by a full ring or by its byte queue limit, woken by a completion, served by
//! the worker alone. With the defaults it is as fast as a device with a ring can be: the baseline for the cost of the path.
//! It then has no wire that packets wait for, and no byte queue limits.
//!
//! | field | unit | default | |
//! |---|---|---|---|
//! | [`name`](Null::name) | | `null0` | the device's name, in messages and in tc's output |
//! | [`txqs`](Null::txqs) | | 1 | the number of txqs |
//! | [`link`](Null::link) | | Ethernet | what the packets begin with |
//! | [`ring`](Null::ring) | packets | 1024 | room on each txq's ring, 1 to 1048576 |
//! | [`rate`](Null::rate) | bit/s | none | of each txq's link; a packet takes its length and 24 bytes. None: no time |
//! | [`delay`](Null::delay) | time | 0 | from a packet's end on the wire to its completion |
//! | [`coalesce`](Null::coalesce) | time | 0 | completions come together, at multiples of this period. 0: each on its own |
//! | [`inline`](Null::inline) | | true | whether senders reap; else the worker alone |
//!
//! Errors: a ring out of range fails to open ([`BuildError::Open`](txq::netdev::BuildError::Open)). The device drops no
//! packets. It refuses those that find the ring full, which a txq never hands over.
//!
//! A link of 100 Mbit/s whose completions come 20 us late, as an interrupt would, and go to the worker:
//!
//! ```
//! use std::time::Duration;
//! use txq::NetDev;
//! use txq_device::Null;
//!
//! let delay = Duration::from_micros(20);
//! let wire = Null { rate: Some(100_000_000), delay, inline: false, ring: 64, ..Null::new(1) };
//! let dev = NetDev::builder(wire).qdisc("pfifo limit 1000").start()?;
//! let mut sender = dev.sender("main");
//! for _ in 0..100 {
//!     let packet = sender.packet(&[0; 101])?;
//!     let _verdict = sender.xmit(packet);
//! }
//! assert!(dev.drain(Duration::from_secs(10)));
//! assert_eq!(dev.audit()?.sent, 100);
//! // 125 bytes take 10 us.
//! assert!(dev.age() >= 100 * Duration::from_micros(10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, Status};
use txq::generic::driver::{self as generic, Complete, Transmit, TxCx};
use txq_core::arch::{Arch, Nanos, Native};
use txq_core::clock::Clock;
use txq_core::packet::{Packet, PacketList};
use txq_core::sync::spsc::{Consumer, Producer, ring};

mod untimed;

/// Overhead of a packet on an Ethernet wire, in bytes: preamble 8, frame check sequence 4, gap 12.
const WIRE: u64 = 24;

/// The properties of the device.
#[derive(Debug, Clone)]
pub struct Null {
    /// Its name.
    pub name: String,
    /// Number of txqs.
    pub txqs: u16,
    /// What its packets begin with.
    pub link: Link,
    /// Number of packets that a txq's ring holds.
    pub ring: u32,
    /// Rate of each txq's link in bits per second, Ethernet's overhead included. `None`: transmission takes no time.
    pub rate: Option<u64>,
    /// Time from a packet's end on the wire to its completion.
    pub delay: Duration,
    /// Period of the completions (`ethtool -C DEV tx-usecs`): packets complete together, at its multiples. Zero: each completes
    /// on its own.
    pub coalesce: Duration,
    /// Whether senders may reap completions. If not, only the worker does, as an interrupt's CPU would.
    pub inline: bool,
}

impl Default for Null {
    fn default() -> Self {
        let (name, link) = ("null0".into(), Link::Ethernet);
        let (delay, coalesce) = (Duration::ZERO, Duration::ZERO);
        Self { name, txqs: 1, link, ring: 1024, rate: None, delay, coalesce, inline: true }
    }
}

impl Null {
    /// Creates a device with `txqs` txqs and defaults otherwise.
    pub fn new(txqs: u16) -> Self {
        Self { txqs, ..Self::default() }
    }
}

impl Driver for Null {
    fn info(&self) -> DeviceInfo {
        generic::Driver::<Native>::info(self)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        generic::Driver::<Native>::open(self, txq).map(DriverQueue)
    }
}

/// The simulator runs the same device on its own machine.
#[doc(hidden)]
impl<A: Arch> generic::Driver<A> for Null {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(self.name.clone()).txqs(self.txqs).link(self.link).gso(true)
    }

    fn open(&mut self, _txq: u16) -> io::Result<generic::DriverQueue<A>> {
        if !(1..=1 << 20).contains(&self.ring) {
            let what = format!("a ring of {} packets: use 1 to 1048576", self.ring);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if self.rate.is_none() && self.delay.is_zero() && self.coalesce.is_zero() {
            return Ok(untimed::queue(self.ring, self.inline));
        }
        let (tx, done) = ring(self.ring);
        let (rate, delay, coalesce) = (self.rate, nanos(self.delay), nanos(self.coalesce));
        let tx = Tx { ring: tx, rate, delay, coalesce, wire_free: 0 };
        let done = Done { ring: done, inline: self.inline };
        Ok(generic::DriverQueue { tx: Box::new(tx), done: Box::new(done), ring: Some(self.ring) })
    }
}

/// Returns a duration in nanoseconds, at most 2^62: sums with a time do not overflow.
fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).map_or(1 << 62, |nanos| nanos.min(1 << 62))
}

/// A packet on the ring, and when it completes.
type Slot<A> = (Packet<A>, Nanos);

/// On one line: each packet writes it.
#[repr(align(64))]
struct Tx<A: Arch = Native> {
    ring: Producer<A, Slot<A>>,
    rate: Option<u64>,
    delay: Nanos,
    coalesce: Nanos,
    /// When the wire will have sent all packets so far.
    wire_free: Nanos,
}

impl<A: Arch> Tx<A> {
    /// Returns when a packet that is handed over now completes.
    fn done_at(&mut self, len: usize, now: Nanos) -> Nanos {
        let start = self.wire_free.max(now);
        let wire = self.rate.map_or(0, |rate| (len as u64 + WIRE) * 8 * 1_000_000_000 / rate.max(1));
        self.wire_free = start + wire;
        let done = self.wire_free + self.delay;
        if self.coalesce == 0 { done } else { done.next_multiple_of(self.coalesce) }
    }
}

impl<A: Arch> Transmit<A> for Tx<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status {
        let now = cx.clock.now();
        let mut status = Status::Ok;
        while let Some(packet) = batch.pop_front() {
            let at = self.done_at(packet.len(), now);
            if let Err((packet, _)) = self.ring.push((packet, at)) {
                // The txq stops before the ring is full, so only callers that ignore the ring's size get here.
                batch.push_front(packet);
                status = Status::Busy { retry: None };
                break;
            }
        }
        self.ring.publish();
        status
    }
}

struct Done<A: Arch = Native> {
    ring: Consumer<A, Slot<A>>,
    inline: bool,
}

impl<A: Arch> Complete<A> for Done<A> {
    fn poll(&mut self, budget: usize, done: &mut PacketList<A>, clock: &mut Clock<A>) -> Option<Nanos> {
        let mut next = None;
        for _ in 0..budget {
            match self.ring.peek() {
                Some(&(_, at)) if at > clock.now() => {
                    next = Some(at);
                    break;
                }
                Some(_) => done.extend(self.ring.pop().map(|(packet, _)| packet)),
                None => break,
            }
        }
        self.ring.publish();
        next
    }

    fn inline(&self) -> bool {
        self.inline
    }
}
