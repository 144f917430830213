//! Tests of pools that grow and shrink while in use.

use super::modes::{MODES, assert_quiet, take, with};
use super::*;

/// Asserts that the buffers in circulation and the parked ones are all buffers.
fn assert_whole(pool: &Pool) {
    assert_eq!(pool.parked() + pool.buffers(), pool.max_buffers());
    assert_quiet(pool);
}

#[test]
fn a_pool_has_what_it_is_told_to() {
    for free in MODES {
        let pool = with::<Native>(|c| (c.free, c.buffers, c.max_buffers) = (free, 100, 300));
        assert_eq!((pool.buffers(), pool.max_buffers(), pool.parked()), (100, 300, 200));
        assert_whole(&pool);
        let region = pool.region();
        for size in [300, 1, 299, 100, 7, 7, 300] {
            pool.resize(size).unwrap();
            assert_eq!(pool.buffers(), size);
            assert_whole(&pool);
        }
        assert_eq!(pool.region(), region);
    }
}

#[test]
fn a_size_out_of_range_is_refused_by_name() {
    let pool = with::<Native>(|c| (c.buffers, c.max_buffers) = (4, 8));
    for size in [0, 9] {
        let error = pool.resize(size).unwrap_err().to_string();
        let expected = "is out of range: use 1 to 8 (max_buffers)";
        assert_eq!(error, format!("pool \"pool\": buffers {size} {expected}"));
    }
    assert_eq!(with::<Native>(|c| (c.buffers, c.max_buffers) = (4, 2)).max_buffers(), 4);
    let much = PoolConfig { max_buffers: u32::MAX, ..PoolConfig::default() };
    let error = Pool::<Native>::new(&much).err().unwrap().to_string();
    assert_eq!(error, "pool \"pool\": max_buffers 4294967295 is out of range: use 1 to 2147483647");
}

/// Buffers in use follow when they are freed, those in a sender's cache at the sender's next call.
#[test]
fn what_is_in_use_follows_as_it_comes_home() {
    for free in MODES {
        let pool = with::<Native>(|c| (c.free, c.buffers) = (free, 1024));
        let (mut sender, mut other) = (pool.cache("sender", 0), pool.cache("other", 1));
        let (mut own, mut alien, waits) =
            (take(&mut sender, 200), take(&mut sender, 200), take(&mut sender, 50));
        drop(waits);
        drop(take(&mut other, 40));
        other.free(&mut PacketList::new());
        pool.resize(10).unwrap();
        assert_eq!(pool.buffers(), 10);
        assert!(pool.parked() <= 1024 - 400, "{free:?}: packets in use are taken away");
        assert_eq!(pool.backlog(), 0, "{free:?}: what waits is free");
        other.free(&mut alien);
        sender.free(&mut own);
        // The next call of each sender that has not made one yet.
        sender.free(&mut PacketList::new());
        other.free(&mut PacketList::new());
        assert_eq!(pool.parked(), 1014, "{free:?}");
        let mut all = PacketList::new();
        assert_eq!(sender.alloc_batch(20, 8, &mut all), Ok(10), "{free:?}");
        let error = other.alloc(8).unwrap_err();
        assert_eq!(error, AllocError::Exhausted { pool: "pool".into(), buffers: 10 });
        // When the pool grows again, the next packet can be allocated at once.
        pool.resize(11).unwrap();
        assert!(other.alloc(8).is_ok());
        drop((all, sender, other));
        assert_whole(&pool);
    }
}

/// A cache holds its share of the pool's current size.
#[test]
fn caches_grow_and_shrink_with_the_pool() {
    let pool = with::<Native>(|c| (c.buffers, c.max_buffers) = (64, 8192));
    let mut sender = pool.cache("sender", 0);
    let stock = |sender: &mut Cache| {
        let mut all = take(sender, 40);
        sender.free(&mut all);
        sender.stack.len()
    };
    assert!(stock(&mut sender) <= 2);
    pool.resize(8192).unwrap();
    assert!(stock(&mut sender) > 32);
    pool.resize(64).unwrap();
    assert!(stock(&mut sender) <= 2);
    drop(sender);
    assert_whole(&pool);
}

/// Buffers take memory when they are first used, and only then.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn pages_are_touched_when_they_are_used() {
    use std::os::unix::fs::FileExt;
    const PAGE: usize = 4096;
    for backing in [Backing::Heap, Backing::Mmap] {
        let pool = with::<Native>(|c| {
            (c.backing, c.room, c.buffers, c.max_buffers) = (backing, 4096, 256, 8192);
        });
        let (base, stride) = pool.region();
        let present = || {
            let mut words = vec![0; 8 * stride * 8192 / PAGE];
            let map = std::fs::File::open("/proc/self/pagemap").unwrap();
            map.read_exact_at(&mut words, (base.as_ptr() as usize / PAGE * 8) as u64).unwrap();
            // The top bit of each page's word says that the page is in memory.
            words.chunks(8).filter(|word| word[7] & 0x80 != 0).count() * PAGE
        };
        // The kernel may use a transparent huge page for a small one.
        let most = |buffers: usize| buffers * stride + (4 << 20);
        assert!(present() <= most(0), "{backing:?}: {} bytes", present());
        let packet = pool.cache("sender", 0).alloc(8).unwrap();
        assert!(present() <= most(CACHE_SIZE), "{backing:?}: {} bytes", present());
        if backing == Backing::Mmap {
            assert!(present() >= 2 * stride, "what is used soon is not there");
        }
        drop(packet);
        pool.resize(8192).unwrap();
        drop(take(&mut pool.cache("sender", 0), 2048));
        assert!(present() <= most(2048 + CACHE_SIZE), "{backing:?}: {} bytes", present());
    }
}

/// Threads pass packets on while the pool is resized under them.
#[test]
fn traffic_does_not_mind() {
    let rounds = if cfg!(miri) { 5 } else { 3000 };
    for free in MODES {
        let pool = with::<Native>(|c| (c.free, c.buffers, c.max_buffers) = (free, 256, 512));
        std::thread::scope(|scope| {
            let mut senders = Vec::new();
            for cpu in 0..2 {
                let (to, from) = std::sync::mpsc::sync_channel::<PacketList>(4);
                let (pool, completion) = (pool.clone(), pool.cache("completion", 2 + cpu));
                scope.spawn(move || {
                    let mut completion = completion;
                    for (n, mut list) in from.into_iter().enumerate() {
                        assert!(list.iter().all(|p| p.data() == [cpu as u8; 8]));
                        match n % 2 {
                            0 => completion.free(&mut list),
                            _ => drop(list),
                        }
                    }
                });
                senders.push(scope.spawn(move || {
                    let mut sender = pool.cache("sender", cpu);
                    for _ in 0..rounds {
                        let mut out = PacketList::new();
                        if sender.alloc_batch(32, 8, &mut out).is_err() {
                            std::thread::yield_now();
                        }
                        out.for_each_mut(|p| p.data_mut().fill(cpu as u8));
                        to.send(out).unwrap();
                    }
                }));
            }
            let sizes = [512, 1, 64, 300, 2, 511, 256].into_iter().cycle();
            for size in sizes {
                pool.resize(size).unwrap();
                if senders.iter().all(|s| s.is_finished()) {
                    break;
                }
                std::thread::yield_now();
            }
        });
        assert_whole(&pool);
    }
}
