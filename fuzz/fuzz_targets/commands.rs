//! tc's commands on a device: any lines are executed or refused, and what `save` prints makes the same queues of a new device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use txq::NetDev;
use txq::pool::{Backing, PoolConfig};
use txq_control::tc;
use txq_device::Null;

fn device() -> NetDev {
    let pool = PoolConfig { buffers: 4, room: 64, backing: Backing::Heap, ..PoolConfig::default() };
    let null = Null { name: "d0".to_owned(), ..Null::new(2) };
    NetDev::builder(null).qdisc("noqueue").pool_config(pool).build().expect("a device")
}

fuzz_target!(|text: &str| {
    let dev = device();
    for command in text.lines().take(16) {
        if let Err(error) = tc::apply(&dev, command) {
            assert!(!error.to_string().is_empty());
        }
    }
    let saved = tc::save(&dev);
    let again = device();
    for command in saved.lines() {
        if let Err(error) = tc::apply(&again, command) {
            panic!("{error}\n{saved}");
        }
    }
    assert_eq!(tc::save(&again), saved);
});
