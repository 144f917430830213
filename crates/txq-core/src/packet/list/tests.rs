use super::*;
use crate::arch::Native;
use crate::pool::{Backing, Pool, PoolConfig};

fn pool(buffers: u32) -> Pool {
    let backing = Backing::Heap;
    Pool::new(&PoolConfig { buffers, room: 8, headroom: 0, backing, ..PoolConfig::default() }).unwrap()
}

/// Turns a list into a chain and back, as an `LList` does.
fn through_a_chain(mut list: PacketList) -> PacketList {
    let chain = list.take_chain().unwrap();
    assert!(list.is_empty());
    // SAFETY: given up just now, by this thread.
    unsafe { PacketList::from_chain(chain) }
}

/// A list keeps its stamp, home and segments through a chain, in every combination.
#[test]
fn a_chain_keeps_what_its_list_knows() {
    let (one, two) = (pool(4), pool(4));
    for (stamped, one_home, segs) in
        (0..8).map(|n| (n & 1 != 0, n & 2 != 0, if n & 4 != 0 { 65535 } else { 1 }))
    {
        let (mut cache, mut other) = (one.cache("one", 0), two.cache("two", 0));
        let mut list = PacketList::new();
        list.push_back(cache.alloc(3).unwrap());
        list.push_back(if one_home { cache.alloc(5).unwrap() } else { other.alloc(5).unwrap() });
        list.for_each_mut(|packet| packet.set_gso(1, segs));
        if stamped {
            list.stamp_front(7);
        }
        let list = through_a_chain(list);
        assert_eq!((list.len(), list.bytes(), list.segs()), (2, 8, 2 * u64::from(segs)));
        assert_eq!((list.stamped(), !list.home.is_null()), (stamped, one_home));
        assert_eq!(list.iter().map(Packet::len).collect::<Vec<_>>(), [3, 5]);
    }
}

/// 70,000 packets have more segments than 32 bits count: sums stay exact through a chain, an append and pops.
#[test]
#[cfg_attr(miri, ignore = "many packets")]
fn segments_are_counted_beyond_32_bits() {
    const PACKETS: u64 = 70_000;
    const SEGS: u64 = u16::MAX as u64;
    let pool = pool(PACKETS as u32 + 1);
    let mut cache = pool.cache("s", 0);
    let mut list = PacketList::<Native>::new();
    cache.alloc_batch(PACKETS as usize, 8, &mut list).unwrap();
    list.for_each_mut(|packet| packet.set_gso(1, u16::MAX));
    let mut list = through_a_chain(list);
    assert_eq!((list.segs(), list.bytes(), list.len() as u64), (PACKETS * SEGS, PACKETS * 8, PACKETS));
    let mut other = PacketList::new();
    other.push_back(cache.alloc(8).unwrap());
    other.append(&mut list);
    assert_eq!(other.segs(), PACKETS * SEGS + 1);
    for left in (1..=PACKETS).rev() {
        drop(other.pop_front());
        assert_eq!(other.segs(), left * SEGS);
    }
    drop(other);
    assert_eq!(cache.alloc_batch(usize::MAX, 8, &mut PacketList::new()), Ok(PACKETS as usize + 1));
}
