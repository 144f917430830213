//! fq under scripts with known results, and under random scripts (`random.rs`).

mod early;
mod random;
mod text;

use super::*;
use crate::generic::qdisc::testing::{ENV, MS, Stand, is_a_stand, try_build};
use crate::tc::Style;

/// An fq, and a clock that only the test moves.
struct Bench(Stand);

is_a_stand!(Bench, 0);

impl Bench {
    fn new(options: &str) -> Self {
        Self::on(options, ENV)
    }

    fn on(options: &str, env: Env) -> Self {
        Self(Stand::new(&format!("fq {options}"), env, 8192, 9000))
    }

    /// Enqueues a packet of a flow, which may leave `after` from now, or at once. Its cookie is the flow and a number.
    fn send(&mut self, flow: u32, bytes: usize, priority: u32, after: Option<Nanos>) -> Verdict {
        let number = self.numbers;
        let mut packet = self.packet(bytes);
        packet.set_hash(flow);
        packet.set_priority(priority);
        packet.set_departure(after.map_or(0, |after| self.now + after));
        packet.set_cookie(u64::from(flow) << 32 | number);
        self.push(packet)
    }

    /// Enqueues several packets alike.
    fn fill(&mut self, n: usize, flow: u32, bytes: usize, priority: u32, after: Option<Nanos>) {
        for _ in 0..n {
            let _ = self.send(flow, bytes, priority, after);
        }
    }

    fn take(&mut self, n: usize) -> PacketList {
        self.0.take(Budget::packets(n))
    }

    /// Dequeues packets and returns their flows.
    fn flows(&mut self, n: usize) -> Vec<u32> {
        self.take(n).iter().map(|p| (p.cookie() >> 32) as u32).collect()
    }

    fn numbers(&mut self, n: usize) -> Vec<u64> {
        self.take(n).iter().map(|p| p.cookie() & 0xffff_ffff).collect()
    }

    fn later(&mut self, by: Nanos) {
        self.now += by;
    }

    fn stat(&self, name: &str) -> u64 {
        let json = self.qdisc.xstats(Style { details: true, ..Style::default() }).unwrap().json();
        json.get(name).and_then(|v| v.as_u64()).unwrap_or(0)
    }

    /// Returns an fq without the fast path: with a rate there is none.
    fn slow(options: &str) -> Self {
        Bench::new(&format!("maxrate 34gbit {options}"))
    }
}

#[test]
fn flows_take_turns_by_bytes() {
    let mut bench = Bench::slow("quantum 1000 initial_quantum 1000 nopacing");
    for _ in 0..10 {
        let _ = bench.send(1, 1000, 0, None);
        let _ = bench.send(2, 500, 0, None);
    }
    assert_eq!(bench.flows(9), [1, 2, 2, 1, 2, 2, 1, 2, 2]);
}

#[test]
fn a_new_flow_goes_first_but_not_always() {
    let mut bench = Bench::slow("quantum 1000 initial_quantum 1000 nopacing");
    bench.fill(10, 1, 1000, 0, None);
    assert_eq!(bench.flows(2), [1, 1]);
    bench.fill(1, 2, 1000, 0, None);
    assert_eq!(bench.flows(1), [2]);
    // Two flows that become idle after each packet, and new again before the other is served, do not starve the first flow.
    let mut bench = Bench::slow("quantum 1000 initial_quantum 1000 nopacing refill_delay 0");
    bench.fill(50, 1, 1000, 0, None);
    assert_eq!(bench.flows(2), [1, 1]);
    bench.fill(1, 2, 60, 0, None);
    let mut others = 0;
    for n in 0..30 {
        bench.later(1);
        bench.fill(1, 2 + (n + 1) % 2, 60, 0, None);
        others += bench.flows(1).iter().filter(|&&flow| flow == 1).count();
    }
    assert_eq!(others, 2, "its share of the bytes, and more than nothing");
}

#[test]
fn bands_share_by_weight() {
    let mut bench = Bench::slow("flow_limit 10000 nopacing quantum 1000 weights 147456 49152 16384");
    for _ in 0..1500 {
        // The priorities choose bands 0, 1 and 2.
        for (flow, priority) in [(1, 6), (2, 0), (3, 1)] {
            let _ = bench.send(flow, 1000, priority, None);
        }
    }
    let flows = bench.flows(1300);
    let count = |flow| flows.iter().filter(|&&f| f == flow).count() as i64;
    for (flow, share) in [(1, 900), (2, 300), (3, 100)] {
        assert!((count(flow) - share).abs() < 70, "{flow}: {}", count(flow));
    }
}

/// A band owes the bytes that it sent beyond its turn: packets that are long against the weights do not change the shares.
#[test]
fn bands_owe_what_they_overdrew() {
    let mut bench = Bench::slow("flow_limit 1000 nopacing weights 16384 18432 16384");
    bench.fill(400, 1, 9000, 6, None);
    bench.fill(400, 2, 9000, 0, None);
    let ones = bench.flows(425).iter().filter(|&&flow| flow == 1).count();
    assert!((196..=204).contains(&ones), "{ones}");
}

#[test]
fn packets_leave_in_the_order_of_their_departure_times_and_not_before() {
    let mut bench = Bench::new("");
    for after in [20, 10, 30, 10, 0, 25] {
        assert_eq!(bench.send(1, 100, 0, Some(after * MS)), Verdict::Success);
    }
    assert_eq!(bench.numbers(9), [4]);
    let mut left = Vec::new();
    while bench.qdisc.qlen() > 0 {
        let at = bench.qdisc.next_event().expect("packets wait");
        bench.now = at - 10_001;
        assert!(bench.numbers(9).is_empty());
        bench.now = at;
        left.extend(bench.numbers(9));
    }
    assert_eq!(left, [1, 3, 0, 5, 2]);
}

#[test]
fn an_earlier_packet_wakes_its_flow_earlier() {
    let mut bench = Bench::new("timer_slack 0");
    let _ = bench.send(1, 100, 0, Some(20 * MS));
    assert!(bench.numbers(9).is_empty());
    let _ = bench.send(1, 100, 0, Some(10 * MS));
    bench.later(10 * MS);
    assert_eq!(bench.qdisc.next_event(), Some(bench.now));
    assert_eq!(bench.numbers(9), [1]);
    bench.later(10 * MS);
    assert_eq!(bench.numbers(9), [0]);
}

#[test]
fn a_flow_keeps_to_maxrate() {
    // 1000 bytes take 8 ms, and the quantum lets one packet leave at once.
    let mut bench = Bench::new("maxrate 1mbit quantum 1000 initial_quantum 1000 timer_slack 0");
    bench.fill(100, 1, 1000, 0, None);
    let start = bench.now;
    let mut sent = bench.take(100).len();
    while sent < 100 {
        bench.now = bench.qdisc.next_event().unwrap();
        sent += bench.take(100).len();
    }
    assert_eq!((bench.now - start) / MS, 99 * 8);
    assert!(bench.stat("throttle_events") >= 99);
}

#[test]
fn a_low_rate_sends_one_packet_at_a_time() {
    let mut bench = Bench::new("maxrate 100kbit");
    bench.fill(3, 1, 1000, 0, None);
    assert_eq!(bench.take(9).len(), 1, "although there is credit for more");
    let mut bench = Bench::new("maxrate 100kbit low_rate_threshold 0");
    bench.fill(3, 1, 1000, 0, None);
    assert_eq!(bench.take(9).len(), 3);
    let mut bench = Bench::new("maxrate 0");
    bench.fill(2, 1, 1000, 0, None);
    assert_eq!(bench.take(9).len(), 1);
    assert_eq!(bench.stat("pkts_too_long"), 1);
    bench.later(1000 * MS);
    assert_eq!(bench.take(9).len(), 1);
}

/// Each dequeue comes 0.2 ms late, as from threads that sleep.
#[test]
fn a_rate_is_kept_by_who_comes_late() {
    let mut bench = Bench::new("maxrate 80mbit timer_slack 0 flow_limit 10000 limit 10000");
    bench.fill(1200, 1, 1000, 0, None);
    let (start, mut sent) = (bench.now, 0);
    while bench.now < start + 100 * MS {
        let left = bench.take(64).len();
        sent += left;
        if left == 0 {
            let next = bench.qdisc.next_event().expect("a flow waits");
            bench.later(next - bench.now + MS / 5);
        }
    }
    // 1,000 packets, after the 15,140 bytes that a new flow may send at once.
    assert!((1010..=1020).contains(&sent), "{sent}");
}

#[test]
fn the_horizon_drops_or_caps() {
    let mut bench = Bench::new("horizon 1s");
    assert_eq!(bench.send(1, 100, 0, Some(1001 * MS)), Verdict::Drop);
    assert_eq!(bench.send(1, 100, 0, Some(1000 * MS)), Verdict::Success);
    assert_eq!((bench.drops.get(DropReason::FqHorizonLimit), bench.stat("horizon_drops")), (1, 1));
    let mut bench = Bench::new("horizon 1s horizon_cap timer_slack 0");
    assert_eq!(bench.send(1, 100, 0, Some(5000 * MS)), Verdict::Success);
    assert!(bench.numbers(1).is_empty());
    bench.later(1000 * MS);
    assert_eq!(bench.numbers(1), [0]);
    assert_eq!(bench.stat("horizon_caps"), 1);
}

/// The kernel's own test of band limits: 20 packets twice into one band of 10, then 20 into another.
#[test]
fn a_full_band_leaves_the_others_room() {
    let mut bench = Bench::new("limit 10");
    let mut dropped = Vec::new();
    for priority in [0, 0, 6] {
        bench.fill(20, 7, 100, priority, Some(100 * MS));
        dropped.push(bench.qdisc.stats().drops);
    }
    assert_eq!(dropped, [10, 30, 40]);
    assert_eq!(bench.drops.get(DropReason::FqBandLimit), 40);
    assert_eq!(
        (bench.stat("band1_drops"), bench.stat("band0_drops"), bench.stat("band0_pkts")),
        (30, 10, 10)
    );
    assert_eq!(bench.qdisc.stats().packets, 0);
    bench.later(101 * MS);
    assert_eq!(bench.take(64).len(), 20);
    assert_eq!(bench.qdisc.stats().packets, 20);
}

#[test]
fn a_flow_has_a_limit() {
    let mut bench = Bench::new("flow_limit 3");
    bench.fill(5, 7, 100, 0, Some(MS));
    let _ = bench.send(8, 100, 0, Some(MS));
    assert_eq!(bench.drops.get(DropReason::FqFlowLimit), 2);
    assert_eq!((bench.stat("flows_plimit"), bench.qdisc.qlen()), (2, 4));
}

#[test]
fn a_packet_that_waited_too_long_is_marked() {
    let mut bench = Bench::slow("ce_threshold 5ms nopacing");
    let mut frame = vec![2; 12];
    frame.extend([
        8, 0, 0x45, 2, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0,
    ]);
    for _ in 0..2 {
        let mut packet = bench.cache.alloc(frame.len()).unwrap();
        packet.data_mut().copy_from_slice(&frame);
        let _ = bench.push(packet);
    }
    bench.later(5 * MS);
    assert_eq!(bench.take(1).front().unwrap().data()[15], 2);
    bench.later(1);
    assert_eq!(bench.take(1).front().unwrap().data()[15], 3);
    assert_eq!(bench.stat("ce_mark"), 1);
}

/// While all flows wait, a packet that is due takes the fast path, unless a flow is due.
#[test]
fn the_fast_path_overtakes_nothing_that_is_due() {
    let mut bench = Bench::new("");
    let _ = bench.send(1, 100, 0, Some(MS));
    assert!(bench.numbers(9).is_empty());
    let _ = bench.send(1, 100, 0, None);
    assert_eq!(bench.stat("fastpath"), 1);
    assert_eq!(bench.numbers(9), [1]);
    bench.later(MS);
    let _ = bench.send(1, 100, 0, None);
    assert_eq!((bench.stat("fastpath"), bench.numbers(9)), (1, vec![0, 2]));
    // Eight of 20 packets take the fast path, and fill its FIFO.
    bench.fill(20, 1, 100, 0, None);
    assert_eq!(bench.stat("fastpath"), 1 + FAST_PATH as u64);
    assert_eq!(bench.numbers(64), (3..23).collect::<Vec<_>>());
}

/// A batch bypasses the empty queues unless a packet has a departure time or the flows a rate.
#[test]
fn only_packets_without_a_time_bypass_the_queues() {
    let batch = |bench: &mut Bench, departure| {
        let mut batch = PacketList::new();
        for n in 0..20 {
            let mut packet = bench.packet(100);
            packet.set_hash(n + 1);
            packet.set_departure(if n == 19 { departure } else { 0 });
            batch.push_back(packet);
        }
        batch
    };
    for (options, departure, bypasses) in
        [("", 0, true), ("", 1, false), ("maxrate 1gbit", 0, false), ("limit 19", 0, false)]
    {
        let mut bench = Bench::new(options);
        let packets = batch(&mut bench, departure);
        assert_eq!(bench.qdisc.bypass(&packets), bypasses, "{options:?} {departure}");
        let sent = if bypasses { 20 } else { 0 };
        assert_eq!((bench.stat("fastpath"), bench.qdisc.stats().packets), (sent, sent));
    }
    let mut bench = Bench::new("");
    let _ = bench.send(1, 100, 0, Some(MS));
    let packets = batch(&mut bench, 0);
    assert!(!bench.qdisc.bypass(&packets), "a packet waits");
    bench.later(MS);
    assert_eq!(bench.take(9).len(), 1);
    // A flow is idle: a turn forgets it in time.
    let bypassed = (0..100).filter(|_| bench.qdisc.bypass(&packets)).count();
    assert_eq!(bypassed, TIDY as usize);
    bench.later(3001 * MS);
    assert!(bench.take(1).is_empty());
    assert_eq!(bench.stat("flows"), 0);
    assert!((0..100).all(|_| bench.qdisc.bypass(&packets)));
}

#[test]
fn idle_flows_are_forgotten() {
    let mut bench = Bench::slow("nopacing");
    for flow in 1..=1000 {
        let _ = bench.send(flow, 60, 0, None);
    }
    assert_eq!(bench.take(2000).len(), 1000);
    assert_eq!((bench.stat("flows"), bench.stat("inactive")), (1000, 1000));
    bench.later(3001 * MS);
    for _ in 0..1000 / 8 + 1 {
        bench.take(1);
    }
    assert_eq!((bench.stat("flows"), bench.stat("gc")), (0, 1000));
    let _ = bench.send(5, 60, 0, None);
    assert_eq!(bench.flows(1), [5]);
}

/// A quantum of one byte means many rounds, and takes no longer.
#[test]
fn tiny_quanta_are_exact() {
    let mut bench = Bench::slow("quantum 1 initial_quantum 0 nopacing flow_limit 1000");
    for _ in 0..300 {
        let _ = bench.send(1, 9000, 0, None);
        let _ = bench.send(2, 900, 0, None);
    }
    let flows = bench.flows(110);
    let ones = flows.iter().filter(|&&f| f == 1).count();
    assert!((9..=11).contains(&ones), "{ones}");
}

#[test]
fn a_smaller_limit_drops_what_is_beyond() {
    let mut bench = Bench::new("");
    for flow in 1..=3 {
        bench.fill(10, flow, 100, 0, Some(MS));
    }
    bench.change("limit 12").unwrap();
    assert_eq!((bench.qdisc.qlen(), bench.qdisc.stats().backlog, bench.qdisc.stats().drops), (12, 1200, 18));
    bench.later(MS);
    let flows = bench.flows(64);
    assert_eq!((1..=3).map(|f| flows.iter().filter(|&&g| g == f).count()).collect::<Vec<_>>(), [4, 4, 4]);
    assert!(bench.change("limit x").is_err());
}

/// Without a rate there is a fast path again, and no flow still waits for the old rate, where it would be overtaken.
#[test]
fn a_rate_taken_away_holds_nobody_back() {
    let mut bench = Bench::new("maxrate 0");
    bench.fill(3, 1, 100, 0, None);
    assert_eq!(bench.numbers(9), [0]);
    bench.change("maxrate 34359738360").unwrap();
    bench.fill(1, 1, 100, 0, None);
    assert_eq!(bench.numbers(9), [1, 2, 3]);
}

#[test]
fn frames_without_a_hash_are_told_by_their_headers() {
    let mut bench = Bench::slow("orphan_mask 0 nopacing");
    let mut send = |ethertype: [u8; 2], last: u8| {
        let mut frame = vec![last; 12];
        frame.extend(ethertype);
        frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, last]);
        let mut packet = bench.cache.alloc(frame.len()).unwrap();
        packet.data_mut().copy_from_slice(&frame);
        let _ = bench.push(packet);
        bench.stat("flows")
    };
    assert_eq!([send([8, 0], 1), send([8, 0], 2), send([8, 0], 1)], [1, 2, 2]);
    assert_eq!([send([8, 6], 1), send([8, 6], 2)], [3, 3], "no bit of these hashes counts");
}

/// More flows than a cache holds: the table grows, and each packet is found again.
#[test]
fn many_flows_each_get_their_turn() {
    let flows = MANY_FLOWS as u32 * 3 / 2;
    let mut bench = Bench::slow("nopacing quantum 100 initial_quantum 100");
    for round in 0..2 {
        let mut batch = PacketList::new();
        for flow in 1..=flows {
            let mut packet = bench.cache.alloc(100).unwrap();
            packet.set_hash(flow);
            packet.set_cookie(u64::from(flow) << 32 | round);
            batch.push_back(packet);
        }
        bench.with(|q, cx| q.enqueue_batch(&mut batch, cx));
        assert!(batch.is_empty());
    }
    assert_eq!(bench.stat("flows"), u64::from(flows));
    for round in 0..2 {
        let mut out: Vec<_> = bench.take(flows as usize).iter().map(|p| p.cookie()).collect();
        out.sort_unstable();
        assert_eq!(out, (1..=u64::from(flows)).map(|flow| flow << 32 | round).collect::<Vec<_>>());
    }
    assert_eq!((bench.qdisc.qlen(), bench.stat("inactive")), (0, u64::from(flows)));
}
