//! Compares [`CpuMask::parse`] and [`CpuMask::format`] with the running kernel: the same texts are written to the `xps_cpus`
//! and `xps_rxqs` files of a veth, and the kernel's answers must equal txq's.
//!
//! Without the rights or the tools, the test prints a line that starts with SKIP (`sysfs/mod.rs`).

use std::fs;
use std::path::Path;

use crate::sysfs::{compare_inside, succeeds};
use txq::cpumask::{CpuMask, MaskError};

const EINVAL: i32 = 22;
const EOVERFLOW: i32 = 75;
/// Widths around the borders of 32-bit groups and 64-bit words.
const RX_QUEUES: [usize; 9] = [1, 2, 4, 31, 32, 33, 64, 65, 100];
const RANDOM_TEXTS: usize = 400;
const TEXTS: [&[u8]; 50] = [
    b"1",
    b"3",
    b"0",
    b"00000003",
    b"1,",
    b",1",
    b",,1",
    b" 1",
    b"1 ",
    b"1\n",
    b"0x1",
    b"g",
    b"1-2",
    b"4",
    b"ff",
    b"F",
    b"a",
    b"0,1",
    b"1,1",
    b"00000000,00000001",
    b"1,00000000",
    b"000000001",
    b"f",
    b"1f",
    b"10",
    b"0,f",
    b"\n",
    b",",
    b"\n1",
    b"1\ng",
    b"1\0g",
    b"1\r\n",
    b"\t1\x0b",
    b"1\x0c",
    b"\xa01",
    b"\x851",
    b"\x1c1",
    b"1 1",
    b"1,,1",
    b"g,1",
    b"1,g",
    b"g00000001",
    b"zz00000001",
    b"1g00000001",
    b"123456789",
    b"ffffffff",
    b"ff,00000000",
    b"FFFFFFFF,ffffffff",
    b"1,00000000,00000000",
    b"0,0,0,0,0",
];

#[test]
fn the_kernel_answers_as_txq_does() {
    compare_inside("the_kernel_answers_as_txq_does", compare);
}

fn compare() -> Result<(), String> {
    let cpus = CpuMask::parse_list(fs::read("/sys/devices/system/cpu/possible").unwrap(), 1 << 13).unwrap();
    let online = CpuMask::parse_list(fs::read("/sys/devices/system/cpu/online").unwrap(), 1 << 13).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for rx_queues in RX_QUEUES {
        let queues = rx_queues.to_string();
        let add = [
            "ip",
            "link",
            "add",
            "va",
            "numtxqueues",
            "2",
            "numrxqueues",
            &queues,
            "type",
            "veth",
            "peer",
            "name",
        ];
        if !succeeds(&[&add[..], &["vb"]].concat()) {
            return Err("no veth".into());
        }
        let texts: Vec<Vec<u8>> = (0..RANDOM_TEXTS).map(|_| random.text(rx_queues)).collect();
        for text in TEXTS.into_iter().chain(texts.iter().map(Vec::as_slice)) {
            let queue = Path::new("/sys/class/net/va/queues/tx-0");
            let every_rxq = CpuMask::first(rx_queues);
            agree(&queue.join("xps_rxqs"), text, rx_queues, &every_rxq);
            agree(&queue.join("xps_cpus"), text, cpus.width(), &online);
        }
        assert!(succeeds(&["ip", "link", "del", "va"]));
    }
    Ok(())
}

/// Writes `text` to `file` and compares; the kernel keeps only the `usable` ones of the `nr_ids` ids.
fn agree(file: &Path, text: &[u8], nr_ids: usize, usable: &CpuMask) {
    // A file keeps its value when nothing is written.
    if text.is_empty() {
        return;
    }
    let kernel = match fs::write(file, text) {
        Ok(()) => Ok(fs::read_to_string(file).unwrap().trim_end().to_owned()),
        Err(error) => Err(error.raw_os_error().unwrap()),
    };
    let ours = match CpuMask::parse(text, nr_ids) {
        Ok(mask) => Ok(mask.iter().filter(|&id| usable.contains(id)).collect::<CpuMask>().format(nr_ids)),
        Err(MaskError::Invalid { .. }) => Err(EINVAL),
        Err(MaskError::Overflow { .. }) => Err(EOVERFLOW),
        Err(other) => panic!("the kernel has no such error: {other}"),
    };
    assert_eq!(
        ours,
        kernel,
        "ours, the kernel's: {:?} to {} with {nr_ids} ids",
        text.escape_ascii().to_string(),
        file.display()
    );
}

/// Xorshift: the texts must be the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % bound
    }

    /// Returns a text that is mostly a mask: groups of about 8 digits, as many as `nr_ids` needs, and sometimes an invalid
    /// byte.
    fn text(&mut self, nr_ids: usize) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..self.below(nr_ids.div_ceil(32) + 2) {
            let digits = [1, 2, 7, 8, 8, 8, 9][self.below(7)];
            text.extend((0..digits).map(|_| b"0000000012345678abcdefABCDEF"[self.below(28)]));
            text.push(b",,,,,, \n"[self.below(8)]);
        }
        text.pop();
        if !text.is_empty() && self.below(3) == 0 {
            let at = self.below(text.len());
            text[at] = b"gxX-+, \t\xa0\xff\0\n"[self.below(12)];
        }
        text
    }
}
