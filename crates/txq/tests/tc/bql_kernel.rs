//! Compares the settings of byte queue limits with the running kernel: the same texts are written to the files in
//! `byte_queue_limits` of an ifb, and the kernel's answers and later values must equal txq's.
//!
//! Without the rights or the tools, the test prints a line that starts with SKIP (`sysfs/mod.rs`).

use std::fs;
use std::path::Path;

use crate::device::{Wires, pool};
use crate::sysfs::{compare_inside, succeeds};
use txq::NetDev;
use txq::bql::{Attr, BqlError, ErrorKind};

/// Texts that are no number, numbers that are too large, and the same number in other forms.
const TEXTS: [&str; 44] = [
    "0",
    "7",
    "+7",
    " 7",
    "7 ",
    "7\n",
    "7\n\n",
    "\n",
    "+",
    "++7",
    "-1",
    "-0",
    "0x10",
    "010",
    "1e3",
    "7k",
    "max",
    "max\n",
    "maxx",
    " max",
    "Max",
    "max\n\n",
    "1",
    "3",
    "4",
    "5",
    "8",
    "12",
    "13",
    "16",
    "17",
    "509",
    "512",
    "513",
    "1000",
    "100000",
    "1879048192",
    "1879048193",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "4294967296x",
    "99999999999999999999x",
];

#[test]
fn the_kernel_answers_as_txq_does() {
    compare_inside("the_kernel_answers_as_txq_does", compare);
}

fn compare() -> Result<(), String> {
    if !succeeds(&["ip", "link", "add", "ifbx", "type", "ifb"]) {
        return Err("no ifb".into());
    }
    let dir = Path::new("/sys/class/net/ifbx/queues/tx-0/byte_queue_limits");
    if !dir.join("stall_thrs").exists() {
        return Err("this kernel has no stall_thrs".into());
    }
    let show = |file: &Path| fs::read_to_string(file).unwrap();
    fs::write(dir.join("hold_time"), "5").unwrap();
    if show(&dir.join("hold_time")) != "8\n" {
        return Err("this kernel's jiffies are not 4 ms".into());
    }
    fs::write(dir.join("hold_time"), "1000").unwrap();
    let dev = NetDev::builder(Wires::new(1, Some(8))).pool_config(pool()).build().unwrap();
    let mut files: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert!(files.iter().eq(Attr::ALL.iter().map(|attr| attr.name())));
    for &attr in Attr::ALL {
        let file = dir.join(attr.name());
        assert_eq!(dev.show_bql(0, attr).unwrap(), show(&file), "{attr} at first");
        for text in TEXTS {
            let kernel = fs::write(&file, text).map_err(|error| error.raw_os_error().unwrap());
            let ours = dev.set_bql(0, attr, text).map_err(|error| match error {
                BqlError::Value { kind: ErrorKind::Invalid, .. } => 22,
                BqlError::Value { kind: ErrorKind::Range, .. } => 34,
                BqlError::Value { kind: ErrorKind::ReadOnly, .. } => 13,
                other => panic!("{other}"),
            });
            assert_eq!(ours, kernel, "ours, the kernel's: {text:?} to {attr}");
            assert_eq!(dev.show_bql(0, attr).unwrap(), show(&file), "after {text:?} to {attr}");
        }
    }
    Ok(())
}
