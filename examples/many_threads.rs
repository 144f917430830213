//! Four threads send through one device with two txqs: builder, sender, packet, report.

use std::error::Error;
use std::time::Duration;

use txq::NetDev;
use txq_device::Null;

fn main() -> Result<(), Box<dyn Error>> {
    let dev = NetDev::builder(Null::new(2)).qdisc("mq").default_qdisc("pfifo limit 1000").start()?;
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let mut sender = dev.sender(&format!("sender {thread}"));
            threads.spawn(move || {
                for _ in 0..1000 {
                    // No free packet means that enough packets are outstanding.
                    let Ok(packet) = sender.packet(b"a frame, from its Ethernet header on") else { continue };
                    let _ = sender.xmit(packet);
                }
            });
        }
    });
    dev.drain(Duration::from_secs(1));
    let stats = dev.audit()?;
    println!("accepted {}, sent {}, dropped {}", stats.accepted, stats.sent, stats.dropped.total());
    print!("{}", txq::tc::show_text(&dev.qdiscs(Default::default()), true));
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
