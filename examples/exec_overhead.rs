//! The cost of `txq exec`: datagrams per second of one thread over loopback, without it and with it, in turn.
//!
//! ```sh
//! cargo build --release && cargo run --release -p txq-cli --example exec_overhead
//! ```
//!
//! The program starts itself as the sender, bare and under `target/release/txq exec`. Each row has the median of the ratios of
//! neighbouring runs, so a machine that is slower for a while changes both.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const RUNS: usize = 7;
const TIME: Duration = Duration::from_millis(500);
const LEN: usize = 1200;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(port) = arguments.next() {
        return send(port.parse().expect("a port"), arguments.next().as_deref() == Some("connected"));
    }
    let own = std::env::current_exe().expect("this program has a path");
    let txq = own.parent().and_then(Path::parent).expect("target/release/examples").join("txq");
    assert!(txq.is_file(), "{} is absent: cargo build --release", txq.display());
    // The receiver's buffer overflows; the kernel discards the rest, which costs both senders the same.
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = receiver.local_addr().expect("its address").port().to_string();
    println!("{LEN} bytes a datagram, medians of {RUNS} runs of {TIME:?}");
    println!("{:<12} {:<12} {:>12} {:>12} {:>8}", "call", "qdisc", "bare pps", "exec pps", "ratio");
    for call in ["connected", "sendto"] {
        for qdisc in ["pfifo_fast", "fq"] {
            let mut runs: Vec<(f64, f64)> = (0..RUNS)
                .map(|_| {
                    let bare = rate(Command::new(&own).args([&port, call]));
                    let options = ["exec", "--quiet", "--qdisc", qdisc, "--"];
                    (bare, rate(Command::new(&txq).args(options).arg(&own).args([&port, call])))
                })
                .collect();
            runs.sort_by(|(a, b), (c, d)| (b / a).total_cmp(&(d / c)));
            let (bare, exec) = runs[RUNS / 2];
            println!("{call:<12} {qdisc:<12} {bare:>12.0} {exec:>12.0} {:>8.2}", exec / bare);
        }
    }
}

/// Runs a sender; returns the datagrams per second that it prints.
fn rate(command: &mut Command) -> f64 {
    let done = command.output().expect("the sender runs");
    let text = String::from_utf8_lossy(&done.stdout);
    text.trim().parse().unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&done.stderr)))
}

/// Sends for [`TIME`], and prints the rate.
fn send(port: u16, connected: bool) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (to, bytes) = (SocketAddr::from(([127, 0, 0, 1], port)), [0; LEN]);
    if connected {
        socket.connect(to).expect("a route");
    }
    let (start, mut sent) = (Instant::now(), 0u32);
    while start.elapsed() < TIME {
        for _ in 0..32 {
            let done = if connected { socket.send(&bytes) } else { socket.send_to(&bytes, to) };
            sent += u32::from(done.is_ok());
        }
    }
    println!("{}", f64::from(sent) / start.elapsed().as_secs_f64());
}
