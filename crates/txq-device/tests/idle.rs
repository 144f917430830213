//! What idle devices take: memory and time for a thousand of them.
#![cfg(target_os = "linux")]

use std::fs;
use txq::NetDev;
use txq_device::Null;

/// The devices of each kind.
const DEVICES: usize = 200;
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
    // All stay, because memory that was freed is still resident.
    let mut all = Vec::new();
    for qdisc in ["pfifo_fast", "fq", "fq_codel", "cake", "cake diffserv8"] {
        let before = resident();
        let device = |_| NetDev::builder(Null::new(1)).qdisc(qdisc).start().expect("a device");
        all.extend((0..DEVICES).map(device));
        let each = resident().saturating_sub(before) / DEVICES;
        assert!(each <= EACH, "{qdisc}: {each} bytes for each device");
        println!("{qdisc}: {each} bytes for each device");
    }
    for dev in all.iter().step_by(DEVICES - 1) {
        let mut sender = dev.sender("test");
        let packet = sender.packet(&[0; 60]).expect("a buffer");
        let _ = sender.xmit(packet);
        assert_eq!(dev.audit().expect("counts add up").accepted, 1);
    }
}
