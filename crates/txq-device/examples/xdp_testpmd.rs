//! Frames into a veth through AF_XDP in copy mode, by txq and by DPDK's `dpdk-testpmd` with its driver `net_af_xdp`, in turns: each
//! sends with one thread on one queue, and as fast as it can.
//!
//! `cargo run --release -p txq-device --example xdp_testpmd [LENGTH] [ROUNDS]`, as root, with Debian's package `dpdk` or another
//! `dpdk-testpmd` on the PATH. The interfaces are in a network namespace of the program, so nothing is left.
//!
//! Prints packets a second by the interface's own counter, and the CPU time of a packet, the kernel's included.

use std::error::Error;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use txq::packet::PacketList;
use txq::pool::Pool;
use txq::{NetDev, Sender};
use txq_device::AfXdp;

mod speed;

use speed::{BATCH, Speed, cpu_time};

/// How long each sends in a round.
const ROUND: Duration = Duration::from_secs(1);

fn ip(words: &str) -> Result<(), Box<dyn Error>> {
    assert!(Command::new("ip").args(words.split(' ')).status()?.success(), "ip {words}");
    Ok(())
}

/// Returns the number of packets that an interface has sent.
fn sent(name: &str) -> Result<u64, Box<dyn Error>> {
    let counters = std::fs::read_to_string("/proc/self/net/dev")?;
    let line = counters.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    // Eight fields of reception, bytes, packets.
    Ok(line.and_then(|line| line.split_whitespace().nth(9)).ok_or("no counters")?.parse()?)
}

struct Testpmd {
    child: Child,
}

impl Testpmd {
    fn start(interface: &str, len: usize) -> Result<Self, Box<dyn Error>> {
        let device = format!("net_af_xdp0,iface={interface},force_copy=1");
        let child = Command::new("dpdk-testpmd")
            .args(["-l", "0,1", "--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--vdev", &device])
            .args([
                "--",
                "-i",
                "--forward-mode=txonly",
                &format!("--txpkts={len}"),
                "--no-mlockall",
                "--total-num-mbufs=16384",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("dpdk-testpmd ({error}): install Debian's package dpdk"))?;
        Ok(Self { child })
    }

    fn tell(&mut self, words: &str) -> Result<(), Box<dyn Error>> {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("dpdk-testpmd has ended ({status})").into());
        }
        self.child.stdin.as_mut().ok_or("no stdin")?.write_all(format!("{words}\n").as_bytes())?;
        Ok(())
    }

    /// Returns its CPU time so far.
    fn cpu_time(&self) -> Result<Duration, Box<dyn Error>> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The second field is a name in brackets; user and system time are the 14th and 15th, in hundredths of a second.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum();
        Ok(Duration::from_millis(ticks * 10))
    }

    fn turn(&mut self, interface: &str) -> Result<Speed, Box<dyn Error>> {
        self.tell("start")?;
        // Until it sends.
        let idle = sent(interface)?;
        let end = Instant::now() + Duration::from_secs(10);
        while sent(interface)? == idle {
            if Instant::now() > end {
                return Err("dpdk-testpmd does not send: try its command by hand".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (began, before, spent) = (Instant::now(), sent(interface)?, self.cpu_time()?);
        std::thread::sleep(ROUND);
        let (time, packets) = (began.elapsed(), (sent(interface)? - before) as f64);
        let spent = self.cpu_time()? - spent;
        self.tell("stop")?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(Speed { rate: packets / time.as_secs_f64() / 1e3, cost: spent.as_nanos() as f64 / packets })
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.tell("quit");
        std::thread::sleep(Duration::from_millis(500));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the headers of testpmd's frames: Ethernet, IPv4, and UDP to the discard port.
fn headers(len: usize) -> [u8; 42] {
    let mut headers = [0; 42];
    headers[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0]);
    headers[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    headers[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    headers[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    headers[22..24].copy_from_slice(&[64, 17]);
    headers[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    let sum: u32 = headers[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    headers[24..26].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
    headers[34..38].copy_from_slice(&[0, 9, 0, 9]);
    headers[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
    headers
}

fn turn(sender: &mut Sender, interface: &str, len: usize) -> Result<Speed, Box<dyn Error>> {
    let (began, before, spent) = (Instant::now(), sent(interface)?, cpu_time());
    let (mut batch, headers) = (PacketList::new(), headers(len));
    while began.elapsed() < ROUND {
        // Without a buffer, packets are on their way.
        let _ = sender.alloc_batch(BATCH, len, &mut batch);
        // As testpmd does, each frame gets its headers, and not its payload.
        batch.for_each_mut(|packet| packet.data_mut()[..headers.len()].copy_from_slice(&headers));
        let _ = sender.xmit_batch(&mut batch);
    }
    let (time, packets) = (began.elapsed(), (sent(interface)? - before) as f64);
    let spent = cpu_time() - spent;
    Ok(Speed { rate: packets / time.as_secs_f64() / 1e3, cost: spent.as_nanos() as f64 / packets })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let len = args.next().transpose()?.unwrap_or(64).clamp(60, 1514);
    let rounds = args.next().transpose()?.unwrap_or(5);
    // SAFETY: no other thread runs yet, and no file descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
    // So that the interfaces send nothing by themselves.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for number in 0..2 {
        ip(&format!("link add tx{number} type veth peer name rx{number}"))?;
        ip(&format!("link set tx{number} up"))?;
        ip(&format!("link set rx{number} up"))?;
    }
    let mut testpmd = Testpmd::start("tx1", len)?;
    let pool = Pool::new(&AfXdp::pool_config(8192))?;
    let device = AfXdp::open("tx0", 1, &pool)?;
    let dev = NetDev::builder(device).pool(pool).qdisc("pfifo").start()?;
    let mut sender = dev.sender("main");
    // Until testpmd has made its device.
    std::thread::sleep(Duration::from_secs(3));
    let mut results = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        results[0].push(testpmd.turn("tx1")?);
        results[1].push(turn(&mut sender, "tx0", len)?);
        assert!(dev.drain(Duration::from_secs(10)), "packets do not leave");
    }
    println!("frames of {len} bytes, medians of {rounds} rounds of {ROUND:?}");
    println!(
        "{:<16} {:>16} {:>12} {:>14} {:>12}",
        "", "1000 packets/s", "of testpmd", "CPU ns/packet", "of testpmd"
    );
    let medians = results.map(|turns| Speed::median(&turns));
    for (name, Speed { rate, cost }) in ["dpdk-testpmd", "txq, pfifo"].iter().zip(medians) {
        let (rate_of, cost_of) = (rate / medians[0].rate, cost / medians[0].cost);
        println!("{name:<16} {rate:>16.0} {rate_of:>12.2} {cost:>14.0} {cost_of:>12.2}");
    }
    dev.audit()?;
    Ok(())
}
