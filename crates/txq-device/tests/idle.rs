//! What idle devices take: memory and time for a thousand of them.
#![cfg(target_os = "linux")]

use std::fs;
use txq::NetDev;
use txq_device::Null;

const DEVICES: usize = 1000;
/// Most bytes that an idle device takes, with its thread.
const EACH: usize = 300_000;

/// Returns the process's resident bytes.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("the kernel's table");
    let pages: usize = statm.split(' ').nth(1).expect("a second number").parse().expect("a number");
    pages * 4096
}

/// An idle device takes no memory for buffers that it has not used, whatever its qdisc's limit, and works when it gets packets.
#[test]
fn a_thousand_idle_devices_take_little_memory() {
    for qdisc in ["pfifo_fast", "fq"] {
        let before = resident();
        let device = |_| NetDev::builder(Null::new(1)).qdisc(qdisc).start().expect("a device");
        let devices: Vec<_> = (0..DEVICES).map(device).collect();
        let each = resident().saturating_sub(before) / DEVICES;
        assert!(each <= EACH, "{qdisc}: {each} bytes for each device");
        println!("{qdisc}: {each} bytes for each device");
        for dev in [&devices[0], &devices[DEVICES - 1]] {
            let mut sender = dev.sender("test");
            let packet = sender.packet(&[0; 60]).expect("a buffer");
            let _ = sender.xmit(packet);
            assert_eq!(dev.audit().expect("counts add up").accepted, 1);
        }
    }
}
