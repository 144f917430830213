//! Forwards packets between two devices, both ways, each way through its own qdisc: a bridge of two ports that shapes.
//!
//! ```text
//! forward eth0 eth1                                # fq_codel both ways
//! forward af_xdp:eth0 tap:vm0 "cake bandwidth 20mbit"
//! forward af_xdp:eth0 af_xdp:eth1 fq_codel 50      # polls for 50 us before it sleeps
//! ```

use std::time::Duration;

use txq::NetDev;
use txq::packet::PacketList;
use txq::pool::Pool;
use txq::receive::{BusyPoll, Receive};
use txq_device::{AfXdp, port};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    run(&std::env::args().skip(1).collect::<Vec<_>>())
}

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let [near, far, rest @ ..] = args else {
        return Err("use: forward DEVICE DEVICE [QDISC [POLL_US]]".into());
    };
    let qdisc = rest.first().map_or("fq_codel", String::as_str);
    let poll = Duration::from_micros(rest.get(1).map_or(Ok(0), |word| word.parse())?);
    let pool = Pool::new(&AfXdp::pool_config(16384))?;
    let (mut near, mut far) = (port::open(near, 1, &pool)?, port::open(far, 1, &pool)?);
    let receivers = [near.receivers.remove(0), far.receivers.remove(0)];
    std::thread::scope(|scope| {
        for (receiver, to) in receivers.into_iter().zip([far.driver, near.driver]) {
            let dev = NetDev::builder(to).pool(pool.clone()).qdisc(qdisc).start()?;
            let mut receiver = BusyPoll::new(receiver, poll);
            scope.spawn(move || {
                let (mut sender, mut batch) = (dev.sender("forward"), PacketList::new());
                loop {
                    match receiver.receive(64, &mut sender, &mut batch) {
                        Ok(0) => drop(receiver.wait(Some(Duration::from_secs(1)))),
                        Ok(_) => drop(sender.xmit_batch(&mut batch)),
                        Err(error) => return eprintln!("forward: {error}"),
                    }
                }
            });
        }
        Ok(())
    })
}
