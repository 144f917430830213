//! Small packets a second through `txq bridge`, over AF_PACKET and AF_XDP, and through the kernel's own bridge with the same qdisc,
//! at a rate of the shaper that is not reached.
//!
//! A raw socket in one namespace sends UDP packets of 18 bytes, 60 in the frame, and never has more than a thousand on their way. Those
//! that arrive in the other namespace count, and the CPU time of the whole machine meanwhile. With one CPU, the sender and the bridge
//! share it; with two, the kernel places them. Needs root, for network namespaces, and ip, tc and ping.
//!
//! ```sh
//! cargo build --release && cargo run --release -p txq-lab --example bridge_packets -- --only tbf --cpus 1 --rounds 5
//! ```

mod bridges;
#[path = "../crates/txq-device/examples/speed/raw.rs"]
mod raw;
#[allow(dead_code, reason = "shared with tests that need more of it")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
    pub(crate) mod tempdir;
}

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bridges::{Course, Shaper, Way, busy};
use rustix::net::netdevice::name_to_index;
use support::skip::{note_missing, require_af_xdp, require_root, require_tools};

const TURN: Duration = Duration::from_millis(500);
/// Most frames on their way, frames between two readings of the counter, and frames in a system call.
const WINDOW: u64 = 1024;
const PORTION: u64 = 256;
const BATCH: usize = 64;
/// The shapers, whose rate is never reached, and the qdisc of a bare bridge.
const SHAPERS: [(&str, &str, &[&str]); 4] = [
    ("pfifo", "pfifo limit 2000", &[]),
    (
        "tbf",
        "handle 1: tbf rate 10gbit burst 10m limit 10m",
        &["qdisc add parent 1:1 handle 2: pfifo limit 2000"],
    ),
    (
        "htb",
        "handle 1: htb default 1",
        &[
            "class add parent 1: classid 1:1 htb rate 10gbit burst 10m cburst 10m",
            "qdisc add parent 1:1 handle 2: pfifo limit 2000",
        ],
    ),
    ("fq_codel", "fq_codel", &[]),
];

/// A sender and the counter at its goal.
struct Lane {
    /// Removes its namespaces at the end.
    _course: Course,
    socket: OwnedFd,
    frame: Vec<u8>,
    /// `/proc/net/dev` of the namespace in which the frames arrive.
    counters: File,
}

impl Lane {
    fn new(way: Way, shaper: &Shaper) -> Result<Self> {
        let course = Course::new(way, shaper)?;
        let mac = |end: &support::netns::Netns| -> Result<Vec<u8>> {
            let said = end.ip("-br link show dev e0");
            let text = said.split_whitespace().nth(2).context("no MAC address")?;
            let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
            bytes.collect::<Result<_, _>>().context("a MAC address")
        };
        let frame = frame(&mac(&course.far)?, &mac(&course.near)?);
        let socket = course.near.call(socket)?;
        // The file stays that of the namespace in which it was opened.
        let counters = course.far.call(|| File::open("/proc/thread-self/net/dev"))?;
        Ok(Self { _course: course, socket, frame, counters })
    }

    /// Returns the number of frames that have arrived.
    fn arrived(&mut self) -> Result<u64> {
        let mut text = String::new();
        self.counters.seek(SeekFrom::Start(0))?;
        self.counters.read_to_string(&mut text)?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("e0:"));
        // Bytes come before packets.
        Ok(line.and_then(|line| line.split_whitespace().nth(1)).context("no counters")?.parse()?)
    }

    /// Sends for a turn; returns thousands of frames that arrived in a second, and the CPU time of each in nanoseconds.
    fn turn(&mut self) -> Result<[f64; 2]> {
        let mut part = libc::iovec { iov_base: self.frame.as_mut_ptr().cast(), iov_len: self.frame.len() };
        // SAFETY: all zeros are a message.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (&raw mut part, 1);
        let mut messages = [message; BATCH];
        let (began, worked, before, mut sent) = (Instant::now(), busy(), self.arrived()?, 0);
        while began.elapsed() < TURN {
            if sent - (self.arrived()? - before).min(sent) + PORTION > WINDOW {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            for _ in 0..PORTION as usize / BATCH {
                // SAFETY: each message points to the part, which points to the frame; both live through the call.
                let n = unsafe {
                    let fd = self.socket.as_raw_fd();
                    libc::sendmmsg(fd, messages.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT)
                };
                sent += u64::try_from(n).unwrap_or(0);
            }
        }
        let end = Instant::now() + Duration::from_secs(1);
        while self.arrived()? - before < sent && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
        }
        let (arrived, time, worked) = ((self.arrived()? - before) as f64, began.elapsed(), busy() - worked);
        ensure!(arrived >= 0.99 * sent as f64, "{arrived} of {sent} frames arrived");
        Ok([arrived / time.as_secs_f64() / 1e3, worked * 1e9 / arrived])
    }
}

/// Returns a UDP packet of 18 bytes in an Ethernet frame.
fn frame(to: &[u8], from: &[u8]) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2(
        from.try_into().expect("6 bytes"),
        to.try_into().expect("6 bytes"),
    );
    let builder = builder.ipv4([10, 78, 0, 1], [10, 78, 0, 2], 64).udp(9, 9);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18]).expect("memory");
    frame
}

/// Returns a raw socket that sends to e0 past its qdisc.
fn socket() -> Result<OwnedFd> {
    let index = name_to_index(UdpSocket::bind("0.0.0.0:0")?, "e0")?;
    raw::sending(index).context("a raw socket")
}

/// Lets this thread, and all that it starts, run on the first `cpus` CPUs.
fn stay_on(cpus: usize) -> Result<()> {
    // SAFETY: all zeros are a set, the numbers are far below its size, and the kernel reads it through the call.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..cpus).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    ensure!(set == 0, "{cpus} CPUs: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Returns the median of one number of all turns.
fn median(turns: &[[f64; 2]], of: usize) -> f64 {
    let mut all: Vec<f64> = turns.iter().map(|turn| turn[of]).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<()> {
    let (mut only, mut cpus, mut rounds, mut args) = (None, vec![1, 2], 5, std::env::args().skip(1));
    while let Some(option) = args.next() {
        let value = args.next().with_context(|| format!("{option} needs a value"));
        match option.as_str() {
            "--only" => only = Some(value?),
            "--cpus" => cpus = vec![value?.parse().context("--cpus: not a number of CPUs")?],
            "--rounds" => rounds = value?.parse().context("--rounds: not a number of rounds")?,
            _ => {
                bail!("unknown option {option}; use: bridge_packets [--only SHAPER] [--cpus N] [--rounds N]")
            }
        }
    }
    if !(require_root("bridge_packets") && require_tools("bridge_packets", &["ip", "tc", "ping"])) {
        return Ok(());
    }
    for cpus in cpus {
        stay_on(cpus)?;
        println!("frames of 60 bytes on {cpus} CPUs, medians (least to most) of {rounds} rounds of {TURN:?}");
        println!(
            "{:<10}{:<12}{:>22}{:>12}{:>16}{:>12}",
            "qdisc", "way", "1000 arrive/s", "of kernel", "CPU ns/packet", "of kernel"
        );
        for (name, root, below) in SHAPERS {
            if only.as_ref().is_none_or(|only| only == name) {
                let below = below.iter().map(|&command| command.to_owned()).collect();
                rows(name, &Shaper { root: root.to_owned(), below }, rounds)?;
            }
        }
    }
    Ok(())
}

/// Measures a qdisc by all ways, in turn, and prints a row for each.
fn rows(name: &str, shaper: &Shaper, rounds: u32) -> Result<()> {
    let mut lanes = Vec::new();
    for way in [Way::Kernel, Way::AfPacket, Way::AfXdp] {
        if way == Way::Kernel && !shaper.is_in_kernel() {
            note_missing(name, "the kernel lacks this qdisc");
        } else if way != Way::AfXdp || require_af_xdp(name) {
            lanes.push((way, Lane::new(way, shaper)?, Vec::new()));
        }
    }
    for _ in 0..rounds {
        for (way, lane, turns) in &mut lanes {
            turns.push(lane.turn().with_context(|| format!("{name}, {}", way.name()))?);
        }
    }
    let kernel = lanes.iter().find(|(way, ..)| *way == Way::Kernel).map(|(_, _, turns)| turns.clone());
    for (way, _, turns) in &lanes {
        let ratio = |of| match &kernel {
            Some(kernel) => format!("{:.2}", median(turns, of) / median(kernel, of)),
            None => "-".to_owned(),
        };
        let [least, most] = [f64::min, f64::max].map(|pick| turns.iter().map(|turn| turn[0]).reduce(pick));
        let spread = format!("({:.0} to {:.0})", least.unwrap_or(f64::NAN), most.unwrap_or(f64::NAN));
        println!(
            "{name:<10}{:<12}{:>8.0}{spread:>14}{:>12}{:>16.0}{:>12}",
            way.name(),
            median(turns, 0),
            ratio(0),
            median(turns, 1),
            ratio(1)
        );
    }
    Ok(())
}
