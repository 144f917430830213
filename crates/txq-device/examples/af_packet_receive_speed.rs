//! What the reception of a frame costs, by the ways in which AF_PACKET hands frames over: `recvmmsg`, the rings of frames and of blocks
//! in shared memory (TPACKET_V2 and V3), and txq's device, in turns. Each has the virtio-net header, without which checksums and
//! segments are lost. Then the time from a lone frame's departure to its arrival in the program.
//!
//! `cargo run --release -p txq-device --example af_packet_receive_speed [LENGTH] [ROUNDS]`, as root. The interfaces are a veth pair in
//! a network namespace of the program, so nothing is left.
//!
//! One thread sends portions of frames, which wait in the socket or the ring, and then receives them. So the CPU time of a frame
//! includes the kernel's work for it, which runs where the sender does. That of frames that nobody receives is subtracted.

use std::error::Error;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use txq::NetDev;
use txq::packet::PacketList;
use txq::receive::Receive;
use txq_device::{AfPacket, Null, af_packet};

#[path = "speed/raw.rs"]
mod raw;
mod speed;

use raw::{bind, option, socket};
use speed::{Speed, cpu_time};

/// Frames in a portion, which every receiver has room for, and frames in a round.
const PORTION: usize = 512;
const ROUND: usize = 40 * PORTION;
/// Most messages of one system call.
const CALL: usize = 32;
/// Lone frames whose time is taken.
const LONE: usize = 10;

const PACKET_RX_RING: libc::c_int = 5;
const PACKET_VERSION: libc::c_int = 10;
const PACKET_VNET_HDR: libc::c_int = 15;
const VNET: usize = 10;
/// Longest frame.
const ROOM: usize = 2048;
/// The frame or block is the program's.
const USER: u32 = 1;

/// A way to receive.
trait Contestant {
    /// Receives the frames that are there into buffers of its own; returns how many.
    fn drain(&mut self) -> usize;
    /// Sleeps until there may be frames.
    fn wait(&mut self);
}

struct Messages {
    fd: OwnedFd,
    data: Vec<[u8; ROOM]>,
    headers: Vec<[u8; VNET]>,
    notes: Vec<[u64; 8]>,
}

impl Contestant for Messages {
    fn drain(&mut self) -> usize {
        let mut all = 0;
        loop {
            let part =
                |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let mut parts: Vec<[libc::iovec; 2]> = self
                .data
                .iter_mut()
                .zip(&mut self.headers)
                .map(|(data, header)| [part(header), part(data)])
                .collect();
            let message = |(parts, notes): (&mut [libc::iovec; 2], &mut [u64; 8])| {
                // SAFETY: all zeros are a message.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (parts.as_mut_ptr(), 2);
                (message.msg_hdr.msg_control, message.msg_hdr.msg_controllen) =
                    (notes.as_mut_ptr().cast(), 64);
                message
            };
            let mut messages: Vec<libc::mmsghdr> =
                parts.iter_mut().zip(&mut self.notes).map(message).collect();
            let (fd, none) = (self.fd.as_raw_fd(), ptr::null_mut());
            // SAFETY: each message points to parts and notes that live through the call.
            let n =
                unsafe { libc::recvmmsg(fd, messages.as_mut_ptr(), CALL as u32, libc::MSG_DONTWAIT, none) };
            let n = usize::try_from(n).unwrap_or(0);
            all += n;
            if n < CALL {
                return all;
            }
        }
    }

    fn wait(&mut self) {
        readable(&self.fd);
    }
}

/// A mapped ring: of `frames` frames of `size` bytes each, or of blocks.
struct Ring {
    fd: OwnedFd,
    base: *mut u8,
    len: usize,
    size: usize,
    count: usize,
    next: usize,
    of_blocks: bool,
    data: Box<[u8; ROOM]>,
}

impl Ring {
    fn new(index: u32, of_blocks: bool) -> io::Result<Self> {
        let fd = socket()?;
        option(&fd, libc::SOL_PACKET, PACKET_VERSION, &[if of_blocks { 2 } else { 1 }])?;
        option(&fd, libc::SOL_PACKET, PACKET_VNET_HDR, &[1])?;
        // A block size, a number of blocks, a frame size, a number of frames; the time after which a block that is not full is
        // handed over, in milliseconds.
        let (size, count) = if of_blocks { (1 << 18, 32) } else { (4096, 2048) };
        let words = if of_blocks {
            vec![size as u32, count as u32, 2048, (size * count / 2048) as u32, 1, 0, 0]
        } else {
            vec![1 << 18, (size * count / (1 << 18)) as u32, size as u32, count as u32]
        };
        option(&fd, libc::SOL_PACKET, PACKET_RX_RING, &words)?;
        let (len, access) = (size * count, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED | MapFlags::POPULATE, &fd, 0) }?;
        bind(&fd, index, libc::ETH_P_ALL)?;
        Ok(Self { fd, base: base.cast(), len, size, count, next: 0, of_blocks, data: Box::new([0; ROOM]) })
    }

    /// Returns 32 bits of the ring.
    fn word(&self, at: usize) -> u32 {
        // SAFETY: the callers stay within the ring.
        unsafe { self.base.add(at).cast::<u32>().read() }
    }

    fn half(&self, at: usize) -> usize {
        // SAFETY: the callers stay within the ring.
        unsafe { self.base.add(at).cast::<u16>().read() }.into()
    }

    fn status(&self, at: usize) -> &AtomicU32 {
        // SAFETY: within the ring and aligned.
        unsafe { &*self.base.add(at).cast() }
    }

    /// Copies a frame and the virtio-net header in front of it.
    fn copy(&mut self, at: usize, len: usize) {
        // SAFETY: the kernel has filled these bytes of the ring.
        unsafe {
            ptr::copy_nonoverlapping(self.base.add(at - VNET), self.data.as_mut_ptr(), (VNET + len).min(ROOM))
        };
        std::hint::black_box(&mut self.data);
    }
}

impl Contestant for Ring {
    fn drain(&mut self) -> usize {
        let mut all = 0;
        loop {
            let at = self.next * self.size;
            // `struct tpacket_block_desc` and `struct tpacket3_hdr`, or `struct tpacket2_hdr`.
            let status = self.status(if self.of_blocks { at + 8 } else { at });
            if status.load(Ordering::Acquire) & USER == 0 {
                return all;
            }
            if self.of_blocks {
                let (n, mut frame) = (self.word(at + 12), at + self.word(at + 16) as usize);
                for _ in 0..n {
                    let (len, begin) = (self.word(frame + 12) as usize, self.half(frame + 24));
                    self.copy(frame + begin, len);
                    all += 1;
                    frame += self.word(frame) as usize;
                }
                self.status(at + 8).store(0, Ordering::Release);
            } else {
                let (len, begin) = (self.word(at + 8) as usize, self.half(at + 12));
                self.copy(at + begin, len);
                all += 1;
                self.status(at).store(0, Ordering::Release);
            }
            self.next = (self.next + 1) % self.count;
        }
    }

    fn wait(&mut self) {
        readable(&self.fd);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no reference into it is left.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

struct Device {
    receiver: af_packet::Receiver,
    dev: NetDev,
}

impl Contestant for Device {
    fn drain(&mut self) -> usize {
        let (mut sender, mut batch, mut all) = (self.dev.sender("receive"), PacketList::new(), 0);
        loop {
            let n = self.receiver.receive(64, &mut sender, &mut batch).unwrap_or(0);
            all += n;
            drop(std::mem::take(&mut batch));
            if n == 0 {
                return all;
            }
        }
    }

    fn wait(&mut self) {
        let _ = self.receiver.wait(Some(Duration::from_secs(1)));
    }
}

fn readable(fd: &OwnedFd) {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives through the call.
    unsafe { libc::poll(&raw mut poll, 1, 1000) };
}

/// Sends `n` frames to the other end.
struct Sending {
    fd: OwnedFd,
    frame: Vec<u8>,
}

impl Sending {
    fn send(&self, n: usize) {
        for _ in 0..n {
            // SAFETY: the kernel reads the frame.
            let sent =
                unsafe { libc::send(self.fd.as_raw_fd(), self.frame.as_ptr().cast(), self.frame.len(), 0) };
            assert!(sent > 0, "send: {}", io::Error::last_os_error());
        }
    }
}

/// Sends a round of frames in portions, and lets `to` receive each; returns the CPU time of a frame in nanoseconds.
fn round(sending: &Sending, to: Option<&mut dyn Contestant>) -> f64 {
    let (spent, mut to, mut all) = (cpu_time(), to, 0);
    for _ in 0..ROUND / PORTION {
        sending.send(PORTION);
        let mut got = 0;
        let end = Instant::now() + Duration::from_secs(5);
        while let Some(to) = &mut to
            && got < PORTION
        {
            let n = to.drain();
            got += n;
            if n == 0 {
                to.wait();
                assert!(Instant::now() < end, "frames are missing");
            }
        }
        all += got;
    }
    assert!(to.is_none() || all >= ROUND, "{all} frames of {ROUND}");
    (cpu_time() - spent).as_nanos() as f64 / ROUND as f64
}

/// Returns the median time from a lone frame's departure to its arrival, in microseconds.
fn lone(sending: &Sending, to: &mut dyn Contestant) -> f64 {
    let times = (0..LONE)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(3));
            let began = Instant::now();
            sending.send(1);
            while to.drain() == 0 {
                to.wait();
            }
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    median(times)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let len = args.next().transpose()?.unwrap_or(64).clamp(60, 1514);
    let rounds = args.next().transpose()?.unwrap_or(15);
    // SAFETY: no other thread runs yet, and no file descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
    // So that the interfaces send nothing by themselves.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for words in ["link add name near type veth peer name far", "link set near up", "link set far up"] {
        assert!(Command::new("ip").args(words.split(' ')).status()?.success(), "ip {words}");
    }
    std::thread::sleep(Duration::from_millis(200));
    let fd = socket()?;
    let index = |name| rustix::net::netdevice::name_to_index(&fd, name);
    let (near, far) = (index("near")?, index("far")?);
    option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &[1])?;
    bind(&fd, near, 0)?;
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.resize(len, 0);
    let sending = Sending { fd, frame };
    println!("frames of {len} bytes, medians of {rounds} rounds of {ROUND} frames");
    println!("{:<24} {:>14} {:>12} {:>14}", "received by", "CPU ns a frame", "of recvmmsg", "a lone frame");

    let mut costs = [const { Vec::new() }; NAMES.len()];
    let mut times = [const { Vec::new() }; NAMES.len()];
    for _ in 0..rounds {
        let nobody = round(&sending, None);
        for (name, (costs, times)) in NAMES.iter().zip(costs.iter_mut().zip(&mut times)) {
            let mut to = contestant(name, far)?;
            to.drain();
            costs.push(round(&sending, Some(&mut *to)) - nobody);
            times.push(lone(&sending, &mut *to));
        }
    }
    let costs = costs.map(median);
    for (name, (cost, time)) in NAMES.iter().zip(costs.iter().zip(times.map(median))) {
        println!("{name:<24} {cost:>14.0} {:>12.2} {time:>11.0} us", cost / costs[0]);
    }
    Ok(())
}

const NAMES: [&str; 5] = ["recvmmsg", "TPACKET_V2", "TPACKET_V3", "txq", "txq, blocks"];

fn contestant(name: &str, index: u32) -> Result<Box<dyn Contestant>, Box<dyn Error>> {
    Ok(match name {
        "recvmmsg" => Box::new(messages(index)?),
        "txq" | "txq, blocks" => {
            let receiver = AfPacket::open("far", 1)?.blocks(name != "txq").receivers(1)?.remove(0);
            Box::new(Device { receiver, dev: NetDev::builder(Null::new(1)).start()? })
        }
        _ => Box::new(Ring::new(index, name == "TPACKET_V3")?),
    })
}

/// Returns the contestant that receives by messages.
fn messages(index: u32) -> io::Result<Messages> {
    let fd = socket()?;
    option(&fd, libc::SOL_PACKET, PACKET_VNET_HDR, &[1])?;
    option(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &[1])?;
    option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &[8 << 20])?;
    bind(&fd, index, libc::ETH_P_ALL)?;
    Ok(Messages {
        fd,
        data: vec![[0; ROOM]; CALL],
        headers: vec![[0; VNET]; CALL],
        notes: vec![[0; 8]; CALL],
    })
}

fn median(values: Vec<f64>) -> f64 {
    Speed::median(&values.iter().map(|&cost| Speed { rate: 0.0, cost }).collect::<Vec<_>>()).cost
}
