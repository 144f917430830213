//! A pool that shrinks and grows under traffic: exactly the surplus is parked, wherever its buffers are meanwhile; and
//! parked buffers come back. Each fresh buffer begins once, in circulation.
//!
//! Guards `txq/src/pool/size.rs`, the closed stock in `depot.rs` and `store.rs`, and the notices to senders (`home.rs`,
//! `cache.rs`). Mutants that it catches: a push that passes a closed depot, by "not all that is too much is parked"; a
//! notice to a sender without release or acquire, by "the sender was told and keeps what is too much"; a fresh buffer that
//! two senders begin, by "Causality violation"; one that begins although it is parked, by "more buffers than the pool has".

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::Atomic;
use txq_core::packet::PacketList;
use txq_core::pool::{Backing, Cache, FreeMode, Pool, PoolConfig};

const MODES: [FreeMode; 3] = [FreeMode::Defer, FreeMode::Shared, FreeMode::Keep];

fn pool<A: Model>(buffers: u32, max_buffers: u32, free: FreeMode) -> Pool<A> {
    let sizes = PoolConfig { buffers, max_buffers, room: 64, headroom: 0, ..PoolConfig::default() };
    Pool::new(&PoolConfig { free, backing: Backing::Heap, ..sizes }).expect("a small pool")
}

fn take<A: Model>(cache: &mut Cache<A>, n: usize) -> PacketList<A> {
    let mut taken = PacketList::new();
    let _ = cache.alloc_batch(n, 8, &mut taken);
    taken.for_each_mut(|packet| packet.data_mut().fill(1));
    taken
}

/// Checks that without any cache the pool's size circulates, and the rest is parked.
fn assert_whole<A: Model>(pool: &Pool<A>) {
    assert_eq!(pool.parked() + pool.buffers(), pool.max_buffers(), "not all that is too much is parked");
    let buffers = pool.buffers() as usize;
    let got = pool.cache("last", 0).alloc_batch(buffers + 1, 8, &mut PacketList::new());
    assert_eq!(got, Ok(buffers), "buffers are lost");
    assert_eq!(pool.backlog(), 0, "the count of what waits is wrong");
}

/// A sender ends, and returns its stock, while the pool shrinks to the one buffer that is in use elsewhere. So no later
/// buffer can take the place of one that slipped by.
fn shrunk<A: Model>(free: FreeMode) {
    let pool = pool::<A>(3, 3, free);
    let (mut keeper, mut sender) = (pool.cache("keeper", 0), pool.cache("sender", 0));
    let kept = take(&mut keeper, 1);
    let packets = take(&mut sender, 2);
    let join = A::spawn(1, move || {
        drop(packets);
        drop(sender);
    });
    pool.resize(1).expect("within the bounds");
    join();
    assert_eq!(pool.parked(), 2, "not all that is too much is parked");
    drop((kept, keeper));
    assert_whole(&pool);
}

/// The pool grows while another thread is still shrinking it, and a sender allocates buffers that were parked.
fn regrown<A: Model>(free: FreeMode) {
    let pool = pool::<A>(2, 3, free);
    let mut sender = pool.cache("sender", 0);
    let packets = take(&mut sender, 2);
    let join = A::spawn(1, {
        let pool = pool.clone();
        move || {
            pool.resize(1).expect("within the bounds");
            drop(packets);
        }
    });
    pool.resize(3).expect("within the bounds");
    drop(take(&mut sender, 3));
    join();
    drop(sender);
    assert_whole(&pool);
}

/// The sender checks once while the pool shrinks and once after: then it keeps no surplus.
fn told<A: Model>() {
    let pool = pool::<A>(2, 2, FreeMode::Defer);
    let mut sender = pool.cache("sender", 0);
    let mut packets = take(&mut sender, 2);
    let join = A::spawn(1, {
        let pool = pool.clone();
        move || pool.resize(1).expect("within the bounds")
    });
    sender.free(&mut packets);
    sender.free(&mut PacketList::new());
    join();
    sender.free(&mut PacketList::new());
    assert_eq!(pool.parked(), 1, "the sender was told and keeps what is too much");
    drop(sender);
    assert_whole(&pool);
}

/// The sender gets notice of its inbox and of the size at the same time: it acts on both.
fn told_twice<A: Model>() {
    let pool = pool::<A>(4, 4, FreeMode::Defer);
    pool.set_defer_max(2);
    let mut sender = pool.cache("sender", 0);
    let mut packets = take(&mut sender, 4);
    let (mut kept, mut own) = (PacketList::new(), PacketList::new());
    packets.move_front(1, &mut kept);
    packets.move_front(1, &mut own);
    sender.free(&mut own);
    let join = A::spawn(1, move || drop(packets));
    pool.resize(1).expect("within the bounds");
    join();
    sender.free(&mut PacketList::new());
    assert_eq!(pool.parked(), 3, "the sender was told and keeps what is too much");
    drop((kept, sender));
    assert_whole(&pool);
}

/// A sender starts while the pool shrinks: it gets the notice, or reads the new size.
fn joined<A: Model>() {
    let pool = pool::<A>(2, 2, FreeMode::Defer);
    let mut first = pool.cache("first", 0);
    let kept = take(&mut first, 1);
    let join = A::spawn(1, {
        let pool = pool.clone();
        move || {
            let mut sender = pool.cache("sender", 1);
            let mut packets = take(&mut sender, 1);
            sender.free(&mut packets);
            sender
        }
    });
    pool.resize(1).expect("within the bounds");
    let mut sender = join();
    sender.free(&mut PacketList::new());
    assert_eq!(pool.parked(), 1, "the sender was told and keeps what is too much");
    drop((kept, first, sender));
    assert_whole(&pool);
}

/// Two senders begin fresh buffers while the pool changes its size: each buffer has one of them, and no buffer beyond the pool's
/// greater size begins.
fn begun<A: Model>(from: u32, to: u32) {
    let pool = pool::<A>(from, 3, FreeMode::Defer);
    let [mut one, mut two] = ["one", "two"].map(|name| pool.cache(name, 0));
    let resizer = A::spawn(1, {
        let pool = pool.clone();
        move || pool.resize(to).expect("within the bounds")
    });
    let other = A::spawn(2, move || {
        let packets = take(&mut two, 2);
        (two, packets)
    });
    let packets = take(&mut one, 2);
    let theirs = other();
    resizer();
    let all = packets.iter().count() + theirs.1.iter().count();
    assert!(all <= from.max(to) as usize, "more buffers than the pool has");
    drop((packets, theirs, one));
    assert_whole(&pool);
}

/// Senders and completions pass packets on while two threads resize the pool.
fn crowd<A: Model>(free: FreeMode) {
    let pool = pool::<A>(8, 12, free);
    let left = Arc::new(A::AtomicU32::new(2));
    let senders = [1, 2].map(|cpu| {
        let (pool, left) = (pool.clone(), left.clone());
        A::spawn(cpu, move || {
            let (mut sender, mut other) = (pool.cache("sender", cpu), pool.cache("completion", cpu));
            for round in 0..3 {
                let mut packets = take(&mut sender, 4);
                assert!(packets.iter().all(|packet| packet.data() == [1; 8]));
                match round % 3 {
                    0 => sender.free(&mut packets),
                    1 => other.free(&mut packets),
                    _ => drop(packets),
                }
            }
            left.fetch_add(u32::MAX, Relaxed);
        })
    });
    let resizers = [4, 5].map(|cpu| {
        let (pool, left) = (pool.clone(), left.clone());
        A::spawn(cpu, move || {
            for size in [1, 12, 3, 7, 2].into_iter().cycle() {
                pool.resize((size + cpu) % 12 + 1).expect("within the bounds");
                if left.load(Relaxed) == 0 {
                    break;
                }
                A::relax();
            }
        })
    });
    senders.into_iter().for_each(|join| join());
    resizers.into_iter().for_each(|join| join());
    assert_whole(&pool);
}

#[test]
fn shrunk_under_loom() {
    for free in MODES {
        Loom::check(move || shrunk::<Loom>(free));
    }
}

#[test]
fn regrown_under_loom() {
    for free in [FreeMode::Defer, FreeMode::Shared] {
        Loom::check_long(move || regrown::<Loom>(free));
    }
}

#[test]
fn told_under_loom() {
    Loom::check(told::<Loom>);
}

#[test]
fn told_twice_under_loom() {
    Loom::check(told_twice::<Loom>);
}

#[test]
fn joined_under_loom() {
    Loom::check(joined::<Loom>);
}

#[test]
fn begun_under_loom() {
    for (from, to) in [(3, 1), (1, 3)] {
        Loom::check(move || begun::<Loom>(from, to));
    }
}

#[test]
fn crowd_under_shuttle() {
    for free in MODES {
        Shuttle::check(move || crowd::<Shuttle>(free));
    }
}
