//! A qdisc that panics while it is replaced, or while its device goes down: the change is made, the panic is raised, and the
//! queues that follow send.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::{Discipline, NetDev};

use crate::liar::Liar;
use crate::{bounded, packets, pool};

/// What of it panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Panics {
    Reset,
    /// Each call after some, but for its name and its counters.
    All,
    /// Its drop, and its reset.
    Drop,
}

struct Explosive {
    panics: Panics,
    queue: VecDeque<Packet>,
    /// Calls until the first panic.
    fuse: Cell<u32>,
}

impl Explosive {
    fn new(panics: Panics, fuse: u32) -> Self {
        Self { panics, queue: VecDeque::new(), fuse: Cell::new(fuse) }
    }

    fn call(&self) {
        self.fuse.set(self.fuse.get().saturating_sub(1));
        assert!(self.panics != Panics::All || self.fuse.get() > 0, "the qdisc panics, as the test wants");
    }
}

impl Drop for Explosive {
    fn drop(&mut self) {
        assert!(self.panics != Panics::Drop, "the qdisc panics, as the test wants");
    }
}

impl Qdisc for Explosive {
    fn kind(&self) -> &'static str {
        "explosive"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        self.call();
        self.queue.push_back(packet);
        Verdict::Success
    }

    /// Keeps all packets.
    fn dequeue_batch(&mut self, _: Budget, _: &mut PacketList, _: &mut Cx<'_>) {
        self.call();
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.call();
        if let Some(first) = self.queue.pop_front() {
            cx.drop(first, DropReason::QueuePurge);
        }
        panic!("the qdisc panics, as the test wants");
    }

    fn qlen(&self) -> usize {
        self.call();
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats::default()
    }
}

impl Shortcuts for Explosive {
    fn limit(&self) -> Option<usize> {
        self.call();
        Some(1000)
    }
}

struct TwoTxqs(Liar);

impl Driver for TwoTxqs {
    fn info(&self) -> DeviceInfo {
        self.0.info().txqs(2)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        self.0.open(txq)
    }
}

const RULES: [&str; 3] = ["root pfifo", "root mq", "root noqueue"];

/// Sends five packets, and waits until they are out.
fn sends(dev: &NetDev, what: &str) {
    let (mut sender, mut worker) = (dev.sender("after"), dev.worker(0));
    let mut batch = packets(&mut sender, 0..5);
    let accepted = dev.stats().accepted;
    assert_eq!(sender.xmit_batch(&mut batch), Verdict::Success, "{what}");
    assert_eq!(dev.stats().accepted, accepted + 5);
    for _ in 0..100 {
        worker.poll();
    }
    assert!(dev.drain(Duration::from_secs(10)), "{what}: {:?}", dev.stats());
}

#[test]
fn a_replaced_qdisc_panics() {
    bounded(|| {
        for &discipline in Discipline::ALL {
            for panics in [Panics::Reset, Panics::All, Panics::Drop] {
                for fuse in 10..if panics == Panics::All { 40 } else { 11 } {
                    for first in 0..3 {
                        let what = format!("{discipline}, {panics:?} after {fuse} calls, {}", RULES[first]);
                        let qdisc = Explosive::new(panics, fuse);
                        let dev = NetDev::builder(TwoTxqs(Liar::new(None))).custom_qdisc(qdisc);
                        let dev = dev.discipline(discipline).pool_config(pool()).build().unwrap();
                        let mut sender = dev.sender("before");
                        for i in 0..3 {
                            let mut batch = packets(&mut sender, i * 3..i * 3 + 3);
                            let _ = catch_unwind(AssertUnwindSafe(|| sender.xmit_batch(&mut batch)));
                        }
                        let replace = || {
                            catch_unwind(AssertUnwindSafe(|| {
                                dev.tc(&format!("qdisc replace {}", RULES[first]))
                            }))
                        };
                        let mut panicked = replace().is_err();
                        // If the panic comes when the first visit asks which packets have bypassed the qdisc, nothing changes.
                        if dev.qdiscs(Default::default())[0].kind == "explosive" {
                            panicked &= replace().is_err();
                        }
                        assert!(panicked, "{what}: the panic is raised");
                        let attached = dev.qdiscs(Default::default())[0].kind.clone();
                        assert_eq!(format!("root {attached}"), RULES[first], "{what}");
                        sends(&dev, &what);
                        for next in 1..4 {
                            dev.tc(&format!("qdisc replace {}", RULES[(first + next) % 3])).unwrap();
                            sends(&dev, &what);
                        }
                        let stats = dev.audit().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                        assert_eq!(stats.queued, 0, "{what}");
                        drop(sender);
                        assert_eq!(dev.pool().in_use(), Default::default(), "{what}: buffers are not home");
                    }
                }
            }
        }
    });
}

#[test]
fn a_qdisc_panics_while_its_device_goes_down() {
    bounded(|| {
        for &discipline in Discipline::ALL {
            let dev =
                NetDev::builder(TwoTxqs(Liar::new(None))).custom_qdisc(Explosive::new(Panics::Reset, 1));
            let dev = dev.discipline(discipline).pool_config(pool()).build().unwrap();
            let mut sender = dev.sender("s");
            let mut xmit =
                |first| sender.xmit_batch(&mut packets(&mut dev.sender("maker"), first..first + 5));
            assert_eq!(xmit(0), Verdict::Success, "{discipline}");
            let down = catch_unwind(AssertUnwindSafe(|| dev.deactivate()));
            assert!(down.is_err() && !dev.is_active(), "{discipline}: the panic is raised, and it is down");
            assert_eq!(xmit(5), Verdict::Congested, "{discipline}");
            dev.activate();
            assert_eq!(xmit(10), Verdict::Success, "{discipline}");
            let replaced = catch_unwind(AssertUnwindSafe(|| dev.tc("qdisc replace root mq")));
            assert!(replaced.is_err(), "{discipline}: the panic is raised");
            sends(&dev, "after the qdisc");
            let stats = dev.audit().unwrap_or_else(|wrong| panic!("{discipline}: {wrong}"));
            assert_eq!((stats.sent, stats.dropped.total()), (5, 15), "{discipline}");
        }
    });
}
