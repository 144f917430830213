//! Forwards frames between two interfaces, both ways, each way through its own qdisc: a bridge of two ports that shapes.
//!
//! ```text
//! forward eth0 eth1                                # fq_codel both ways
//! forward eth0 eth1 "cake bandwidth 20mbit"        # shaped both ways
//! ```

use std::time::Duration;

use txq::NetDev;
use txq::packet::PacketList;
use txq::receive::Receive;
use txq_device::AfPacket;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(&std::env::args().skip(1).collect::<Vec<_>>())
}

pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [from, to, rest @ ..] = args else { return Err("use: forward FROM TO [QDISC]".into()) };
    let qdisc = rest.first().map_or("fq_codel", String::as_str);
    let ports = [AfPacket::open(from, 1)?.gso(true), AfPacket::open(to, 1)?.gso(true)];
    std::thread::scope(|scope| {
        for (from, to) in [(&ports[0], &ports[1]), (&ports[1], &ports[0])] {
            let mut receiver = from.receivers(1)?.remove(0);
            let dev = NetDev::builder(to.clone()).qdisc(qdisc).start()?;
            scope.spawn(move || {
                let (mut sender, mut batch) = (dev.sender("forward"), PacketList::new());
                loop {
                    match receiver.receive(64, &mut sender, &mut batch) {
                        Ok(0) => drop(receiver.wait(Some(Duration::from_secs(1)))),
                        Ok(_) => drop(sender.xmit_batch(&mut batch)),
                        Err(error) => eprintln!("forward: {error}"),
                    }
                }
            });
        }
        Ok(())
    })
}
