//! Frames into an interface without a wire, by a bare `sendmmsg` loop and by txq's AF_PACKET device, in turns: packets per
//! second, and CPU time per packet, which other programs on the machine disturb less.
//!
//! `cargo run --release -p txq-device --example af_packet_speed [ROUNDS] [THREADS]`, as root. The interface is an ifb in a
//! network namespace of the program, so nothing is left.

use std::error::Error;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use txq_device::AfPacket;

#[path = "speed/raw.rs"]
mod raw;
mod speed;

use speed::{BATCH, TURN, turn};

/// Returns an Ethernet frame of UDP with 64 bytes.
fn packet(thread: u8) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend([0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0x66, 0x9c, 10, 0, 0, 2, 10, 0, 0, 9]);
    packet.extend([4, thread, 0, 9, 0, 30, 0, 0]);
    packet.resize(64, 0);
    packet
}

fn bare(index: u32, threads: u8) -> u64 {
    turn(threads, |thread| {
        let socket = raw::sending(index).expect("a raw socket");
        let packets: Vec<Vec<u8>> = (0..BATCH).map(|_| packet(thread)).collect();
        Box::new(move || {
            // As in a program that sends different packets each time, the messages are filled in for each call.
            let mut parts: Vec<libc::iovec> = packets
                .iter()
                .map(|packet| libc::iovec {
                    iov_base: packet.as_ptr().cast_mut().cast(),
                    iov_len: packet.len(),
                })
                .collect();
            let mut messages: Vec<libc::mmsghdr> = parts
                .iter_mut()
                .map(|part| {
                    // SAFETY: all zeros are a message.
                    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
                    message
                })
                .collect();
            let mut sent = 0;
            while sent < BATCH {
                let rest = &mut messages[sent..];
                // SAFETY: each message points to a part, which points to a packet; all live through the call.
                let n = unsafe {
                    libc::sendmmsg(
                        socket.as_raw_fd(),
                        rest.as_mut_ptr(),
                        rest.len() as u32,
                        libc::MSG_DONTWAIT,
                    )
                };
                sent += usize::try_from(n).unwrap_or(0);
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
    let add = "link add name ifb0 numtxqueues 2 numrxqueues 2 type ifb";
    for words in [add, "link set ifb0 up"] {
        assert!(Command::new("ip").args(words.split(' ')).status()?.success(), "ip {words}");
    }
    let index = rustix::net::netdevice::name_to_index(UdpSocket::bind("0.0.0.0:0")?, "ifb0")?;
    println!("medians of {rounds} rounds of {TURN:?}, frames of 64 bytes");
    println!("threads sent by           1000 packets/s  CPU ns/packet  of bare");
    for threads in 1..=threads {
        let dev = speed::start(AfPacket::open("ifb0", threads.into())?, threads)?;
        speed::compare(&format!("{threads:7}"), rounds, || bare(index, threads), &dev, threads, packet);
    }
    Ok(())
}
