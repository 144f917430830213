//! Frames into an interface without a wire, by a bare `sendmmsg` loop and by txq's AF_PACKET device, in turns: packets per
//! second, and CPU time per packet, which other programs on the machine disturb less.
//!
//! `cargo run --release -p txq-device --example af_packet_speed [ROUNDS] [THREADS]`, as root. The interface is an ifb in a
//! network namespace of the program, so nothing is left.

use std::error::Error;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use rustix::time::{ClockId, clock_gettime};
use txq::NetDev;
use txq::packet::PacketList;
use txq::topology::Topology;
use txq::xps::XpsMap;
use txq_device::AfPacket;

/// How long each contestant sends in a round.
const TURN: Duration = Duration::from_millis(300);
/// Packets that a thread sends between two looks at the clock, and in one system call or call of xmit.
const BATCH: usize = 64;

/// Returns an Ethernet frame of UDP with 64 bytes.
fn packet(thread: u8) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend([0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0x66, 0x9c, 10, 0, 0, 2, 10, 0, 0, 9]);
    packet.extend([4, thread, 0, 9, 0, 30, 0, 0]);
    packet.resize(64, 0);
    packet
}

/// What a turn measures.
#[derive(Clone, Copy)]
struct Speed {
    /// Thousands of packets per second.
    rate: f64,
    /// CPU time per packet, user and system, in nanoseconds.
    cost: f64,
}

/// Measures `work`, which returns the number of packets sent.
fn measure(work: impl FnOnce() -> u64) -> Speed {
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("a positive time");
    let (began, spent) = (Instant::now(), cpu());
    let sent = work() as f64;
    let (time, spent) = (began.elapsed(), cpu() - spent);
    Speed { rate: sent / time.as_secs_f64() / 1e3, cost: spent.as_nanos() as f64 / sent }
}

/// Runs `send`, which sends a batch, on each thread for a turn; returns the number of packets.
fn turn(threads: u8, send: impl Fn(u8) -> Box<dyn FnMut()> + Sync) -> u64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let send = &send;
        let run = |thread| {
            scope.spawn(move || {
                let mut batch = send(thread);
                let mut sent = 0;
                while began.elapsed() < TURN {
                    batch();
                    sent += BATCH as u64;
                }
                sent
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread that sends")).sum()
    })
}

/// Returns a raw socket that sends to the interface past its qdisc.
fn socket(index: u32) -> OwnedFd {
    // SAFETY: the call takes integers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "a raw socket: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just opened and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros are an address.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    // SAFETY: the address lives through the call and has the length given.
    let bound = unsafe {
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32)
    };
    assert_eq!(bound, 0, "bind: {}", std::io::Error::last_os_error());
    let one: libc::c_int = 1;
    // SAFETY: the kernel reads an integer.
    unsafe {
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS);
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const one).cast(), size_of_val(&one) as u32);
    }
    fd
}

fn bare(index: u32, threads: u8) -> u64 {
    turn(threads, |thread| {
        let socket = socket(index);
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

fn device(dev: &NetDev, threads: u8, batch: usize) -> u64 {
    let before = dev.stats().sent;
    turn(threads, |thread| {
        let mut sender = dev.sender_on("sender", thread.into());
        let packet = packet(thread);
        let mut list = PacketList::new();
        Box::new(move || {
            for _ in 0..BATCH / batch {
                // Without a buffer, packets are on their way on other threads.
                let _ = sender.alloc_batch(batch, packet.len(), &mut list);
                list.for_each_mut(|one| one.data_mut().copy_from_slice(&packet));
                let _ = sender.xmit_batch(&mut list);
            }
        })
    });
    assert!(dev.drain(Duration::from_secs(10)), "packets do not leave");
    dev.stats().sent - before
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
        let qdisc = if threads == 1 { "pfifo limit 1000" } else { "mq" };
        let dev = NetDev::builder(AfPacket::open("ifb0", threads.into())?)
            .qdisc(qdisc)
            .default_qdisc("pfifo limit 1000")
            .xps(XpsMap::auto(&Topology::read("/sys")?, threads.into())?)
            .start()?;
        let mut results = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            results[0].push(measure(|| bare(index, threads)));
            for (results, batch) in results[1..].iter_mut().zip([64, 8, 1]) {
                results.push(measure(|| device(&dev, threads, batch)));
            }
        }
        let median = |results: &[Speed], of: fn(&Speed) -> f64| {
            let mut all: Vec<f64> = results.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let reference = median(&results[0], |speed| speed.cost);
        for (name, results) in ["bare", "txq, batches of 64", "txq, of 8", "txq, of 1"].iter().zip(&results) {
            let (rate, cost) = (median(results, |speed| speed.rate), median(results, |speed| speed.cost));
            println!("{threads:7} {name:18} {rate:12.0} {cost:14.0} {:8.2}", cost / reference);
        }
    }
    Ok(())
}
