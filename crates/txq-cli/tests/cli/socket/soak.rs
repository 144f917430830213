//! A daemon for a long time: senders, a ring client, and tc changes at a rate. `cargo xtask check chaos --soak` runs it for five minutes.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use txq_control::socket::Client;
use txq_control::tc::Show;

use super::bench::{Bench, LONG, end};
use crate::support::process::{Running, wait_until};
use crate::support::socket_frame::frame;

/// The variable that has the duration in seconds.
const SECONDS: &str = "TXQ_SOAK_SECONDS";
/// The time between two changes.
const CHANGE: Duration = Duration::from_millis(50);
/// What the allocator may keep beyond what it had, in KiB: pages that a qdisc which is larger by chance has left.
const SLACK: u64 = 4096;

/// The changes, in a circle: each is valid after the ones before it.
const CHANGES: [&str; 24] = [
    "qdisc replace dev out root handle 1: htb default 20",
    "class add dev out parent 1: classid 1:10 htb rate 100mbit ceil 1gbit",
    "class add dev out parent 1: classid 1:20 htb rate 900mbit ceil 10gbit",
    "qdisc add dev out parent 1:10 handle 10: fq_codel limit 500",
    "qdisc add dev out parent 1:20 handle 20: sfq",
    "filter add dev out parent 1: protocol ip pref 1 u32 match ip dport 9 0xffff classid 1:10",
    "filter add dev out parent 1: protocol ip pref 2 flower ip_proto udp classid 1:20",
    "class change dev out parent 1: classid 1:10 htb rate 200mbit ceil 2gbit",
    "qdisc replace dev out parent 1:20 handle 21: fq limit 2000",
    "filter del dev out parent 1: pref 1",
    "qdisc add dev out clsact",
    "filter add dev out egress protocol all pref 1 matchall action police rate 10gbit burst 1m conform-exceed drop/continue",
    "filter del dev out egress",
    "qdisc del dev out clsact",
    "class del dev out classid 1:10",
    "qdisc replace dev out root handle 2: prio",
    "qdisc add dev out parent 2:1 handle 30: netem delay 1ms loss 1% duplicate 1%",
    "qdisc change dev out parent 2:1 handle 30: netem delay 2ms",
    "qdisc replace dev out root cake bandwidth 5gbit",
    "qdisc replace dev out root fq_pie",
    "qdisc replace dev out root hfsc default 1",
    "qdisc replace dev out root dualpi2",
    "qdisc replace dev out root tbf rate 5gbit burst 100k latency 10ms",
    "qdisc replace dev out root pfifo limit 1000",
];

/// Changes qdiscs at the rate, and measures the memory once a second, for `seconds`; returns the number of changes and the memory in KiB.
fn change(daemon: &Running, socket: &str, seconds: u64) -> (usize, Vec<u64>) {
    let mut tc = txq_control::Client::connect(std::path::Path::new(socket)).expect("the daemon serves");
    let (begun, mut memory, mut changes) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let words: Vec<&str> = CHANGES[changes % CHANGES.len()].split(' ').collect();
        let answer = tc.tc(&words, Show::default()).expect("an answer");
        // Warnings are no errors.
        assert_eq!(answer.rc, 0, "{words:?}: {}", answer.err);
        changes += 1;
        if begun.elapsed().as_secs() > memory.len() as u64 {
            memory.push(daemon.status("RssAnon:"));
        }
        // Of a machine that is too slow, the changes come one after another.
        let due = CHANGE * u32::try_from(changes).expect("a number of changes");
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    (changes, memory)
}

/// Ends the client, also if a change fails.
struct Ending<'s>(&'s AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends frames at 2,000 a second until `stop`; returns how many.
fn send(path: &std::path::Path, stop: &AtomicBool) -> u32 {
    let mut client = Client::connect(path).expect("the daemon serves");
    let mut sent = 0;
    while !stop.load(Relaxed) {
        for _ in 0..20 {
            client.send(&frame(9, sent, 60), 0).expect("a connection");
            sent += 1;
        }
        thread::sleep(Duration::from_millis(10));
    }
    sent
}

#[test]
fn memory_is_flat_and_counters_are_exact_under_changes() {
    let seconds = std::env::var(SECONDS).map_or(5, |seconds| seconds.parse().expect("seconds"));
    let bench = Bench::new();
    let device = format!("[[device]]\nname = \"out\"\ntxqs = 2\n{}", bench.socket("lan", "device = \"out\""));
    let sender =
        "[[sender]]\ndevice = \"out\"\nthreads = 2\npacket = \"imix\"\nrate = \"80kpps\"\nflows = 64\n";
    let daemon = bench.daemon(&format!("{device}{sender}"), None);
    let stop = AtomicBool::new(false);
    let (ring, (changes, memory)) = thread::scope(|scope| {
        let ring = scope.spawn(|| send(&bench.file("lan.sock"), &stop));
        let ending = Ending(&stop);
        let done = change(&daemon, &bench.control(), seconds);
        drop(ending);
        (ring.join().expect("the client"), done)
    });
    // Without senders, all that is queued leaves.
    bench.write(&device);
    let (said, rc) = bench.txq("reload");
    assert_eq!(rc, 0, "{said}");
    let mut last = serde_json::Value::Null;
    let is_exact = wait_until(LONG, || {
        last = bench.counters("out");
        let of = |name: &str| last[name].as_u64().unwrap_or(u64::MAX);
        let rows = last.as_object().expect("counters");
        of("queued") == 0
            && of("in_flight") == 0
            && of("accepted") + of("created") == of("tx_packets") + of("tx_dropped")
            && of("socket_lan_frames") == u64::from(ring)
            && rows.iter().all(|(name, n)| !name.ends_with("_pending") || n == 0)
    });
    assert!(is_exact, "{ring} frames of the ring: {last:#}");
    assert!(last["tx_packets"].as_u64() > Some(u64::from(ring)), "{last:#}");
    println!(
        "{seconds} s: {changes} changes, {} accepted, {} created, {} sent, {} dropped, memory {memory:?} KiB",
        last["accepted"], last["created"], last["tx_packets"], last["tx_dropped"]
    );
    // A short run ends before the allocator has what the largest qdisc needs.
    if let [_, middle, late] = memory.chunks(memory.len().div_ceil(3).max(20)).collect::<Vec<_>>()[..] {
        let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
        assert!(most(late) <= most(middle) + SLACK, "the memory grows: {memory:?}");
    }
    end(daemon);
}
