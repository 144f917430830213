//! How exactly shapers keep a rate over a UDP socket: four threads offer more than 20 Mbit/s, as clients of a VPN do, and the
//! receiving end counts.
//!
//! ```sh
//! cargo run --release -p txq-device --example udp_rate
//! cargo run --release -p txq-device --example udp_rate -- 30    # seconds for each shaper
//! ```

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use txq::packet::PacketList;
use txq::receive::Receive;
use txq::{NetDev, Sender};
use txq_device::Udp;
use txq_device::udp::{Datagram, Receiver};

/// The rate in bit/s, of bytes from the IP header on.
const RATE: f64 = 20e6;
const PAYLOAD: usize = 1172;
/// Time before the measurement, in which queues and buckets settle.
const WARM_UP: Duration = Duration::from_millis(500);

/// A shaper: the root qdisc, and the class and the qdisc below it.
const SHAPERS: [(&str, &str, &[&str], &[&str]); 4] = [
    ("tbf", "handle 1: tbf rate 20mbit burst 20k latency 50ms", &[], &[]),
    (
        "tbf + fq_codel",
        "handle 1: tbf rate 20mbit burst 20k latency 50ms",
        &[],
        &["parent 1:1 handle 10: fq_codel"],
    ),
    (
        "htb + fq_codel",
        "handle 1: htb default 10",
        &["parent 1: classid 1:10 htb rate 20mbit burst 20k cburst 20k"],
        &["parent 1:10 handle 10: fq_codel"],
    ),
    ("cake", "handle 1: cake bandwidth 20mbit", &[], &[]),
];

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(5.0), |text| text.parse())?;
    println!(
        "{:<16} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7}",
        "shaper", "Mbit/s", "error", "accepted", "sent", "dropped", "missed"
    );
    for (name, root, classes, qdiscs) in SHAPERS {
        let to = Udp::bind("127.0.0.1:0")?.receive_buffer(8 << 20)?;
        let dev = NetDev::builder(Udp::bind("127.0.0.1:0")?).qdisc(root).start()?;
        for class in classes {
            dev.tc(&format!("class add {class}"))?;
        }
        for qdisc in qdiscs {
            dev.tc(&format!("qdisc add {qdisc}"))?;
        }
        let (rate, receiver) = measure(&dev, &to, Duration::from_secs_f64(seconds))?;
        let stats = dev.audit()?;
        println!(
            "{name:<16} {:>8.3} {:>7.2}% {:>9} {:>9} {:>9} {:>7}",
            rate / 1e6,
            (rate / RATE - 1.0) * 100.0,
            stats.accepted,
            stats.sent,
            stats.dropped.total(),
            receiver.stats().missed
        );
    }
    Ok(())
}

/// Offers almost four times the rate for a time; returns the rate that arrives, and the receiver.
fn measure(dev: &NetDev, to: &Udp, time: Duration) -> Result<(f64, Receiver), Box<dyn Error>> {
    let (mut receiver, receiving) = (to.receiver()?, NetDev::builder(to.clone()).build()?);
    let mut buffers = receiving.sender("receiver");
    let end = AtomicBool::new(false);
    let rate = std::thread::scope(|scope| {
        for client in 0..4 {
            let (mut sender, to, end) = (dev.sender("client"), to.local_addr(), &end);
            scope.spawn(move || {
                while !end.load(Relaxed) {
                    offer(&mut sender, client, to);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let began = Instant::now();
        let mut count = || -> std::io::Result<f64> {
            let (mut first, mut bytes) = (None, 0);
            loop {
                let mut batch = PacketList::new();
                receiver.wait(Some(Duration::from_millis(100)))?;
                receiver.receive(64, &mut buffers, &mut batch)?;
                let now = Instant::now();
                match first {
                    Some(_) => bytes += batch.bytes(),
                    None if now - began >= WARM_UP && !batch.is_empty() => first = Some(now),
                    None => {}
                }
                if let Some(first) = first.filter(|&first| now - first >= time && !batch.is_empty()) {
                    return Ok(bytes as f64 * 8.0 / (now - first).as_secs_f64());
                }
            }
        };
        let rate = count();
        end.store(true, Relaxed);
        rate
    })?;
    if !dev.drain(Duration::from_secs(10)) {
        return Err("packets do not leave".into());
    }
    Ok((rate, receiver))
}

/// Sends two packets of each of two flows: 77 Mbit/s of all clients, if the system wakes them after 2 ms.
fn offer(sender: &mut Sender, client: u16, to: SocketAddr) {
    let mut batch = PacketList::new();
    for flow in [0, 0, 1, 1] {
        let from = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 1000 + client * 2 + flow));
        // Without a free buffer the datagram is lost, as at a full qdisc.
        let Ok(mut packet) = sender.packet(&[flow as u8; PAYLOAD]) else { break };
        Datagram::new(to).from(from).push(&mut packet).expect("headroom for the headers");
        batch.push_back(packet);
    }
    let _verdict = sender.xmit_batch(&mut batch);
}
