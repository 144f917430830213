//! What the device costs: datagrams a second, and CPU time a datagram, of the device and of a bare loop of `sendmmsg` with
//! `UDP_SEGMENT`, in turns. Both send to a socket that nobody reads. Once it takes messages as they are (`UDP_GRO`), so the
//! system's own work is as little as it can be; once the system cuts them, as a network interface's driver does at the latest.
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
use txq::{NetDev, Sender};
use txq_device::Udp;
use txq_device::udp::Datagram;

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

/// Prints the comparison for a sink that takes messages as they are, or has them cut.
fn compare(len: usize, rounds: usize, takes_joined: bool) -> Result<(), Box<dyn Error>> {
    let sink = Udp::bind("127.0.0.1:0")?.receive_buffer(4096)?.join(takes_joined);
    let _receiver = sink.receiver()?;
    let to = sink.local_addr();
    let mut bare = Bare::new(to, len)?;
    let mut through = Vec::new();
    for qdisc in ["noqueue", "pfifo", "fq_codel"] {
        let udp = Udp::connect("127.0.0.1:0", to)?;
        let counters = udp.counters();
        let dev = NetDev::builder(udp).qdisc(qdisc).start()?;
        through.push((qdisc, dev.sender("main"), counters, dev));
    }
    let mut results = vec![Vec::new(); 1 + through.len()];
    let payload = vec![7; len];
    for _ in 0..rounds {
        results[0].push(turn(|| bare.send(&payload))?);
        for (result, (_, sender, ..)) in results[1..].iter_mut().zip(&mut through) {
            result.push(turn(|| send(sender, to, &payload))?);
        }
    }
    let sink = if takes_joined { "not cut" } else { "cut" };
    println!("{sink:<16} {:>12} {:>8} {:>12} {:>8}", "1000/s", "of bare", "CPU ns each", "of bare");
    let medians: Vec<_> = results.iter().map(|turns| Speed::median(turns)).collect();
    for (index, Speed { rate, cost }) in medians.iter().enumerate() {
        let name = index.checked_sub(1).map_or("bare loop".into(), |i| format!("txq, {}", through[i].0));
        let (rate_of, cost_of) = (rate / medians[0].rate, cost / medians[0].cost);
        println!("{name:<16} {rate:>12.0} {rate_of:>8.3} {cost:>12.0} {cost_of:>8.3}");
    }
    for (qdisc, _, counters, dev) in through {
        let counts = counters.read();
        let (per_message, per_call) =
            (counts.datagrams as f64 / counts.messages as f64, counts.datagrams as f64 / counts.calls as f64);
        println!("{qdisc}: {per_message:.1} datagrams a message, {per_call:.1} a call of sendmmsg");
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

/// A loop without the device: a buffer of datagrams, cut by the system into as few messages as it takes.
struct Bare {
    socket: UdpSocket,
    len: usize,
    data: Vec<u8>,
}

impl Bare {
    fn new(to: SocketAddr, len: usize) -> io::Result<Self> {
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
        Ok(Self { socket, len, data: vec![0; BATCH * len] })
    }

    /// Sends a batch by one call.
    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        self.data.chunks_exact_mut(self.len).for_each(|datagram| datagram.copy_from_slice(payload));
        let most = (65_487 / self.len).min(64) * self.len;
        let mut parts: Vec<_> = self
            .data
            .chunks(most)
            .map(|data| libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() })
            .collect();
        let message = |part: &mut libc::iovec| {
            // SAFETY: all zeros are a valid message without address, data and control data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
            message
        };
        let mut messages: Vec<_> = parts.iter_mut().map(message).collect();
        let n = messages.len() as libc::c_uint;
        // SAFETY: each message points to a part, which points to data that lives through the call.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), n, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
