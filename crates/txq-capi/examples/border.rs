//! What the border of C costs: the same work by the functions of C and by the library's own, in turn, on one thread.
//! `cargo run --release -p txq-capi --example border [MILLISECONDS]`
//!
//! | work | calls for each batch |
//! |---|---|
//! | `pfifo`, `fq_codel`, `htb` | enqueue, dropped, dequeue of a scheduler with 1024 flows or classes, two packets in each |
//! | `xmit` | alloc and xmit of a sender, through pfifo to the device `null` |

use std::ffi::CString;
use std::hint::black_box;
use std::ptr;
use std::time::{Duration, Instant};

use ::txq_sched::qdisc::Budget;
use ::txq_sched::{Item, Scheduler};
use txq::NetDev;
use txq::packet::PacketList;
use txq_c::config::{txq_dev_config_new, txq_dev_config_set};
use txq_c::device::{txq_dev_free, txq_dev_start};
use txq_c::sched::{
    TXQ_LINK_ETHERNET, txq_departed, txq_dropped, txq_item, txq_sched, txq_sched_dequeue, txq_sched_dropped,
    txq_sched_enqueue, txq_sched_free, txq_sched_new, txq_sched_tc,
};
use txq_c::sender::{txq_packet, txq_sender, txq_sender_alloc, txq_sender_free, txq_sender_new, txq_xmit};
use txq_device::Null;

const FLOWS: u32 = 1024;
const LENGTH: u32 = 100;
const ROUNDS: u32 = 8;

/// Something that moves a batch of packets; returns how many.
type Turn = Box<dyn FnMut() -> u64>;
type Enqueue = unsafe extern "C" fn(*mut txq_sched, u64, *const txq_item, usize) -> i64;
type Dequeue = unsafe extern "C" fn(*mut txq_sched, u64, *mut txq_departed, usize, u64) -> i64;
type TakeDropped = unsafe extern "C" fn(*mut txq_sched, *mut txq_dropped, usize) -> i64;
type Alloc = unsafe extern "C" fn(*mut txq_sender, *mut txq_packet, usize, usize) -> i64;
type Xmit = unsafe extern "C" fn(*mut txq_sender, *const txq_packet, usize) -> i32;

fn main() {
    let ms = std::env::args().nth(1).and_then(|ms| ms.parse().ok()).unwrap_or(100);
    let time = Duration::from_millis(ms);
    println!("{:<10}{:>6}{:>10}{:>10}{:>8}", "work", "batch", "Rust ns", "C ns", "ratio");
    for batch in [1, 32] {
        for kind in ["pfifo", "fq_codel", "htb"] {
            compare(kind, batch, time, rust_sched(kind, batch), c_sched(kind, batch));
        }
        compare("xmit", batch, time, rust_xmit(batch), c_xmit(batch));
    }
}

/// Runs both in turn, and prints the time of a packet in each.
fn compare(work: &str, batch: usize, time: Duration, mut rust: Turn, mut c: Turn) {
    let mut measured = [[0.0; ROUNDS as usize]; 2];
    for round in 0..=ROUNDS as usize {
        for (turn, times) in [&mut rust, &mut c].into_iter().zip(&mut measured) {
            let (start, mut packets) = (Instant::now(), 0);
            while start.elapsed() < time {
                (0..64).for_each(|_| packets += turn());
            }
            // The first round warms up.
            if let Some(round) = round.checked_sub(1) {
                times[round] = start.elapsed().as_nanos() as f64 / packets as f64;
            }
        }
    }
    let [rust, c] = measured.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[ROUNDS as usize / 2 - 1] + times[ROUNDS as usize / 2]) / 2.0
    });
    println!("{work:<10}{batch:>6}{rust:>10.1}{c:>10.1}{:>8.2}", c / rust);
}

/// Returns the root and the commands of a kind.
fn tree(kind: &str) -> (&'static str, Vec<String>) {
    match kind {
        "pfifo" => ("pfifo limit 10000", Vec::new()),
        "fq_codel" => ("fq_codel flows 4096 target 10s interval 20s", Vec::new()),
        _ => {
            let class = |n| {
                format!("class add parent 1: classid 1:{:x} htb rate 10gbit burst 15k quantum 1514", 16 + n)
            };
            ("handle 1: htb", (0..FLOWS).map(class).collect())
        }
    }
}

fn rust_sched(kind: &str, batch: usize) -> Turn {
    let (root, commands) = tree(kind);
    let mut sched = Scheduler::new(root).expect("a qdisc");
    commands.iter().for_each(|command| drop(sched.tc(0, command).expect("a command")));
    let start = Instant::now();
    let (mut next, mut out) = (0, Vec::new());
    let mut queue = move |sched: &mut Scheduler<usize>, n: usize, now: u64| {
        for _ in 0..n {
            next = (next + 1) % FLOWS;
            let item = Item::new(LENGTH, next as usize).hash(1 + next).priority(0x1_0010 + next);
            let _ = sched.enqueue(now, item);
            assert_eq!(sched.dropped().count(), 0);
        }
    };
    queue(&mut sched, 2 * FLOWS as usize, 0);
    Box::new(move || {
        let now = start.elapsed().as_nanos() as u64;
        out.clear();
        let n = sched.dequeue_batch(now, Budget::packets(batch), &mut out);
        black_box(&out);
        queue(&mut sched, n, now);
        n as u64
    })
}

fn c_sched(kind: &str, batch: usize) -> Turn {
    let (root, commands) = tree(kind);
    let text = |text: &str| CString::new(text).expect("no NUL");
    // SAFETY: a text with a NUL, and no configuration.
    let sched = unsafe { txq_sched_new(text(root).as_ptr(), ptr::null()) };
    for command in &commands {
        // SAFETY: a scheduler, and a text with a NUL.
        assert_eq!(unsafe { txq_sched_tc(sched, 0, text(command).as_ptr()) }, 0);
    }
    let start = Instant::now();
    let mut next = 0;
    // As a program of C calls them: through pointers that the compiler does not see through.
    let enqueue: Enqueue = black_box(txq_sched_enqueue);
    let dequeue: Dequeue = black_box(txq_sched_dequeue);
    let take_dropped: TakeDropped = black_box(txq_sched_dropped);
    let mut items = Vec::with_capacity(2 * FLOWS as usize);
    let mut queue = move |n: usize, now: u64| {
        items.clear();
        for _ in 0..n {
            next = (next + 1) % FLOWS;
            items.push(txq_item {
                size: size_of::<txq_item>() as u32,
                len: LENGTH,
                value: next as usize,
                header: ptr::null(),
                header_len: 0,
                link: TXQ_LINK_ETHERNET,
                priority: 0x1_0010 + next,
                mark: 0,
                hash: 1 + next,
                segments: 1,
                departure: 0,
            });
        }
        let mut dropped = txq_dropped { size: size_of::<txq_dropped>() as u32, reason: 0, value: 0 };
        // SAFETY: a scheduler, an array of `n` items, and one place.
        unsafe {
            assert_eq!(enqueue(sched, now, items.as_ptr(), n), n as i64);
            assert_eq!(take_dropped(sched, &mut dropped, 1), 0);
        }
    };
    queue(2 * FLOWS as usize, 0);
    let none = txq_departed { size: 0, len: 0, value: 0, departure: 0, tos: 0, reserved: 0 };
    let mut out = vec![none; batch];
    out[0].size = size_of::<txq_departed>() as u32;
    let freed = Freed(Box::new(move || {
        // SAFETY: a scheduler that is not used after.
        assert_eq!(unsafe { txq_sched_free(sched) }, 0);
    }));
    Box::new(move || {
        let _freed = &freed;
        let now = start.elapsed().as_nanos() as u64;
        // SAFETY: a scheduler, and an array of `batch` places.
        let n = unsafe { dequeue(sched, now, out.as_mut_ptr(), batch, 0) };
        assert!(n >= 0);
        black_box(&out);
        queue(n as usize, now);
        n as u64
    })
}

/// Frees handles when the work is over.
struct Freed(Box<dyn Fn()>);

impl Drop for Freed {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn rust_xmit(batch: usize) -> Turn {
    let dev = NetDev::builder(Null::new(1)).qdisc("pfifo").start().expect("a device");
    let mut sender = dev.sender("main");
    let mut list = PacketList::new();
    Box::new(move || {
        let _dev = &dev;
        let n = sender.alloc_batch(batch, LENGTH as usize, &mut list).unwrap_or(0);
        list.for_each_mut(|packet| packet.data_mut()[0] = 7);
        let _ = sender.xmit_batch(&mut list);
        n as u64
    })
}

fn c_xmit(batch: usize) -> Turn {
    // SAFETY: texts with a NUL, and handles that the functions returned.
    let (dev, sender) = unsafe {
        let config = txq_dev_config_new(c"null".as_ptr());
        assert_eq!(txq_dev_config_set(config, c"qdisc".as_ptr(), c"pfifo".as_ptr()), 0);
        let dev = txq_dev_start(config);
        (dev, txq_sender_new(dev, c"main".as_ptr()))
    };
    let alloc: Alloc = black_box(txq_sender_alloc);
    let xmit: Xmit = black_box(txq_xmit);
    // SAFETY: a struct of numbers and a raw pointer.
    let none: txq_packet = unsafe { std::mem::zeroed() };
    let mut packets = vec![none; batch];
    packets[0].size = size_of::<txq_packet>() as u32;
    let freed = Freed(Box::new(move || {
        // SAFETY: handles that are not used after.
        assert_eq!(unsafe { (txq_sender_free(sender), txq_dev_free(dev)) }, (0, 0));
    }));
    Box::new(move || {
        let _freed = &freed;
        // SAFETY: a sender, and arrays of `batch` packets; a packet has at least one byte.
        unsafe {
            let n = alloc(sender, packets.as_mut_ptr(), batch, LENGTH as usize);
            let n = n.max(0) as usize;
            packets[..n].iter().for_each(|packet| packet.data.write(7));
            let _ = xmit(sender, packets.as_ptr(), n);
            n as u64
        }
    })
}
