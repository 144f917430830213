//! A driver that panics over a lone sender's batch: the packets that it did not take are sent, though no other packet comes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use txq::{Discipline, NetDev};

use crate::liar::{Liar, Lie};
use crate::{bounded, packets, pool};

#[test]
fn packets_that_a_panic_leaves_are_sent() {
    bounded(|| {
        for &discipline in Discipline::ALL {
            for qdisc in ["pfifo", "pfifo_fast", "prio", "fq_codel"] {
                for panics in [1, 2] {
                    let what = format!("{discipline} {qdisc} {panics}");
                    let liar = Liar::new(None);
                    let builder = NetDev::builder(liar.clone()).qdisc(qdisc).discipline(discipline);
                    let dev = builder.pool_config(pool()).start().expect("a device");
                    let mut sender = dev.sender("s");
                    // The first turn finds out that there is no crowd.
                    for n in 0..3 {
                        let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), n..n + 1));
                    }
                    assert!(dev.drain(Duration::from_secs(50)), "{what}");
                    liar.lie(Lie::Panics(0), panics, dev.sender("driver"));
                    let mut batch = packets(&mut dev.sender("its own"), 3..8);
                    let caught = catch_unwind(AssertUnwindSafe(|| sender.xmit_batch(&mut batch)));
                    assert!(caught.is_err(), "{what}");
                    assert!(dev.drain(Duration::from_secs(5)), "{what}: {:?}", dev.stats());
                    let stats = dev.audit().unwrap();
                    let lost = panics as u64;
                    assert_eq!((stats.sent, stats.dropped.total()), (8 - lost, lost), "{what}");
                    let left = (0..3).chain(3 + lost..8);
                    assert_eq!(liar.state().sent, Vec::from_iter(left), "{what}");
                    liar.forget();
                }
            }
        }
    });
}
