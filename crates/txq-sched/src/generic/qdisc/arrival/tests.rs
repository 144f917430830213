//! A qdisc that has said that it has room for packets drops none of them, and none for them.

use txq_core::pool::{Backing, Pool, PoolConfig};

use super::*;
use crate::generic::qdisc::{Budget, Env};
use crate::generic::scheduler::PacketScheduler;
use txq_core::packet::PacketList;

/// Roots, and commands below them. Their limits hold a few packets.
const TREES: &[(&str, &[&str])] = &[
    ("pfifo limit 3", &[]),
    ("bfifo limit 700", &[]),
    ("pfifo_fast", &[]),
    ("tbf rate 800kbit burst 2000 limit 900", &[]),
    ("stab linklayer atm overhead 4 mtu 256 tbf rate 800kbit burst 2000 limit 900", &[]),
    ("estimator 250ms 1s bfifo limit 700", &[]),
    ("sfq limit 8", &[]),
    ("sfq limit 100 depth 3", &[]),
    ("sfq limit 100 flows 4", &[]),
    ("fq limit 5", &[]),
    ("fq flow_limit 2", &[]),
    ("fq_codel limit 4 target 1s", &[]),
    ("fq_codel memory_limit 900 target 1s", &[]),
    ("fq_pie memory_limit 900 target 1s", &[]),
    ("codel limit 3 target 1s", &[]),
    ("pie limit 3 target 1s", &[]),
    ("skbprio limit 3", &[]),
    ("netem limit 5 delay 1ms", &[]),
    ("cake memlimit 900 rtt 10s", &[]),
    ("dualpi2 limit 4 target 1s", &[]),
    ("plug limit 700", &["qdisc change root plug release_indefinite"]),
    ("red limit 2000 avpkt 1000 min 100000 max 300000 burst 150", &[]),
    (
        "handle 1: prio bands 4",
        &[
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 handle 20: tbf rate 800kbit burst 2000 limit 500",
            "qdisc add parent 1:3 pfifo limit 2",
            "qdisc add parent 1:4 sfq limit 3",
        ],
    ),
    (
        "handle 1: prio bands 4",
        &[
            "qdisc add parent 1:2 bfifo limit 400",
            "filter add parent 1: protocol all pref 1 matchall action continue",
            "filter add parent 1: protocol all pref 2 matchall classid 1:2",
        ],
    ),
    (
        "handle 1: ets bands 4 strict 1 quanta 500 500 500",
        &[
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 bfifo limit 300",
            "qdisc add parent 1:3 bfifo limit 1000",
            "qdisc add parent 1:4 bfifo limit 400",
        ],
    ),
    (
        "handle 1: drr",
        &[
            "class add parent 1: classid 1:1 drr quantum 300",
            "class add parent 1: classid 1:2 drr quantum 300",
            "class add parent 1: classid 1:3 drr quantum 300",
            "class add parent 1: classid 1:4 drr quantum 300",
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 bfifo limit 500",
            "qdisc add parent 1:3 bfifo limit 600",
            "qdisc add parent 1:4 bfifo limit 700",
            "filter add parent 1: protocol all matchall classid 1:3",
        ],
    ),
    (
        "handle 1: htb default 4 direct_qlen 2",
        &[
            "class add parent 1: classid 1:9 htb rate 800kbit",
            "class add parent 1:9 classid 1:1 htb rate 100kbit ceil 800kbit",
            "class add parent 1:9 classid 1:2 htb rate 100kbit ceil 800kbit",
            "class add parent 1:9 classid 1:4 htb rate 100kbit ceil 800kbit",
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 handle 20: tbf rate 800kbit burst 2000 limit 500",
            "qdisc add parent 1:4 handle 40: prio",
            "qdisc add parent 40:1 bfifo limit 300",
            "qdisc add parent 40:2 bfifo limit 300",
            "qdisc add parent 40:3 bfifo limit 300",
        ],
    ),
    ("handle 1: htb direct_qlen 2", &[]),
    (
        "handle 1: hfsc default 4",
        &[
            "class add parent 1: classid 1:1 hfsc ls rate 100kbit",
            "class add parent 1: classid 1:2 hfsc ls rate 100kbit",
            "class add parent 1: classid 1:4 hfsc ls rate 100kbit",
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 pfifo limit 2",
            "qdisc add parent 1:4 bfifo limit 700",
        ],
    ),
];

#[test]
fn a_packet_that_has_room_costs_no_drop() {
    let config = PoolConfig { buffers: 256, room: 256, backing: Backing::Heap, ..PoolConfig::default() };
    for &(root, commands) in TREES {
        let mut cache = Pool::new(&config).unwrap().cache("test", 0);
        let (mut now, mut random) = (1_000_000_000, 12345_u64);
        let env = Env { tx_queue_len: 3, ..Env::default() };
        let mut tree: PacketScheduler = PacketScheduler::new(root, env).unwrap();
        for command in commands {
            tree.tc(command, &mut Clock::at(now), &mut cache).unwrap_or_else(|e| panic!("{command}: {e}"));
        }
        let (mut queued, mut full) = (0, 0);
        for turn in 0..3000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = random >> 33;
            now += draw % 300_000;
            let mut batch = PacketList::new();
            if turn % 3 == 0 {
                tree.dequeue(Budget::packets(1), &mut batch, &mut Clock::at(now), &mut cache);
                cache.free(&mut batch);
                continue;
            }
            for number in 0..1 + draw % 4 {
                let mut packet = cache.alloc(60 + (draw * 37 + number) as usize % 180).unwrap();
                packet.data_mut().fill(0);
                let class = (draw + number) as u32 % 5;
                packet.set_priority(if class == 0 { draw as u32 % 16 } else { 0x1_0000 | class });
                packet.set_hash(1 + (draw + number) as u32 % 7);
                batch.push_back(packet);
            }
            let (mut ahead, mut fit) = (Load::default(), 0);
            for packet in batch.iter() {
                let mut clock = Clock::at(now);
                let arrival = Arrival::new(packet, ahead, Load::default(), &mut clock);
                match tree.qdisc().room_for(arrival) {
                    Ok(()) => fit += 1,
                    Err(Full { queued }) => {
                        assert!(queued <= tree.qdisc().qlen(), "{root}");
                        break;
                    }
                }
                ahead.add(packet);
            }
            full += usize::from(fit < batch.len());
            let mut now_in = PacketList::new();
            batch.move_front(fit, &mut now_in);
            let before = tree.drops().total();
            tree.enqueue(&mut now_in, &mut Clock::at(now), &mut cache);
            assert_eq!(tree.drops().total(), before, "{root}: turn {turn}, {fit} packets");
            queued += fit;
            cache.free(&mut batch);
        }
        assert!(queued > 100 && full > 100, "{root}: {queued} packets had room, {full} batches had not");
        // Back to the cache, before the pool ends.
        let mut rest = PacketList::new();
        tree.with(&mut Clock::at(now), &mut cache, |qdisc, cx| qdisc.reset(cx));
        tree.dequeue(Budget::packets(1000), &mut rest, &mut Clock::at(now), &mut cache);
    }
}
