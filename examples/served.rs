//! A program that `txq tc` re-shapes while it sends: one call serves the device.
//!
//! ```sh
//! cargo run --example served &
//! txq ls
//! txq tc --name served qdisc replace dev null0 root tbf rate 1mbit burst 10k latency 50ms
//! txq tc --name served -s qdisc show dev null0
//! ```

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use txq::NetDev;
use txq_device::Null;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().unwrap_or_else(|| "served".to_owned());
    run(&place, arguments.next().map_or(Ok(60), |text| text.parse())?)
}

/// Serves a device at `place`, and sends through it for so many seconds.
pub(crate) fn run(place: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    let dev = NetDev::builder(Null::new(1)).qdisc("pfifo limit 1000").start()?;
    let server = txq_control::serve(&dev, place)?;
    println!("serving on {}", server.path().display());
    let (mut sender, start) = (dev.sender("main"), Instant::now());
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..10 {
            // Without a buffer, enough packets wait in the qdisc.
            let Ok(packet) = sender.packet(&[0; 1000]) else { break };
            let _ = sender.xmit(packet);
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
