//! A task on tokio sends packets that have a departure time each, and prints how late they depart.
//!
//! ```text
//! cargo run --release -p txq-device --example async_send -- [current|multi|loop] [SECONDS] [SPIN_US]
//! ```
//!
//! tokio's timers count milliseconds. The device's worker therefore has a thread of its own, beside the runtime, and sleeps
//! until the departure time itself: the task only awaits buffers and room. `current` and `multi` are the runtimes of that
//! name. `loop` polls the worker on the runtime's only thread instead, by a timerfd that has the departure times' clock. With
//! SPIN_US the worker's thread polls the clock for the last microseconds of each sleep.

use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::{NetDev, Sender, Worker};

/// Time between two packets: 10,000 packets a second.
const GAP: Duration = Duration::from_micros(100);
/// How long before its time a packet is handed in, at least.
const AHEAD: Duration = Duration::from_millis(5);
/// Time until the first departure.
const BEGIN: Duration = Duration::from_millis(50);
/// Length of a packet in bytes.
const LEN: usize = 1250;

/// Departure errors: the number of packets for each microsecond, the last for all later ones.
#[derive(Clone)]
struct Late(Arc<[AtomicU64]>);

impl Late {
    fn new() -> Self {
        Self((0..100_000).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns the error, in microseconds, that this share of the packets does not exceed.
    fn quantile(&self, share: f64) -> usize {
        let all: u64 = self.0.iter().map(|count| count.load(Relaxed)).sum();
        let mut left = (all as f64 * share).ceil() as u64;
        self.0
            .iter()
            .position(|count| {
                left = left.saturating_sub(count.load(Relaxed));
                left == 0
            })
            .unwrap_or(self.0.len())
    }
}

/// A device that sends at once, and compares the time with each packet's departure time.
impl Driver for Late {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("clock")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(self.clone(), NoCompletions))
    }
}

impl Transmit for Late {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let now = txq::Instant::now();
        for packet in batch.iter() {
            // Nothing departs early: an early packet would count as 0.
            let late = (now - packet.departure()).as_micros();
            self.0[(late as usize).min(self.0.len() - 1)].fetch_add(1, Relaxed);
        }
        cx.sent_all(batch);
        Status::Ok
    }
}

/// Sends `packets` packets, one in each [`GAP`], and waits only for what the device has too little of.
async fn send(mut sender: Sender, packets: u32) -> Result<u64, txq::WaitError> {
    let begin = sender.now() + BEGIN;
    for number in 0..packets {
        let mut packet = sender.buffer(LEN).await?;
        let at = begin + GAP * number;
        packet.set_departure(at);
        // A program would have its data by now. tokio's timer is far too coarse for the gap, but not for the time ahead.
        let early = at - (sender.now() + AHEAD);
        if early > AHEAD {
            tokio::time::sleep(early).await;
        }
        let _verdict = sender.send(packet).await.map_err(|refused| refused.error)?;
    }
    Ok(sender.dropped())
}

/// Drives the worker as a task of the runtime until the device is shut down, with a timerfd for the next deadline and an
/// eventfd for work that comes before.
async fn drive(mut worker: Worker) -> io::Result<()> {
    let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    let ring = bell.try_clone()?;
    worker.set_waker(move || {
        let _ = rustix::io::write(&ring, &1_u64.to_ne_bytes());
    });
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer: OwnedFd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    // SAFETY: an `OwnedFd` is one open descriptor as long as it lives.
    let (timer, bell) = unsafe { (AsyncFd::register(timer)?, AsyncFd::register(bell)?) };
    while !worker.is_over() {
        // Reset both, then poll, then sleep: a wake that comes during the poll ends the sleep.
        let _ = rustix::io::read(bell.get_ref(), &mut [0; 8]);
        let _ = rustix::io::read(timer.get_ref(), &mut [0; 8]);
        let next = worker.poll();
        let at = next.map_or(Duration::ZERO, |at| Duration::from_nanos(at.as_nanos().max(1)));
        let at = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(at).map_err(io::Error::other)?,
        };
        timerfd_settime(timer.get_ref(), TimerfdTimerFlags::ABSTIME, &at)?;
        tokio::select! {
            ready = bell.readable() => ready?.clear_ready(),
            ready = timer.readable() => ready?.clear_ready(),
        }
    }
    Ok(())
}

fn measure(mode: &str, seconds: f64, spin: Duration) -> Result<(), Box<dyn Error>> {
    let late = Late::new();
    let builder = NetDev::builder(late.clone()).qdisc("fq flow_limit 1000").spin(spin);
    let packets = (seconds / GAP.as_secs_f64()) as u32;
    let (dev, dropped) = match mode {
        "current" | "multi" => {
            let dev = builder.start()?;
            let runtime = match mode {
                "current" => runtime::Builder::new_current_thread().enable_all().build()?,
                _ => runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
            };
            let task = runtime.spawn(send(dev.sender("task"), packets));
            (dev, runtime.block_on(task)??)
        }
        "loop" => {
            let dev = builder.build()?;
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let _worker = runtime.spawn(drive(dev.worker(0)));
            let task = runtime.spawn(send(dev.sender("task"), packets));
            let dropped = runtime.block_on(task)??;
            // The last packets have still to depart, and the runtime drives the worker.
            runtime.block_on(async {
                while !dev.is_idle() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            (dev, dropped)
        }
        other => return Err(format!("mode \"{other}\" is unknown: use current, multi or loop").into()),
    };
    if !dev.drain(Duration::from_secs(10)) {
        return Err("packets have not departed within 10 s".into());
    }
    let sent = dev.audit()?.sent;
    let [p50, p99] = [0.5, 0.99].map(|share| late.quantile(share));
    println!("{mode}: {sent} sent, {dropped} dropped, departure error p50 {p50} us, p99 {p99} us");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_else(|| "current".into());
    let seconds = args.next().map_or(Ok(2.0), |text| text.parse())?;
    let spin = args.next().map_or(Ok(0), |text| text.parse())?;
    measure(&mode, seconds, Duration::from_micros(spin))
}

#[test]
fn runs() {
    for mode in ["current", "multi", "loop"] {
        measure(mode, 0.1, Duration::ZERO).unwrap();
    }
}
