//! The cost of `txq exec`: datagrams per second of one thread over loopback, and exchanges of one with an echo, without it and with it, in turn.
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
        return send(port.parse().expect("a port"), &arguments.next().expect("a call"));
    }
    let own = std::env::current_exe().expect("this program has a path");
    let txq = own.parent().and_then(Path::parent).expect("target/release/examples").join("txq");
    assert!(txq.is_file(), "{} is absent: cargo build --release", txq.display());
    // The receiver's buffer overflows; the kernel discards the rest, which costs both senders the same.
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = receiver.local_addr().expect("its address").port().to_string();
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let echo_port = echo.local_addr().expect("its address").port().to_string();
    std::thread::spawn(move || {
        let mut bytes = [0; LEN];
        while let Ok((n, from)) = echo.recv_from(&mut bytes) {
            let _ = echo.send_to(&bytes[..n], from);
        }
    });
    println!("{LEN} bytes a datagram, medians of {RUNS} runs of {TIME:?}");
    println!(
        "{:<12} {:<12} {:<12} {:>12} {:>12} {:>8}",
        "call", "up", "down", "bare pps", "exec pps", "ratio"
    );
    for (call, up, down) in [
        ("connected", "pfifo_fast", ""),
        ("connected", "fq", ""),
        ("sendto", "pfifo_fast", ""),
        ("sendto", "fq", ""),
        ("exchange", "pfifo_fast", ""),
        ("exchange", "pfifo_fast", "pfifo"),
    ] {
        let port = if call == "exchange" { &echo_port } else { &port };
        let mut runs: Vec<(f64, f64)> = (0..RUNS)
            .map(|_| {
                let bare = rate(Command::new(&own).args([port, call]));
                let mut exec = Command::new(&txq);
                exec.args(["exec", "--quiet", "--up", up]);
                if !down.is_empty() {
                    exec.args(["--down", down]);
                }
                (bare, rate(exec.arg("--").arg(&own).args([port, call])))
            })
            .collect();
        runs.sort_by(|(a, b), (c, d)| (b / a).total_cmp(&(d / c)));
        let (bare, exec) = runs[RUNS / 2];
        println!("{call:<12} {up:<12} {down:<12} {bare:>12.0} {exec:>12.0} {:>8.2}", exec / bare);
    }
}

/// Runs a sender; returns the datagrams per second that it prints.
fn rate(command: &mut Command) -> f64 {
    let done = command.output().expect("the sender runs");
    let text = String::from_utf8_lossy(&done.stdout);
    text.trim().parse().unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&done.stderr)))
}

/// Sends for [`TIME`], or exchanges datagrams with an echo, and prints the rate.
fn send(port: u16, call: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (to, bytes) = (SocketAddr::from(([127, 0, 0, 1], port)), [0; LEN]);
    if call != "sendto" {
        socket.connect(to).expect("a route");
    }
    let (start, mut done, mut back) = (Instant::now(), 0u32, [0; LEN]);
    while start.elapsed() < TIME {
        for _ in 0..32 {
            let sent = if call == "sendto" { socket.send_to(&bytes, to) } else { socket.send(&bytes) };
            let is_done = sent.is_ok() && (call != "exchange" || socket.recv(&mut back).is_ok());
            done += u32::from(is_done);
        }
    }
    println!("{}", f64::from(done) / start.elapsed().as_secs_f64());
}
