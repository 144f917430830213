//! A thread that floods the classes of a device.

use std::error::Error;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use txq::NetDev;
use txq::packet::PacketList;

const BATCH: usize = 32;
const LEN: usize = 60;

/// What the thread does, and has done.
#[derive(Default)]
pub(crate) struct Flood {
    /// The classes that it floods, from 1:1 on.
    pub(crate) classes: AtomicU32,
    pub(crate) packets: AtomicU64,
    /// The longest time between two batches, in nanoseconds, since the last reading.
    longest: AtomicU64,
    /// The thread's number; 0 until it runs.
    thread: AtomicU64,
    stop: AtomicBool,
}

impl Flood {
    /// Calls `measure` while a thread floods `classes` classes of a device; returns its result.
    pub(crate) fn during<R>(dev: &NetDev, classes: u32, measure: impl FnOnce(&Self) -> R) -> R {
        /// Ends the thread, also if `measure` panics.
        struct Stop<'s>(&'s AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let flood = Self { classes: AtomicU32::new(classes), ..Self::default() };
        std::thread::scope(|scope| {
            let _stop = Stop(&flood.stop);
            let thread = scope.spawn(|| flood.send(dev));
            while flood.thread.load(Relaxed) == 0 && !thread.is_finished() {
                std::thread::yield_now();
            }
            measure(&flood)
        })
    }

    /// Returns the longest time between two batches since the last call, in milliseconds.
    pub(crate) fn longest_ms(&self) -> f64 {
        self.longest.swap(0, Relaxed) as f64 / 1e6
    }

    /// Returns for how many seconds the thread has had a CPU.
    #[allow(dead_code, reason = "not all examples ask")]
    pub(crate) fn cpu(&self) -> Result<f64, Box<dyn Error>> {
        let times = fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread.load(Relaxed)))?;
        Ok(times.split(' ').next().unwrap_or_default().parse::<f64>()? / 1e9)
    }

    /// Sends to the classes in turn, as fast as buffers return.
    fn send(&self, dev: &NetDev) {
        let (mut sender, mut list, mut class) = (dev.sender("flood"), PacketList::new(), 0);
        sender.set_limit(256);
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get() as u64, Relaxed);
        let mut last = sender.now();
        while !self.stop.load(Relaxed) {
            let classes = self.classes.load(Relaxed);
            let _ = sender.alloc_batch(BATCH, LEN, &mut list);
            list.for_each_mut(|packet| {
                class = class % classes + 1;
                packet.set_priority(0x1_0000 | class);
            });
            let packets = list.len() as u64;
            match packets {
                0 => drop(sender.wait_credit(Some(sender.now() + Duration::from_millis(1)))),
                _ => {
                    let _ = sender.xmit_batch(&mut list);
                    let now = sender.now();
                    self.longest.fetch_max((now - last).as_nanos() as u64, Relaxed);
                    last = now;
                }
            }
            self.packets.fetch_add(packets, Relaxed);
        }
    }
}
