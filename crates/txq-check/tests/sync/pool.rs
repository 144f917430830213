//! A buffer's way home: allocated on one thread, freed on another, and back by inbox, depot or scavenging. No buffer has two
//! owners, none is lost, and the next owner observes the last owner's writes.
//!
//! Guards `txq/src/pool/depot.rs`, `home.rs` and `cache.rs`. Mutants that it catches: a depot whose tag does not change
//! (ABA), by "a buffer was handed out twice"; a missing acquire or release in the depot or on the way to the inbox, by
//! loom's "Causality violation" where the next owner writes, or by "buffers are lost"; a home that is linked before it is
//! released, by "Causality violation" where another thread reads its inbox. `pool_credit.rs` guards the counters on that
//! way.

use std::sync::{Arc, Mutex};

use txq::cpumask::CpuMask;
use txq_check::{Loom, Model, Shuttle};
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Backing, Cache, DEFER_MAX, FreeMode, Pool, PoolConfig};

fn pool<A: Model>(buffers: u32) -> Pool<A> {
    pool_of(buffers, FreeMode::Defer, DEFER_MAX)
}

/// As [`pool`], with all buffers in the stock instead of fresh.
fn stocked<A: Model>(buffers: u32) -> Pool<A> {
    let pool = pool(buffers);
    assert_all_home(&pool);
    pool
}

fn pool_of<A: Model>(buffers: u32, free: FreeMode, defer_max: u32) -> Pool<A> {
    Pool::new(&config(buffers, free, defer_max)).expect("a small pool")
}

fn config(buffers: u32, free: FreeMode, defer_max: u32) -> PoolConfig {
    let sizes =
        PoolConfig { buffers, room: 64, headroom: 0, backing: Backing::Heap, ..PoolConfig::default() };
    PoolConfig { name: "model".into(), free, defer_max, ..sizes }
}

fn write<A: Model>(packet: &mut Packet<A>, content: u8) {
    packet.data_mut().fill(content);
}

/// Allocates a packet; waits until there is a buffer.
fn wait_for_one<A: Model>(cache: &mut Cache<A>) -> Packet<A> {
    loop {
        match cache.alloc(8) {
            Ok(packet) => return packet,
            Err(_) => A::relax(),
        }
    }
}

/// Checks that all buffers can be allocated. The caller has dropped every other owner.
fn assert_all_home<A: Model>(pool: &Pool<A>) {
    let mut all = PacketList::new();
    let got = pool.cache("last", 0).alloc_batch(pool.buffers() as usize + 1, 8, &mut all);
    assert_eq!(got, Ok(pool.buffers() as usize), "buffers are lost");
    assert_eq!(pool.backlog(), 0, "the count of what waits is wrong");
}

/// A sender waits for the buffer that another thread frees.
fn freed_elsewhere<A: Model>() {
    let pool = pool::<A>(1);
    let mut cache = pool.cache("sender", 0);
    let mut packet = cache.alloc(8).expect("the only buffer");
    write(&mut packet, 1);
    let join = A::spawn(1, move || {
        assert_eq!(packet.data(), [1; 8]);
        write(&mut packet, 2);
    });
    let mut packet = wait_for_one(&mut cache);
    assert_eq!(packet.data(), [2; 8], "the buffer came home before its last owner was done");
    write(&mut packet, 3);
    join();
    drop((packet, cache));
    assert_all_home(&pool);
}

/// One thread takes all buffers, while another takes two batches and returns the one that was on top.
fn depot<A: Model>() {
    let pool = stocked::<A>(2);
    let [one, two] = ["one", "two"].map(|name| pool.cache(name, 0));
    let taker = A::spawn(1, move || take(one, 2).1);
    let putter = A::spawn(2, move || {
        let (mut cache, mut kept) = take(two, 2);
        let mut back = PacketList::new();
        kept.move_front(1, &mut back);
        cache.free(&mut back);
        // The cache ends here, and its stock goes to the depot.
        drop(cache);
        kept
    });
    drop((taker(), putter()));
    assert_all_home(&pool);
}

fn take<A: Model>(mut cache: Cache<A>, n: u8) -> (Cache<A>, PacketList<A>) {
    let mut taken = PacketList::new();
    for content in 0..n {
        if let Ok(mut packet) = cache.alloc(8) {
            write(&mut packet, content);
            taken.push_back(packet);
        }
    }
    (cache, taken)
}

/// A sender is gone; its buffers arrive at its old home, where a starving sender finds them.
fn scavenged<A: Model>() {
    let pool = pool::<A>(1);
    let mut packet = pool.cache("gone", 0).alloc(8).expect("the only buffer");
    let join = A::spawn(1, move || write(&mut packet, 2));
    // Another sender has moved into the old home, and does not read its inbox.
    let _other = pool.cache("other", 0);
    let mut heir = pool.cache("heir", 0);
    let packet = wait_for_one(&mut heir);
    assert_eq!(packet.data(), [2; 8], "the buffer came home before its last owner was done");
    join();
    drop((packet, heir));
    assert_all_home(&pool);
}

/// A sender and a thief both read the sender's inbox. The sender's limit shows what happened to each buffer.
fn stolen<A: Model>() {
    let pool = pool::<A>(2);
    let mut sender = pool.cache("sender", 0);
    sender.set_limit(2);
    let mut out = PacketList::new();
    assert_eq!(sender.alloc_batch(2, 8, &mut out), Ok(2));
    let thief = pool.cache("thief", 0);
    let freer = A::spawn(1, move || drop(out));
    let thief = A::spawn(2, move || take(thief, 1).1);
    let mine = sender.alloc(8);
    freer();
    drop((mine, thief()));
    let mut again = PacketList::new();
    assert_eq!(sender.alloc_batch(3, 8, &mut again), Ok(2), "the limit counts a buffer that is home");
    drop((again, sender));
    assert_all_home(&pool);
}

/// Senders start and end, and move into homes of others; no home has two senders.
fn homes<A: Model>() {
    let pool = stocked::<A>(2);
    let threads = [1, 2].map(|cpu| {
        let pool = pool.clone();
        A::spawn(cpu, move || {
            drop(pool.cache("brief", cpu));
            take(pool.cache("sender", cpu), 1)
        })
    });
    let tenants = threads.map(|join| join());
    for (cpu, (_, taken)) in (1..).zip(&tenants) {
        assert!(taken.iter().all(|packet| packet.alloc_cpu() == cpu), "two senders live in one home");
    }
    drop(tenants);
    assert_all_home(&pool);
}

/// Two threads of different nodes free to one sender, which collects its buffers meanwhile.
fn two_nodes<A: Model>() {
    let nodes = [0, 1].map(|cpu| [cpu].into_iter().collect::<CpuMask>());
    let pool = Pool::<A>::new(&PoolConfig { nodes: nodes.into(), ..config(2, FreeMode::Defer, DEFER_MAX) });
    let pool = pool.expect("a small pool");
    let mut cache = pool.cache("sender", 0);
    let [mut near, mut far] = [1, 2].map(|content| {
        let mut packet = cache.alloc(8).expect("two buffers");
        write(&mut packet, content);
        packet
    });
    let join = A::spawn(1, move || write(&mut far, 3));
    let other = A::spawn(0, move || write(&mut near, 4));
    let mut packet = wait_for_one(&mut cache);
    assert!(matches!(packet.data(), [3 | 4, ..]), "the buffer came home before its last owner was done");
    write(&mut packet, 5);
    join();
    other();
    drop((packet, cache));
    assert_all_home(&pool);
}

/// One thread frees packets of two senders while one of them allocates, all through one shared lock.
fn locked<A: Model>(free: FreeMode) {
    let pool = pool_of::<A>(2, free, DEFER_MAX);
    let [mut one, mut two] = ["one", "two"].map(|name| pool.cache(name, 0));
    let mut taken: PacketList<A> =
        [&mut one, &mut two].map(|cache| cache.alloc(8).expect("two buffers")).into_iter().collect();
    let join = A::spawn(1, {
        let mut completion = pool.cache("completion", 1);
        move || {
            taken.for_each_mut(|packet| write(packet, 1));
            completion.free(&mut taken);
        }
    });
    let mut packet = wait_for_one(&mut one);
    assert_eq!(packet.data(), [1; 8], "the buffer came home before its last owner was done");
    write(&mut packet, 2);
    join();
    drop((packet, one, two));
    assert_all_home(&pool);
}

/// Threads take buffers, put them on a wire, and free those that others put there; some end early. The bound on buffers that
/// wait for a sender changes meanwhile.
fn wire<A: Model>(free: FreeMode, threads: u32, rounds: u8) {
    let pool = pool_of::<A>(8, free, 2);
    let wire = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (1..=threads)
        .map(|cpu| {
            let (pool, wire) = (pool.clone(), wire.clone());
            A::spawn(cpu, move || {
                let mut cache = pool.cache("sender", cpu);
                cache.set_limit(3);
                for round in 0..rounds {
                    let (back, mut taken) = take(cache, 3);
                    cache = back;
                    let mut own = PacketList::new();
                    taken.move_front(1, &mut own);
                    // Between these two locks the model has no interleaving point.
                    let theirs: Vec<_> = wire.lock().unwrap().drain(..).collect();
                    wire.lock().unwrap().push(taken);
                    let mut all = PacketList::new();
                    theirs.into_iter().for_each(|mut list| all.append(&mut list));
                    all.append(&mut own);
                    if cpu.is_multiple_of(2) {
                        cache.free(&mut all)
                    } else {
                        drop(all)
                    }
                    pool.set_defer_max((cpu + u32::from(round)) % 4);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|join| join());
    wire.lock().unwrap().clear();
    assert_all_home(&pool);
}

#[test]
fn freed_elsewhere_under_loom() {
    Loom::check(freed_elsewhere::<Loom>);
}

#[test]
fn depot_under_loom() {
    Loom::check(depot::<Loom>);
}

#[test]
fn scavenged_under_loom() {
    Loom::check(scavenged::<Loom>);
}

#[test]
fn stolen_under_loom() {
    Loom::check(stolen::<Loom>);
}

#[test]
fn homes_under_loom() {
    Loom::check(homes::<Loom>);
}

#[test]
fn two_nodes_under_loom() {
    Loom::check(two_nodes::<Loom>);
}

#[test]
fn locked_under_loom() {
    Loom::check(|| locked::<Loom>(FreeMode::Shared));
    Loom::check(|| locked::<Loom>(FreeMode::Keep));
}

#[test]
fn six_threads_under_shuttle() {
    Shuttle::check(|| wire::<Shuttle>(FreeMode::Defer, 6, 2));
}

#[test]
fn six_threads_and_a_lock_under_shuttle() {
    Shuttle::check(|| wire::<Shuttle>(FreeMode::Shared, 6, 2));
    Shuttle::check(|| wire::<Shuttle>(FreeMode::Keep, 6, 2));
}
