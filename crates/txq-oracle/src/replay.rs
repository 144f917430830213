//! txq's side: a device of one packet, on a clock that shows the times of the script in the kernel.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{self, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use txq::filter::filters_text;
use txq::generic::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::generic::netdev::Builder;
use txq::generic::qdisc::Verdict;
use txq::generic::{NetDev, Sender, Worker};
use txq::tc::{Handle, Style, class_text, show_json, show_text};
use txq_core::arch::{Arch, CpuId, Nanos, Native};
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Backing, PoolConfig};

use crate::frame;
use crate::guest::DEVICE;
use crate::path::{self, Left, Path, Record};
use crate::script::{Burst, Object, Script};

thread_local! {
    static NOW: Cell<Nanos> = const { Cell::new(0) };
}

/// The real machine, except for its clock, which the replay sets. A replay is one thread.
struct Virtual;

// SAFETY: atomics, fence and cell are those of `Native`.
unsafe impl Arch for Virtual {
    type AtomicU32 = <Native as Arch>::AtomicU32;
    type AtomicU64 = <Native as Arch>::AtomicU64;
    type AtomicPtr<T: 'static> = <Native as Arch>::AtomicPtr<T>;
    type Cell<T> = <Native as Arch>::Cell<T>;
    type Event = <Native as Arch>::Event;

    fn fence(order: Ordering) {
        atomic::fence(order);
    }
    fn cpu() -> CpuId {
        0
    }
    fn now() -> Nanos {
        NOW.get()
    }
    fn sleep(_: Nanos) {}
}

/// The device: the packet that it keeps, and the one that it has completed.
#[derive(Default)]
struct Slot {
    kept: Option<Packet<Virtual>>,
    done: Option<Packet<Virtual>>,
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Slot>>);

impl Wire {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the packet that the device keeps; returns its record.
    fn finish(&self) -> Option<Left> {
        let mut slot = self.slot();
        let packet = slot.kept.take()?;
        let left = Left {
            cookie: packet.cookie(),
            ce: frame::ce(packet.data().get(frame::ETHERNET..).unwrap_or_default()),
            at: NOW.get(),
        };
        slot.done = Some(packet);
        Some(left)
    }
}

impl Driver<Virtual> for Wire {
    /// The kernel's packets are frames here, including the header, which txq adds to every MTU.
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(DEVICE).mtu(1500 - 14)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue<Virtual>> {
        Ok(DriverQueue { tx: Box::new(self.clone()), done: Box::new(self.clone()), ring: Some(1) })
    }
}

impl Transmit<Virtual> for Wire {
    fn start_xmit(&mut self, batch: &mut PacketList<Virtual>, _: &mut TxCx<'_, Virtual>) -> Status {
        let mut slot = self.slot();
        if slot.kept.is_none() {
            slot.kept = batch.pop_front();
        }
        if batch.is_empty() { Status::Ok } else { Status::Busy { retry: None } }
    }
}

impl Complete<Virtual> for Wire {
    /// Nothing completes by itself, so there is no time to poll again.
    fn poll(&mut self, _: usize, done: &mut PacketList<Virtual>, _: &mut Clock<Virtual>) -> Option<Nanos> {
        done.extend(self.slot().done.take());
        Some(Nanos::MAX)
    }
}

/// Runs a script at the times of the kernel's record; returns txq's record.
pub(crate) fn run(script: &Script, kernel: &Record) -> Result<Record> {
    let times: Vec<Nanos> = kernel.steps.iter().map(|step| step.at).collect();
    NOW.set(times.first().copied().unwrap_or_default());
    let wire = Wire::default();
    let pool = PoolConfig { buffers: 1 << 16, room: 1500, backing: Backing::Heap, ..PoolConfig::default() };
    let dev =
        Builder::new(Box::new(wire.clone())).pool_config(pool).bql(None).watchdog_timeo(None).build()?;
    let (sender, worker) = (dev.sender_on("script", 0), dev.worker(0));
    let record = path::run(script, &mut Replay { dev: &dev, sender, worker, wire: wire.clone(), times });
    dev.audit().context("txq's counters do not add up")?;
    *wire.slot() = Slot::default();
    record
}

struct Replay<'d> {
    dev: &'d NetDev<Virtual>,
    sender: Sender<Virtual>,
    worker: Worker<Virtual>,
    wire: Wire,
    times: Vec<Nanos>,
}

impl Replay<'_> {
    /// Advances the clock to `until`, and runs all work on the way, each at its time.
    fn advance(&mut self, until: Nanos) {
        while let Some(next) = self.worker.poll().filter(|&next| next <= until) {
            NOW.set(next.max(NOW.get()));
        }
        NOW.set(until.max(NOW.get()));
    }

    /// Takes the packet that the device keeps, and lets the next one follow; returns whether there was one.
    fn take_one(&mut self, left: &mut Vec<Left>) -> bool {
        let Some(packet) = self.wire.finish() else { return false };
        left.push(packet);
        self.advance(NOW.get());
        true
    }
}

/// A counter that Linux does not have (docs/fidelity.md).
const OWN_LINE: &str = " unknown_class ";
const OWN_KEY: &str = "unknown_class";

impl Path for Replay<'_> {
    fn begin(&mut self, step: usize) -> u64 {
        self.advance(self.times[step]);
        self.times[step]
    }

    fn tc(&mut self, object: Object, verb: &str, words: &str) -> Result<String> {
        let object = match object {
            Object::Qdisc => "qdisc",
            Object::Class => "class",
            Object::Filter => "filter",
        };
        Ok(match self.dev.tc(&format!("{object} {verb} {words}")) {
            // Hints are txq's own.
            Ok(warnings) => {
                let tcs = warnings.iter().filter(|warning| !warning.starts_with("txq: "));
                tcs.map(|warning| format!("{warning}\n")).collect()
            }
            Err(error) => format!("{}\n", error.message()),
        })
    }

    fn show(&mut self, object: Object, words: &str) -> Result<String> {
        match object {
            Object::Class => {
                return Ok(class_text(&self.dev.classes_info(Style::default()), true));
            }
            Object::Filter => {
                let of = words.split_once("parent ").map(|(_, of)| Handle::parse_parent(of));
                let of = of.transpose().map_err(|error| anyhow::anyhow!("{}", error.message()))?;
                return Ok(filters_text(&self.dev.filters_info(of, Style::default()), false));
            }
            Object::Qdisc => {}
        }
        let mut qdiscs = self.dev.qdiscs(Style::default());
        qdiscs.iter_mut().for_each(|qdisc| qdisc.dev = None);
        let text = show_text(&qdiscs, true);
        let lines = text.lines().filter(|line| !line.starts_with(OWN_LINE));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let mut json = show_json(&qdiscs, true);
        let rows = json.as_array_mut().into_iter().flatten().filter_map(|row| row.as_object_mut());
        rows.for_each(|row| drop(row.remove(OWN_KEY)));
        Ok(format!("{text}{json}\n"))
    }

    fn send(&mut self, burst: &Burst, first: u32) -> Result<usize> {
        let mut refused = 0;
        for count in first..first + burst.n as u32 {
            let cookie = frame::cookie(burst.flow, count);
            let mut packet = self.sender.packet(&frame::ethernet(burst, count - first, count))?;
            packet.set_cookie(cookie);
            packet.set_priority(burst.prio);
            packet.set_mark(burst.mark);
            let network = frame::ETHERNET as u16;
            packet.set_protocol_offsets(network, network + frame::NETWORK as u16, libc::ETH_P_IP as u16);
            refused += usize::from(self.sender.xmit(packet) == Verdict::Drop);
        }
        Ok(refused)
    }

    fn take(&mut self, n: usize, left: &mut Vec<Left>) -> Result<()> {
        for _ in 0..n {
            if !self.take_one(left) {
                break;
            }
        }
        Ok(())
    }

    fn wait(&mut self, ms: u64) -> Result<()> {
        self.advance(NOW.get() + ms * 1_000_000);
        Ok(())
    }

    fn drain(&mut self, ms: u64, left: &mut Vec<Left>) -> Result<()> {
        let end = NOW.get() + ms * 1_000_000;
        loop {
            while self.take_one(left) {}
            match self.worker.poll() {
                Some(next) if next <= end => NOW.set(next.max(NOW.get())),
                // The worker may have just sent a packet.
                _ if self.wire.slot().kept.is_none() => break,
                _ => {}
            }
        }
        NOW.set(end);
        Ok(())
    }

    fn set_tx_queue_len(&mut self, packets: u32) -> Result<()> {
        self.dev.set_tx_queue_len(packets);
        Ok(())
    }
}
