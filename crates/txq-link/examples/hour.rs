//! A simulated hour of a link of 10 Mbit/s, full in one direction: `cargo run --release -p txq-link --example hour`.

use std::time::Instant;

use txq_link::{Direction, Link, Packet};

const HOUR: u64 = 3600 * 1_000_000_000;

fn main() -> Result<(), txq_link::LinkError> {
    let text = "up tbf rate 10mbit burst 5k latency 50ms | netem delay 20ms loss 0.1%\ndown netem delay 20ms";
    let mut link = Link::new(text, txq_link::seed())?;
    let start = Instant::now();
    // 1250 bytes take a millisecond: a packet each 0.9 ms is more than the link carries.
    for now in (0..HOUR).step_by(900_000) {
        link.send(now, Direction::Up, Packet::new(vec![0; 1222]).header(28));
        while let Some(packet) = link.poll(now) {
            if packet.direction == Direction::Up && packet.at.as_nanos() % 2 == 0 {
                link.send(now, Direction::Down, Packet::new(vec![0; 40]).header(28));
            }
        }
    }
    let (time, counts) = (start.elapsed(), link.counts(Direction::Up));
    println!(
        "an hour of 10 Mbit/s in {:.1} s: {} packets sent, {} arrived, {} lost",
        time.as_secs_f64(),
        counts.sent,
        counts.arrived,
        counts.lost
    );
    Ok(())
}
