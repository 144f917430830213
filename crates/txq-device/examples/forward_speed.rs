//! Packets a second from one interface to another: through the kernel's bridge, and through `examples/forward.rs` over AF_PACKET and
//! over AF_XDP, in turns.
//!
//! `cargo run --release -p txq-device --example forward_speed [LENGTH] [ROUNDS]`, as root. The interfaces are veth pairs in a network
//! namespace of the program, so nothing is left.
//!
//! A thread sends into one end, and never has more than a thousand frames on their way, so that none is lost. The frames that arrive at
//! the other end count, and the CPU time of all. The bridge works on the CPU that sends, and txq on another.

use std::error::Error;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use rustix::thread::{UnshareFlags, unshare_unsafe};

#[allow(dead_code, reason = "only its function is needed")]
#[path = "../../../examples/forward.rs"]
mod forward;
#[path = "speed/raw.rs"]
mod raw;
mod speed;

use speed::{BATCH, Speed, TURN};

const WAYS: [&str; 3] = ["bridge", "af_packet", "af_xdp"];
/// Most frames on their way, and frames that are sent between two readings of the counters.
const WINDOW: u64 = 1024;
const PORTION: u64 = 256;
/// Where the frames go.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn run(words: &str) -> Result<(), Box<dyn Error>> {
    let mut words = words.split(' ');
    let program = words.next().unwrap_or_default();
    assert!(Command::new(program).args(words).status()?.success(), "{program}");
    Ok(())
}

/// Makes the interfaces of a way, `in0` to `in1` and `out1` to `out0` with its number, and connects `in1` to `out1`.
fn connect(number: usize) -> Result<(), Box<dyn Error>> {
    for end in ["in", "out"] {
        run(&format!("ip link add {end}0{number} type veth peer name {end}1{number}"))?;
        run(&format!("ip link set {end}0{number} up"))?;
        run(&format!("ip link set {end}1{number} up"))?;
    }
    match WAYS[number] {
        "bridge" => {
            run("ip link add br0 type bridge")?;
            run("ip link set br0 up")?;
            run(&format!("ip link set in1{number} master br0"))?;
            run(&format!("ip link set out1{number} master br0"))?;
            run(&format!("bridge fdb replace 02:00:00:00:00:02 dev out1{number} master static"))?;
        }
        way => {
            let ends = ["in1", "out1"].map(|end| format!("{way}:{end}{number}"));
            std::thread::spawn(move || {
                let [near, far] = ends;
                if let Err(error) = forward::run(&[near, far, "pfifo limit 1000".into()]) {
                    eprintln!("forward: {error}");
                    std::process::exit(1);
                }
            });
        }
    }
    Ok(())
}

/// Sends for a turn; returns how many frames have arrived at the other end of the way.
fn send(socket: &OwnedFd, frame: &[u8], number: usize) -> Result<u64, Box<dyn Error>> {
    let mut part = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
    // SAFETY: all zeros are a message.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (&raw mut part, 1);
    let mut messages = [message; BATCH];
    let (began, before, mut sent) = (Instant::now(), arrived(number)?, 0);
    while began.elapsed() < TURN {
        if sent - (arrived(number)? - before) + PORTION > WINDOW {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        for _ in 0..PORTION as usize / BATCH {
            // SAFETY: each message points to the part, which points to the frame; both live through the call.
            let n = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT)
            };
            sent += u64::try_from(n).unwrap_or(0);
        }
    }
    let end = Instant::now() + Duration::from_secs(1);
    while arrived(number)? - before < sent && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(100));
    }
    let arrived = arrived(number)? - before;
    if arrived < sent {
        eprintln!("{}: {} of {sent} frames are lost", WAYS[number], sent - arrived);
    }
    Ok(arrived)
}

/// Returns the number of frames that have arrived at the end of a way.
fn arrived(number: usize) -> Result<u64, Box<dyn Error>> {
    let counters = std::fs::read_to_string("/proc/self/net/dev")?;
    let name = format!("out0{number}:");
    let line = counters.lines().find_map(|line| line.trim_start().strip_prefix(&name));
    // Bytes come before packets.
    Ok(line.and_then(|line| line.split_whitespace().nth(1)).ok_or("no counters")?.parse()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let len = args.next().transpose()?.unwrap_or(64).clamp(60, 1514);
    let rounds = args.next().transpose()?.unwrap_or(10);
    // SAFETY: no other thread runs yet, and no file descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
    // So that the interfaces send nothing by themselves.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let names = UdpSocket::bind("0.0.0.0:0")?;
    let mut sockets = Vec::new();
    for number in 0..WAYS.len() {
        connect(number)?;
        sockets.push(raw::sending(name_to_index(&names, &format!("in0{number}"))?)?);
    }
    // Until the threads receive and the bridge's ports forward.
    std::thread::sleep(Duration::from_secs(1));
    let frame = [&TO[..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &vec![0; len - 14]].concat();
    let mut results = WAYS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (number, results) in results.iter_mut().enumerate() {
            results.push(Speed::measure(|| send(&sockets[number], &frame, number).expect("counters")));
        }
    }
    println!("frames of {len} bytes, medians of {rounds} rounds of {TURN:?}");
    println!(
        "{:<12} {:>16} {:>10} {:>14} {:>10}",
        "way", "1000 arrive/s", "of bridge", "CPU ns/frame", "of bridge"
    );
    let medians = results.map(|turns| Speed::median(&turns));
    for (way, Speed { rate, cost }) in WAYS.iter().zip(medians) {
        let (rate_of, cost_of) = (rate / medians[0].rate, cost / medians[0].cost);
        println!("{way:<12} {rate:>16.0} {rate_of:>10.2} {cost:>14.0} {cost_of:>10.2}");
    }
    // The threads that forward run until the process ends.
    Ok(())
}
