//! A few threads drive the workers of many devices: timers fire, panics end no thread, and devices that end leave.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::pool::{Pool, PoolConfig};
use txq::{NetDev, WorkerPool};

const LONG: Duration = Duration::from_secs(30);

/// Counters of the devices' drivers.
#[derive(Default)]
struct Fate {
    /// Number of driver calls that are still to panic.
    panics: AtomicU32,
    /// Number of drivers that were dropped.
    gone: AtomicU32,
}

/// Sends at once, unless it panics.
struct Sink(Arc<Fate>);

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(Sink(self.0.clone()), NoCompletions))
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let dies = |left: u32| left.checked_sub(1);
        // Not in a sender's call: only a worker sends held-back packets.
        if thread::current().name().is_some_and(|name| name.starts_with("txq-pool"))
            && self.0.panics.fetch_update(Relaxed, Relaxed, dies).is_ok()
        {
            panic!("the driver panics, as the test wants");
        }
        cx.sent_all(batch);
        Status::Ok
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Relaxed);
    }
}

/// Returns devices that hold back all but the first two packets of a burst, on one pool of buffers.
fn devices(count: usize, fate: &Arc<Fate>) -> Vec<NetDev> {
    let pool = Pool::new(&PoolConfig { buffers: 1024, ..PoolConfig::default() }).expect("a pool");
    let device = |_| {
        let builder = NetDev::builder(Sink(fate.clone())).pool(pool.clone());
        builder.qdisc("tbf rate 8mbit burst 2kb limit 100kb").build().expect("a device")
    };
    (0..count).map(device).collect()
}

fn send(dev: &NetDev, packets: usize) {
    let (mut sender, mut batch) = (dev.sender("test"), PacketList::new());
    sender.alloc_batch(packets, 1000, &mut batch).expect("buffers");
    let _ = sender.xmit_batch(&mut batch);
}

#[track_caller]
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

#[test]
fn timers_of_many_devices_fire_on_two_threads() {
    let (fate, pool) = (Arc::default(), WorkerPool::new(2).expect("threads"));
    let devices = devices(20, &fate);
    devices.iter().for_each(|dev| pool.drive(dev));
    devices.iter().for_each(|dev| send(dev, 20));
    assert!(devices.iter().all(|dev| dev.stats().sent < 20), "no packet was held back");
    for dev in &devices {
        wait_until("packets are stuck", || dev.stats().sent == 20);
        dev.audit().expect("counts add up");
    }
    // Thread names are cut, and other tests have pools of their own.
    assert!(threads("txq-pool") >= 2);
    assert_eq!(threads("txq-worker"), 0);
}

#[test]
fn a_driver_that_panics_ends_neither_its_worker_nor_another() {
    let (fate, pool): (Arc<Fate>, _) = (Arc::default(), WorkerPool::new(1).expect("threads"));
    let devices = devices(2, &fate);
    devices.iter().for_each(|dev| pool.drive(dev));
    fate.panics.store(3, Relaxed);
    devices.iter().for_each(|dev| send(dev, 10));
    for dev in &devices {
        wait_until("packets are stuck", || dev.stats().queued == 0);
        dev.audit().expect("counts add up");
    }
    let restarts: u64 = devices.iter().map(NetDev::worker_restarts).sum();
    let lost: u64 = devices.iter().map(|dev| dev.stats().dropped.total()).sum();
    assert!(restarts == 3 && lost <= 6, "{restarts} restarts, {lost} packets lost");
}

#[test]
fn a_device_that_ends_leaves_the_pool() {
    let (fate, pool): (Arc<Fate>, _) = (Arc::default(), WorkerPool::new(1).expect("threads"));
    let mut devices = devices(5, &fate);
    devices.iter().for_each(|dev| pool.drive(dev));
    devices.truncate(2);
    // For each device the driver itself, which the builder drops, and its txq's half.
    wait_until("a driver is held", || fate.gone.load(Relaxed) == 5 + 3);
    devices.iter().for_each(|dev| send(dev, 10));
    for dev in &devices {
        wait_until("packets are stuck", || dev.stats().sent == 10);
    }
    drop(pool);
    drop(devices);
    assert_eq!(fate.gone.load(Relaxed), 10);
}
