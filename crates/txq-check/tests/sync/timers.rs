//! Timers that threads set and one thread takes: due timers are taken, by a taker that observes the writes before they were
//! set, and that is awake for them.
//!
//! Guards the timers (`txq/src/sync/timers.rs`) and the worker that sleeps until the first of them (`schedule.rs`,
//! `worker.rs`). Mutants that it catches: a relaxed set or a relaxed take, by a causality violation at the payload; a take
//! in two steps, a set in two steps, a set that replaces an earlier time, or one that does not notify, by a taker that
//! sleeps for ever (a deadlock). The tests at the end run in real time, without a checker: there a worker that misses a
//! timer leaves packets in a shaper.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use txq::Discipline;
use txq::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::generic::netdev::{Builder, NetDev};
use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{Arch, Atomic, CellApi, Event, Nanos, Native};
use txq_core::packet::PacketList;
use txq_core::sync::timers::Timers;

/// The time in the scenarios: a timer set for later is never due.
const NOW: Nanos = 100;
const LATER: Nanos = NOW + 1;

struct Shared<A: Model> {
    timers: Timers<A>,
    event: A::Event,
    /// What each thread wrote before it set its timer.
    payload: Box<[A::Cell<u64>]>,
}

// SAFETY: a cell is written before its thread sets a timer, and read when the timer has been taken; the checker verifies
// that.
unsafe impl<A: Model> Send for Shared<A> {}
// SAFETY: as above.
unsafe impl<A: Model> Sync for Shared<A> {}

impl<A: Model> Shared<A> {
    fn new(timers: usize, threads: usize) -> Arc<Self> {
        let payload = (0..threads).map(|_| A::Cell::new(0)).collect();
        Arc::new(Self { timers: Timers::new(timers), event: A::Event::new(), payload })
    }

    fn set(&self, timer: usize, at: Nanos) {
        if self.timers.set(timer, at) {
            self.event.notify();
        }
    }

    fn write(&self, who: usize) {
        // SAFETY: see above.
        self.payload[who].with_mut(|p| unsafe { *p += 1 });
    }

    fn read(&self, who: usize) -> u64 {
        // SAFETY: see above.
        self.payload[who].with(|p| unsafe { *p })
    }

    /// Takes timers, and sleeps until there are more, until `done` returns true.
    fn take_until(&self, mut done: impl FnMut(usize) -> bool) {
        let mut is_done = false;
        loop {
            self.timers.take_due(|| NOW, |timer| is_done |= done(timer));
            if is_done {
                break;
            }
            // As in `Worker::run`. In a model a future deadline is never reached, and a deadline of 0 has passed.
            self.event.wait(self.timers.earliest().map(|at| if at <= NOW { 0 } else { at }));
        }
    }
}

/// Each of `threads` has a timer of its own, and sets it first for later and then for a time that has come.
fn each_its_own<A: Model>(threads: usize) {
    let shared = Shared::<A>::new(threads, threads);
    let setters: Vec<_> = (0..threads)
        .map(|who| {
            let shared = shared.clone();
            A::spawn(who as u32 + 1, move || {
                shared.set(who, LATER);
                shared.write(who);
                shared.set(who, NOW - who as u64);
            })
        })
        .collect();
    let mut taken = vec![0; threads];
    shared.take_until(|timer| {
        assert_eq!(shared.read(timer), 1, "a timer is taken before its thread was ready");
        taken[timer] += 1;
        taken.iter().all(|&times| times > 0)
    });
    setters.into_iter().for_each(|join| join());
    assert!(taken.iter().all(|&times| times == 1), "taken twice: {taken:?}");
    assert_eq!(shared.timers.earliest(), None, "a timer is left that nobody set");
}

#[test]
fn one_sets_its_timer_under_loom() {
    Loom::check(|| each_its_own::<Loom>(1));
}

#[test]
fn two_set_their_timers_under_loom() {
    Loom::check(|| each_its_own::<Loom>(2));
}

#[test]
fn four_set_their_timers_under_shuttle() {
    Shuttle::check(|| each_its_own::<Shuttle>(4));
}

/// A due timer is set to an earlier time while it is taken. The taker observes the second thread's work in the same turn or
/// in one more; a taker that loses the earlier time sleeps for ever.
fn work_of_two<A: Model>() {
    let shared = Shared::<A>::new(1, 0);
    let work = Arc::new([A::AtomicU32::new(0), A::AtomicU32::new(0)]);
    let do_work = |who: usize, at: Nanos| {
        let (shared, work) = (shared.clone(), work.clone());
        move || {
            // Relaxed: only the timer informs the taker.
            work[who].store(1, Relaxed);
            shared.set(0, at);
        }
    };
    do_work(0, NOW)();
    let other = A::spawn(1, do_work(1, NOW - 1));
    shared.take_until(|_| work.iter().all(|done| done.load(Relaxed) == 1));
    other();
}

#[test]
fn work_of_two_under_loom() {
    Loom::check(work_of_two::<Loom>);
}

/// Two threads re-arm one timer, one for a time that has come and one for later, in either order: it is taken.
fn earlier_and_later<A: Model>(threads: u64, each: u64) {
    let shared = Shared::<A>::new(1, 0);
    let setters: Vec<_> = (0..threads)
        .map(|who| {
            let shared = shared.clone();
            A::spawn(who as u32 + 1, move || {
                for n in 0..each {
                    shared.set(0, if (who + n) % 2 == 0 { NOW - who } else { LATER + n });
                }
            })
        })
        .collect();
    shared.take_until(|_| true);
    setters.into_iter().for_each(|join| join());
    // All are set: timers due after the first turn can be taken, and the rest are for later.
    shared.timers.take_due(|| NOW, |_| ());
    assert!(shared.timers.earliest().is_none_or(|at| at > NOW), "what is due stays");
}

#[test]
fn earlier_and_later_under_loom() {
    Loom::check(|| earlier_and_later::<Loom>(2, 1));
    Loom::check(|| earlier_and_later::<Loom>(2, 2));
}

#[test]
fn earlier_and_later_under_shuttle() {
    Shuttle::check(|| earlier_and_later::<Shuttle>(4, 4));
}

/// A timer for later keeps its time until then.
#[test]
fn what_is_not_due_is_not_taken() {
    let timers = Timers::<Native>::new(40);
    assert_eq!(timers.earliest(), None);
    assert!(
        timers.set(3, 50)
            && timers.set(39, 20)
            && timers.set(3, 30)
            && !timers.set(3, 30)
            && !timers.set(3, 31)
    );
    assert_eq!(timers.earliest(), Some(20));
    let take = |now| {
        let mut taken: Vec<usize> = Vec::new();
        timers.take_due(|| now, |timer| taken.push(timer));
        taken
    };
    assert_eq!(take(19), [0; 0]);
    assert_eq!(take(29), [39]);
    assert_eq!(timers.earliest(), Some(30));
    assert_eq!(take(30), [3]);
    assert_eq!((take(1000), timers.earliest()), (vec![], None));
}

/// Sends everything at once. It counts with std's atomic, because reading `NetDev::stats` may wake a worker.
#[derive(Clone, Default)]
struct Sink(Arc<AtomicU64>);

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue { tx: Box::new(self.clone()), done: Box::new(NoCompletions), ring: None })
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        self.0.fetch_add(batch.len() as u64, Relaxed);
        cx.sent_all(batch);
        Status::Ok
    }
}

impl Sink {
    /// Returns whether it has sent `packets`, now or within ten seconds.
    fn has_sent(&self, packets: u64) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        while self.0.load(Relaxed) < packets && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.load(Relaxed) == packets
    }
}

const PACKETS: u64 = 10;

/// Returns a device that shapes to one packet per 0.2 ms.
fn shaper(sink: &Sink, discipline: Discipline) -> Builder {
    NetDev::builder(sink.clone()).qdisc("tbf rate 4mbit burst 100b limit 10k").discipline(discipline)
}

fn send_ten(dev: &NetDev) {
    let mut sender = dev.sender("s");
    let mut batch = PacketList::new();
    assert_eq!(sender.alloc_batch(PACKETS as usize, 100, &mut batch), Ok(PACKETS as usize));
    let _ = sender.xmit_batch(&mut batch);
}

#[test]
fn a_shaper_sends_all_with_only_the_worker_awake() {
    for &discipline in Discipline::ALL {
        let sink = Sink::default();
        let dev = shaper(&sink, discipline).start().expect("a device");
        send_ten(&dev);
        assert!(sink.has_sent(PACKETS), "{discipline}: {} of {PACKETS} were sent", sink.0.load(Relaxed));
    }
}

/// As above, from a program's own loop, which sleeps until `Worker::poll`'s time and is woken by its waker.
#[test]
fn a_shaper_sends_all_from_a_programs_own_loop() {
    for &discipline in Discipline::ALL {
        let sink = Sink::default();
        let dev = shaper(&sink, discipline).build().expect("a device");
        let mut worker = dev.worker(0);
        let woken = Arc::new((Mutex::new(false), Condvar::new()));
        let wake = {
            let woken = woken.clone();
            move || {
                *woken.0.lock().expect("no panic") = true;
                woken.1.notify_one();
            }
        };
        worker.set_waker(wake.clone());
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let looping = std::thread::spawn(move || {
            while !ended.load(Relaxed) {
                let next = worker.poll();
                let left =
                    next.map_or(Duration::MAX, |at| Duration::from_nanos(at.saturating_sub(Native::now())));
                let token = woken.0.lock().expect("no panic");
                let (mut token, _) = woken
                    .1
                    .wait_timeout_while(token, left.min(Duration::from_secs(60)), |token| !*token)
                    .expect("no panic");
                *token = false;
            }
        });
        send_ten(&dev);
        let all = sink.has_sent(PACKETS);
        end.store(true, Relaxed);
        wake();
        looping.join().expect("the loop ends");
        assert!(all, "{discipline}: not all were sent");
    }
}
