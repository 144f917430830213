//! A device ends at a bad place: in its own driver or qdisc, on its own worker, while others send, in a forked child.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use txq::{Discipline, NetDev};

use crate::liar::Liar;
use crate::reentry::{Spot, SpotQdisc, Where};
use crate::{bounded, packets, pool};

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn started(spot: &Spot, discipline: Discipline) -> NetDev {
    let qdisc = SpotQdisc(spot.clone(), VecDeque::new());
    let builder = NetDev::builder(spot.clone()).custom_qdisc(qdisc).discipline(discipline);
    builder.pool_config(pool()).start().expect("a device")
}

/// It is dropped in its own data path: the call continues, drivers finish, workers end, and later packets are dropped.
#[test]
fn a_device_is_dropped_in_its_own_path() {
    bounded(|| {
        for &discipline in Discipline::ALL {
            for at in [Where::StartXmit, Where::Poll, Where::Enqueue, Where::Dequeue] {
                let spot = Spot::new((at == Where::Poll).then_some(8));
                let dev = started(&spot, discipline);
                let (mut sender, mut maker) = (dev.sender("s"), dev.sender("its own"));
                let held = Mutex::new(Some(dev));
                spot.arm(at, move || drop(held.lock().unwrap().take()));
                let _ = sender.xmit_batch(&mut packets(&mut maker, 0..5));
                until("the driver finishes", || {
                    let _ = sender.xmit_batch(&mut packets(&mut maker, 0..1));
                    spot.finished.load(Relaxed)
                });
                // A driver finishes while the thread that ends the device owns the queue. That thread drops what others leave to it.
                until("later packets are dropped at once", || {
                    sender.xmit_batch(&mut packets(&mut maker, 0..1)) == txq::qdisc::Verdict::Drop
                });
                spot.disarm();
            }
        }
    });
}

/// A shutdown there returns an error and changes nothing.
#[test]
fn a_shutdown_in_its_own_path_is_an_error() {
    bounded(|| {
        let spot = Spot::new(None);
        let dev = Arc::new(Mutex::new(Some(started(&spot, Discipline::Combine))));
        let mut sender = dev.lock().unwrap().as_ref().expect("it is there").sender("s");
        let said = Arc::new(Mutex::new(String::new()));
        let (held, say) = (dev.clone(), said.clone());
        spot.arm(Where::StartXmit, move || {
            if let Some(dev) = &mut *held.lock().unwrap() {
                *say.lock().unwrap() = dev.shutdown().expect_err("it would wait").to_string();
            }
        });
        let packet = sender.alloc(60).unwrap();
        let _ = sender.xmit(packet);
        assert!(said.lock().unwrap().starts_with("device \"spot\" cannot be shut down from its own driver"));
        spot.disarm();
        let dev = dev.lock().unwrap().take().expect("it is there");
        assert_eq!(dev.stats().sent, 1);
        drop(dev);
        assert!(spot.finished.load(Relaxed));
    });
}

/// Its worker drops it, in a hook, or in a completion.
#[test]
fn a_device_is_dropped_on_its_own_worker() {
    bounded(|| {
        for workers in [1, 3] {
            let held: Arc<Mutex<Option<NetDev>>> = Arc::default();
            let (take, liar) = (held.clone(), Liar::new(None));
            liar.state().keeps = true;
            let builder = NetDev::builder(liar.clone()).workers(workers).pool_config(pool());
            let builder = builder.on_driver_bug(move |_| drop(take.lock().unwrap().take()));
            let dev = builder.start().unwrap();
            let (mut sender, mut maker) = (dev.sender("s"), dev.sender("its own"));
            *held.lock().unwrap() = Some(dev);
            let _ = sender.xmit_batch(&mut packets(&mut maker, 0..5));
            until("the worker drops it", || held.lock().unwrap().is_none());
            until("it is down", || {
                sender.xmit_batch(&mut packets(&mut maker, 0..1)) == txq::qdisc::Verdict::Drop
            });
        }
        let spot = Spot::new(Some(8));
        let dev = NetDev::builder(spot.clone()).completions(txq::netdev::Completions::Worker);
        let dev = dev.pool_config(pool()).start().unwrap();
        let mut sender = dev.sender("s");
        let held = Mutex::new(Some(dev));
        spot.arm(Where::Poll, move || drop(held.lock().unwrap().take()));
        let packet = sender.alloc(60).unwrap();
        let _ = sender.xmit(packet);
        until("the driver finishes", || spot.finished.load(Relaxed));
        spot.disarm();
    });
}

/// A thread panics with the device on its stack: workers end nevertheless, and drivers finish.
#[test]
fn a_device_is_dropped_by_a_panic() {
    bounded(|| {
        let spot = Spot::new(None);
        let dev = started(&spot, Discipline::Combine);
        let died = catch_unwind(AssertUnwindSafe(move || {
            let _dev = dev;
            panic!("the owner panics, as the test wants");
        }));
        assert!(died.is_err());
        until("the driver finishes", || spot.finished.load(Relaxed));
    });
}

/// Threads drop it while others send, read counters, and run its worker.
#[test]
fn a_device_is_dropped_while_others_send() {
    bounded(|| {
        let queues = Discipline::ALL.iter().map(|&discipline| ("pfifo", discipline));
        for (root, discipline) in queues.chain([("noqueue", Discipline::default())]) {
            for round in 0..5 {
                let liar = Liar::new(Some(16));
                let dev =
                    NetDev::builder(liar.clone()).qdisc(root).discipline(discipline).pool_config(pool());
                let dev = Arc::new(dev.start().unwrap());
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        let (mut sender, dev) = (dev.sender("s"), dev.clone());
                        scope.spawn(move || {
                            for i in 0..200 {
                                if let Ok(packet) = sender.alloc(60) {
                                    let _ = sender.xmit(packet);
                                }
                                if i == 20 * round {
                                    let _ = dev.stats();
                                }
                            }
                            drop(dev);
                        });
                    }
                    std::thread::sleep(Duration::from_micros(200 * round));
                    let left = Arc::downgrade(&dev);
                    drop(dev);
                    until("the last one drops it", || left.strong_count() == 0);
                });
                liar.forget();
            }
        }
    });
}

/// A qdisc whose reset panics does not keep workers alive.
#[test]
fn a_qdisc_panics_while_its_device_ends() {
    struct Never(SpotQdisc);
    impl txq::qdisc::Qdisc for Never {
        fn kind(&self) -> &'static str {
            "never"
        }
        fn enqueue(
            &mut self,
            packet: txq::packet::Packet,
            cx: &mut txq::qdisc::Cx<'_>,
        ) -> txq::qdisc::Verdict {
            self.0.enqueue(packet, cx)
        }
        fn dequeue_batch(
            &mut self,
            _: txq::qdisc::Budget,
            _: &mut txq::packet::PacketList,
            _: &mut txq::qdisc::Cx<'_>,
        ) {
        }
        fn reset(&mut self, _: &mut txq::qdisc::Cx<'_>) {
            panic!("the qdisc panics, as the test wants");
        }
        fn qlen(&self) -> usize {
            self.0.qlen()
        }
        fn stats(&self) -> txq::stats::QdiscStats {
            self.0.stats()
        }
    }
    impl txq::qdisc::Shortcuts for Never {}
    bounded(|| {
        for &discipline in Discipline::ALL {
            let spot = Spot::new(None);
            let qdisc = Never(SpotQdisc(spot.clone(), VecDeque::new()));
            let dev = NetDev::builder(spot.clone()).custom_qdisc(qdisc).discipline(discipline);
            let mut dev = dev.pool_config(pool()).start().unwrap();
            let _ = dev.sender("s").xmit_batch(&mut packets(&mut dev.sender("its own"), 0..5));
            let ended = catch_unwind(AssertUnwindSafe(|| dev.shutdown()));
            assert!(ended.is_err(), "{discipline}: its panic is told");
            assert!(dev.shutdown().is_ok(), "{discipline}: once");
            assert!(spot.finished.load(Relaxed));
        }
    });
}

/// A forked child drops the device: nothing happens, there or in the parent.
#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_forked_child_drops_it() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    bounded(|| {
        let spot = Spot::new(None);
        let mut dev = started(&spot, Discipline::Combine);
        // SAFETY: the child calls nothing that needs a lock that another thread may hold, except for the allocator, which
        // glibc makes usable in children.
        let child = unsafe { fork() };
        if child == 0 {
            let told = dev
                .shutdown()
                .is_err_and(|e| e.to_string().ends_with("a forked child has none of its threads"));
            drop(dev);
            let ended = told && !spot.finished.load(Relaxed);
            // SAFETY: it does not return.
            unsafe { _exit(if ended { 0 } else { 1 }) }
        }
        let mut status = -1;
        // SAFETY: `status` is ours.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has not ended as it should");
        let _ = dev.sender("s").xmit_batch(&mut packets(&mut dev.sender("its own"), 0..5));
        assert!(dev.drain(Duration::from_secs(10)));
        assert_eq!(dev.audit().unwrap().sent, 5);
        assert!(dev.shutdown().is_ok() && spot.finished.load(Relaxed));
    });
}
