//! A program drives the device's worker from its own event loop: no thread is started.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use txq::NetDev;
use txq_device::Null;

fn main() -> Result<(), Box<dyn Error>> {
    // A link of 10 Mbit/s, so that there is something to wait for.
    let wire = Null { rate: Some(10_000_000), ring: 8, ..Null::new(1) };
    let dev = NetDev::builder(wire).qdisc("pfifo limit 100").build()?;
    let (mut sender, mut worker) = (dev.sender("loop"), dev.worker(0));

    // The loop's queue of events; an eventfd under epoll does as well.
    let (wake, events) = mpsc::sync_channel(1);
    worker.set_waker(move || {
        let _ = wake.try_send(());
    });

    for _ in 0..50 {
        let packet = sender.packet(&[0; 125])?;
        let _ = sender.xmit(packet);
    }
    loop {
        let next = worker.poll();
        if dev.is_idle() {
            break;
        }
        let wait = next.map_or(Duration::MAX, |at| at - txq::Instant::now());
        let _ = events.recv_timeout(wait);
    }
    let stats = dev.audit()?;
    println!("sent {} packets in {} ms", stats.sent, dev.age().as_millis());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
