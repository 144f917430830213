//! Senders that wait for a buffer or for credit: each free buffer reaches the first of the line, wherever it was, and no
//! wake is lost.
//!
//! Guards `txq-core/src/pool/line.rs`, `waiting.rs`, and what they need of `inbox.rs`, `home.rs`, `size.rs`, `store.rs`,
//! `cache.rs`, `reserve.rs` and `credit.rs`. Time stands still under the checkers, so a wait without a wake is a deadlock, which they
//! report. Mutants that it catches, each by a sender that sleeps for ever: an inbox, a stock or a stack that stays open; a
//! sender that joins the line and does not check again; a buffer that wakes no sender; a sender that gives up and keeps the
//! buffer that it has got.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::{Poll, Waker};

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::Atomic;
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{AllocError, Backing, Cache, FreeMode, Pool, PoolConfig};
use txq_core::sync::waiter::Waiter;

const MODES: [FreeMode; 3] = [FreeMode::Defer, FreeMode::Shared, FreeMode::Keep];

fn pool<A: Model>(buffers: u32, free: FreeMode) -> Pool<A> {
    let sizes =
        PoolConfig { buffers, room: 64, headroom: 0, backing: Backing::Heap, ..PoolConfig::default() };
    Pool::new(&PoolConfig { free, ..sizes }).expect("a small pool")
}

/// Waits for a buffer as a thread, which is a task that sleeps until its waker wakes it. Gives up if `ended` says so.
fn wait_unless<A: Model>(cache: &mut Cache<A>, ended: impl Fn() -> bool) -> Option<Packet<A>> {
    let waiter = Waiter::<A>::new();
    let waker = Waker::from(waiter.clone());
    loop {
        match cache.poll_alloc(8, &waker) {
            Poll::Ready(packet) => return Some(packet.expect("no limit, and short enough")),
            Poll::Pending if ended() => {
                cache.stop_waiting();
                return None;
            }
            Poll::Pending => waiter.sleep(None),
        }
    }
}

fn wait<A: Model>(cache: &mut Cache<A>) -> Packet<A> {
    wait_unless(cache, || false).expect("it waits until it has one")
}

fn take<A: Model>(cache: &mut Cache<A>, n: usize) -> PacketList<A> {
    let mut taken = PacketList::new();
    assert_eq!(cache.alloc_batch(n, 8, &mut taken), Ok(n));
    taken.for_each_mut(|packet| packet.data_mut().fill(1));
    taken
}

fn assert_all_home<A: Model>(pool: &Pool<A>) {
    let buffers = pool.buffers() as usize;
    let got = pool.cache("last", 0).alloc_batch(buffers + 1, 8, &mut PacketList::new());
    assert_eq!(got, Ok(buffers), "buffers are lost");
    assert_eq!(pool.backlog(), 0, "the count of what waits is wrong");
}

/// A thread without a sender frees the packet of another sender: to its inbox, or to the stock.
fn freed<A: Model>(free: FreeMode) {
    let pool = pool::<A>(1, free);
    let (mut holder, mut waiter) = (pool.cache("holder", 0), pool.cache("waiter", 0));
    let packet = take(&mut holder, 1);
    let join = A::spawn(1, move || drop(packet));
    let mut got = wait(&mut waiter);
    got.data_mut().fill(2);
    join();
    drop((got, waiter, holder));
    assert_all_home(&pool);
}

/// The sender that holds the buffer frees it itself, and makes one more call, in which it finds the kick.
fn kept<A: Model>(free: FreeMode) {
    let pool = pool::<A>(1, free);
    let (mut holder, mut waiter) = (pool.cache("holder", 0), pool.cache("waiter", 0));
    let mut packet = take(&mut holder, 1);
    let done = Arc::new(A::AtomicU32::new(0));
    let join = A::spawn(1, {
        let done = done.clone();
        move || {
            holder.free(&mut packet);
            // A sender that makes calls: it finds the kick in one of them.
            done.wait_until(Relaxed, |done| {
                holder.free(&mut PacketList::new());
                done != 0
            });
        }
    });
    drop(wait(&mut waiter));
    done.store(1, Relaxed);
    join();
    drop(waiter);
    assert_all_home(&pool);
}

/// A sender ends, with a buffer in its stack and another in use.
fn ended<A: Model>(free: FreeMode) {
    let pool = pool::<A>(1, free);
    let (mut holder, mut waiter) = (pool.cache("holder", 0), pool.cache("waiter", 0));
    let mut packet = take(&mut holder, 1);
    holder.free(&mut packet);
    let join = A::spawn(1, move || drop(holder));
    drop(wait(&mut waiter));
    join();
    drop(waiter);
    assert_all_home(&pool);
}

/// A sender begins while another waits: its own packet, freed elsewhere, goes to the one that waits.
fn begun<A: Model>() {
    let pool = pool::<A>(1, FreeMode::Defer);
    let mut waiter = pool.cache("waiter", 0);
    let join = A::spawn(1, {
        let pool = pool.clone();
        move || {
            let mut holder = pool.cache("holder", 1);
            if let Ok(packet) = holder.alloc(8) {
                drop(packet);
            }
            holder
        }
    });
    drop(wait(&mut waiter));
    drop((join(), waiter));
    assert_all_home(&pool);
}

/// A wait has ended, and the holder opens its inbox again while the next wait begins. Then its packet is freed elsewhere, and
/// it makes no more calls.
fn reopened<A: Model>() {
    let pool = pool::<A>(1, FreeMode::Defer);
    let (mut holder, mut waiter) = (pool.cache("holder", 0), pool.cache("waiter", 0));
    let packet = take(&mut holder, 1);
    assert!(waiter.poll_alloc(8, Waker::noop()).is_pending());
    waiter.stop_waiting();
    let join = A::spawn(1, move || {
        holder.free(&mut PacketList::new());
        drop(packet);
        holder
    });
    drop(wait(&mut waiter));
    let mut holder = join();
    // The inbox is open again after a call of the holder's while no sender waits.
    drop(waiter);
    holder.free(&mut PacketList::new());
    let packet = take(&mut holder, 1);
    drop(packet);
    assert_eq!(pool.backlog(), 1, "the inbox stays closed");
    drop(holder);
    assert_all_home(&pool);
}

/// Two senders wait for one buffer: the one that waits longer gets it first.
fn two_wait<A: Model>() {
    let pool = pool::<A>(1, FreeMode::Defer);
    let mut holder = pool.cache("holder", 0);
    let packet = take(&mut holder, 1);
    let turns = Arc::new(A::AtomicU32::new(0));
    let [mut first, second] = ["first", "second"].map(|name| pool.cache(name, 0));
    assert!(first.poll_alloc(8, Waker::noop()).is_pending());
    assert!(first.poll_alloc(8, Waker::noop()).is_pending());
    let join = [(1, first, 0), (2, second, 1)].map(|(cpu, mut cache, turn)| {
        let turns = turns.clone();
        A::spawn(cpu, move || {
            let packet = wait(&mut cache);
            assert_eq!(turns.fetch_add(1, Relaxed), turn, "a later sender has overtaken an earlier one");
            drop(packet);
            cache
        })
    });
    drop(packet);
    drop(join.map(|join| join()));
    drop(holder);
    assert_all_home(&pool);
}

/// Two senders wait, and the first gives up while one buffer is freed: the second gets it, whether the first had it or not.
fn cancelled<A: Model>(free: FreeMode) {
    let pool = pool::<A>(1, free);
    let mut holder = pool.cache("holder", 0);
    let packet = take(&mut holder, 1);
    let [mut first, mut second] = ["first", "second"].map(|name| pool.cache(name, 0));
    assert!(first.poll_alloc(8, Waker::noop()).is_pending());
    assert!(first.poll_alloc(8, Waker::noop()).is_pending());
    let free = A::spawn(1, move || drop(packet));
    let cancel = A::spawn(2, move || {
        first.stop_waiting();
        first
    });
    drop(wait(&mut second));
    free();
    drop((cancel(), second, holder));
    assert_all_home(&pool);
}

/// A sender that waits ends, while the buffer is freed that it waits for.
fn dropped<A: Model>() {
    let pool = pool::<A>(1, FreeMode::Defer);
    let mut holder = pool.cache("holder", 0);
    let packet = take(&mut holder, 1);
    let mut waiter = pool.cache("waiter", 0);
    assert!(waiter.poll_alloc(8, Waker::noop()).is_pending());
    let free = A::spawn(1, move || drop(packet));
    drop(waiter);
    free();
    drop(holder);
    assert_all_home(&pool);
}

/// All handles on the pool but the waiting sender's are gone: it takes the last buffer and ends the pool, while the thread
/// that has freed the buffer may still be on its way out.
fn last<A: Model>() {
    let pool = pool::<A>(1, FreeMode::Defer);
    let mut holder = pool.cache("holder", 0);
    let packet = take(&mut holder, 1);
    let mut waiter = pool.cache("waiter", 0);
    drop((holder, pool));
    let free = A::spawn(1, move || drop(packet));
    drop(wait(&mut waiter));
    drop(waiter);
    free();
}

/// The device of a waiting sender ends: the sender is woken, and gives up.
fn told<A: Model>() {
    let pool = pool::<A>(1, FreeMode::Defer);
    let mut holder = pool.cache("holder", 0);
    let packet = take(&mut holder, 1);
    let mut waiter = pool.cache("waiter", 0);
    let (tally, over) = (waiter.tally(), Arc::new(A::AtomicU32::new(0)));
    let join = A::spawn(1, {
        let over = over.clone();
        move || {
            over.store(1, Release);
            tally.wake_to_recheck();
        }
    });
    assert!(wait_unless(&mut waiter, || over.load(Acquire) != 0).is_none(), "there is no buffer");
    join();
    drop((packet, holder, waiter));
    assert_all_home(&pool);
}

/// The pool grows while a sender waits.
fn grown<A: Model>() {
    let sizes = PoolConfig { buffers: 1, max_buffers: 2, room: 64, headroom: 0, ..PoolConfig::default() };
    let pool = Pool::<A>::new(&PoolConfig { backing: Backing::Heap, ..sizes }).expect("a small pool");
    let (mut holder, mut waiter) = (pool.cache("holder", 0), pool.cache("waiter", 0));
    let packet = take(&mut holder, 1);
    let join = A::spawn(1, {
        let pool = pool.clone();
        move || pool.resize(2).expect("within the bounds")
    });
    drop(wait(&mut waiter));
    join();
    drop((packet, holder, waiter));
    assert_all_home(&pool);
}

/// A sender waits for credit by a waker, while two threads free its packets.
fn credit<A: Model>(free: FreeMode) {
    let pool = pool::<A>(4, free);
    let mut sender = pool.cache("sender", 0);
    sender.set_limit(2);
    let mut one = take(&mut sender, 2);
    let mut two = PacketList::new();
    one.move_front(1, &mut two);
    let join = [(1, one), (2, two)].map(|(cpu, packets)| A::spawn(cpu, move || drop(packets)));
    let waiter = Waiter::<A>::new();
    let waker = Waker::from(waiter.clone());
    while !sender.poll_credit(&waker) {
        waiter.sleep(None);
    }
    assert!(!matches!(sender.alloc(8), Err(AllocError::Limit { .. })), "woken without credit");
    join.into_iter().for_each(|join| join());
    drop(sender);
    assert_all_home(&pool);
}

/// A sender that has its share of the pool waits for packets of its own, which two threads free.
fn shared<A: Model>() {
    let sizes = PoolConfig { buffers: 32, reserve: 1, room: 64, headroom: 0, ..PoolConfig::default() };
    let pool = Pool::<A>::new(&PoolConfig { backing: Backing::Heap, ..sizes }).expect("a small pool");
    let mut sender = pool.cache("sender", 0);
    sender.guarantee();
    let mut one = PacketList::new();
    while let Ok(packet) = sender.alloc(8) {
        one.push_back(packet);
    }
    assert!(matches!(sender.alloc(8), Err(AllocError::Reserved { .. })), "it has more than its share");
    let (mut two, mut kept) = (PacketList::new(), PacketList::new());
    one.move_front(1, &mut two);
    one.move_front(one.len() - 1, &mut kept);
    let join = [(1, one), (2, two)].map(|(cpu, packets)| A::spawn(cpu, move || drop(packets)));
    drop(wait(&mut sender));
    join.into_iter().for_each(|join| join());
    drop((kept, sender));
    assert_all_home(&pool);
}

/// Senders wait, send, and give up, and threads free the packets of all of them.
fn crowd<A: Model>(free: FreeMode) {
    let pool = pool::<A>(2, free);
    let senders = [1, 2, 3, 4].map(|cpu| {
        let mut sender = pool.cache("sender", cpu);
        A::spawn(cpu, move || {
            for round in 0..3 {
                if (round + cpu) % 3 == 0 {
                    if let Poll::Ready(Ok(packet)) = sender.poll_alloc(8, Waker::noop()) {
                        drop(packet);
                    }
                    sender.stop_waiting();
                } else {
                    let mut packet = PacketList::from_iter([wait(&mut sender)]);
                    match round % 2 {
                        0 => sender.free(&mut packet),
                        _ => drop(packet),
                    }
                }
            }
        })
    });
    senders.into_iter().for_each(|join| join());
    assert_all_home(&pool);
}

#[test]
fn freed_under_loom() {
    MODES.into_iter().for_each(|free| Loom::check(move || freed::<Loom>(free)));
}

#[test]
fn kept_under_shuttle() {
    MODES.into_iter().for_each(|free| Shuttle::check(move || kept::<Shuttle>(free)));
}

#[test]
fn ended_under_loom() {
    MODES.into_iter().for_each(|free| Loom::check(move || ended::<Loom>(free)));
}

#[test]
fn begun_under_loom() {
    Loom::check(begun::<Loom>);
}

#[test]
fn reopened_under_loom() {
    Loom::check(reopened::<Loom>);
}

#[test]
fn two_wait_under_loom() {
    Loom::check_to(1, two_wait::<Loom>);
}

#[test]
fn two_wait_under_shuttle() {
    Shuttle::check(two_wait::<Shuttle>);
}

#[test]
fn cancelled_under_loom() {
    Loom::check_to(1, || cancelled::<Loom>(FreeMode::Defer));
}

#[test]
fn cancelled_under_shuttle() {
    MODES.into_iter().for_each(|free| Shuttle::check(move || cancelled::<Shuttle>(free)));
}

#[test]
fn dropped_under_loom() {
    Loom::check(dropped::<Loom>);
}

#[test]
fn last_under_loom() {
    Loom::check(last::<Loom>);
}

#[test]
fn told_under_loom() {
    Loom::check(told::<Loom>);
}

#[test]
fn grown_under_loom() {
    Loom::check(grown::<Loom>);
}

#[test]
fn credit_under_loom() {
    Loom::check_long(|| credit::<Loom>(FreeMode::Defer));
    Loom::check_to(1, || credit::<Loom>(FreeMode::Keep));
}

#[test]
fn shared_under_loom() {
    Loom::check_to(1, shared::<Loom>);
}

#[test]
fn shared_under_shuttle() {
    Shuttle::check(shared::<Shuttle>);
}

#[test]
fn crowd_under_shuttle() {
    MODES.into_iter().for_each(|free| Shuttle::check(move || crowd::<Shuttle>(free)));
}
