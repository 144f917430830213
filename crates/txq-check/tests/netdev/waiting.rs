//! Senders that wait for a buffer or for credit of a device that completes, goes down, or ends.
//!
//! Guards `txq/src/generic/sender/waiting.rs` and the wakes in `netdev/lifecycle.rs`. Mutants that it catches, each by a sender that
//! sleeps for ever: a device that goes down, or ends, and wakes no sender; a sender that registers and does not check its
//! device.
//!
//! And a sender that waits for room of a short queue (`txq/src/generic/datapath/marks.rs`). Mutant that it catches by lost packets: a
//! list in front of the qdisc that may be as long in front of a short queue as in front of a long one.
//!
//! And a sender that awaits room for its packet (`txq/src/generic/sender/send.rs`). Mutant that it catches by lost packets: a sender
//! that asks nobody.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task::{Context, Poll, Waker};

use super::device::{Device, Record, assert_conserved};
use txq::generic::netdev::NetDev;
use txq::generic::{Room, Sender, WaitError};
use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::Atomic;
use txq_core::packet::Packet;
use txq_core::pool::{Backing, PoolConfig};
use txq_core::sync::waiter::Waiter;

fn device<A: Model>(buffers: u32) -> NetDev<A> {
    let pool = PoolConfig { buffers, room: 64, headroom: 0, backing: Backing::Heap, ..PoolConfig::default() };
    let device = Device { record: Record::new(1), ring: Some(4), inline: false };
    device.builder().pool_config(pool).qdisc("pfifo").build().expect("a device")
}

fn wait<A: Model>(sender: &mut Sender<A>) -> Result<Packet<A>, WaitError> {
    sender.wait_buffer(8, None)
}

/// Two senders wait for the one buffer, which the worker reaps.
fn completed<A: Model>(senders: u32) {
    let dev = device::<A>(1);
    let (mut first, mut worker) = (dev.sender_on("first", 0), dev.worker(0));
    let packet = first.alloc(8).expect("a buffer");
    let _ = first.xmit(packet);
    let senders: Vec<_> = (0..senders)
        .map(|cpu| {
            let mut sender = dev.sender_on("s", cpu + 1);
            A::spawn(cpu + 1, move || drop(wait(&mut sender).expect("the device is up")))
        })
        .collect();
    while worker.poll().is_some() {}
    senders.into_iter().for_each(|join| join());
    drop((first, worker));
    assert_conserved(&dev);
}

/// A sender waits for a buffer that the program keeps, or for credit for it, while the device goes down or ends.
fn closed<A: Model>(credit: bool, end: fn(&mut NetDev<A>), error: fn(&WaitError) -> bool) {
    let mut dev = device::<A>(1);
    let mut sender = dev.sender_on("s", 1);
    if credit {
        sender.set_limit(1);
    }
    let packet = sender.alloc(8).expect("a buffer");
    let join = A::spawn(1, move || {
        let got = wait(&mut sender);
        assert!(got.as_ref().is_err_and(error), "{got:?}");
    });
    end(&mut dev);
    join();
    drop(packet);
}

fn ends<A: Model>() {
    let gone = |error: &WaitError| matches!(error, WaitError::Gone { .. });
    closed::<A>(false, |dev| dev.shutdown().expect("no driver fails"), gone);
    closed::<A>(true, |dev| dev.shutdown().expect("no driver fails"), gone);
}

fn goes_down<A: Model>() {
    let down = |error: &WaitError| matches!(error, WaitError::Down { .. });
    closed::<A>(false, |dev| dev.deactivate(), down);
    closed::<A>(true, |dev| dev.deactivate(), down);
}

/// A sender that asks for room before each packet loses none, although an owner that the CPU was taken from takes nothing off the
/// list in front of the qdisc.
fn has_room<A: Model>() {
    let device = Device { record: Record::new(1), ring: None, inline: false };
    let dev: NetDev<A> = device.builder().qdisc("pfifo limit 4").build().expect("a device");
    let (mut sender, mut worker) = (dev.sender_on("s", 0), dev.worker(0));
    let join = A::spawn(0, move || {
        for _ in 0..12 {
            while sender.wait_room(None) != Room::Free {}
            let packet = sender.alloc(8).expect("a buffer");
            let _ = sender.xmit(packet);
        }
        assert_eq!(sender.dropped(), 0);
    });
    for _ in 0..12 {
        // Owns the queue for a moment.
        let _ = dev.stats();
        worker.poll();
    }
    join();
    while worker.poll().is_some() {}
    drop(worker);
    assert_conserved(&dev);
}

/// Waits for a future as a thread.
fn block_on<A: Model, T>(future: impl Future<Output = T>) -> T {
    let waiter = Waiter::<A>::new();
    let (waker, mut future) = (Waker::from(waiter.clone()), pin!(future));
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        waiter.sleep(None);
    }
}

/// A sender awaits room in bytes for each packet, while a worker reaps what the ring holds and runs the queue.
fn sends<A: Model>(packets: u64) {
    let device = Device { record: Record::new(1), ring: Some(2), inline: false };
    let dev: NetDev<A> = device.builder().qdisc("bfifo limit 20").build().expect("a device");
    let (mut sender, mut worker) = (dev.sender_on("s", 0), dev.worker(0));
    let done = Arc::new(A::AtomicU32::new(0));
    let join = A::spawn(0, {
        let done = done.clone();
        move || {
            for _ in 0..packets {
                let packet = sender.alloc(8).expect("a buffer");
                assert!(block_on::<A, _>(sender.send(packet)).is_ok());
            }
            assert_eq!(sender.dropped(), 0);
            drop(sender);
            done.store(1, Release);
        }
    });
    while done.load(Acquire) == 0 {
        worker.poll();
        A::relax();
    }
    join();
    // A poll that sends has woken the worker again.
    while !dev.is_idle() {
        worker.poll();
    }
    assert_eq!(dev.stats().dropped.total(), 0);
    drop(worker);
    assert_conserved(&dev);
}

#[test]
fn what_is_sent_has_room_under_shuttle() {
    Shuttle::check(|| sends::<Shuttle>(8));
}

#[test]
fn nothing_is_lost_with_room_under_shuttle() {
    Shuttle::check(has_room::<Shuttle>);
}

#[test]
fn one_waits_for_a_completion_under_loom() {
    Loom::check_to(1, || completed::<Loom>(1));
}

#[test]
fn three_wait_for_a_completion_under_shuttle() {
    Shuttle::check(|| completed::<Shuttle>(3));
}

#[test]
fn the_device_ends_under_loom() {
    Loom::check_to(1, ends::<Loom>);
}

#[test]
fn the_device_ends_under_shuttle() {
    Shuttle::check(ends::<Shuttle>);
}

#[test]
fn the_device_goes_down_under_loom() {
    Loom::check_to(1, goes_down::<Loom>);
}

#[test]
fn the_device_goes_down_under_shuttle() {
    Shuttle::check(goes_down::<Shuttle>);
}
