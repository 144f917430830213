use crate::arch::Native;
use crate::packet::{Packet, PacketList};
use crate::pool::{Backing, Cache, Pool, PoolConfig};

fn cache() -> Cache<Native> {
    let config = PoolConfig { buffers: 8, room: 128, backing: Backing::Heap, ..PoolConfig::default() };
    Pool::new(&config).unwrap().cache("test", 0)
}

/// Returns a packet of 100 bytes and a GSO size, which a driver has sent on twice.
fn packet(cache: &mut Cache<Native>) -> Packet {
    let mut packet = cache.alloc(100).unwrap();
    packet.data_mut().iter_mut().zip(1..).for_each(|(byte, n)| *byte = n);
    packet.set_gso(46, 2);
    packet.set_departure(77);
    packet.set_checksum_partial(true);
    assert!(packet.hop() && packet.hop());
    packet
}

fn bytes(range: std::ops::RangeInclusive<u8>) -> Vec<u8> {
    range.collect()
}

#[test]
fn only_the_length_changes_and_comes_back() {
    let mut cache = cache();
    let mut packet = packet(&mut cache);
    for len in [159, 1, 106] {
        packet.set_pkt_len(len);
        assert_eq!((packet.len(), packet.own_len(), packet.gso()), (len as usize, 100, (46, 2)));
        assert_eq!(packet.data(), bytes(1..=100));
        assert_eq!((packet.departure(), packet.is_checksum_partial()), (77, true));
    }
    packet.set_gso(23, 4);
    packet.set_departure(u64::MAX);
    packet.data_mut()[0] = 0;
    let mut list = PacketList::from_iter([packet]);
    assert_eq!(list.bytes(), 106);
    list.for_each_mut(Packet::restore_len);
    assert_eq!(list.bytes(), 100);
    let mut packet = list.pop_front().unwrap();
    assert_eq!((packet.len(), packet.gso(), packet.data()[0]), (100, (23, 4), 0));
    assert_eq!((packet.departure(), packet.is_checksum_partial()), ((1 << 62) - 1, true));
    packet.restore_len();
    assert_eq!(packet.len(), 100);
    assert_eq!(std::iter::repeat_with(|| packet.hop()).take_while(|&may| may).count(), 4, "six hops in all");
    // The descriptor's word is the pool's again.
    packet.set_pkt_len(7);
    drop(packet);
    let mut all = PacketList::new();
    assert_eq!(cache.alloc_batch(8, 5, &mut all), Ok(8));
    assert!(all.iter().all(|packet| packet.len() == 5 && packet.data().len() == 5));
}

#[test]
fn a_change_of_the_length_is_one_of_the_own_length() {
    let mut cache = cache();
    let mut resized = || {
        let mut packet = packet(&mut cache);
        packet.set_pkt_len(500);
        packet
    };
    let mut packet = resized();
    packet.truncate(200);
    assert_eq!(packet.len(), 100);
    let mut packet = resized();
    packet.truncate(60);
    assert_eq!((packet.len(), packet.data().to_vec()), (60, bytes(1..=60)));
    let mut packet = resized();
    assert_eq!(packet.pull(101), None);
    packet.pull(10).unwrap();
    assert_eq!((packet.len(), packet.data().to_vec()), (90, bytes(11..=100)));
    let mut packet = resized();
    packet.push(1).unwrap()[0] = 0;
    assert_eq!((packet.len(), packet.data().to_vec()), (101, bytes(0..=100)));
    let mut packet = resized();
    packet.set_len_beyond(300);
    assert_eq!((packet.len(), packet.data().len(), packet.gso()), (300, 100, (0, 2)));
}

#[test]
fn a_copy_has_the_own_length() {
    let mut cache = cache();
    let mut packet = packet(&mut cache);
    packet.set_pkt_len(500);
    for mut copy in [cache.copy(&packet, 100, 0..0).unwrap(), cache.copy_own(&packet, 100, 0..0).unwrap()] {
        assert_eq!((copy.len(), copy.own_len(), copy.data()), (100, 100, packet.data()));
        assert!(copy.hop());
    }
    let part = cache.copy(&packet, 10, 50..90).unwrap();
    assert_eq!((part.len(), part.data().len(), packet.len()), (50, 50, 500));
}

/// A packet of a `Scheduler`, whose buffer holds its header.
#[test]
fn a_packet_that_is_longer_than_its_buffer_keeps_its_header() {
    let mut cache = cache();
    let mut packet = cache.alloc(40).unwrap();
    packet.set_len_beyond(70_000);
    packet.set_gso(0, 50);
    packet.set_pkt_len(78_000);
    packet.set_gso(9, 51);
    assert_eq!(
        (packet.len(), packet.own_len(), packet.data().len(), packet.gso()),
        (78_000, 70_000, 40, (0, 51))
    );
    let copy = cache.copy(&packet, 40, 0..0).unwrap();
    assert_eq!((copy.len(), copy.own_len(), copy.data().len()), (70_000, 70_000, 40));
    packet.restore_len();
    assert_eq!((packet.len(), packet.data().len(), packet.gso()), (70_000, 40, (0, 51)));
    packet.set_len_beyond(u32::MAX);
    packet.set_pkt_len(1);
    assert_eq!(packet.len(), u32::MAX as usize, "too long for a table");
}
