//! Wakers and hooks of a program that call the device when they are cloned, woken, called and dropped. Nothing of the program runs
//! under a lock that such a call takes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{RawWaker, RawWakerVTable, Waker};

use txq::pool::PoolConfig;
use txq::{Discipline, NetDev, Sender};

use crate::reentry::Spot;
use crate::{audited, bounded, build, packets, pool, settle};

/// The program's code, and how often it ran.
struct Code {
    run: Box<dyn Fn() + Send + Sync>,
    runs: AtomicUsize,
}

impl Code {
    fn new(run: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { run: Box::new(run), runs: AtomicUsize::new(0) })
    }

    fn run(&self) {
        self.runs.fetch_add(1, Relaxed);
        (self.run)();
    }

    /// Returns a waker that runs the code in each of its operations.
    fn waker(self: &Arc<Self>) -> Waker {
        // SAFETY: the data is an `Arc<Code>`, of which each waker owns one reference.
        unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(self.clone()).cast(), &OPERATIONS)) }
    }
}

static OPERATIONS: RawWakerVTable = RawWakerVTable::new(clone, wake, run, discard);

fn run(data: *const ()) {
    // SAFETY: as in `waker`; the caller has a waker.
    unsafe { &*data.cast::<Code>() }.run();
}

fn clone(data: *const ()) -> RawWaker {
    run(data);
    // SAFETY: as in `waker`.
    unsafe { Arc::increment_strong_count(data.cast::<Code>()) };
    RawWaker::new(data, &OPERATIONS)
}

fn wake(data: *const ()) {
    run(data);
    discard(data);
}

fn discard(data: *const ()) {
    run(data);
    // SAFETY: as in `waker`; the caller gives its waker up.
    unsafe { Arc::decrement_strong_count(data.cast::<Code>()) };
}

/// Returns code that waits for a buffer and for room by another sender of the device, and gives up.
fn waits(dev: &NetDev) -> Arc<Code> {
    let other = Mutex::new(dev.sender("other"));
    Code::new(move || {
        // Not while it runs already.
        if let Ok(mut other) = other.try_lock() {
            let _ = other.poll_buffer(60, Waker::noop());
            let _ = other.poll_credit(Waker::noop());
            // A sender waits for room only in a queue that has refused its packets.
            if let Ok(packet) = other.alloc(60) {
                let _ = other.xmit(packet);
            }
            let _ = other.poll_room(Waker::noop());
            other.stop_waiting();
        }
    })
}

#[test]
fn wakers_of_buffers_run_without_a_lock() {
    bounded(|| {
        let dev = NetDev::builder(Spot::new(Some(64)))
            .qdisc("pfifo")
            .pool_config(PoolConfig { buffers: 2, ..pool() })
            .build()
            .unwrap();
        let (mut holder, mut waiter, code) = (dev.sender("holder"), dev.sender("waiter"), waits(&dev));
        let mut held = packets(&mut holder, 0..2);
        let poll = |waiter: &mut Sender| waiter.poll_buffer(60, &code.waker());
        assert!(poll(&mut waiter).is_pending(), "it joins the line");
        assert!(poll(&mut waiter).is_pending(), "the second waker replaces the first");
        drop(held.pop_front());
        // The waiter has left the line with the buffer: its new waker is of no use.
        assert!(poll(&mut waiter).is_ready());
        drop(held);
        let _got = packets(&mut holder, 0..1);
        let _rest = packets(&mut holder, 0..1);
        assert!(poll(&mut waiter).is_pending());
        waiter.stop_waiting();
        assert!(poll(&mut waiter).is_pending());
        drop(waiter);
        assert!(code.runs.load(Relaxed) > 10);
    });
}

#[test]
fn wakers_of_credit_run_without_a_lock() {
    bounded(|| {
        let dev = build(NetDev::builder(Spot::new(None)), "pfifo", Discipline::default());
        let (mut sender, code) = (dev.sender("s"), waits(&dev));
        sender.set_limit(2);
        let held = packets(&mut sender, 0..2);
        for _ in 0..2 {
            assert!(sender.poll_credit(&code.waker()).is_pending());
        }
        drop(held);
        assert!(sender.poll_credit(&code.waker()).is_ready());
        let _held = packets(&mut sender, 0..2);
        assert!(sender.poll_credit(&code.waker()).is_pending());
        sender.stop_waiting();
        assert!(code.runs.load(Relaxed) > 5);
    });
}

#[test]
fn wakers_of_room_run_without_a_lock() {
    bounded(|| {
        let dev = build(NetDev::builder(Spot::new(None)), "plug", Discipline::default());
        dev.tc("qdisc replace root handle 1: plug limit 4096").unwrap();
        let (mut sender, mut worker, code) = (dev.sender("s"), dev.worker(0), waits(&dev));
        let fill = |sender: &mut Sender| {
            let mut batch = packets(sender, 0..400);
            let _ = sender.xmit_batch(&mut batch);
        };
        fill(&mut sender);
        let poll = |sender: &mut Sender| sender.poll_room(&code.waker());
        assert!(poll(&mut sender).is_pending() && poll(&mut sender).is_pending());
        // The waiting senders are woken and leave the list, and the queue is full again.
        dev.reset_qdisc("root").unwrap();
        fill(&mut sender);
        assert!(poll(&mut sender).is_pending());
        sender.stop_waiting();
        assert!(code.runs.load(Relaxed) > 5);
        dev.reset_qdisc("root").unwrap();
        settle(&dev, &mut worker);
        audited(&dev);
    });
}
