//! Attacks from safe code: drivers, qdiscs, filters and senders that lie, panic, re-enter and return late. Nothing aborts,
//! nothing hangs, no buffer is lost, and the audit reports exactly what is wrong.

mod drivers;
mod endings;
mod late;
mod liar;
mod parts;
mod qdiscs;
mod reentry;
mod replaced;
mod rings;
mod small;
mod stranded;
mod wakers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use txq::netdev::Builder;
use txq::pool::{Backing, PoolConfig};
use txq::stats::device::DeviceStats;
use txq::{Discipline, NetDev, Sender, Worker, packet::PacketList};

/// Calls `attack` for each queue: a root qdisc, and the discipline in front of it.
fn everywhere(attack: impl Fn(&str, Discipline)) {
    for &discipline in Discipline::ALL {
        attack("pfifo", discipline);
        attack("pfifo_fast", discipline);
    }
    attack("noqueue", Discipline::default());
}

/// Runs a test on a thread of its own, and fails if it hangs.
fn bounded(test: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(test));
        let _ = tell.send(());
        ended
    });
    // Far longer than any test takes: the machine may be busy.
    told.recv_timeout(Duration::from_secs(100)).expect("the test hangs");
    if let Err(panic) = thread.join().expect("the panic is caught") {
        std::panic::resume_unwind(panic);
    }
}

fn pool() -> PoolConfig {
    // Miri is slow at creating buffers, and `small` needs few.
    let buffers = if cfg!(miri) { 48 } else { 1024 };
    PoolConfig { buffers, room: 256, backing: Backing::Heap, ..Default::default() }
}

fn packets(sender: &mut Sender, cookies: std::ops::Range<u64>) -> PacketList {
    let one = |cookie| {
        let mut packet = sender.alloc(60).expect("the pool is large enough");
        packet.set_cookie(cookie);
        packet
    };
    cookies.map(one).collect()
}

/// Runs a worker until no packet is in flight, whatever panics meanwhile.
fn settle(dev: &NetDev, worker: &mut Worker) {
    for _ in 0..10_000 {
        let _ = catch_unwind(AssertUnwindSafe(|| worker.poll()));
        if dev.is_idle() {
            return;
        }
    }
    panic!("it does not settle: {:?}", dev.stats());
}

/// Returns the device's counters; checks that they add up.
fn audited(dev: &NetDev) -> DeviceStats {
    dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// Returns a device for one thread, which drives its worker.
fn build(builder: Builder, root: &str, discipline: Discipline) -> NetDev {
    builder.qdisc(root).discipline(discipline).pool_config(pool()).build().expect("a device")
}
