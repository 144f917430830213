//! Rings without room, and drivers that keep packets without a ring.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use txq::NetDev;
use txq::netdev::{BuildError, DriverBug};

use crate::liar::Liar;
use crate::{audited, bounded, build, everywhere, packets, pool, settle};

#[test]
fn a_ring_of_no_packets_is_refused() {
    let wrong = NetDev::builder(Liar::new(Some(0))).pool_config(pool()).build().expect_err("an error");
    assert!(matches!(&wrong, BuildError::Ring { device, txq: 0 } if device == "liar"), "{wrong}");
    let dev = NetDev::builder(Liar::new(Some(4))).pool_config(pool()).build().unwrap();
    let wrong = dev.replace_driver(Liar::new(Some(0))).unwrap_err();
    assert!(wrong.to_string().starts_with("device \"liar\", txq 0: a ring of 0 packets"), "{wrong}");
    let mut sender = dev.sender("s");
    let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), 0..3));
    assert_eq!(dev.stats().sent, 3, "the old driver is still there");
}

/// A driver without a ring that keeps packets is reported, packets that it completes come home, and the worker polls less
/// and less often while none arrive.
#[test]
fn a_driver_that_keeps_packets_without_a_ring_is_polled_ever_more_seldom() {
    bounded(|| {
        everywhere(|root, discipline| {
            let liar = Liar::new(None);
            liar.state().keeps = true;
            let told = Arc::new(Mutex::new(Vec::new()));
            let tell = told.clone();
            let builder = NetDev::builder(liar.clone());
            let dev = build(
                builder.on_driver_bug(move |event| tell.lock().unwrap().push(event.bug)),
                root,
                discipline,
            );
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), 0..3));
            settle(&dev, &mut worker);
            // Senders have reaped, and the worker reports.
            worker.poll();
            assert_eq!(*told.lock().unwrap(), [DriverBug::KeptWithoutRing], "{root}, {discipline}");
            assert_eq!(audited(&dev).sent, 3);
        });
    });
    let liar = Liar::new(None);
    liar.state().keeps = true;
    liar.state().hoards = true;
    let dev = NetDev::builder(liar.clone()).pool_config(pool()).start().unwrap();
    let _ = dev.sender("s").xmit_batch(&mut packets(&mut dev.sender("its own"), 0..3));
    std::thread::sleep(Duration::from_millis(50));
    let (before, began) = (liar.state().polls, Instant::now());
    std::thread::sleep(Duration::from_millis(200));
    let (polls, time) = (liar.state().polls - before, began.elapsed());
    // Once in 10 ms; every 20 us would be 10,000 times.
    assert!(polls as u128 <= time.as_millis() / 5, "{polls} polls in {time:?}");
    liar.state().hoards = false;
    assert!(dev.drain(Duration::from_secs(10)), "the worker still polls: {:?}", dev.stats());
}
