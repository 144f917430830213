//! The thread that has the CPU does the link's pending work before it drops a packet. There is no interrupt: while a sender
//! at full rate has the CPU, no other thread reaps completions, empties the list in front of the queue, or returns from the
//! driver.
//!
//! Guards `TxQueue::reopen`, `enqueue/room.rs` and `Ctx::held_up`. No test here depends on speed: a thread that yields its
//! CPU calls the test's hook ([`sched_yield`]), which lets the other thread run until it is done.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use txq::drop::DropReason;
use txq::generic::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::generic::netdev::{Builder, Completions, NetDev};
use txq::generic::qdisc::{Budget, Cx, Qdisc, Verdict};
use txq::generic::{Discipline, Sender};
use txq::stats::QdiscStats;
use txq_core::arch::{Nanos, Native};
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Backing, PoolConfig};
use txq_core::sync::spsc::{Consumer, Producer, ring};

thread_local! {
    static ON_YIELD: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    /// What a hook panicked with.
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) };
}

/// Calls `f` while each yield of the calling thread calls `on_yield`; returns the number of yields and the result of `f`.
fn with_yields<R>(mut on_yield: impl FnMut() + 'static, f: impl FnOnce() -> R) -> (usize, R) {
    let yields = Arc::new(AtomicUsize::new(0));
    let count = yields.clone();
    let counted = move || {
        count.fetch_add(1, SeqCst);
        on_yield();
    };
    ON_YIELD.set(Some(Box::new(counted)));
    let result = f();
    ON_YIELD.set(None);
    if let Some(panic) = PANIC.take() {
        resume_unwind(panic);
    }
    (yields.load(SeqCst), result)
}

/// Replaces libc's function, which `Native` calls through std. A thread that has a hook calls it; any other yields its CPU.
/// An `Arch` with the hook would compile the whole path once more.
// SAFETY: its signature is that of libc's function, whose callers rely on no effect.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> libc::c_int {
    // The hook is taken out while it runs: it waits, and a wait may yield. A thread that ends may have no hook any more.
    if let Some(mut on_yield) = ON_YIELD.try_with(RefCell::take).ok().flatten() {
        // A panic must not unwind into a caller in C.
        match catch_unwind(AssertUnwindSafe(&mut on_yield)) {
            Ok(()) => ON_YIELD.set(Some(on_yield)),
            Err(panic) => PANIC.set(Some(panic)),
        }
        return 0;
    }
    // SAFETY: the system call takes no argument and changes no memory.
    unsafe { libc::syscall(libc::SYS_sched_yield) as libc::c_int }
}

/// A place in the device or the qdisc where the first thread that arrives while it is armed waits for the test.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Default)]
struct GateState {
    armed: AtomicBool,
    inside: AtomicBool,
    open: AtomicBool,
}

impl Gate {
    pub(crate) fn arm(&self) {
        self.0.armed.store(true, SeqCst);
    }

    pub(crate) fn pass(&self) {
        if self.0.armed.swap(false, SeqCst) {
            self.0.inside.store(true, SeqCst);
            wait_for(&self.0.open);
        }
    }

    pub(crate) fn wait_for_somebody(&self) {
        wait_for(&self.0.inside);
    }

    pub(crate) fn open(&self) {
        self.0.open.store(true, SeqCst);
    }
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(SeqCst) {
        thread::yield_now();
    }
}

const RING: u32 = 4;

/// A device that keeps packets until it is polled, and has completed them by then.
#[derive(Clone, Default)]
struct Device {
    txqs: u16,
    /// Whether only the worker may reap.
    forbids_inline: bool,
    in_driver: Gate,
    in_poll: Gate,
    polls: Arc<AtomicUsize>,
}

impl Driver for Device {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("model").txqs(self.txqs)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        let (kept, done) = ring(RING);
        let tx = Keep { kept, gate: self.in_driver.clone() };
        let done = Done { done, device: self.clone() };
        Ok(DriverQueue { tx: Box::new(tx), done: Box::new(done), ring: Some(RING) })
    }
}

struct Keep {
    kept: Producer<Native, Packet>,
    gate: Gate,
}

impl Transmit for Keep {
    fn start_xmit(&mut self, batch: &mut PacketList, _: &mut TxCx<'_>) -> Status {
        self.gate.pass();
        while let Some(packet) = batch.pop_front() {
            self.kept.push(packet).expect("the txq counts what the ring holds");
        }
        self.kept.publish();
        Status::Ok
    }
}

struct Done {
    done: Consumer<Native, Packet>,
    device: Device,
}

impl Complete for Done {
    fn poll(&mut self, budget: usize, done: &mut PacketList, _: &mut Clock) -> Option<Nanos> {
        self.device.polls.fetch_add(1, SeqCst);
        self.device.in_poll.pass();
        done.extend(std::iter::from_fn(|| self.done.pop()).take(budget));
        self.done.publish();
        None
    }

    fn inline(&self) -> bool {
        !self.device.forbids_inline
    }
}

/// A fifo with a gate in front.
struct Gated {
    queue: PacketList,
    gate: Gate,
}

impl Qdisc for Gated {
    fn kind(&self) -> &'static str {
        "gated"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        self.gate.pass();
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        self.queue.move_front(budget.packets, out);
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        std::iter::from_fn(|| self.queue.pop_front())
            .for_each(|packet| cx.drop(packet, DropReason::QueuePurge));
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { qlen: self.queue.len() as u64, ..QdiscStats::default() }
    }
}

fn builder(device: &Device, discipline: Discipline, completions: Completions) -> Builder {
    builder_of(device.clone(), discipline).completions(completions)
}

pub(crate) fn builder_of(driver: impl Driver + 'static, discipline: Discipline) -> Builder {
    let pool =
        PoolConfig { buffers: 1024, room: 64, headroom: 0, backing: Backing::Heap, ..PoolConfig::default() };
    Builder::new(Box::new(driver)).pool_config(pool).bql(None).discipline(discipline)
}

fn send(sender: &mut Sender) -> Verdict {
    let mut packet = sender.alloc(8).expect("the pool is large enough");
    packet.set_hash(1);
    sender.xmit(packet)
}

/// Works until no packet is in flight, and checks that none is missing. Returns how many packets were sent.
fn finish(dev: &NetDev) -> u64 {
    let mut worker = dev.worker(0);
    while !dev.is_idle() {
        worker.poll();
    }
    dev.audit().unwrap_or_else(|wrong| panic!("{wrong}")).sent
}

const BY_WORKER: [Completions; 2] = [Completions::Worker, Completions::PerQueue];

/// An owner that finds its txq stopped reaps, although another thread is responsible for reaping, and continues to send;
/// also where its queue serves several txqs.
#[test]
fn an_owner_reaps_its_stopped_txq() {
    for &discipline in Discipline::ALL {
        for (completions, qdisc) in BY_WORKER.into_iter().zip(["pfifo", "mq"]) {
            let device = Device { txqs: 2, ..Device::default() };
            let dev = builder(&device, discipline, completions).qdisc(qdisc).build().expect("a device");
            let mut sender = dev.sender_on("s", 0);
            for _ in 0..RING {
                assert_eq!(send(&mut sender), Verdict::Success);
            }
            assert!(dev.stats().queues[0].stopped, "{discipline}");
            assert_eq!(send(&mut sender), Verdict::Success);
            let sent = dev.stats().sent;
            assert_eq!(sent, u64::from(RING) + 1, "{discipline}, {completions:?}, {qdisc}");
        }
    }
}

/// A sender that finds the list in front of the queue full first reaps a stopped txq and yields its CPU to the owner. It
/// drops nothing if that is all that the owner needs.
#[test]
fn a_full_list_is_waited_for() {
    const BURST: u32 = 3;
    for discipline in [Discipline::Combine, Discipline::Lockless] {
        let device = Device { txqs: 1, ..Device::default() };
        let gate = Gate::default();
        let qdisc = Gated { queue: PacketList::new(), gate: gate.clone() };
        let builder = builder(&device, discipline, Completions::Worker).max_burst(BURST);
        let dev = builder.custom_qdisc(qdisc).build().expect("a device");
        let (mut owner, mut sender) = (dev.sender_on("owner", 0), dev.sender_on("s", 0));
        for _ in 0..RING {
            assert_eq!(send(&mut sender), Verdict::Success);
        }
        gate.arm();
        thread::scope(|threads| {
            let (done, is_done) = mpsc::channel();
            threads.spawn(move || {
                let _ = send(&mut owner);
                done.send(()).expect("the test goes on");
            });
            gate.wait_for_somebody();
            // combine does not count a packet that finds the list empty.
            for _ in 0..BURST + u32::from(discipline != Discipline::Lockless) {
                assert_eq!(send(&mut sender), Verdict::Success, "{discipline}");
            }
            let (polls, at_gate) = (device.polls.clone(), gate.clone());
            assert_eq!(polls.load(SeqCst), 0, "{discipline}: nobody had to reap");
            let on_yield = move || {
                let reaped = polls.load(SeqCst) > 0;
                at_gate.open();
                // Once: the owner needs no second turn.
                is_done.recv().expect("the owner comes back");
                assert!(reaped, "{discipline}: the txq is stopped, and nobody has reaped");
            };
            let (yields, verdict) = with_yields(on_yield, || send(&mut sender));
            gate.open();
            assert_eq!((yields, verdict), (1, Verdict::Success), "{discipline}");
        });
        finish(&dev);
        assert_eq!(dev.stats().dropped.total(), 0, "{discipline}");
    }
}

/// What prevents a sender from making room itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HeldUpBy {
    /// Another thread is in the driver.
    Driver,
    /// Another thread reaps.
    Reaper,
    /// Only the worker may reap.
    Rule,
}

/// If a sender's packet is dropped because only another thread can make room, the sender yields its CPU to that thread, once
/// for each call that drops.
#[test]
fn a_sender_that_drops_lets_the_thread_go_on_that_makes_room() {
    for &discipline in Discipline::ALL {
        for by in [HeldUpBy::Driver, HeldUpBy::Reaper, HeldUpBy::Rule] {
            // These owners keep the queue while they are in the driver: packets wait on their lists.
            let keeps = matches!(discipline, Discipline::Combine | Discipline::Lockless);
            if keeps && by == HeldUpBy::Driver {
                continue;
            }
            let what = format!("{discipline}, held up by {by:?}");
            let device = Device { txqs: 1, forbids_inline: by == HeldUpBy::Rule, ..Device::default() };
            let dev = builder(&device, discipline, Completions::Worker).qdisc("pfifo limit 1").build();
            let dev = dev.expect("a device");
            let (mut other, mut sender) = (dev.sender_on("other", 0), dev.sender_on("s", 0));
            let mut worker = dev.worker(0);
            let gate = if by == HeldUpBy::Driver { &device.in_driver } else { &device.in_poll };
            if by != HeldUpBy::Driver {
                for _ in 0..RING {
                    assert_eq!(send(&mut sender), Verdict::Success);
                }
            }
            // With `Rule` the worker has not begun when it gets the CPU.
            let begun = by != HeldUpBy::Rule;
            if begun {
                gate.arm();
            }
            thread::scope(|threads| {
                let (done, is_done) = mpsc::channel();
                let (go, may_go) = mpsc::channel();
                threads.spawn(move || {
                    may_go.recv().expect("the test goes on");
                    if by == HeldUpBy::Driver {
                        let _ = send(&mut other);
                    } else {
                        worker.poll();
                    }
                    done.send(()).expect("the test goes on");
                });
                if begun {
                    go.send(()).expect("the other thread waits");
                    gate.wait_for_somebody();
                }
                assert_eq!(send(&mut sender), Verdict::Success, "{what}: it is queued");
                let (to_open, starts) = (gate.clone(), go.clone());
                let on_yield = move || {
                    to_open.open();
                    if !begun {
                        starts.send(()).expect("the other thread waits");
                    }
                    is_done.recv().expect("the other thread gets through");
                };
                let (yields, verdict) = with_yields(on_yield, || send(&mut sender));
                gate.open();
                let _ = go.send(());
                assert_eq!((yields, verdict), (1, Verdict::Drop), "{what}");
                let (yields, verdict) = with_yields(|| {}, || send(&mut sender));
                assert_eq!((yields, verdict), (0, Verdict::Success), "{what}: there is room");
            });
            let sent = if by == HeldUpBy::Driver { 3 } else { u64::from(RING) + 2 };
            assert_eq!(finish(&dev), sent, "{what}");
        }
    }
}
