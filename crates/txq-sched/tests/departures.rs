//! The same seed, commands and packets give the same departures on every system: a hash of them for each kind.
//!
//! `cargo xtask check platforms` runs this test on another processor, too.

use txq_core::arch::Native;
use txq_sched::generic::qdisc::{Built, build, kind_names};
use txq_sched::qdisc::{Budget, Env};
use txq_sched::scheduler::Config;
use txq_sched::tc::Handle;
use txq_sched::{Item, Next, Scheduler};

const SEED: u64 = 0x7478_7171;
const PACKETS: u32 = 3000;
const TXQS: u16 = 2;

/// The qdiscs, with their classes, and the hash of their departures under [`SEED`].
const TREES: &[(&str, u64)] = &[
    ("pfifo_fast", 0x6098_9ebd_5633_49bf),
    ("pfifo limit 40", 0xaaaf_50e4_a413_c2fa),
    ("bfifo limit 30000", 0xb7f4_38c7_e3e4_c0db),
    ("codel target 2ms interval 20ms ecn", 0x1e4e_d845_8bdf_a24b),
    ("fq_codel flows 64 target 2ms interval 20ms", 0xf323_de68_cb61_f2b9),
    ("fq_pie flows 64 target 2ms tupdate 5ms alpha 8 beta 32 ecn", 0x0d1a_7db1_c77a_40a2),
    ("prio bands 3", 0x6098_9ebd_5633_49bf),
    ("multiq", 0xb06a_ffce_7371_adcf),
    ("plug limit 100000", 0x40d3_edc5_edbf_1679),
    ("tbf rate 8mbit burst 3000 latency 20ms", 0xb722_11f7_9b79_7fad),
    ("tbf_mq rate 8mbit burst 3000 latency 20ms", 0x1dfa_acb7_a5d2_76f6),
    ("blackhole", 0x8a93_be64_525b_23f4),
    (
        "netem limit 400 delay 10ms 3ms 25% distribution paretonormal loss gemodel 1% 20% 70% 0.1% duplicate 2% corrupt 3% reorder 5% 50% gap 3 rate 9mbit",
        0xe185_f2dd_30d8_3c7a,
    ),
    (
        "netem delay 10ms 3ms distribution pareto loss state 1% 30% 5% 40% slot distribution normal 5ms 1ms packets 4",
        0xf28e_74fb_bc11_fa0e,
    ),
    ("netem delay 10ms 9ms distribution normal loss random 3% 25% ecn slot 1ms 4ms", 0xe409_1e81_b3a1_5d0a),
    ("trace ./tests/links/train.csv limit 60", 0x91d2_d7d3_3394_b64e),
    ("etf clockid CLOCK_TAI delta 100000 deadline_mode", 0x80a2_6cda_2fc8_5cd5),
    ("fq flow_limit 20 maxrate 2mbit", 0x237c_6712_b203_7f6e),
    ("cake bandwidth 8mbit diffserv4 ack-filter rtt 20ms", 0x0afe_c1f6_89f7_7fe0),
    ("cake_mq bandwidth 8mbit besteffort", 0xd0ba_028b_0392_335c),
    ("choke limit 60 min 10 max 30 avpkt 700 burst 20 bandwidth 9mbit ecn", 0x6d40_3bf4_a63b_abfb),
    ("skbprio limit 40", 0x0d69_021d_2db6_79df),
    ("pie target 2ms tupdate 5ms alpha 8 beta 32 ecn", 0x0ca1_0b18_4a7e_9f91),
    ("dualpi2 target 2ms tupdate 5ms", 0x6416_87db_6615_40c8),
    (
        "red limit 60000 min 8000 max 30000 avpkt 700 burst 20 bandwidth 9mbit adaptive ecn",
        0x6506_166e_6028_4fad,
    ),
    ("sfq perturb 1 limit 60 depth 30 redflowlimit 20000 min 2000 max 8000 ecn", 0x8e0e_353a_0d34_387e),
    (
        "handle 1: htb default 11\nclass add parent 1: classid 1:10 htb rate 2mbit ceil 8mbit\nclass add parent 1: classid 1:11 htb rate 3mbit\nqdisc add parent 1:10 red limit 60000 min 3000 max 9000 avpkt 700 burst 20 bandwidth 9mbit\nqdisc add parent 1:11 sfq perturb 1",
        0x5fe6_b3b2_306f_993d,
    ),
    (
        "handle 1: htb_mq default 11\nclass add parent 1: classid 1:10 htb_mq rate 2mbit ceil 8mbit\nclass add parent 1: classid 1:11 htb_mq rate 3mbit",
        0x1241_7c87_ff69_1b3a,
    ),
    (
        "handle 1: drr\nclass add parent 1: classid 1:10 drr quantum 700\nclass add parent 1: classid 1:11 drr quantum 1500\nqdisc add parent 1:10 pie target 2ms tupdate 5ms",
        0xc21a_5ca9_c957_1739,
    ),
    (
        "handle 1: ets bands 4 strict 1 quanta 1500 3000 4500\nqdisc add parent 1:4 netem delay 4ms 3ms loss 5%",
        0xfe83_f5a5_aff3_c7a9,
    ),
    (
        "handle 1: hfsc default 11\nclass add parent 1: classid 1:10 hfsc sc rate 2mbit ul rate 6mbit\nclass add parent 1: classid 1:11 hfsc sc umax 1500 dmax 5ms rate 3mbit",
        0xd91a_f00d_a547_b9d3,
    ),
];

/// The kinds that hold no packets, and so have no departures without a device.
const WITHOUT_PACKETS: [&str; 3] = ["noqueue", "mq", "mqprio"];

/// Pseudorandom numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A hash of numbers (FNV-1a).
struct Hash(u64);

impl Hash {
    fn add(&mut self, numbers: &[u64]) {
        for byte in numbers.iter().flat_map(|number| number.to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Builds the scheduler, or one for each part of a qdisc in parts.
fn schedulers(text: &str, seed: u64) -> Vec<Scheduler<u32>> {
    let env = Env { txqs: TXQS, seed: Some(seed), ..Env::default() };
    let config = Config { env, seed: Some(seed), ..Config::default() };
    let (root, commands) = text.split_once('\n').unwrap_or((text, ""));
    match build::<Native>(root, &env).unwrap_or_else(|error| panic!("{text}: {error}")) {
        (_, Built::Parts(parts) | Built::Replicas(parts) | Built::Children(_, parts)) => {
            let part = |part| Scheduler::of_part(part, &config).unwrap();
            let mut parts: Vec<_> = parts.into_iter().map(part).collect();
            for part in &mut parts {
                part.tc_batch(0, commands).unwrap();
            }
            parts.into_iter().map(Scheduler::cloning).collect()
        }
        _ => vec![Scheduler::with_config(text, &config).unwrap_or_else(|e| panic!("{text}: {e}")).cloning()],
    }
}

/// Sends packets through a link of 9 Mbit/s for each scheduler, and returns a hash of all that left or was dropped, and when.
fn departures(text: &str, seed: u64) -> u64 {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    for (part, mut scheduler) in schedulers(text, seed).into_iter().enumerate() {
        let mut numbers = Numbers(part as u64);
        let (mut sent, mut arrives, mut free) = (0, 0, 0);
        let mut now = 1_000_000;
        loop {
            if sent < PACKETS && arrives <= now {
                let flow = numbers.below(12);
                let item = Item::new(100 + numbers.below(1300) as u32, sent)
                    .flow(flow)
                    .tos([0, 1, 2, 0xb8, 0x22][numbers.below(5) as usize])
                    .mark(flow as u32);
                let item = match numbers.below(3) {
                    0 => item.class(Handle::new(1, 0x10 + (flow % 2) as u16)),
                    band => item.priority(band as u32 * 6),
                };
                let item = if text.starts_with("etf") { item.departure(now + 3_000_000) } else { item };
                let verdict = scheduler.enqueue(now, item);
                hash.add(&[now, verdict as u64]);
                for dropped in scheduler.dropped() {
                    hash.add(&[u64::from(dropped.value), dropped.reason as u64]);
                }
                sent += 1;
                arrives = now + numbers.below(1_200_000);
                if sent == PACKETS / 2 && text.starts_with("plug") {
                    scheduler.tc(now, "qdisc change root plug release_indefinite").unwrap();
                }
            }
            let mut next = (sent < PACKETS).then_some(arrives);
            if free > now {
                next = next.into_iter().chain([free]).min();
            } else {
                match scheduler.poll(now) {
                    Next::Packet(packet) => {
                        let (tos, damage) = (packet.tos.unwrap_or(0), packet.damage.unwrap_or(u32::MAX));
                        let value = u64::from(packet.value);
                        hash.add(&[now, value, packet.len.into(), tos.into(), damage.into()]);
                        free = now + u64::from(packet.len) * 8 * 1000 / 9;
                        next = next.into_iter().chain([free]).min();
                    }
                    Next::Until(at) => next = next.into_iter().chain([at.as_nanos().max(now + 1)]).min(),
                    Next::Idle => {}
                }
                for dropped in scheduler.dropped() {
                    hash.add(&[u64::from(dropped.value), dropped.reason as u64]);
                }
            }
            match next {
                Some(next) => now = next.max(now),
                None => break,
            }
        }
        hash.add(&[scheduler.dequeue_batch(now, Budget::packets(1), &mut Vec::new()) as u64]);
    }
    hash.0
}

#[test]
fn every_kind_sends_the_same_on_every_system() {
    let mut wrong = String::new();
    for (text, known) in TREES {
        let hash = departures(text, SEED);
        if hash != *known {
            wrong += &format!("{hash:#018x} {text:?}\n");
        }
    }
    assert!(wrong.is_empty(), "other departures than those of the known hashes:\n{wrong}");
}

#[test]
fn every_kind_is_in_the_table_or_needs_a_device() {
    let mut known: Vec<_> = TREES.iter().map(|(text, _)| kind_of(text)).collect();
    known.dedup();
    known.extend(WITHOUT_PACKETS);
    let mut kinds = kind_names::<Native>();
    known.sort_unstable();
    kinds.sort_unstable();
    assert_eq!(known, kinds);
    for kind in WITHOUT_PACKETS {
        let error = Scheduler::<u32>::new(kind).unwrap_err().to_string();
        assert!(error.contains(if kind == "noqueue" { "holds no packets" } else { "device" }), "{error}");
    }
    for kind in ["tbf_mq rate 8mbit burst 3000 latency 20ms", "cake_mq", "htb_mq"] {
        let error = Scheduler::<u32>::new(kind).unwrap_err().to_string();
        assert!(error.contains("device"), "{error}");
    }
}

/// The kinds that draw decide by the seed, and two qdiscs of one tree decide otherwise.
#[test]
fn another_seed_decides_otherwise() {
    for (text, _) in TREES {
        let draws =
            ["fq_pie", "netem", "trace", "choke", "pie", "dualpi2", "red", "sfq"].contains(&kind_of(text));
        let differs = departures(text, SEED) != departures(text, SEED + 1);
        if draws {
            assert!(differs, "{text} does not depend on the seed");
        } else if !text.contains('\n') {
            assert!(!differs, "{text} depends on the seed");
        }
    }
}

fn kind_of(text: &str) -> &str {
    text.trim_start_matches("handle 1: ").split_whitespace().next().unwrap()
}
