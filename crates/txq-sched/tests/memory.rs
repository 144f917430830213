//! What a tree of many idle leaves takes, by the bytes that its allocations ask for, and idle schedulers, by their pages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use txq_sched::Scheduler;
use txq_sched::qdisc::Env;
use txq_sched::scheduler::Config;

/// The system's allocator, which counts.
struct Counting;

/// Bytes allocated and not freed.
static BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: each call is passed on to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: `at` came from `alloc` above, so from `System`, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Held by the test that measures: the memory is the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// A class of htb with an fq_codel that has had no packet takes 10 kB at most: 20,000 of them 200 MB.
#[test]
fn idle_leaves_take_little() {
    const LEAVES: i64 = 500;
    let _alone = ALONE.lock();
    let mut tree = Scheduler::<u32>::new("handle 1: htb").unwrap();
    let before = BYTES.load(Relaxed);
    for class in 1..=LEAVES {
        tree.tc(0, &format!("class add parent 1: classid 1:{class:x} htb rate 1mbit")).unwrap();
        tree.tc(0, &format!("qdisc add parent 1:{class:x} handle {:x}: fq_codel", 0x100 + class)).unwrap();
    }
    let each = (BYTES.load(Relaxed) - before) / LEAVES;
    assert!(each <= 10_000, "{each} bytes for each leaf");
    println!("{each} bytes for each leaf");
}

/// A new scheduler takes 16 KiB at most with its qdisc, in whole pages, of every kind.
#[test]
#[cfg(target_os = "linux")]
fn a_new_scheduler_takes_little() {
    const SCHEDULERS: usize = 200;
    const MOST: usize = 16 << 10;
    let _alone = ALONE.lock();
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    // multiq needs txqs.
    let config = Config { env: Env { txqs: 4, ..Env::default() }, ..Config::default() };
    let new = |kind: &str| Scheduler::<u32>::with_config(kind, &config).unwrap();
    let recording = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory.csv");
    std::fs::write(&recording, "duration,rate\n1s,10mbit\n").unwrap();
    let trace = format!("trace {}", recording.display());
    let kinds: Vec<&str> = KINDS.into_iter().chain([trace.as_str()]).collect();
    let all_kinds = Scheduler::<u32>::new("zzzz").unwrap_err().to_string();
    let (_, names) = all_kinds.split_once(" is none of ").expect("the names of all kinds");
    for name in names.trim_end_matches(')').split(", ") {
        let is_measured = kinds.iter().any(|kind| kind.split(' ').next() == Some(name));
        assert!(is_measured || NEED_DEVICES.contains(&name), "{name} is not measured");
    }
    // All are kept: what one of them frees would serve the next.
    let (mut large, mut all) = (Vec::new(), Vec::new());
    for kind in kinds {
        // What the kind shares, such as tables, is not the scheduler's.
        all.push(new(kind));
        all.reserve(SCHEDULERS);
        let (before, start) = (resident(), std::time::Instant::now());
        all.extend((0..SCHEDULERS).map(|_| new(kind)));
        let time = start.elapsed() / SCHEDULERS as u32;
        let each = resident().saturating_sub(before) / SCHEDULERS;
        println!("{each:6} bytes {time:9.1?} {kind}");
        large.extend((each > MOST).then_some((kind, each)));
    }
    assert!(large.is_empty(), "too many bytes: {large:?}");
}

/// The kinds that no scheduler has.
#[cfg(target_os = "linux")]
const NEED_DEVICES: [&str; 6] = ["mq", "mqprio", "noqueue", "tbf_mq", "htb_mq", "cake_mq"];

/// Every other kind but trace.
#[cfg(target_os = "linux")]
const KINDS: [&str; 25] = [
    "pfifo limit 100000",
    "bfifo limit 10m",
    "pfifo_fast",
    "prio",
    "multiq",
    "plug",
    "tbf rate 10mbit burst 5k latency 50ms",
    "blackhole",
    "codel",
    "fq_codel",
    "fq_pie",
    "fq",
    "cake bandwidth 10mbit",
    "netem delay 20ms 2ms distribution normal loss 0.5% rate 10mbit",
    "etf clockid CLOCK_TAI",
    "choke limit 1000 bandwidth 10mbit",
    "skbprio",
    "pie",
    "dualpi2",
    "red limit 400k avpkt 1000 bandwidth 10mbit",
    "sfq",
    "htb",
    "drr",
    "ets bands 4",
    "hfsc",
];
