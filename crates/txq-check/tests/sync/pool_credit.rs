//! Counters of buffers on their way home: a sender that sleeps at its limit wakes when its packets are freed, a sender whose
//! inbox fills is kicked, the inbox keeps its bound, and no sender gets another one's credit.
//!
//! Guards `txq/src/pool/account.rs`, `home.rs` and `credit.rs`. Mutants that it catches: a sender that sleeps without
//! checking the word that it changed, or a free that checks for a sleeper before it counts, by loom's deadlock; a kick that
//! is answered after the inbox is counted, or counted without release and acquire, by "more waits than half of the bound and
//! nobody knows".

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::Atomic;
use txq_core::packet::PacketList;
use txq_core::pool::{AllocError, Backing, Cache, FreeMode, Pool, PoolConfig};

fn pool<A: Model>(buffers: u32, free: FreeMode, defer_max: u32) -> Pool<A> {
    let sizes =
        PoolConfig { buffers, room: 64, headroom: 0, backing: Backing::Heap, ..PoolConfig::default() };
    Pool::new(&PoolConfig { free, defer_max, ..sizes }).expect("a small pool")
}

fn take<A: Model>(cache: &mut Cache<A>, n: usize) -> PacketList<A> {
    let mut taken = PacketList::new();
    assert_eq!(cache.alloc_batch(n, 8, &mut taken), Ok(n));
    taken
}

fn split<A: Model>(list: &mut PacketList<A>, n: usize) -> PacketList<A> {
    let mut part = PacketList::new();
    list.move_front(n, &mut part);
    part
}

/// Returns whether the sender's limit forbids an allocation. A missing buffer is another error: credit is checked before
/// memory.
fn at_limit<A: Model>(cache: &mut Cache<A>) -> bool {
    matches!(cache.alloc(8), Err(AllocError::Limit { .. }))
}

fn assert_all_home<A: Model>(pool: &Pool<A>) {
    let buffers = pool.buffers() as usize;
    let got = pool.cache("last", 0).alloc_batch(buffers + 1, 8, &mut PacketList::new());
    assert_eq!(got, Ok(buffers), "buffers are lost");
    assert_eq!(pool.backlog(), 0, "the count of what waits is wrong");
}

/// A sender at its limit sleeps until half of it is free. Two threads free its packets.
fn slept<A: Model>(free: FreeMode) {
    let pool = pool::<A>(6, free, 1);
    let mut sender = pool.cache("sender", 0);
    sender.set_limit(3);
    let mut kept = take(&mut sender, 3);
    // Two are enough; no more are freed.
    let (one, two) = (split(&mut kept, 1), split(&mut kept, 1));
    let one = A::spawn(1, move || drop(one));
    let two = A::spawn(2, move || drop(two));
    assert!(sender.wait_credit(None));
    assert!(!at_limit(&mut sender), "woken without credit");
    one();
    two();
    assert!(sender.wait_credit(Some(0)), "credit is lost");
    sender.free(&mut kept);
    sender.set_limit(1);
    assert!(sender.wait_credit(Some(0)), "credit for its own packet is lost");
    drop(sender);
    assert_all_home(&pool);
}

/// The inbox is above half of its bound, and the sender has been kicked. It empties the inbox while another thread fills it
/// again: then it is kicked again.
fn kicked<A: Model>() {
    let pool = pool::<A>(8, FreeMode::Defer, 4);
    let mut sender = pool.cache("sender", 0);
    let mut out = take(&mut sender, 6);
    let mut more = split(&mut out, 3);
    pool.cache("completion", 1).free(&mut out);
    let join = A::spawn(1, move || drop(split(&mut more, 3)));
    // A call that frees nothing: only a kick makes the sender read its inbox.
    sender.free(&mut PacketList::new());
    join();
    sender.free(&mut PacketList::new());
    assert!(pool.backlog() <= 2, "more waits than half of the bound and nobody knows");
    drop(sender);
    assert_all_home(&pool);
}

/// The inbox is empty, and one thread frees enough to kick the sender. If the sender reads its inbox too early to find them,
/// it is kicked again.
fn kicked_early<A: Model>() {
    let pool = pool::<A>(8, FreeMode::Defer, 4);
    let mut sender = pool.cache("sender", 0);
    let out = take(&mut sender, 3);
    let join = A::spawn(1, move || {
        sender.free(&mut PacketList::new());
        sender
    });
    drop(out);
    let mut sender = join();
    sender.free(&mut PacketList::new());
    assert!(pool.backlog() <= 2, "more waits than half of the bound and nobody knows");
    drop(sender);
    assert_all_home(&pool);
}

/// Two threads free more than may wait, while the bound changes.
fn bounded<A: Model>(change: Option<u32>) {
    let pool = pool::<A>(4, FreeMode::Defer, 1);
    let mut sender = pool.cache("sender", 0);
    let mut out = take(&mut sender, 3);
    let first = split(&mut out, 1);
    let first = A::spawn(1, move || drop(first));
    let second = split(&mut out, 1);
    let second = A::spawn(2, move || drop(second));
    if let Some(max) = change {
        pool.set_defer_max(max);
    }
    first();
    second();
    let most = change.unwrap_or(1).max(1);
    assert!(pool.backlog() <= most.into(), "more waits than may");
    drop(out);
    // A kicked sender empties its inbox; all buffers are found without any other call of it.
    assert!(pool.cache("heir", 0).alloc_batch(4, 8, &mut PacketList::new()).is_ok_and(|got| got >= 3));
    drop(sender);
    assert_all_home(&pool);
}

/// A sender ends while one of its packets is in flight, and another sender starts. The new sender must not get the packet's
/// credit, also when both found a third sender's home empty.
fn moved<A: Model>(into_a_vacant_home: bool) {
    let pool = pool::<A>(4, FreeMode::Defer, 4);
    if into_a_vacant_home {
        drop(pool.cache("before", 0));
    }
    let first = A::spawn(1, {
        let pool = pool.clone();
        move || {
            let mut sender = pool.cache("first", 1);
            let packet = take(&mut sender, 1);
            drop(sender);
            packet
        }
    });
    let mut second = pool.cache("second", 0);
    second.set_limit(1);
    let kept = take(&mut second, 1);
    drop(first());
    assert!(at_limit(&mut second), "credit of another sender's packet");
    drop((kept, second));
    assert_all_home(&pool);
}

/// Senders sleep at their limits, and threads free the packets of all of them.
fn crowd<A: Model>(free: FreeMode) {
    let pool = pool::<A>(16, free, 2);
    let wire = Arc::new(Mutex::new(PacketList::new()));
    let done = Arc::new(A::AtomicU32::new(0));
    let senders = [1, 2, 3].map(|cpu| {
        let (mut sender, wire) = (pool.cache("sender", cpu), wire.clone());
        sender.set_limit(2);
        A::spawn(cpu, move || {
            for _ in 0..4 {
                assert!(sender.wait_credit(None));
                if let Ok(packet) = sender.alloc(8) {
                    wire.lock().unwrap().push_back(packet);
                }
            }
        })
    });
    let completions = [4, 5].map(|cpu| {
        let (mut cache, wire, done) = (pool.cache("completion", cpu), wire.clone(), done.clone());
        A::spawn(cpu, move || {
            while done.load(Relaxed) == 0 {
                // Under this lock the model has no interleaving point.
                let mut all = std::mem::take(&mut *wire.lock().unwrap());
                cache.free(&mut all);
                A::relax();
            }
        })
    });
    senders.into_iter().for_each(|join| join());
    done.store(1, Relaxed);
    completions.into_iter().for_each(|join| join());
    drop(std::mem::take(&mut *wire.lock().unwrap()));
    assert_all_home(&pool);
}

#[test]
fn slept_under_loom() {
    Loom::check(|| slept::<Loom>(FreeMode::Defer));
    Loom::check_long(|| slept::<Loom>(FreeMode::Keep));
    // Under `Shared` a sender frees its own packets by the slow path.
    Loom::check_long(|| slept::<Loom>(FreeMode::Shared));
}

#[test]
fn kicked_under_loom() {
    Loom::check(kicked::<Loom>);
}

#[test]
fn kicked_early_under_loom() {
    Loom::check(kicked_early::<Loom>);
}

#[test]
fn bounded_under_loom() {
    for change in [None, Some(0), Some(2)] {
        Loom::check(move || bounded::<Loom>(change));
    }
}

#[test]
fn moved_under_loom() {
    for into_a_vacant_home in [false, true] {
        Loom::check(move || moved::<Loom>(into_a_vacant_home));
    }
}

#[test]
fn crowd_under_shuttle() {
    for free in [FreeMode::Defer, FreeMode::Shared, FreeMode::Keep] {
        Shuttle::check(move || crowd::<Shuttle>(free));
    }
}
