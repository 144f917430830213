//! Frames from the kernel, and programs that are killed while they receive.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use txq::packet::PacketList;
use txq::pool::{Pool, PoolConfig};
use txq::receive::Receive;
use txq::{NetDev, Sender};
use txq_device::af_xdp::{self, Attach};
use txq_device::{AfXdp, AfXdpConfig};

use crate::support::process::{Running, wait_until};
use crate::support::receiver::Receiver;
use crate::{Bench, WITHIN, check_frames, config, send};

/// Sends every received frame back until `count` have come; returns them.
fn echo(receiver: &mut af_xdp::Receiver, sender: &mut Sender, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut batch) = (Vec::new(), PacketList::new());
    let end = Instant::now() + WITHIN;
    while frames.len() < count && Instant::now() < end {
        if receiver.receive(64, sender, &mut batch).unwrap() == 0 {
            receiver.wait(Some(Duration::from_millis(10))).unwrap();
        }
        frames.extend(batch.iter().map(|packet| packet.data().to_vec()));
        assert!(batch.iter().all(|packet| packet.rx_queue() == Some(0)));
        let _ = sender.xmit_batch(&mut batch);
    }
    frames
}

#[test]
fn frames_are_received_and_sent_back_without_a_copy() {
    let Some(bench) = Bench::new("frames_are_received_and_sent_back_without_a_copy", 1) else { return };
    for attach in [None, Some(Attach::Driver), Some(Attach::Generic)] {
        let config = AfXdpConfig { attach, ring: 1024, ..config(1) };
        let (dev, mut sender, mut receiver) = bench.receive(config, bench.pool.clone());
        let (injector, back) = (bench.injector(), Receiver::start(&bench.far, "rx0"));
        let mut from = injector.sender("far");
        // More than the buffers of the pool, in portions that fit into the ring.
        let mut frames = Vec::new();
        for portion in 0..40_u32 {
            send(&mut from, 7, portion * 500..(portion + 1) * 500);
            frames.extend(echo(&mut receiver, &mut sender, 500));
        }
        check_frames(&frames, 7, 0..20_000);
        assert!(wait_until(WITHIN, || back.count() >= 20_000), "{} came back", back.count());
        check_frames(&back.finish(), 7, 0..20_000);
        assert!(dev.drain(WITHIN));
        assert_eq!(dev.audit().unwrap().sent, 20_000);
        let stats = receiver.stats();
        assert_eq!((stats.packets, stats.missed, stats.too_long), (20_000, 0, 0), "{stats:?}");
        assert_eq!(stats.bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
        drop((receiver, sender, dev));
        bench.check_pool();
    }
}

#[test]
fn frames_are_copied_for_a_sender_of_another_pool() {
    let Some(bench) = Bench::new("frames_are_copied_for_a_sender_of_another_pool", 1) else { return };
    let other = Pool::new(&PoolConfig { room: 1600, ..PoolConfig::default() }).unwrap();
    let (dev, mut sender, mut receiver) = bench.receive(config(1), other.clone());
    let (injector, back) = (bench.injector(), Receiver::start(&bench.far, "rx0"));
    let mut from = injector.sender("far");
    for portion in 0..20_u32 {
        send(&mut from, 7, portion * 500..(portion + 1) * 500);
        assert_eq!(echo(&mut receiver, &mut sender, 500).len(), 500);
    }
    assert!(wait_until(WITHIN, || back.count() >= 10_000), "{} came back", back.count());
    check_frames(&back.finish(), 7, 0..10_000);
    assert!(dev.drain(WITHIN));
    drop((receiver, sender, dev));
    bench.check_pool();
    assert_eq!(other.in_use(), BTreeMap::new());
}

#[test]
fn without_a_receiver_the_kernel_gets_the_frames() {
    let Some(bench) = Bench::new("without_a_receiver_the_kernel_gets_the_frames", 1) else { return };
    let mut device = bench.open(AfXdpConfig { receive: true, ..config(1) });
    let mut receiver = device.receivers().remove(0);
    let dev = NetDev::builder(device).pool(bench.pool.clone()).start().unwrap();
    let (injector, mut sender) = (bench.injector(), dev.sender("s"));
    let mut from = injector.sender("far");
    let program = || bench.near.ip("link show dev tx0").contains("prog/xdp");
    assert!(program(), "no program is attached");
    let kernel = Receiver::start(&bench.near, "tx0");
    send(&mut from, 7, 0..10);
    assert!(wait_until(WITHIN, || kernel.count() == 10));
    assert_eq!(receiver.receive(64, &mut sender, &mut PacketList::new()).unwrap(), 0);
    send(&mut from, 7, 10..20);
    assert_eq!(echo(&mut receiver, &mut sender, 10).len(), 10);
    assert_eq!(kernel.count(), 10);
    drop(receiver);
    assert!(wait_until(WITHIN, || !program()), "the program is still attached");
    send(&mut from, 7, 20..30);
    assert!(wait_until(WITHIN, || kernel.count() == 20));
    drop(kernel);
    drop((sender, dev));
    bench.check_pool();
}

#[test]
fn a_receiver_reports_that_its_interface_is_gone() {
    let Some(bench) = Bench::new("a_receiver_reports_that_its_interface_is_gone", 1) else { return };
    let (dev, sender, mut receiver) = bench.receive(config(1), bench.pool.clone());
    assert!(!receiver.wait(Some(Duration::from_millis(1))).unwrap());
    bench.near.ip("link set tx0 down");
    let error = receiver.wait(Some(Duration::from_millis(1))).unwrap_err().to_string();
    assert!(error.starts_with("queue 0 of interface \"tx0\" is down"), "{error}");
    bench.near.ip("link del tx0");
    let error = receiver.wait(Some(Duration::from_millis(1))).unwrap_err().to_string();
    assert!(error.starts_with("queue 0 of interface \"tx0\" is gone"), "{error}");
    drop((receiver, sender, dev));
    bench.check_pool();
}

/// Not a test of its own: the process that is killed below.
#[test]
fn child_that_is_killed() {
    if std::env::var_os("TXQ_AF_XDP_CHILD").is_none() {
        return;
    }
    let pool = Pool::new(&AfXdp::pool_config(4096)).unwrap();
    let mut device = AfXdpConfig { receive: true, ..config(1) }.open(&pool).unwrap();
    let mut receiver = device.receivers().remove(0);
    let dev = NetDev::builder(device).pool(pool).start().unwrap();
    let mut sender = dev.sender("child");
    receiver.receive(64, &mut sender, &mut PacketList::new()).unwrap();
    eprintln!("child is ready");
    loop {
        send(&mut sender, 0, 0..50);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn after_a_kill_the_program_is_detached_and_the_next_start_works() {
    let test = "after_a_kill_the_program_is_detached_and_the_next_start_works";
    let Some(bench) = Bench::new(test, 1) else { return };
    for _ in 0..3 {
        let exe = std::env::current_exe().unwrap();
        let mut command = bench.near.command(exe.to_str().unwrap());
        command
            .args(["--exact", "receive::child_that_is_killed", "--nocapture"])
            .env("TXQ_AF_XDP_CHILD", "1");
        let mut child = Running::start(&mut command);
        child.wait_for_text("child is ready", WITHIN);
        assert!(bench.near.ip("link show dev tx0").contains("prog/xdp"));
        child.signal(libc::SIGKILL);
        assert_eq!(child.finish(WITHIN).status.code(), None);
        let detached = || !bench.near.ip("link show dev tx0").contains("prog/xdp");
        assert!(wait_until(WITHIN, detached), "the program is still attached");
        let (dev, mut sender, mut receiver) = bench.receive(config(1), bench.pool.clone());
        let injector = bench.injector();
        send(&mut injector.sender("far"), 7, 0..10);
        check_frames(&echo(&mut receiver, &mut sender, 10), 7, 0..10);
        drop((receiver, sender, dev));
        bench.check_pool();
    }
}
