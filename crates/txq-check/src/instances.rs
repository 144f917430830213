//! The data plane, compiled once for each checker. Generic code is compiled in the crate that first names its types; a test
//! program uses the instances that this crate has, and would compile the whole path again without them.

use std::io;
use std::time::Duration;

use txq::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::generic::netdev::Builder;
use txq::generic::{Flow, NetDev};
use txq_core::packet::PacketList;

use crate::{Loom, Model, Shuttle};

/// A call of each entry of the path, under each checker. Nothing runs them.
pub static INSTANCES: [fn() -> io::Result<()>; 2] = [entries::<Loom>, entries::<Shuttle>];

struct Nowhere;

impl<A: Model> Driver<A> for Nowhere {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("nowhere")
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue<A>> {
        Ok(DriverQueue { tx: Box::new(Nowhere), done: Box::new(NoCompletions), ring: None })
    }
}

impl<A: Model> Transmit<A> for Nowhere {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status {
        cx.sent_all(batch);
        Status::Ok
    }
}

fn entries<A: Model>() -> io::Result<()> {
    let builder = Builder::<A>::new(Box::new(Nowhere)).default_qdisc("pfifo").bql(None);
    let mut dev: NetDev<A> = builder.build().map_err(io::Error::other)?;
    let (mut sender, mut flow, mut batch) = (dev.sender_on("s", 0), Flow::new(), PacketList::new());
    for _ in 0..3 {
        batch.push_back(sender.alloc(8).map_err(io::Error::other)?);
    }
    let _ = sender.xmit_batch_on(&mut flow, &mut batch);
    let _ = sender.xmit_batch(&mut batch);
    if let Some(packet) = batch.pop_front() {
        let _ = sender.xmit(packet);
    }
    dev.worker(0).run();
    dev.completer(0).run();
    dev.drain(Duration::ZERO);
    let _ = (dev.stats(), dev.audit());
    dev.shutdown()
}
