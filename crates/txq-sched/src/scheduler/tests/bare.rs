//! Items without header bytes: their TOS and flow; and texts of several lines.

use super::*;

/// Marks and DSCP of items that have no header.
#[test]
fn the_tos_needs_no_header() {
    let mut queue = scheduler("netem loss 100% ecn");
    for (number, tos) in [None, Some(0), Some(0x02), Some(0xb9), Some(0x03)].into_iter().enumerate() {
        let item = Item::new(1200, number);
        let _ = queue.enqueue(0, tos.map_or(item, |tos| item.tos(tos)));
    }
    let mut out = Vec::new();
    queue.dequeue_batch(0, Budget::packets(9), &mut out);
    let marked: Vec<_> = out.iter().map(|packet| (packet.value, packet.tos, packet.len)).collect();
    assert_eq!(marked, [(2, Some(0x03), 1200), (3, Some(0xbb), 1200), (4, None, 1200)]);

    let mut tins = scheduler("cake bandwidth 1mbit diffserv4 wash");
    let _ = tins.enqueue(0, Item::new(100, "bulk").tos(8 << 2));
    let _ = tins.enqueue(0, Item::new(100, "voice").tos(46 << 2));
    let first = tins.dequeue(0).unwrap();
    assert_eq!((first.value, first.tos), ("voice", Some(0)));
}

/// A header that is handed in counts, whatever the TOS, also where the scheduler keeps no headers.
#[test]
fn the_tos_of_a_header_counts() {
    let mut queue = scheduler("netem loss 100% ecn");
    let header = frame(0x01, [1, 2]);
    let _ = queue.enqueue(0, Item::new(1200, ()).tos(0).header(&header));
    assert_eq!(queue.dequeue(0).unwrap().tos, Some(0x03));
    let config = Config { header: 0, ..Config::default() };
    let mut queue = Scheduler::with_config("netem loss 100% ecn", &config).unwrap();
    let _ = queue.enqueue(0, Item::new(10, ()).tos(1));
    assert_eq!(queue.dequeue(0), None, "a packet of 10 bytes has no IPv4 header");
    let _ = queue.enqueue(0, Item::new(20, ()).tos(1));
    assert_eq!(queue.dequeue(0).unwrap().tos, Some(0x03));
}

/// Numbers of flows that follow each other choose different queues.
#[test]
fn flows_have_numbers() {
    let mut queue = scheduler("fq_codel flows 1024");
    for packet in 0..300 {
        let _ = queue.enqueue(0, Item::new(1600, packet % 100).flow(packet % 100));
    }
    let first: BTreeSet<_> = (0..100).filter_map(|_| queue.dequeue(0)).map(|packet| packet.value).collect();
    assert!(first.len() >= 80, "{} of 100 flows have had a turn", first.len());
}

/// The bit that netem flips is named, whatever part of the packet the scheduler keeps.
#[test]
fn damage_is_named() {
    let mut queue = scheduler("netem corrupt 100%");
    let header = frame(0, [1, 2]);
    let mut bits = BTreeSet::new();
    for number in 0..4000 {
        let item = Item::new(100, number);
        let _ = queue.enqueue(0, if number % 2 == 0 { item } else { item.header(&header) });
        let packet = queue.dequeue(0).unwrap();
        assert_eq!((packet.value, packet.tos), (number, None));
        bits.extend(packet.damage);
    }
    assert!(bits.len() > 780 && bits.iter().all(|&bit| bit < 800), "{} of 800 bits", bits.len());
    let mut queue = scheduler("netem");
    let _ = queue.enqueue(0, Item::new(100, ()));
    assert_eq!(queue.dequeue(0).unwrap().damage, None);
}

#[test]
fn a_text_of_lines_is_a_tree() {
    let lines = [
        "",
        "# a comment",
        "tc qdisc add dev eth0 root handle 1: htb default 20",
        "",
        "  class add parent 1: classid 1:20 htb rate 8mbit",
        "qdisc add parent 1:20 handle 20: fq_codel",
    ];
    let mut tree: Scheduler<()> = scheduler(&lines.join("\n"));
    let kinds: Vec<_> = tree.qdiscs(Style::default()).iter().map(|qdisc| qdisc.kind.to_string()).collect();
    assert_eq!(kinds, ["htb", "fq_codel"]);
    for (text, error) in [
        ("# none\n\nclass add parent 1: classid 1:1 htb rate 1mbit", "adds no root"),
        ("qdisc del root", "adds no root"),
        (
            "handle 1: htb\n\nclass add parent 1: classid 1:1 htb rate 1mbit\nclass add parent 1: x",
            "line 4: ",
        ),
    ] {
        let found = Scheduler::<()>::new(text).unwrap_err().to_string();
        assert!(found.contains(error), "{found}");
    }
}
