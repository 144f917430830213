//! Packets into a TUN with several queues, by bare writes and by txq's device, in turns: packets per second, and CPU time
//! per packet, which other programs on the machine disturb less.
//!
//! `cargo run --release -p txq-device --example tun_speed [ROUNDS] [THREADS]`, as root. The interfaces are in a network
//! namespace of the program, so nothing is left. The kernel drops each packet after the route lookup, which is part of all
//! numbers.

use std::error::Error;
use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::{write, writev};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use txq_device::Tun;

mod speed;

use speed::{BATCH, TURN, turn};

/// Returns an IPv4 packet of UDP with 64 bytes.
fn packet(thread: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17, 0x66, 0x8e, 10, 0, 0, 2, 10, 0, 0, 9];
    packet.extend([4, thread, 0, 9, 0, 44, 0, 0]);
    packet.resize(64, 0);
    packet
}

fn bare(tun: &Tun, threads: u8, has_header: bool) -> u64 {
    turn(threads, |thread| {
        let queue = tun.receivers().swap_remove(thread.into());
        let packet = packet(thread);
        Box::new(move || {
            for _ in 0..BATCH {
                let written = if has_header {
                    writev(queue.as_fd(), &[IoSlice::new(&[0; 10]), IoSlice::new(&packet)])
                } else {
                    write(queue.as_fd(), &packet)
                };
                written.expect("the interface takes each packet");
            }
        })
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u8>());
    let rounds = args.next().transpose()?.unwrap_or(10);
    let threads = args.next().transpose()?.unwrap_or(2);
    // SAFETY: no other thread runs yet, and no file descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
    println!("medians of {rounds} rounds of {TURN:?}, packets of 64 bytes");
    println!("threads header sent by           1000 packets/s  CPU ns/packet  of bare");
    for threads in 1..=threads {
        for has_header in [false, true] {
            let config = || Tun::create("tun%d").queues(threads.into()).vnet_header(has_header).open();
            let dev = speed::start(config()?, threads)?;
            let tun = config()?;
            let case = format!("{threads:7} {has_header:6}");
            speed::compare(&case, rounds, || bare(&tun, threads, has_header), &dev, threads, packet);
        }
    }
    Ok(())
}
