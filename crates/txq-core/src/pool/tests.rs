use super::*;
use crate::packet::{Packet, PacketList};

mod counting;
mod lent;
mod modes;
mod resize;

fn pool(buffers: u32) -> Pool {
    let backing = Backing::Heap;
    Pool::new(&PoolConfig {
        name: "p".into(),
        buffers,
        room: 256,
        headroom: 64,
        backing,
        ..PoolConfig::default()
    })
    .unwrap()
}

#[test]
fn a_packet_has_room_in_front_and_behind() {
    let mut cache = pool(4).cache("s", 0);
    let mut packet = cache.alloc(3).unwrap();
    packet.data_mut().copy_from_slice(b"xyz");
    packet.push(2).unwrap().copy_from_slice(b"ab");
    assert_eq!(packet.data(), b"abxyz");
    assert!(packet.push(63).is_none());
    packet.pull(1).unwrap();
    packet.truncate(3);
    assert_eq!(packet.data(), b"bxy");
    assert!(packet.pull(4).is_none());
    assert_eq!(packet.data(), b"bxy");
}

#[test]
fn a_packet_grows_at_the_end_into_what_the_buffer_has() {
    let pool = pool(4);
    // 64 bytes in front, 256 for packets, rounded up to an odd number of cache lines: 320 is such a number.
    assert_eq!((pool.space(), pool.region().1, pool.tailroom()), (320, 320, 0));
    let mut cache = pool.cache("s", 0);
    let mut packet = cache.alloc(3).unwrap();
    packet.data_mut().copy_from_slice(b"xyz");
    packet.set_hash(7);
    packet.set_protocol_offsets(0, 0, 0);
    assert_eq!(packet.tailroom(), 253);
    packet.put(2).unwrap().copy_from_slice(b"ab");
    assert_eq!((packet.data(), packet.len(), packet.hash()), (&b"xyzab"[..], 5, 0));
    assert_eq!(packet.protocol_offsets(), None);
    assert!(packet.put(252).is_none() && packet.put(usize::MAX).is_none());
    assert_eq!((packet.data(), packet.tailroom()), (&b"xyzab"[..], 251));
    packet.put(251).unwrap().fill(9);
    assert_eq!((packet.len(), packet.tailroom(), packet.put(0).map(|end| end.len())), (256, 0, Some(0)));
    // Bytes pulled off the front are no room at the end; bytes cut off the end are.
    packet.pull(100).unwrap();
    packet.truncate(10);
    assert_eq!((packet.headroom(), packet.tailroom()), (164, 146));
    assert_eq!(packet.put(1).unwrap(), [9]);
}

#[test]
fn the_configured_tailroom_is_behind_the_longest_packet() {
    let config = PoolConfig { room: 256, headroom: 64, tailroom: 16, buffers: 2, ..PoolConfig::default() };
    let pool = Pool::<Native>::new(&PoolConfig { backing: Backing::Heap, ..config }).unwrap();
    // The pool's own memory is used up to the next buffer.
    assert_eq!((pool.space(), pool.region().1, pool.tailroom()), (448, 448, 16));
    let mut cache = pool.cache("s", 0);
    let (mut packet, mut neighbour) = (cache.alloc(256).unwrap(), cache.alloc(256).unwrap());
    neighbour.push(64).unwrap().fill(1);
    packet.put(128).unwrap().fill(2);
    assert!(packet.put(1).is_none() && neighbour.data()[..64] == [1; 64]);
    // A copy has room for all of it, and as much in front as fits.
    let mut copies = pool.cache("copies", 0);
    drop(neighbour);
    drop(cache);
    let mut copy = copies.copy(&packet, 0, 0..384).unwrap();
    assert_eq!((copy.data(), copy.headroom(), copy.tailroom()), (packet.data(), 64, 0));
    assert!(copy.put(1).is_none());
    let wrong = PoolConfig { tailroom: 16385, ..PoolConfig::default() };
    assert!(Pool::<Native>::new(&wrong).unwrap_err().to_string().contains("tailroom"));
}

#[test]
fn a_packet_with_bytes_beyond_its_buffer_does_not_grow() {
    let mut cache = pool(4).cache("s", 0);
    for len in [10, 1000] {
        let mut packet = cache.alloc(10).unwrap();
        packet.set_len_beyond(len);
        assert_eq!((packet.tailroom(), packet.put(1)), (0, None));
        packet.set_pkt_len(7);
        assert_eq!((packet.tailroom(), packet.put(1)), (0, None));
        assert_eq!((packet.len(), packet.data().len()), (len as usize, 10));
    }
    // A size table's length is none of the packet's own.
    let mut packet = cache.alloc(10).unwrap();
    packet.set_pkt_len(1000);
    assert_eq!(packet.tailroom(), 246);
    packet.put(1).unwrap()[0] = 1;
    assert_eq!((packet.len(), packet.data().len()), (11, 11));
}

#[test]
fn exhaustion_is_an_error_that_names_the_pool_and_ends_when_a_packet_does() {
    let mut cache = pool(2).cache("s", 0);
    let first = cache.alloc(1).unwrap();
    let _second = cache.alloc(1).unwrap();
    let e = cache.alloc(1).unwrap_err();
    assert_eq!(e, AllocError::Exhausted { pool: "p".into(), buffers: 2 });
    drop(first);
    cache.alloc(1).unwrap();
}

#[test]
#[cfg_attr(any(miri, not(target_os = "linux")), ignore = "needs Linux's mappings")]
fn memory_comes_from_where_it_is_asked_to() {
    let with = |backing| Pool::<Native>::new(&PoolConfig { buffers: 64, backing, ..PoolConfig::default() });
    for backing in [Backing::Heap, Backing::Mmap] {
        let pool = with(backing).unwrap();
        assert_eq!(pool.backing(), backing);
        assert_eq!(pool.cache("s", 0).alloc(1920).unwrap().len(), 1920);
    }
    // The system may have no huge pages: then `HugePages` is an error, and `Auto` uses small pages.
    assert_ne!(with(Backing::Auto).unwrap().backing(), Backing::Auto);
    if let Err(error) = with(Backing::HugePages) {
        assert!(error.to_string().contains("no memory"), "{error}");
    }
}

#[test]
fn a_long_packet_is_refused() {
    let mut cache = pool(1).cache("s", 0);
    assert!(matches!(cache.alloc(257), Err(AllocError::TooLong { len: 257, room: 256, .. })));
    cache.alloc(256).unwrap();
}

#[test]
fn the_limit_of_a_sender_counts_what_is_out_wherever_it_is_freed() {
    let pool = pool(200);
    let (mut mine, mut other) = (pool.cache("mine", 0), pool.cache("other", 1));
    mine.set_limit(3);
    let mut list = PacketList::new();
    assert_eq!(mine.alloc_batch(10, 8, &mut list), Ok(3));
    assert!(matches!(mine.alloc(8), Err(AllocError::Limit { limit: 3, .. })));
    other.free(&mut list);
    let mut list = PacketList::new();
    assert_eq!(mine.alloc_batch(2, 8, &mut list), Ok(2));
    mine.free(&mut list);
    // Buffers that another sender takes out of our inbox no longer count as out.
    let mut list = PacketList::new();
    mine.alloc_batch(3, 8, &mut list).unwrap();
    drop(list);
    let mut all = PacketList::new();
    let got = other.alloc_batch(400, 8, &mut all).unwrap();
    assert_eq!(got, 200 - mine.stack.len());
    assert!(matches!(mine.alloc(8), Ok(_) | Err(AllocError::Exhausted { .. })));
}

#[test]
fn buffers_of_a_sender_that_is_gone_are_found() {
    let pool = pool(300);
    let mut all = PacketList::new();
    let mut gone = pool.cache("gone", 0);
    gone.alloc_batch(300, 8, &mut all).unwrap();
    drop(gone);
    drop(all);
    let mut all = PacketList::new();
    assert_eq!(pool.cache("heir", 0).alloc_batch(300, 8, &mut all), Ok(300));
}

#[test]
fn the_region_gives_a_packet_back_by_its_offset() {
    let pool = pool(3);
    let mut cache = pool.cache("s", 0);
    let (_a, mut b) = (cache.alloc(8).unwrap(), cache.alloc(8).unwrap());
    b.data_mut().copy_from_slice(b"contents");
    let at = b.into_offset(&pool);
    // SAFETY: the offset came from `into_offset` and is given back once.
    let b = unsafe { pool.packet_at(at) };
    assert_eq!(b.data(), b"contents");
}

/// A packet may end at its buffer's end, as 1984 bytes behind 128 do in a buffer of 2112: an offset of that end belongs to
/// that buffer.
#[test]
fn an_empty_packet_at_the_end_of_its_buffer_comes_back_as_itself() {
    let config =
        PoolConfig { room: 1984, headroom: 128, buffers: 2, backing: Backing::Heap, ..PoolConfig::default() };
    let pool = Pool::<Native>::new(&config).unwrap();
    assert_eq!(pool.region().1, 1984 + 128);
    let mut cache = pool.cache("s", 0);
    let (mut a, mut b) = (cache.alloc(1984).unwrap(), cache.alloc(1984).unwrap());
    a.data_mut().fill(1);
    b.data_mut().fill(2);
    for (packet, content) in [(a, 1), (b, 2)] {
        let mut packet = packet;
        packet.pull(1984).unwrap();
        let at = packet.into_offset(&pool);
        // SAFETY: the offset came from `into_offset` and is given back once.
        let mut back = unsafe { pool.packet_at(at) };
        assert_eq!(back.headroom(), 2112);
        assert!(back.push(1984).unwrap().iter().all(|&byte| byte == content), "the neighbour's buffer");
    }
}

#[test]
#[should_panic(expected = "foreign packet: it is not of pool \"p\"")]
fn a_packet_of_another_pool_has_no_offset() {
    let (other, pool) = (pool(1), pool(1));
    let packet = other.cache("s", 0).alloc(1).unwrap();
    assert!(other.owns(&packet) && !pool.owns(&packet));
    packet.into_offset(&pool);
}

/// Runs in a process of its own, limited to 1 GB of addresses, which is less than the descriptors take.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn descriptors_without_memory_are_an_error() {
    const CHILD: &str = "TXQ_TEST_POOL_WITHOUT_MEMORY";
    let config = PoolConfig {
        name: "p".into(),
        max_buffers: 10_000_000,
        room: 1,
        headroom: 0,
        ..PoolConfig::default()
    };
    if std::env::var_os(CHILD).is_some() {
        let error = Pool::<Native>::new(&config).expect_err("an error").to_string();
        let text = "of descriptors (out of memory): max_buffers 10000000 takes one for each buffer";
        assert!(error.starts_with("pool \"p\": no memory for ") && error.contains(text), "{error}");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new("sh");
    child.args([
        "-c",
        "ulimit -v 1000000 && exec \"$0\" --exact pool::tests::descriptors_without_memory_are_an_error",
    ]);
    let out = child.arg(program).env(CHILD, "1").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    assert!(String::from_utf8_lossy(&out.stdout).contains("1 passed"), "the test has another name");
}

#[test]
#[cfg_attr(miri, ignore = "asks for more memory than Miri has")]
fn sizes_out_of_range_are_refused_by_name() {
    let with = |f: fn(&mut PoolConfig)| {
        let mut config = PoolConfig { name: "p".into(), backing: Backing::Heap, ..PoolConfig::default() };
        f(&mut config);
        Pool::<Native>::new(&config).err().unwrap().to_string()
    };
    assert_eq!(with(|c| c.buffers = 0), "pool \"p\": buffers 0 is out of range: use 1 to 2147483647");
    assert!(with(|c| c.room = 0).contains("room 0"));
    assert!(with(|c| c.headroom = 65535).contains("headroom 65535"));
    let much = with(|c| (c.buffers, c.room, c.backing) = (i32::MAX as u32, 1 << 20, Backing::Mmap));
    assert!(much.contains("no memory"), "{much}");
}

/// Real threads pass buffers around: each reads the last one's writes, and all buffers come home.
#[test]
fn buffers_go_round_between_threads() {
    let (threads, rounds) = (3, if cfg!(miri) { 10 } else { 5000 });
    let pool = pool(64);
    let wires: Vec<_> = (0..threads).map(|_| std::sync::mpsc::channel::<PacketList>()).collect();
    let (to, from): (Vec<_>, Vec<_>) = wires.into_iter().unzip();
    std::thread::scope(|scope| {
        for (number, from) in from.into_iter().enumerate() {
            let (pool, to) = (pool.clone(), to[(number + 1) % threads].clone());
            scope.spawn(move || {
                let mut cache = pool.cache("s", 0);
                for round in 0..rounds {
                    let mut out = PacketList::new();
                    let _ = cache.alloc_batch(3, 8, &mut out);
                    out.for_each_mut(|p| p.data_mut().fill(round as u8));
                    let _ = to.send(out);
                    let Ok(mut back) = from.recv() else { return };
                    assert!(back.iter().all(|p| p.data() == [round as u8; 8]));
                    match round % 3 {
                        0 => drop(back),
                        _ => cache.free(&mut back),
                    }
                }
            });
        }
    });
    drop(to);
    assert_eq!(pool.cache("last", 0).alloc_batch(100, 8, &mut PacketList::new()), Ok(64));
}

#[cfg(debug_assertions)]
mod debug {
    use super::*;

    #[test]
    #[should_panic(expected = "double completion: buffer 0 of pool \"p\" is not in use")]
    fn a_completion_reported_twice_is_found() {
        let pool = pool(1);
        let at = pool.cache("s", 0).alloc(1).unwrap().into_offset(&pool);
        // SAFETY: given back once here, which is sound, and once below, which the check must find.
        drop(unsafe { pool.packet_at(at) });
        // SAFETY: never made: the check panics first.
        drop(unsafe { pool.packet_at(at) });
    }

    #[test]
    #[should_panic(expected = "double free of buffer 0, last allocated by sender \"thief\"")]
    fn a_double_free_is_found_and_names_the_sender() {
        let pool = pool(1);
        let packet = pool.cache("thief", 0).alloc(1).unwrap();
        let slot = packet.into_slot();
        // SAFETY: not sound, on purpose: the second handle is what the check must find.
        let (first, second) = unsafe { (Packet::from_slot(slot), Packet::from_slot(slot)) };
        drop(first);
        let _ = second.retire();
    }

    #[test]
    #[should_panic(expected = "foreign buffer: offset 999999 is not in pool \"p\"")]
    fn a_foreign_buffer_is_found() {
        // SAFETY: never made: the check panics first.
        drop(unsafe { pool(1).packet_at(999_999) });
    }

    #[test]
    fn packets_in_use_are_named_by_their_sender() {
        let pool = pool(8);
        let (mut a, mut b) = (pool.cache("a", 0), pool.cache("b", 0));
        let _packets = (a.alloc(1), a.alloc(1), b.alloc(1));
        assert_eq!(pool.in_use(), BTreeMap::from([("a".into(), 2), ("b".into(), 1)]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "leaks, as it says")]
    fn a_pool_that_ends_before_its_packets_keeps_their_memory() {
        let packet = pool(2).cache("s", 0).alloc(5).unwrap();
        assert_eq!(packet.len(), 5);
    }
}
