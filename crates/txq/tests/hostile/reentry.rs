//! A device's own code calls the device: it sends, reads counters, changes and drops it, from within a driver, a qdisc, a
//! filter, a completion. The call is served or panics with a clear text, and no thread waits for itself.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use txq::Instant;
use txq::bql::Attr;
use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::tc::Handle;
use txq::{Discipline, NetDev, Sender};

use crate::{audited, bounded, build, packets, pool, settle};

/// The place from which the device's own code calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    StartXmit,
    Poll,
    Enqueue,
    Dequeue,
    QueueLength,
}

type Call = Box<dyn FnMut() + Send>;

/// A driver and a qdisc that make a given call at one place, once armed, and are honest otherwise.
#[derive(Clone, Default)]
pub(crate) struct Spot {
    call: Arc<Mutex<Option<(Where, Call)>>>,
    pub(crate) calls: Arc<AtomicUsize>,
    /// Whether the driver's `finish` was called.
    pub(crate) finished: Arc<AtomicBool>,
    ring: Option<u32>,
}

impl Spot {
    pub(crate) fn new(ring: Option<u32>) -> Self {
        Self { ring, ..Self::default() }
    }

    /// Makes the next visits of a place call `call`.
    pub(crate) fn arm(&self, at: Where, call: impl FnMut() + Send + 'static) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, Box::new(call)));
    }

    pub(crate) fn disarm(&self) {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(call);
    }

    fn visit(&self, at: Where) {
        // Disarmed during the call, which may come here again.
        let armed =
            self.call.lock().unwrap_or_else(PoisonError::into_inner).take_if(|(place, _)| *place == at);
        if let Some((at, mut call)) = armed {
            let ended = catch_unwind(AssertUnwindSafe(&mut call));
            self.calls.fetch_add(1, Relaxed);
            *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, call));
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Driver for Spot {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("spot")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let half = Half { spot: self.clone(), kept };
        Ok(DriverQueue::new(half.clone(), half).ring(self.ring))
    }
}

#[derive(Clone)]
struct Half {
    spot: Spot,
    kept: Arc<Mutex<VecDeque<Packet>>>,
}

impl Transmit for Half {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        self.spot.visit(Where::StartXmit);
        if self.spot.ring.is_some() {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(std::iter::from_fn(|| batch.pop_front()));
        } else {
            cx.sent_all(batch);
        }
        Status::Ok
    }

    fn finish(&mut self) -> io::Result<()> {
        self.spot.finished.store(true, Relaxed);
        Ok(())
    }
}

impl Complete for Half {
    fn poll(&mut self, budget: usize, done: &mut PacketList, _: &mut Clock) -> Option<Instant> {
        self.spot.visit(Where::Poll);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let n = budget.min(kept.len());
        done.extend(kept.drain(..n));
        None
    }
}

/// First in, first out.
pub(crate) struct SpotQdisc(pub(crate) Spot, pub(crate) VecDeque<Packet>);

impl Qdisc for SpotQdisc {
    fn kind(&self) -> &'static str {
        "spot"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        self.0.visit(Where::Enqueue);
        self.1.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        self.0.visit(Where::Dequeue);
        out.extend(std::iter::from_fn(|| self.1.pop_front()).take(budget.packets));
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.1.drain(..).for_each(|packet| cx.drop(packet, DropReason::QueuePurge));
    }

    fn qlen(&self) -> usize {
        self.0.visit(Where::QueueLength);
        self.1.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats::default()
    }
}

impl Shortcuts for SpotQdisc {}

/// Runs the test on a device for each place and each name of a discipline, or `noqueue`.
fn each_place(test: impl Fn(Where, Spot, NetDev, &str)) {
    for at in [Where::StartXmit, Where::Poll, Where::Enqueue, Where::Dequeue, Where::QueueLength] {
        for &discipline in Discipline::ALL {
            let spot = Spot::new((at == Where::Poll).then_some(8));
            let qdisc = SpotQdisc(spot.clone(), VecDeque::new());
            let builder = NetDev::builder(spot.clone()).custom_qdisc(qdisc).discipline(discipline);
            let dev = builder.pool_config(pool()).build().expect("a device");
            test(at, spot, dev, discipline.name());
        }
        if matches!(at, Where::StartXmit | Where::Poll) {
            let spot = Spot::new((at == Where::Poll).then_some(8));
            let dev = build(NetDev::builder(spot.clone()), "noqueue", Discipline::Combine);
            test(at, spot, dev, "noqueue");
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

type Question = (&'static str, fn(&NetDev));

/// All calls that wait for the owner of a queue.
const QUESTIONS: [Question; 17] = [
    ("NetDev::stats", |dev| drop(dev.stats())),
    ("NetDev::is_idle", |dev| drop(dev.audit())),
    ("NetDev::is_idle", |dev| assert!(dev.is_idle())),
    ("NetDev::is_idle", |dev| assert!(dev.drain(Duration::from_nanos(1)))),
    ("NetDev::latency", |dev| drop(dev.latency())),
    ("NetDev::lateness", |dev| assert_eq!(dev.lateness().count(), 0)),
    ("NetDev::contention", |dev| drop(dev.contention())),
    ("NetDev::set_contention", |dev| dev.set_contention(true)),
    ("NetDev::show_bql", |dev| drop(dev.show_bql(0, Attr::Limit))),
    ("NetDev::set_bql", |dev| drop(dev.set_bql(0, Attr::Limit, "1000"))),
    ("A control call", |dev| drop(dev.qdiscs(Default::default()))),
    ("A control call", |dev| drop(dev.tc("qdisc replace root pfifo"))),
    ("A control call", |dev| drop(dev.reset_qdisc("root"))),
    ("A control call", |dev| dev.deactivate()),
    ("A control call", |dev| dev.set_tx_queue_len(1)),
    ("A control call", |dev| drop(dev.replace_driver(Spot::new(None)))),
    ("Worker::poll", |dev| {
        dev.worker(0).poll();
    }),
];

/// A call that would wait for its own caller panics with a text, at each place, in a sender and in the worker; the device
/// continues.
#[test]
fn who_asks_from_within_is_told_so() {
    bounded(|| {
        each_place(|at, spot, dev, discipline| {
            let dev = Arc::new(dev);
            let (within, said) = (Arc::downgrade(&dev), Arc::new(Mutex::new(Vec::new())));
            let say = said.clone();
            spot.arm(at, move || {
                let Some(dev) = within.upgrade() else { return };
                for (call, question) in QUESTIONS {
                    let panic = catch_unwind(AssertUnwindSafe(|| question(&dev))).expect_err(call);
                    say.lock().unwrap().push((call, text(&*panic)));
                }
            });
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), 0..3));
            worker.poll();
            spot.disarm();
            settle(&dev, &mut worker);
            let said = said.lock().unwrap();
            assert!(said.len() >= QUESTIONS.len(), "{at:?}, {discipline}: nobody asked");
            for (call, text) in said.iter() {
                assert!(text.starts_with(&format!("{call} of device \"spot\" would wait")), "{at:?}: {text}");
            }
            let stats = audited(&dev);
            assert_eq!((stats.sent, stats.dropped.total()), (3, 0), "{at:?}, {discipline}");
        });
    });
}

/// If the caller does not catch that panic, it is a panic of a driver or a qdisc like any other.
#[test]
fn who_asks_from_within_and_dies_loses_one_packet_a_time() {
    bounded(|| {
        each_place(|at, spot, dev, discipline| {
            let dev = Arc::new(dev);
            let within = Arc::downgrade(&dev);
            let mut times = 2;
            spot.arm(at, move || {
                if let Some(dev) = within.upgrade().filter(|_| times > 0) {
                    times -= 1;
                    drop(dev.stats());
                }
            });
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            for i in 0..4 {
                let mut batch = packets(&mut dev.sender("its own"), i * 3..i * 3 + 3);
                let _ = catch_unwind(AssertUnwindSafe(|| sender.xmit_batch(&mut batch)));
                drop(batch);
            }
            settle(&dev, &mut worker);
            spot.disarm();
            settle(&dev, &mut worker);
            let stats = audited(&dev);
            assert_eq!(stats.accepted, stats.sent + stats.dropped.total(), "{at:?}, {discipline}: {stats:?}");
            let full = stats.dropped.get(DropReason::FullRing);
            assert!(full == 0 || discipline == "noqueue", "{at:?}, {discipline}: {stats:?}");
            assert_eq!(stats.dropped.total(), stats.dropped.get(DropReason::NotSpecified) + full);
            assert!(stats.dropped.total() <= 6, "{at:?}, {discipline}: {stats:?}");
            drop((sender, worker));
            assert_eq!(dev.pool().in_use(), Default::default(), "{at:?}, {discipline}: buffers are not home");
        });
    });
}

/// A device's code sends through its own device: packets that can be queued are sent; where the sender would wait for the
/// owner, which is itself, it is a loop.
#[test]
fn who_sends_from_within_waits_for_nobody() {
    bounded(|| {
        each_place(|at, spot, dev, discipline| {
            let sender: Arc<Mutex<Sender>> = Arc::new(Mutex::new(dev.sender("within")));
            let (within, mut left) = (sender.clone(), 200);
            spot.arm(at, move || {
                // More than 64 calls: a sender then checks again which txq it uses.
                for _ in 0..100.min(left) {
                    left -= 1;
                    let mut sender = within.lock().unwrap();
                    let packet = sender.alloc(60).expect("the pool is large enough");
                    let _ = sender.xmit(packet);
                }
            });
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), 0..3));
            let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), 3..6));
            settle(&dev, &mut worker);
            spot.disarm();
            let stats = audited(&dev);
            assert_eq!(stats.accepted, 206, "{at:?}, {discipline}: {stats:?}");
            let looped = stats.dropped.get(DropReason::RecursionLimit);
            assert_eq!(
                (stats.sent, stats.dropped.total()),
                (206 - looped, looped),
                "{at:?}, {discipline}: {stats:?}"
            );
            let waits = ["spinlock", "busylock", "llist"].contains(&discipline) && at != Where::StartXmit;
            assert!(looped == 0 || waits || discipline == "noqueue", "{at:?}, {discipline}: {stats:?}");
        });
    });
}

/// A sender that reaches its limit within the data path does not reap as a sender outside does: its queue may be the caller's.
#[test]
fn a_sender_at_its_limit_within_reaps_nothing() {
    bounded(|| {
        each_place(|at, spot, dev, discipline| {
            let mut within = dev.sender("within");
            within.set_limit(32);
            let mut send = move || {
                if let Ok(packet) = within.alloc(60) {
                    let _ = within.xmit(packet);
                }
            };
            // So that it would be alone.
            (0..8).for_each(|_| send());
            spot.arm(at, move || (0..40).for_each(|_| send()));
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), 0..1));
            let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), 1..2));
            spot.disarm();
            settle(&dev, &mut worker);
            let stats = audited(&dev);
            assert_eq!(stats.accepted, stats.sent + stats.dropped.total(), "{at:?}, {discipline}: {stats:?}");
        });
    });
}

/// A filter's closure reads counters, sends and panics, in each kind that has filters.
#[test]
fn a_filter_calls_its_device() {
    bounded(|| {
        for &discipline in Discipline::ALL {
            for qdisc in [
                "handle 1: prio",
                "handle 1: fq_codel",
                "handle 1: cake",
                "handle 1: htb default 1",
                "handle 1: drr",
            ] {
                let spot = Spot::new(None);
                let dev = Arc::new(build(NetDev::builder(spot), qdisc, discipline));
                if qdisc.ends_with("drr") || qdisc.contains("htb") {
                    let kind = if qdisc.ends_with("drr") { "drr" } else { "htb rate 1gbit" };
                    dev.tc(&format!("class add parent 1: classid 1:1 {kind}")).expect("a class");
                }
                let within = Arc::downgrade(&dev);
                let sender = Mutex::new(dev.sender("within"));
                let (calls, panics) = (AtomicUsize::new(0), Arc::new(AtomicU64::new(0)));
                let count = panics.clone();
                dev.add_classifier(Handle::new(1, 0), 1, move |packet| {
                    let call = calls.fetch_add(1, Relaxed);
                    let dev = within.upgrade()?;
                    if packet.mark() == 0 {
                        let asked = catch_unwind(AssertUnwindSafe(|| dev.stats()));
                        assert!(asked.is_err(), "it is told");
                        let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
                        let mut packet = sender.alloc(60).ok()?;
                        packet.set_mark(1);
                        let _ = sender.xmit(packet);
                        drop(sender);
                        if call % 5 == 3 {
                            count.fetch_add(1, Relaxed);
                            panic!("the filter panics, as the test wants");
                        }
                    }
                    Some(Handle::new(1, 1))
                })
                .expect("a filter");
                let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
                for i in 0..20 {
                    let mut batch = packets(&mut dev.sender("its own"), i * 3..i * 3 + 3);
                    let _ = catch_unwind(AssertUnwindSafe(|| sender.xmit_batch(&mut batch)));
                }
                settle(&dev, &mut worker);
                let stats = dev.audit().unwrap_or_else(|wrong| panic!("{qdisc}, {discipline}: {wrong}"));
                assert_eq!(
                    stats.accepted,
                    stats.sent + stats.dropped.total(),
                    "{qdisc}, {discipline}: {stats:?}"
                );
                let lost = stats.dropped.get(DropReason::NotSpecified);
                assert_eq!(lost, panics.load(Relaxed), "{qdisc}, {discipline}: one packet a panic");
                assert!(lost > 0, "{qdisc}, {discipline}: nobody asked the filter");
                dev.tc("qdisc del root").expect("it goes");
            }
        }
    });
}

/// A replaced qdisc or driver changes the device once more while it is dropped: that call is refused.
#[test]
fn a_change_within_a_change_is_told_so() {
    struct Last(Arc<NetDev>, Arc<Mutex<String>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let asked = catch_unwind(AssertUnwindSafe(|| self.0.tc("qdisc replace root bfifo")));
            *self.1.lock().unwrap() = text(&*asked.expect_err("it would wait"));
            // Counters do not need the lock that a change holds.
            assert_eq!(self.0.stats().sent, 0);
        }
    }
    bounded(|| {
        let dev = Arc::new(build(NetDev::builder(Spot::new(None)), "pfifo", Discipline::Combine));
        let (last, said) = (dev.clone(), Arc::new(Mutex::new(String::new())));
        let spot = Spot::new(None);
        let last = Last(last, said.clone());
        spot.arm(Where::Poll, move || {
            let _ = &last;
        });
        dev.replace_driver(spot.clone()).unwrap();
        // The last clone of the call belongs to the driver.
        drop(spot);
        dev.replace_driver(Spot::new(None)).unwrap();
        let said = said.lock().unwrap();
        assert!(said.starts_with("a control call of device \"spot\" would wait"), "{said}");
        assert!(dev.qdiscs(Default::default())[0].kind == "pfifo");
        audited(&dev);
    });
}
