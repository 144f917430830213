//! Headers that cake reads and writes.

use super::*;

#[test]
fn needless_acks_are_dropped() {
    for (words, left) in [
        ("no-ack-filter", vec![0, 1, 2, 3, 4]),
        ("ack-filter", vec![3, 4]),
        ("ack-filter-aggressive", vec![4]),
    ] {
        let mut bench = Bench::new(&format!("cake {words}"));
        for n in 0..5 {
            let packet = tcp(&mut bench, 1000 + n * 100, 54);
            let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        }
        assert_eq!(bench.qdisc.qlen(), left.len(), "{words}");
        let tins = bench.qdisc.xstats(Style::default()).unwrap().json();
        assert_eq!(tins["tins"][1]["ack_drops"], 5 - left.len());
        let sent: Vec<_> = std::iter::from_fn(|| bench.dequeue()).map(|packet| packet.cookie()).collect();
        assert_eq!(sent, left, "{words}");
    }
    // Not needless: duplicates, data, other flags, a SACK, another connection, an older number.
    let cases: [fn(&mut [u8]); 6] = [
        |_| {},
        |bytes| bytes[17] += 1,
        |bytes| bytes[47] |= 8,
        |bytes| bytes[47] |= 0x40,
        |bytes| bytes[35] ^= 1,
        |bytes| bytes[42..46].copy_from_slice(&2000u32.to_be_bytes()),
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut bench = Bench::new("cake ack-filter-aggressive besteffort flowblind");
        let mut first = tcp(&mut bench, 1000, 54);
        change(first.data_mut());
        let second = tcp(&mut bench, if number == 0 { 1000 } else { 1100 }, 54);
        let _ = bench.with(|q, cx| q.enqueue(first, cx));
        let _ = bench.with(|q, cx| q.enqueue(second, cx));
        assert_eq!(bench.qdisc.qlen(), 2, "case {number}");
    }
}

/// The DS field is cleared, ECN stays, and the checksum is right.
#[test]
fn wash_clears_the_ds_field() {
    for tos in 0..=255u8 {
        let mut bench = Bench::new("cake wash");
        let packet = Frame { tos, ..Frame::default() }.packet(&mut bench);
        let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        let packet = bench.dequeue().unwrap();
        assert_eq!(packet.data()[15], tos & 3);
        assert!(frames::is_right(packet.data()), "{tos:#x}");
        assert_ne!(packet.hash(), 0);
    }
}
