//! Measures how many packets a second txq sends through AF_XDP on one queue of an interface.
//!
//! ```text
//! ip link add tx0 type veth peer name rx0 && ip link set tx0 up && ip link set rx0 up
//! cargo run --release -p txq-device --example xdp_speed -- tx0 [ROUNDS [QDISC [LENGTH]]]
//! ```
//!
//! Prints a line a round: millions of packets a second that the interface has sent, by its own counter, and the CPU time of a
//! packet, the kernel's included, which a busy machine does not change.

use std::time::{Duration, Instant};

use txq::NetDev;
use txq::packet::PacketList;
use txq::pool::Pool;
use txq_device::AfXdp;

mod speed;

use speed::{BATCH, cpu_time};

const ROUND: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let ifname = words.next().ok_or("usage: xdp_speed INTERFACE [ROUNDS [QDISC [LENGTH]]]")?;
    let rounds: u32 = words.next().map_or(Ok(5), |word| word.parse())?;
    let qdisc = words.next().unwrap_or("pfifo".to_owned());
    let len: usize = words.next().map_or(Ok(64), |word| word.parse())?;
    let pool = Pool::new(&AfXdp::pool_config(8192))?;
    let device = AfXdp::open(&ifname, 1, &pool)?;
    println!("{ifname}: {:?}, {qdisc}, {len} bytes", device.mode());
    let mut dev = NetDev::builder(device).pool(pool).qdisc(&qdisc).start()?;
    let mut sender = dev.sender("main");
    let count = format!("/sys/class/net/{ifname}/statistics/tx_packets");
    let sent = || -> Result<u64, Box<dyn std::error::Error>> {
        Ok(std::fs::read_to_string(&count)?.trim().parse()?)
    };
    let mut batch = PacketList::new();
    for round in 1..=rounds {
        let (begin, before, cpu) = (Instant::now(), sent()?, cpu_time());
        while begin.elapsed() < ROUND {
            // A clock read costs a hundredth of what these packets do.
            for _ in 0..16 {
                if sender.alloc_batch(BATCH, len, &mut batch).is_err() {
                    break;
                }
                // A frame of an experimental protocol, to everybody.
                batch.for_each_mut(|packet| {
                    let data = packet.data_mut();
                    data.fill(0);
                    data[..6].fill(0xff);
                    data[12..14].copy_from_slice(&[0x88, 0xb5]);
                });
                let _ = sender.xmit_batch(&mut batch);
            }
        }
        let packets = sent()? - before;
        let rate = packets as f64 / begin.elapsed().as_secs_f64() / 1e6;
        let each = (cpu_time() - cpu).as_nanos() as f64 / packets as f64;
        println!("round {round}: {rate:.3} Mpps, {each:.0} ns of CPU time each");
    }
    dev.drain(Duration::from_secs(1));
    let stats = dev.audit()?;
    println!("accepted {}, sent {}, dropped {}", stats.accepted, stats.sent, stats.dropped.total());
    dev.shutdown()?;
    Ok(())
}
