//! What a tree of many idle leaves takes, by the bytes that its allocations ask for, and idle schedulers, by their pages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use txq_sched::Scheduler;

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

/// An unused scheduler takes 24 KiB at most with its qdisc, whole pages.
#[test]
#[cfg(target_os = "linux")]
fn an_unused_scheduler_takes_little() {
    const SCHEDULERS: usize = 200;
    let _alone = ALONE.lock();
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = resident();
    let schedulers = [(); SCHEDULERS].map(|()| Scheduler::<u32>::new("pfifo limit 100000").unwrap());
    let each = resident().saturating_sub(before) / SCHEDULERS;
    drop(schedulers);
    assert!(each <= 24 << 10, "{each} bytes for each scheduler");
    println!("{each} bytes for each scheduler");
}
