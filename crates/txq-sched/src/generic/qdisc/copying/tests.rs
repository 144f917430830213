//! Copies: their bytes, their credit, and the qdiscs that may make them.

use txq_core::packet::PacketList;
use txq_core::pool::{AllocError, Backing, FreeMode, Pool, PoolConfig};

use crate::generic::qdisc::copying::Others;
use crate::generic::qdisc::testing::Virtual;
use crate::tc::Handle;

fn pool(free: FreeMode, buffers: u32) -> Pool {
    let config = PoolConfig { buffers, room: 256, backing: Backing::Heap, free, ..PoolConfig::default() };
    Pool::new(&config).unwrap()
}

#[test]
fn a_copy_is_alike_and_its_own() {
    let mut cache = pool(FreeMode::Defer, 64).cache("a", 3);
    let mut packet = cache.alloc(100).unwrap();
    packet.data_mut().iter_mut().zip(1..).for_each(|(byte, n)| *byte = n);
    packet.push(14).unwrap().fill(0xee);
    packet.set_hash(5);
    packet.set_priority(6);
    packet.set_mark(7);
    packet.set_departure(8);
    packet.set_cookie(9);
    packet.set_gso(50, 2);
    packet.set_protocol_offsets(14, 34, 0x800);
    let copy = cache.copy(&packet, 0, 0..packet.len()).unwrap();
    let seen = |p: &txq_core::packet::Packet| {
        let numbers = [p.hash(), p.priority(), p.mark(), p.departure() as u32, p.cookie() as u32, p.segs()];
        (p.data().to_vec(), numbers, p.gso(), p.protocol_offsets(), p.headroom())
    };
    assert_eq!(seen(&copy), seen(&packet));
    packet.data_mut().fill(0);
    assert_eq!((copy.data()[0], copy.data()[14]), (0xee, 1));
}

/// A packet of another pool may be longer, or have more headroom, than a buffer of this pool.
#[test]
fn a_copy_fits_or_is_refused() {
    let mut big = Pool::<txq_core::arch::Native>::new(&PoolConfig {
        room: 2000,
        headroom: 500,
        buffers: 4,
        backing: Backing::Heap,
        ..PoolConfig::default()
    })
    .unwrap()
    .cache("big", 0);
    let mut cache = pool(FreeMode::Defer, 4).cache("small", 0);
    // A buffer has 448 bytes: 128 of headroom, 256, and the rest of its cache lines.
    for (len, headroom) in [(100, 348), (256, 192), (300, 148), (448, 0)] {
        let copy = cache.copy(&big.alloc(len).unwrap(), len, 0..0).unwrap();
        assert_eq!((copy.len(), copy.headroom()), (len, headroom));
    }
    assert!(matches!(cache.copy(&big.alloc(449).unwrap(), 449, 0..0), Err(AllocError::TooLong { .. })));
}

/// A sender at its limit may copy its packets, and gets no credit for freed copies.
#[test]
fn a_copy_is_charged_to_nobody() {
    for mode in [FreeMode::Defer, FreeMode::Shared, FreeMode::Keep] {
        let pool = pool(mode, 8);
        let mut sender = pool.cache("sender", 0);
        let mut other = pool.cache("other", 1);
        sender.set_limit(2);
        let mut packets: PacketList =
            [sender.alloc(9).unwrap(), sender.alloc(9).unwrap()].into_iter().collect();
        let mut copies = PacketList::new();
        for packet in packets.iter() {
            copies.push_back(sender.copy(packet, 9, 0..0).unwrap());
            copies.push_back(sender.copy(packet, 9, 0..0).unwrap());
        }
        assert!(sender.alloc(9).is_err());
        let mut half = PacketList::new();
        copies.move_front(2, &mut half);
        sender.free(&mut half);
        other.free(&mut copies);
        assert!(sender.alloc(9).is_err(), "{mode:?}: a copy's end is no credit");
        other.free(&mut packets);
        let again: PacketList = [sender.alloc(9).unwrap(), sender.alloc(9).unwrap()].into_iter().collect();
        assert!(sender.alloc(9).is_err(), "{mode:?}");
        drop(again);
        // All eight buffers are free for another cache.
        drop((sender, other));
        let mut cache = pool.cache("next", 0);
        let all: Vec<_> = std::iter::from_fn(|| cache.alloc(1).ok()).collect();
        assert_eq!(all.len(), 8, "{mode:?}");
    }
}

#[test]
fn one_that_copies_must_be_alone() {
    let mut tree = Virtual::new("prio");
    let others =
        |tree: &mut Virtual, without| tree.with(|qdisc, _| Others::of(qdisc, Handle::new(1, 0), without));
    assert_eq!(others(&mut tree, None).allow(true), Ok(()));
    assert!(tree.attach(Handle::new(1, 2), Handle::new(2, 0), "netem"));
    assert!(others(&mut tree, None).allow(true).is_err());
    assert_eq!(others(&mut tree, None).allow(false), Ok(()));
    assert_eq!(others(&mut tree, Some((Handle::new(1, 0), 2))).allow(true), Ok(()));
    assert!(others(&mut tree, Some((Handle::new(1, 0), 1))).allow(true).is_err());
    tree.with(|qdisc, _| assert_eq!(Others::below(qdisc, Handle::new(1, 0)).allow(false), Ok(())));
    assert!(tree.attach(Handle::new(2, 1), Handle::new(3, 0), "netem duplicate 1%"));
    assert!(others(&mut tree, None).allow(false).is_err());
    assert_eq!(others(&mut tree, Some((Handle::new(1, 0), 2))).allow(true), Ok(()));
}
