//! Senders that await credit, buffers and room: by hand, by the plainest executor, and on tokio. What ends a wait, in which
//! order senders continue, and that a cancelled wait takes nothing with it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use txq::netdev::Builder;
use txq::packet::Packet;
use txq::pool::{AllocError, PoolConfig};
use txq::qdisc::Verdict;
use txq::{Flow, Instant, NetDev, Room, Sender, WaitError};

/// A device on `wires` whose pool has `buffers` buffers.
fn builder(wires: &Wires, buffers: u32) -> Builder {
    let pool = PoolConfig { buffers, ..pool() };
    NetDev::builder(wires.clone()).pool_config(pool).qdisc("pfifo limit 1000").bql(None)
}

/// The plainest executor: a thread that parks.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Parked(thread::Thread);
    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// Counts wakes.
#[derive(Default)]
struct Told(AtomicUsize);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Told {
    fn new() -> (Arc<Self>, Waker) {
        let told = Arc::new(Self::default());
        (told.clone(), Waker::from(told))
    }

    fn times(&self) -> usize {
        self.0.load(Relaxed)
    }
}

fn send(sender: &mut Sender, packet: Packet) {
    assert_eq!(sender.xmit(packet), Verdict::Success);
}

#[test]
fn each_free_buffer_goes_to_the_sender_that_waits_longest() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires, 2).build().unwrap();
    let (mut holder, mut worker) = (dev.sender("holder"), dev.worker(0));
    for _ in 0..2 {
        let packet = holder.alloc(60).unwrap();
        send(&mut holder, packet);
    }
    let mut waiting: Vec<_> = ["a", "b", "c"].map(|name| (dev.sender(name), Told::new())).into();
    for (sender, (_, waker)) in &mut waiting {
        assert!(sender.poll_buffer(60, waker).is_pending());
    }
    let woken = |waiting: &[(Sender, (Arc<Told>, Waker))]| -> Vec<_> {
        waiting.iter().map(|(_, (told, _))| told.times()).collect()
    };
    wires.at(0).complete(1);
    worker.poll();
    assert_eq!(woken(&waiting), [1, 0, 0], "one buffer wakes one sender");
    // A sender that does not wait overtakes no sender that does.
    assert!(matches!(dev.sender("later").alloc(60), Err(AllocError::Exhausted { .. })));
    // A task that is polled without a wake keeps its place.
    let again = waiting[1].1.1.clone();
    assert!(waiting[1].0.poll_buffer(60, &again).is_pending());
    wires.at(0).complete(1);
    worker.poll();
    assert_eq!(woken(&waiting), [1, 1, 0]);
    let take = |(sender, (_, waker)): &mut (Sender, (Arc<Told>, Waker))| match sender.poll_buffer(60, waker) {
        Poll::Ready(packet) => packet.unwrap(),
        Poll::Pending => panic!("woken without a buffer"),
    };
    let packet = take(&mut waiting[0]);
    // The second gives up what it has got: the third gets it.
    waiting[1].0.stop_waiting();
    assert_eq!(woken(&waiting), [1, 1, 1]);
    drop((take(&mut waiting[2]), packet));
    assert_eq!(holder.alloc(60).map(|packet| packet.len()), Ok(60), "nobody waits any more");
    drop((waiting, holder));
    assert_conserved(&dev);
}

#[test]
fn a_dropped_future_hands_its_buffer_on() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires, 1).build().unwrap();
    let (mut holder, mut cancelled, mut next) = (dev.sender("h"), dev.sender("c"), dev.sender("n"));
    let packet = holder.alloc(60).unwrap();
    let (told, waker) = Told::new();
    let mut cx = Context::from_waker(&waker);
    let mut first = Box::pin(cancelled.buffer(60));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    let mut second = Box::pin(next.buffer(60));
    assert!(second.as_mut().poll(&mut cx).is_pending());
    drop(packet);
    assert_eq!(told.times(), 1, "the first is woken");
    drop(first);
    assert_eq!(told.times(), 2, "the first has swallowed the wake");
    drop(second);
    assert!(holder.alloc(60).is_ok(), "a dropped future keeps the buffer");
    drop((cancelled, next, holder));
    assert_conserved(&dev);
}

#[test]
fn a_wait_without_hope_is_an_error() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires, 1).build().unwrap();
    let mut sender = dev.sender("s");
    let long = block_on(sender.buffer(1 << 20)).unwrap_err();
    assert!(matches!(long, WaitError::Alloc(AllocError::TooLong { .. })), "{long}");
    let packet = block_on(sender.buffer(60)).unwrap();
    assert_eq!(sender.wait_buffer(60, Some(Instant::ZERO)).unwrap_err(), WaitError::Deadline);
    assert_eq!(
        sender.wait_buffer(60, Some(sender.now() + Duration::from_micros(100))).unwrap_err(),
        WaitError::Deadline
    );
    drop(packet);
    assert!(sender.wait_buffer(60, Some(Instant::ZERO)).is_ok());
}

#[test]
fn credit_comes_back_when_half_of_the_limit_is_free() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires, 64).build().unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    sender.set_limit(4);
    for _ in 0..4 {
        let packet = sender.alloc(60).unwrap();
        send(&mut sender, packet);
    }
    let (told, waker) = Told::new();
    assert!(sender.poll_credit(&waker).is_pending());
    assert!(sender.poll_buffer(60, &waker).is_pending(), "it needs credit, too");
    wires.at(0).complete(1);
    worker.poll();
    assert_eq!(told.times(), 0, "one of four is free");
    wires.at(0).complete(1);
    worker.poll();
    assert_eq!(told.times(), 1);
    assert_eq!(sender.poll_credit(&waker), Poll::Ready(Ok(())));
    assert_eq!(block_on(sender.ready()), Ok(()));
    assert!(block_on(sender.buffer(60)).is_ok());
}

#[test]
fn a_flow_awaits_room_in_its_own_txq() {
    let wires = Wires::new(1, Some(4));
    let dev = builder(&wires, 64).qdisc("pfifo limit 8").build().unwrap();
    let (mut sender, mut worker, mut flow) = (dev.sender("s"), dev.worker(0), Flow::new());
    let mut sent = 0;
    let (told, waker) = Told::new();
    while sender.poll_room_on(&flow, &waker) == Poll::Ready(Room::Free) {
        let packet = sender.alloc(60).unwrap();
        assert!(matches!(block_on(sender.send_on(&mut flow, packet)), Ok(Verdict::Success)));
        sent += 1;
    }
    assert_eq!(sent, 4 + 6, "the ring, and three quarters of the limit");
    wires.at(0).complete(4);
    worker.poll();
    assert_eq!(told.times(), 1);
    assert_eq!(block_on(sender.room_on(&flow)), Room::Free);
}

/// How a device ends the waits of its senders, and the error that they return.
type End = (fn(NetDev) -> Option<NetDev>, fn(&WaitError) -> bool);

/// Tasks that wait for a buffer, for credit and for room return when their device goes down or ends: none of the three will
/// come, because the test holds every packet.
#[test]
fn a_device_that_goes_away_ends_all_waits() {
    let down: End = (
        |dev| {
            dev.deactivate();
            Some(dev)
        },
        |error| matches!(error, WaitError::Down { .. }),
    );
    let gone = |error: &WaitError| matches!(error, WaitError::Gone { .. });
    let shutdown: End = (
        |mut dev| {
            dev.shutdown().unwrap();
            Some(dev)
        },
        gone,
    );
    let dropped: End = (
        |dev| {
            drop(dev);
            None
        },
        gone,
    );
    for (end, is_right) in [down, shutdown, dropped] {
        let wires = Wires::new(1, Some(4));
        let dev = builder(&wires, 32).qdisc("pfifo limit 8").start().unwrap();
        let mut filler = dev.sender("filler");
        while filler.wait_room(Some(Instant::ZERO)) == Room::Free {
            let packet = filler.alloc(60).unwrap();
            send(&mut filler, packet);
        }
        let (mut room, mut credit, mut late) = (dev.sender("room"), dev.sender("credit"), dev.sender("late"));
        credit.set_limit(1);
        late.set_limit(1);
        let mut held = vec![credit.alloc(60).unwrap(), late.alloc(60).unwrap(), room.alloc(60).unwrap()];
        let to_send = held.pop().unwrap();
        while let Ok(packet) = filler.alloc(60) {
            held.push(packet);
        }
        let mut buffer = dev.sender("buffer");
        let mut sleeper = dev.sender("sleeper");
        let begun = Arc::new(AtomicUsize::new(0));
        let begin = || begun.fetch_add(1, Relaxed);
        let waits = thread::scope(|threads| {
            let mut waits = Vec::new();
            waits.push(threads.spawn(|| {
                begin();
                block_on(buffer.buffer(60)).err()
            }));
            waits.push(threads.spawn(|| {
                begin();
                sleeper.wait_buffer(60, None).err()
            }));
            waits.push(threads.spawn(|| {
                begin();
                block_on(credit.credit()).err()
            }));
            waits.push(threads.spawn(|| {
                begin();
                block_on(room.send(to_send)).err().map(|refused| refused.error)
            }));
            while begun.load(Relaxed) < 4 {
                thread::yield_now();
            }
            // Most have begun to sleep by then; the models show the other cases.
            thread::sleep(Duration::from_millis(5));
            let dev = end(dev);
            let waits: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
            drop(dev);
            waits
        });
        for wait in &waits {
            // The queued packets are dropped then, so a sender may find a buffer or room before it checks the device.
            assert!(wait.as_ref().is_none_or(is_right), "{waits:?}");
        }
        assert!(waits[2].as_ref().is_some_and(is_right), "no credit can come: {waits:?}");
        assert!(!late.wait_credit(Some(Instant::ZERO)));
        drop(held);
        wires.at(0).complete(usize::MAX);
    }
}

/// Threads wait for buffers, give up, and send. The device completes at its own pace. All come to their end.
#[test]
fn many_senders_share_few_buffers() {
    let wires = Wires::new(1, Some(8));
    let dev = builder(&wires, 6).start().unwrap();
    let over = AtomicBool::new(false);
    let (senders, each) = (6, 200);
    thread::scope(|threads| {
        let (wire, done) = (wires.0[0].clone(), &over);
        threads.spawn(move || {
            while !done.load(Relaxed) {
                wire.lock().unwrap().complete(3);
                thread::yield_now();
            }
        });
        let senders: Vec<_> = (0..senders)
            .map(|number| {
                let mut sender = dev.sender("s");
                threads.spawn(move || {
                    for turn in 0..each {
                        if (turn + number) % 7 == 0 {
                            // A wait that is cancelled, with a buffer or without.
                            let _ = sender.poll_buffer(60, Waker::noop());
                            sender.stop_waiting();
                        }
                        let packet = block_on(sender.buffer(60)).unwrap();
                        send(&mut sender, packet);
                    }
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(dev.drain(Duration::from_secs(60)), "packets do not leave");
        over.store(true, Relaxed);
    });
    assert_eq!(assert_conserved(&dev).sent, senders * each);
}

/// Sends `each` packets from each of `tasks` tasks through a link that keeps few packets, by awaits alone.
async fn crowd(dev: &NetDev, tasks: u64, each: u64) {
    let tasks: Vec<_> = (0..tasks)
        .map(|number| {
            let mut sender = dev.sender("task");
            tokio::spawn(async move {
                for turn in 0..each {
                    if (turn + number) % 5 == 0 {
                        // A cancelled wait: the timeout is over at once or soon.
                        let _ = tokio::time::timeout(Duration::from_micros(turn % 3 * 50), sender.buffer(60))
                            .await;
                    }
                    let packet = sender.buffer(60).await.unwrap();
                    let _ = sender.send(packet).await.unwrap();
                }
                sender.dropped()
            })
        })
        .collect();
    let mut dropped = 0;
    for task in tasks {
        dropped += task.await.unwrap();
    }
    assert_eq!(dropped, 0, "the limit is above the number of buffers");
}

fn on_tokio(runtime: &tokio::runtime::Runtime) {
    let wires = Wires::new(1, Some(8));
    let dev = builder(&wires, 16).start().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let wire = thread::spawn({
        let (wire, over) = (wires.0[0].clone(), over.clone());
        move || {
            while !over.load(Relaxed) {
                wire.lock().unwrap().complete(3);
                thread::yield_now();
            }
        }
    });
    runtime.block_on(crowd(&dev, 12, 100));
    assert!(dev.drain(Duration::from_secs(60)), "packets do not leave");
    over.store(true, Relaxed);
    wire.join().unwrap();
    assert_eq!(assert_conserved(&dev).sent, 1200);
}

#[test]
fn tasks_wait_on_tokio_in_one_thread() {
    on_tokio(&tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());
}

#[test]
fn tasks_wait_on_tokio_in_many_threads() {
    on_tokio(&tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap());
}

/// The futures are `Send`, because the sender is.
#[test]
fn futures_may_move_between_threads() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let wires = Wires::new(1, Some(8));
    let dev = builder(&wires, 16).build().unwrap();
    let (mut sender, mut flow) = (dev.sender("s"), Flow::new());
    let packet = block_on(assert_send(sender.buffer(60))).unwrap();
    let _ = block_on(assert_send(sender.send_on(&mut flow, packet))).unwrap();
    let packet = sender.alloc(60).unwrap();
    let _ = block_on(assert_send(sender.send(packet))).unwrap();
    assert_eq!(block_on(assert_send(sender.room())), Room::Free);
    assert_eq!(block_on(assert_send(sender.credit())), Ok(()));
    assert_eq!(block_on(assert_send(sender.ready())), Ok(()));
}
