//! A wrapper that reports what a driver does: every batch, completion and drop, as an event or as a line.
//!
//! The device behaves as without the wrapper. The cost is the sink's, under the tx lock or the completion lock: the sink is
//! called with that lock held.
//!
//! | option | default | |
//! |---|---|---|
//! | `driver` of [`Tracer::new`], [`Tracer::lines`] | none | the driver, also a wrapper: the outer of two sees what the inner one does |
//! | `sink` of [`Tracer::new`] | none | a function that takes each [`Event`] |
//! | `to` of [`Tracer::lines`] | none | where each event is written as a line |
//!
//! Errors are the driver's and pass through. A line that cannot be written is lost, and no packet with it.
//!
//! To a file or to stderr it is `Tracer::lines(driver, std::io::stderr())`. A program takes the events themselves:
//!
//! ```
//! use std::sync::mpsc;
//! use txq::NetDev;
//! use txq_device::{Null, Tracer};
//!
//! let (sink, events) = mpsc::channel();
//! let traced = Tracer::new(Null::new(1), move |event| {
//!     // The receiver outlives the device.
//!     let _ = sink.send(event.to_string());
//! });
//! let dev = NetDev::builder(traced).build()?;
//! let mut sender = dev.sender("main");
//! let packet = sender.packet(&[0; 60])?;
//! let _verdict = sender.xmit(packet);
//! // "12.345678901 txq 0 xmit 1 packets 60 bytes: sent 0 kept 1 dropped 0"
//! assert!(events.recv()?.ends_with("txq 0 xmit 1 packets 60 bytes: sent 0 kept 1 dropped 0"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use txq::Instant;
use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::PacketList;

/// An event of a txq's packets. Its text is one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Its time, on the clock of [`Instant::now`].
    pub at: Instant,
    /// The txq.
    pub txq: u16,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The driver was given a batch. `packets = sent + kept + dropped + refused`.
    Xmit {
        /// Packets in the batch.
        packets: usize,
        /// Their bytes.
        bytes: u64,
        /// Packets sent at once.
        sent: usize,
        /// Packets that the device keeps until they are complete.
        kept: usize,
        /// Packets dropped; an event for each follows.
        dropped: usize,
        /// Packets left with the caller.
        refused: usize,
        /// The driver's return value.
        status: Status,
    },
    /// The driver dropped a packet.
    Drop {
        /// Its length.
        bytes: usize,
        /// Why.
        reason: DropReason,
    },
    /// The device completed packets.
    Complete {
        /// Number of packets.
        packets: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// The driver finished: it wrote out its buffers.
    Finish {
        /// Whether it succeeded.
        ok: bool,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { at, txq, what } = self;
        let nanos = at.as_nanos();
        write!(f, "{}.{:09} txq {txq} ", nanos / 1_000_000_000, nanos % 1_000_000_000)?;
        match *what {
            What::Xmit { packets, bytes, sent, kept, dropped, refused, status } => {
                write!(f, "xmit {packets} packets {bytes} bytes: sent {sent} kept {kept} dropped {dropped}")?;
                match status {
                    Status::Ok => Ok(()),
                    Status::Busy { retry: None } => write!(f, " busy {refused} until a completion"),
                    Status::Busy { retry: Some(time) } => {
                        write!(f, " busy {refused} for {} ns", time.as_nanos())
                    }
                }
            }
            What::Drop { bytes, reason } => write!(f, "drop 1 packet {bytes} bytes: {reason}"),
            What::Complete { packets, bytes } => write!(f, "complete {packets} packets {bytes} bytes"),
            What::Finish { ok: true } => write!(f, "finish"),
            What::Finish { ok: false } => write!(f, "finish: error"),
        }
    }
}

type Sink = Arc<dyn Fn(&Event) + Send + Sync>;

/// A driver whose calls are reported.
pub struct Tracer<D> {
    driver: D,
    sink: Sink,
}

impl<D> fmt::Debug for Tracer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl<D> Tracer<D> {
    /// Reports each event of `driver` to `sink`, which several threads may call at the same time.
    pub fn new(driver: D, sink: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self { driver, sink: Arc::new(sink) }
    }

    /// Writes each event as a line. Lines that cannot be written are lost.
    pub fn lines(driver: D, to: impl Write + Send + 'static) -> Self {
        let to = Mutex::new(to);
        Self::new(driver, move |event| {
            let _ = writeln!(to.lock().unwrap_or_else(PoisonError::into_inner), "{event}");
        })
    }
}

impl<D: Driver> Driver for Tracer<D> {
    fn info(&self) -> DeviceInfo {
        self.driver.info()
    }

    fn pacing_horizon(&self) -> Duration {
        self.driver.pacing_horizon()
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let (tx, done, ring) = self.driver.open(txq)?.into_parts();
        let tx = Tx { inner: tx, txq, sink: self.sink.clone() };
        let done = Done { inner: done, txq, sink: self.sink.clone() };
        Ok(DriverQueue::new(tx, done).ring(ring))
    }
}

struct Tx {
    inner: Box<dyn Transmit>,
    txq: u16,
    sink: Sink,
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let at = cx.now();
        let tell = |what| (self.sink)(&Event { at, txq: self.txq, what });
        let (packets, bytes) = (batch.len(), batch.bytes());
        let (mut sent, mut drops) = (PacketList::new(), PacketList::new());
        let mut inner = TxCx::new(cx.clock(), &mut sent, &mut drops);
        let status = self.inner.start_xmit(batch, &mut inner);
        let handed_on = inner.handed_on();
        cx.add_handed_on(handed_on);
        let (refused, dropped, handed_on) = (batch.len(), drops.len(), handed_on.packets());
        // Each call is the driver's, which may be wrong.
        let kept = packets.saturating_sub(refused + dropped + sent.len() + handed_on);
        tell(What::Xmit { packets, bytes, sent: sent.len() + handed_on, kept, dropped, refused, status });
        cx.sent_all(&mut sent);
        while let Some(packet) = drops.pop_front() {
            let reason = packet.drop_reason();
            tell(What::Drop { bytes: packet.len(), reason });
            cx.drop(packet, reason);
        }
        status
    }

    fn finish(&mut self) -> io::Result<()> {
        let result = self.inner.finish();
        let what = What::Finish { ok: result.is_ok() };
        (self.sink)(&Event { at: Instant::now(), txq: self.txq, what });
        result
    }
}

struct Done {
    inner: Box<dyn Complete>,
    txq: u16,
    sink: Sink,
}

impl Complete for Done {
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant> {
        let (packets, bytes) = (done.len(), done.bytes());
        let next = self.inner.poll(budget, done, clock);
        if done.len() > packets {
            let what = What::Complete { packets: done.len() - packets, bytes: done.bytes() - bytes };
            (self.sink)(&Event { at: clock.now(), txq: self.txq, what });
        }
        next
    }

    fn inline(&self) -> bool {
        self.inner.inline()
    }

    fn bql(&self) -> bool {
        self.inner.bql()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Null;
    use crate::testing::{Bench, ZEROS};

    #[test]
    fn each_event_is_a_line() {
        let text = Arc::new(Mutex::new(Vec::new()));
        struct Shared(Arc<Mutex<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut bench = Bench::new(&mut Tracer::lines(
            Null { ring: 2, delay: Duration::from_nanos(1), ..Null::new(1) },
            Shared(text.clone()),
        ));
        let mut batch = bench.packets([&ZEROS[..60], &ZEROS[..100], &ZEROS[..60]]);
        let _ = bench.xmit(&mut batch);
        assert_eq!(bench.poll(64).len(), 2);
        bench.finish().unwrap();
        let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(
            lines,
            [
                "txq 0 xmit 3 packets 220 bytes: sent 0 kept 2 dropped 0 busy 1 until a completion",
                "txq 0 complete 2 packets 160 bytes",
                "txq 0 finish",
            ]
        );
    }

    #[test]
    fn the_drivers_properties_pass_through_both_wrappers() {
        struct Paced;
        impl Driver for Paced {
            fn info(&self) -> DeviceInfo {
                DeviceInfo::new("paced").txqs(3).mtu(9000)
            }
            fn pacing_horizon(&self) -> Duration {
                Duration::from_millis(2)
            }
            fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
                Null::new(3).open(txq)
            }
        }
        let faults = crate::Faults::new(Paced, 1, crate::faults::Rates::default());
        let wrapped: &dyn Driver = &Tracer::new(faults, |_| {});
        assert_eq!((wrapped.info(), wrapped.pacing_horizon()), (Paced.info(), Duration::from_millis(2)));
    }

    #[test]
    fn drops_pass_through_with_their_reason() {
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let rates = crate::faults::Rates { drop: 1.0, ..Default::default() };
        let driver = crate::Faults::new(Null::new(1), 1, rates);
        let mut bench =
            Bench::new(&mut Tracer::new(driver, move |event: &Event| seen.lock().unwrap().push(event.what)));
        let mut batch = bench.packets([&ZEROS[..60]]);
        let sent = bench.xmit(&mut batch);
        assert_eq!((sent.done.len(), sent.dropped.front().unwrap().drop_reason()), (0, DropReason::NoMem));
        let xmit = What::Xmit {
            packets: 1,
            bytes: 60,
            sent: 0,
            kept: 0,
            dropped: 1,
            refused: 0,
            status: Status::Ok,
        };
        let drop = What::Drop { bytes: 60, reason: DropReason::NoMem };
        assert_eq!(*events.lock().unwrap(), [xmit, drop]);
    }
}
