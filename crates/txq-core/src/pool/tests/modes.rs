//! Tests of frees by another thread: modes, bound, kick, nodes, homes.

use super::counting::{Counting, operations};
use super::*;

pub(super) const MODES: [FreeMode; 3] = [FreeMode::Defer, FreeMode::Shared, FreeMode::Keep];

pub(super) fn with<A: Arch>(change: impl FnOnce(&mut PoolConfig)) -> Pool<A> {
    let mut config = PoolConfig { room: 64, headroom: 0, backing: Backing::Heap, ..PoolConfig::default() };
    change(&mut config);
    Pool::new(&config).unwrap()
}

pub(super) fn take<A: Arch>(cache: &mut Cache<A>, n: usize) -> PacketList<A> {
    let mut list = PacketList::new();
    assert_eq!(cache.alloc_batch(n, 8, &mut list), Ok(n));
    list
}

/// Asserts that no buffer is in use and none waits in an inbox, and that all can be allocated once no cache is left.
pub(super) fn assert_quiet<A: Arch>(pool: &Pool<A>) {
    assert_eq!(pool.in_use(), BTreeMap::new());
    let n = pool.buffers() as usize;
    assert_eq!(pool.cache("last", 0).alloc_batch(n + 1, 8, &mut PacketList::new()), Ok(n));
    assert_eq!(pool.backlog(), 0);
}

/// (T24) Credit returns at once when a packet is freed, and only once, wherever its buffer goes.
#[test]
fn credit_returns_at_once_and_once() {
    for free in MODES {
        let pool = with::<Native>(|c| (c.free, c.buffers) = (free, 512));
        let (mut sender, mut other) = (pool.cache("sender", 0), pool.cache("other", 1));
        sender.set_limit(8);
        for round in 0..20 {
            let mut out = take(&mut sender, 8);
            assert!(matches!(sender.alloc(8), Err(AllocError::Limit { limit: 8, .. })), "{free:?} {round}");
            match round % 3 {
                0 => other.free(&mut out),
                1 => drop(out),
                _ => sender.free(&mut out),
            }
            // Another sender that empties the inbox does not change the credit.
            if round % 4 == 0 {
                drop(take(&mut pool.cache("starving", 2), 300));
            }
        }
        drop((sender, other));
        assert_quiet(&pool);
    }
}

/// Each mode sends freed buffers to its own place.
#[test]
fn each_mode_has_its_place_for_memory() {
    for free in MODES {
        let pool = with::<Native>(|c| (c.free, c.buffers) = (free, 512));
        let (mut sender, mut other) = (pool.cache("sender", 0), pool.cache("other", 1));
        let had = sender.stack.len();
        other.free(&mut take(&mut sender, 3));
        let (waits, kept) = (pool.backlog(), other.stack.len());
        assert_eq!(
            (waits, kept),
            match free {
                FreeMode::Defer => (3, 0),
                FreeMode::Shared => (0, 0),
                FreeMode::Keep => (0, 3),
            }
        );
        assert!(sender.stack.len() >= had);
        // A full cache gives some buffers to the stock, and stays within its size.
        for _ in 0..10 {
            other.free(&mut take(&mut sender, 30));
            assert!(other.stack.len() <= pool.0.memory.store.size.cache());
        }
        drop((sender, other));
        assert_quiet(&pool);
    }
}

/// A packet of another pool returns to that pool, by that pool's mode.
#[test]
fn nobody_keeps_what_belongs_to_another_pool() {
    for (mine, theirs) in MODES.into_iter().flat_map(|a| MODES.map(|b| (a, b))) {
        let [here, there] = [mine, theirs].map(|free| with::<Native>(|c| (c.free, c.buffers) = (free, 64)));
        let (mut sender, mut guest) = (here.cache("sender", 0), there.cache("guest", 0));
        let mut mixed = take(&mut sender, 3);
        mixed.append(&mut take(&mut guest, 3));
        mixed.append(&mut take(&mut sender, 2));
        here.cache("completion", 1).free(&mut mixed);
        drop((sender, guest));
        assert_quiet(&here);
        assert_quiet(&there);
    }
}

/// (T27) The bound holds at any value, also when it changes; no count sticks and no buffer is lost.
#[test]
fn the_backlog_is_bounded() {
    for max in [0, 1, 2, 3, 128] {
        let pool = with::<Native>(|c| (c.defer_max, c.buffers) = (max, 256));
        let mut sender = pool.cache("sender", 0);
        for _ in 0..3 {
            let mut out = take(&mut sender, 200);
            while let Some(packet) = out.pop_front() {
                drop(packet);
                assert!(pool.backlog() <= max.into());
            }
            // Buffers beyond the bound are available to all senders.
            assert!(pool.cache("other", 0).alloc_batch(200, 8, &mut PacketList::new()).is_ok());
        }
        for live in [2, 0, 1, 64, 0] {
            pool.set_defer_max(live);
            assert_eq!(pool.defer_max(), live);
            drop(take(&mut sender, 100));
            sender.free(&mut PacketList::new());
            assert!(pool.backlog() <= (live / 2).into(), "the sender was not told that the bound is {live}");
        }
        drop(sender);
        assert_quiet(&pool);
    }
}

/// Above half of the bound, the sender empties its inbox at its next call although it has buffers.
#[test]
fn half_of_the_bound_kicks() {
    let pool = with::<Native>(|c| (c.defer_max, c.buffers) = (10, 1024));
    let mut sender = pool.cache("sender", 0);
    let mut out = take(&mut sender, 12);
    for waits in 1..=5 {
        drop(out.pop_front());
        sender.free(&mut PacketList::new());
        assert_eq!(pool.backlog(), waits, "the sender took what may wait");
    }
    drop(out.pop_front());
    assert_eq!(pool.backlog(), 6);
    assert!(!sender.stack.is_empty());
    drop(sender.alloc(8));
    // This call's packet was freed after the inbox was emptied.
    assert_eq!(pool.backlog(), 1);
    drop((out, sender));
    assert_quiet(&pool);
}

/// (T25) A sender finds by one load that its inboxes are empty, for any number of nodes; and it finds buffers freed on any
/// node.
#[test]
#[cfg_attr(miri, ignore = "Miri has weak exchanges fail at random, which are then counted twice")]
fn a_check_of_an_empty_inbox_costs_the_same_with_64_nodes() {
    let costs = [1, 64].map(|nodes| {
        let nodes: Vec<CpuMask> = (0..nodes).map(|cpu| [cpu].into_iter().collect()).collect();
        let last = nodes.len() as u32 - 1;
        let pool = with::<Counting>(|c| (c.nodes, c.buffers) = (nodes, 64));
        // From here on the stock has all buffers.
        assert_quiet(&pool);
        let mut sender = pool.cache("sender", 0);
        let (dry, packet) = operations(|| sender.alloc(8).unwrap());
        let (idle, ()) = operations(|| sender.free(&mut PacketList::new()));
        let mut far = PacketList::from_iter([packet]);
        let rest = take(&mut sender, 63);
        assert!(sender.alloc(8).is_err());
        pool.cache("far", last).free(&mut far);
        assert_eq!(pool.backlog(), 1);
        drop(sender.alloc(8).expect("what the far node freed"));
        drop((rest, sender));
        assert_quiet(&pool);
        (dry, idle)
    });
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].1 <= 1, "{costs:?}");
}

/// Each node frees to an inbox of its own, and the buffers of all come home.
#[test]
fn every_node_comes_home() {
    let nodes: Vec<CpuMask> = (0..5).map(|node| (node * 2..node * 2 + 2).collect()).collect();
    let pool = with::<Native>(|c| (c.nodes, c.buffers) = (nodes, 64));
    let mut sender = pool.cache("sender", 3);
    for cpu in [0, 1, 3, 8, 9, 10, 4000] {
        pool.cache("far", cpu).free(&mut take(&mut sender, 2));
    }
    drop(take(&mut sender, 9));
    drop(sender);
    assert_quiet(&pool);
}

/// The stock has a part for each node, or for each eight CPUs, and every sender can take every buffer in it, also while the
/// pool shrinks and grows again.
#[test]
fn the_parts_of_the_stock_are_one_stock() {
    for free in MODES {
        let nodes: Vec<CpuMask> = (0..3).map(|node| (node * 8..node * 8 + 8).collect()).collect();
        let pool = with::<Native>(|c| (c.nodes, c.free, c.buffers) = (nodes, free, 512));
        let mut sender = pool.cache("sender", 23);
        let mut all = take(&mut sender, 512);
        pool.cache("far", 0).free(&mut all);
        assert_quiet(&pool);
        let out = take(&mut sender, 100);
        pool.resize(64).unwrap();
        drop((out, sender));
        assert_eq!((pool.buffers(), pool.parked()), (64, 448), "{free:?}");
        assert_quiet(&pool);
        pool.resize(512).unwrap();
        assert_quiet(&pool);
    }
}

/// Buffers freed one by one form batches in the stock, like buffers freed together, and cost the taker as little.
#[test]
#[cfg_attr(miri, ignore = "Miri has weak exchanges fail at random, which are then counted twice")]
fn single_packets_make_batches() {
    let costs = [true, false].map(|singly| {
        let pool = with::<Counting>(|c| (c.free, c.buffers) = (FreeMode::Shared, 4096));
        let (mut sender, mut other) = (pool.cache("sender", 0), pool.cache("other", 0));
        let mut out = take(&mut sender, 32);
        while singly && let Some(packet) = out.pop_front() {
            other.free(&mut PacketList::from_iter([packet]));
        }
        other.free(&mut out);
        assert!(sender.stack.is_empty());
        let (cost, packet) = operations(|| sender.alloc(8).unwrap());
        assert_eq!(sender.stack.len(), 31);
        drop(packet);
        cost
    });
    assert_eq!(costs[0], costs[1]);
}

/// (T26) Buffers freed after their sender is gone are available to all at once.
#[test]
fn nobody_defers_to_a_sender_that_is_gone() {
    let pool = with::<Native>(|c| c.buffers = 64);
    let mut gone = pool.cache("gone", 0);
    let (before, after) = (take(&mut gone, 3), take(&mut gone, 4));
    drop(before);
    drop(gone);
    assert_eq!(pool.backlog(), 0, "a sender that ends takes what waits");
    drop(after);
    assert_eq!(pool.backlog(), 0, "a sender that is gone takes nothing");
    assert_quiet(&pool);
}

/// A home with packets in use is not given to the next sender, which would get their credit.
#[test]
fn credit_is_not_inherited() {
    for free in MODES {
        let pool = with::<Native>(|c| (c.free, c.buffers) = (free, 64));
        let mut gone = pool.cache("gone", 0);
        let left = take(&mut gone, 3);
        drop(gone);
        let homes = |pool: &Pool| pool.0.memory.homes.iter().count();
        let mut heir = pool.cache("heir", 0);
        assert_eq!(homes(&pool), 2);
        heir.set_limit(2);
        let kept = take(&mut heir, 2);
        drop(left);
        assert!(matches!(heir.alloc(8), Err(AllocError::Limit { .. })));
        // All credit of the first home has returned, so the next sender can occupy it.
        drop(pool.cache("third", 0));
        assert_eq!(homes(&pool), 2);
        drop((kept, heir));
        assert_quiet(&pool);
    }
}

/// A new sender walks along no list of homes: neither of those that are occupied, nor of vacant ones whose packets are in use.
#[test]
#[cfg_attr(miri, ignore = "Miri has weak exchanges fail at random, which are then counted twice")]
fn a_sender_costs_the_same_however_many_homes_there_are() {
    let pool = with::<Counting>(|c| c.buffers = 1024);
    let one = || operations(|| drop(pool.cache("s", 0))).0;
    drop(pool.cache("first", 0));
    let alone = one();
    let senders: Vec<_> = (0..500).map(|_| pool.cache("s", 0)).collect();
    assert!(one() < 2 * alone, "beside occupied homes");
    // Each of these leaves a packet behind.
    let left: Vec<_> = senders.into_iter().map(|mut sender| sender.alloc(8).unwrap()).collect();
    assert!(one() < 20 * alone, "beside vacant homes with packets in use");
    drop(left);
    assert!(one() < 2 * alone, "beside vacant homes");
    assert_quiet(&pool);
}

/// A sender that sleeps at its limit wakes when half of the limit is free, or at its deadline.
#[test]
fn a_sender_sleeps_until_half_of_its_limit_is_free() {
    for free in MODES {
        let pool = with::<Native>(|c| (c.free, c.buffers) = (free, 64));
        let mut sender = pool.cache("sender", 0);
        assert!(sender.wait_credit(None), "without a limit there is nothing to wait for");
        sender.set_limit(4);
        let mut out = take(&mut sender, 4);
        assert!(!sender.wait_credit(Some(0)));
        assert!(!sender.wait_credit(Some(Native::now() + 1000)));
        let rounds = if cfg!(miri) { 3 } else { 300 };
        std::thread::scope(|scope| {
            let (to, from) = std::sync::mpsc::channel::<PacketList>();
            scope.spawn(move || from.into_iter().for_each(drop));
            for _ in 0..rounds {
                while let Some(packet) = out.pop_front() {
                    to.send(PacketList::from_iter([packet])).unwrap();
                }
                assert!(sender.wait_credit(None));
                let _ = sender.alloc_batch(4, 8, &mut out);
            }
        });
        drop((out, sender));
        assert_quiet(&pool);
    }
}
