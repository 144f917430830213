//! tc's language: any text is a qdisc or an error, and neither takes the program along.
#![no_main]

use libfuzzer_sys::fuzz_target;
use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::pool::{Backing, PoolConfig};

struct Sink;

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink").txqs(2)
    }
    fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
        Ok(DriverQueue::new(Sink, NoCompletions))
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        cx.sent_all(batch);
        Status::Ok
    }
}

fuzz_target!(|text: &str| {
    let pool = PoolConfig { buffers: 4, room: 64, backing: Backing::Heap, ..PoolConfig::default() };
    match NetDev::builder(Sink).qdisc(text).pool_config(pool).build() {
        Ok(dev) => drop(txq::tc::show_text(&dev.qdiscs(Default::default()), true)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
