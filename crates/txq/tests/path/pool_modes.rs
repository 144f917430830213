//! Buffers come home in every mode of the pool, however senders and workers end (T26), and a sender at its limit sleeps
//! until the device has completed its packets.

use std::sync::Mutex;

use crate::device::{Wires, assert_conserved, pool};
use txq::packet::PacketList;
use txq::pool::{AllocError, FreeMode, PoolConfig};
use txq::{NetDev, Sender};

const MODES: [FreeMode; 3] = [FreeMode::Defer, FreeMode::Shared, FreeMode::Keep];
const BUFFERS: u32 = 256;

fn builder(wires: &Wires, free: FreeMode) -> txq::netdev::Builder {
    let pool = PoolConfig { buffers: BUFFERS, free, defer_max: 16, ..pool() };
    NetDev::builder(wires.clone()).pool_config(pool).qdisc("pfifo")
}

fn send(sender: &mut Sender, n: usize) {
    let mut list = PacketList::new();
    assert_eq!(sender.alloc_batch(n, 60, &mut list), Ok(n));
    let _ = sender.xmit_batch(&mut list);
}

/// Checks that with every sender and worker gone, every buffer can be allocated.
fn assert_all_home(dev: &NetDev) {
    assert_conserved(dev);
    let mut all = PacketList::new();
    assert_eq!(dev.pool().cache("last", 0).alloc_batch(1000, 60, &mut all), Ok(BUFFERS as usize));
    assert_eq!(dev.pool().backlog(), 0);
}

/// One sender is dropped, one panics, one's thread ends, each with packets in the device and in the qdisc. The packets are
/// sent, and a worker that is dropped afterwards loses no buffer.
#[test]
fn buffers_of_senders_that_are_gone_come_home() {
    for free in MODES {
        let wires = Wires::new(1, Some(8));
        let dev = builder(&wires, free).build().unwrap();
        let mut worker = dev.worker(0);
        let mut dropped = dev.sender("dropped");
        send(&mut dropped, 20);
        drop(dropped);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let mut sender = dev.sender("panics");
                send(&mut sender, 20);
                let _held = sender.alloc(60).unwrap();
                std::panic::resume_unwind(Box::new("as the test wants"));
            });
            assert!(panics.join().is_err());
            scope.spawn(|| send(&mut dev.sender("ends"), 20));
        });
        let mut lives = dev.sender("lives");
        send(&mut lives, 20);
        while !dev.is_idle() {
            wires.at(0).complete(4);
            worker.poll();
        }
        assert_eq!(dev.stats().sent, 80, "{free:?}");
        drop((lives, worker));
        assert_all_home(&dev);
    }
}

/// When a worker dies, the next one serves its queue; the device's end drops the rest.
#[test]
fn buffers_come_home_without_a_worker() {
    for free in MODES {
        let wires = Wires::new(1, Some(8));
        let mut dev = builder(&wires, free).build().unwrap();
        let mut worker = dev.worker(0);
        let mut sender = dev.sender("s");
        send(&mut sender, 30);
        wires.at(0).complete(3);
        worker.poll();
        drop(worker);
        wires.at(0).complete(5);
        let mut next = dev.worker(0);
        next.poll();
        drop((next, sender));
        dev.shutdown().unwrap();
        wires.at(0).complete(8);
        dev.worker(0).poll();
        assert_all_home(&dev);
    }
}

/// Senders that sleep at their limit send all of their packets, and none of them spins.
#[test]
fn senders_sleep_until_the_device_is_done() {
    for free in MODES {
        let wires = Wires::new(1, Some(16));
        let dev = builder(&wires, free).start().unwrap();
        let (left, slept) = (Mutex::new(3), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut sender = dev.sender("s");
                    sender.set_limit(8);
                    for _ in 0..200 {
                        let packet = loop {
                            match sender.alloc(60) {
                                Ok(packet) => break packet,
                                Err(AllocError::Limit { .. }) => {
                                    *slept.lock().unwrap() += 1;
                                    assert!(sender.wait_credit(None));
                                }
                                Err(_) => std::thread::yield_now(),
                            }
                        };
                        let _ = sender.xmit(packet);
                    }
                    *left.lock().unwrap() -= 1;
                });
            }
            // The device completes nothing until each sender is at its limit.
            while *slept.lock().unwrap() < 3 {
                std::thread::yield_now();
            }
            while *left.lock().unwrap() > 0 || !dev.is_idle() {
                wires.at(0).complete(16);
                std::thread::yield_now();
            }
        });
        assert_eq!(assert_conserved(&dev).sent, 600, "{free:?}");
    }
}
