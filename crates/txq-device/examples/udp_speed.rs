//! What the device costs: datagrams a second, and CPU time a datagram, of the device and of a bare loop of `sendmmsg` with
//! `UDP_SEGMENT`, in turns. Both send to a socket that nobody reads. Once it takes messages as they are (`UDP_GRO`), so the
//! system's own work is as little as it can be; once the system cuts them, as a network interface's driver does at the latest.
//!
//! The second bare loop has each datagram in a buffer of its own, as a program has whose datagrams come from different flows. The
//! device gets single datagrams in such buffers, and then packets with segments, whose datagrams are one buffer as in the first loop.
//!
//! ```sh
//! cargo run --release -p txq-device --example udp_speed
//! cargo run --release -p txq-device --example udp_speed -- 1200 20    # payload bytes, rounds
//! ```

use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Instant;

use txq::packet::PacketList;
use txq::pool::PoolConfig;
use txq::{NetDev, Sender};
use txq_device::Udp;
use txq_device::udp::{Counters, Datagram};

mod speed;

use speed::{BATCH, Speed, TURN};

const UDP_SEGMENT: libc::c_int = 103;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let len: usize = args.next().map_or(Ok(1200), |text| text.parse())?;
    let rounds: usize = args.next().map_or(Ok(10), |text| text.parse())?;
    println!("{len} bytes, {BATCH} a call, medians of {rounds} turns of {} ms", TURN.as_millis());
    compare(len, rounds, true)?;
    compare(len, rounds, false)
}

const QDISCS: [&str; 3] = ["noqueue", "pfifo", "fq_codel"];

/// Sends a batch of datagrams with this payload.
type Send = Box<dyn FnMut(&[u8]) -> io::Result<()>>;

/// A contestant: its name, what it sends with, and its device if it has one.
struct Contestant {
    name: String,
    send: Send,
    device: Option<(NetDev, Counters)>,
}

/// Returns the loops without the device, and the device with each qdisc.
fn contestants(to: SocketAddr, len: usize) -> Result<Vec<Contestant>, Box<dyn Error>> {
    let mut all = Vec::new();
    for (name, apart) in [("bare loop", false), ("bare, 64 buffers", true)] {
        let mut bare = Bare::new(to, len, apart)?;
        let send = Box::new(move |payload: &[u8]| bare.send(payload));
        all.push(Contestant { name: name.into(), send, device: None });
    }
    for joined in [false, true] {
        for qdisc in QDISCS {
            let udp = Udp::connect("127.0.0.1:0", to)?;
            let counters = udp.counters();
            let builder = NetDev::builder(udp).qdisc(qdisc);
            let long = PoolConfig { room: 65_535, buffers: 512, ..PoolConfig::default() };
            let dev = if joined { builder.pool_config(long) } else { builder }.start()?;
            let mut sender = dev.sender("main");
            let send: Send = match joined {
                false => Box::new(move |payload: &[u8]| send(&mut sender, to, payload)),
                true => Box::new(move |payload: &[u8]| send_segments(&mut sender, to, payload)),
            };
            let name = format!("txq, {}{qdisc}", if joined { "segments, " } else { "" });
            all.push(Contestant { name, send, device: Some((dev, counters)) });
        }
    }
    Ok(all)
}

/// Prints the comparison for a sink that takes messages as they are, or has them cut.
fn compare(len: usize, rounds: usize, takes_joined: bool) -> Result<(), Box<dyn Error>> {
    let sink = Udp::bind("127.0.0.1:0")?.receive_buffer(4096)?.join(takes_joined);
    let _receiver = sink.receiver()?;
    let mut all = contestants(sink.local_addr(), len)?;
    let mut results = vec![Vec::new(); all.len()];
    let payload = vec![7; len];
    for _ in 0..rounds {
        for (result, contestant) in results.iter_mut().zip(&mut all) {
            result.push(turn(|| (contestant.send)(&payload))?);
        }
    }
    let sink = if takes_joined { "not cut" } else { "cut" };
    println!("{sink:<24} {:>12} {:>8} {:>12} {:>8}", "1000/s", "of bare", "CPU ns each", "of bare");
    let medians: Vec<_> = results.iter().map(|turns| Speed::median(turns)).collect();
    for (Contestant { name, .. }, Speed { rate, cost }) in all.iter().zip(&medians) {
        let (rate_of, cost_of) = (rate / medians[0].rate, cost / medians[0].cost);
        println!("{name:<24} {rate:>12.0} {rate_of:>8.3} {cost:>12.0} {cost_of:>8.3}");
    }
    for Contestant { name, send, device } in all {
        drop(send);
        let Some((dev, counters)) = device else { continue };
        let counts = counters.read();
        let (per_message, per_call) =
            (counts.datagrams as f64 / counts.messages as f64, counts.datagrams as f64 / counts.calls as f64);
        println!("{name}: {per_message:.1} datagrams a message, {per_call:.1} a call of sendmmsg");
        dev.audit()?;
    }
    Ok(())
}

/// Calls `send` for a turn; returns what a datagram cost.
fn turn(mut send: impl FnMut() -> io::Result<()>) -> io::Result<Speed> {
    let mut result = Ok(());
    let speed = Speed::measure(|| {
        let (began, mut datagrams) = (Instant::now(), 0);
        while began.elapsed() < TURN && result.is_ok() {
            result = send();
            datagrams += BATCH as u64;
        }
        datagrams
    });
    result.map(|()| speed)
}

/// Sends a batch through a device.
fn send(sender: &mut Sender, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
    let (mut empty, mut batch) = (PacketList::new(), PacketList::new());
    sender.alloc_batch(BATCH, payload.len(), &mut empty).map_err(io::Error::other)?;
    let datagram = Datagram::new(to);
    while let Some(mut packet) = empty.pop_front() {
        packet.data_mut().copy_from_slice(payload);
        datagram.push(&mut packet).ok_or(io::ErrorKind::InvalidInput)?;
        batch.push_back(packet);
    }
    let _verdict = sender.xmit_batch(&mut batch);
    Ok(())
}

/// Sends a batch through a device, in packets with as many segments as a message may have.
fn send_segments(sender: &mut Sender, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
    let (mut batch, mut left) = (PacketList::new(), BATCH);
    while left > 0 {
        let segs = left.min(65_487 / payload.len());
        let mut packet = sender.alloc(segs * payload.len()).map_err(io::Error::other)?;
        packet.data_mut().chunks_exact_mut(payload.len()).for_each(|part| part.copy_from_slice(payload));
        Datagram::new(to).push(&mut packet).ok_or(io::ErrorKind::InvalidInput)?;
        packet.set_gso(payload.len() as u16, segs as u16);
        batch.push_back(packet);
        left -= segs;
    }
    let _verdict = sender.xmit_batch(&mut batch);
    Ok(())
}

/// A loop without the device: datagrams in one buffer or apart, cut by the system into as few messages as it takes.
struct Bare {
    socket: UdpSocket,
    len: usize,
    /// Distance from one datagram to the next.
    stride: usize,
    data: Vec<u8>,
}

/// Distance of a pool's buffers.
const STRIDE: usize = 2048;

impl Bare {
    fn new(to: SocketAddr, len: usize, apart: bool) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(to)?;
        let segment = len as libc::c_int;
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel reads `size` bytes of `segment`.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                UDP_SEGMENT,
                (&raw const segment).cast(),
                size,
            )
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        let stride = if apart { STRIDE.max(len) } else { len };
        Ok(Self { socket, len, stride, data: vec![0; BATCH * stride] })
    }

    /// Sends a batch by one call.
    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let Self { len, stride, data, .. } = self;
        data.chunks_exact_mut(*stride)
            .for_each(|datagram| datagram[..payload.len()].copy_from_slice(payload));
        // One part a message, or one a datagram.
        let most = (65_487 / *len).min(64);
        let part = if stride == len { most * *len } else { *stride };
        let iovec = |data: &mut [u8]| {
            let iov_len = if stride == len { data.len() } else { *len };
            libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len }
        };
        let mut parts: Vec<_> = data.chunks_mut(part).map(iovec).collect();
        let message = |parts: &mut [libc::iovec]| {
            // SAFETY: all zeros are a valid message without address, data and control data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
            message
        };
        let each = if stride == len { 1 } else { most };
        let mut messages: Vec<_> = parts.chunks_mut(each).map(message).collect();
        let n = messages.len() as libc::c_uint;
        // SAFETY: each message points to parts, which point to data that lives through the call.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), n, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
