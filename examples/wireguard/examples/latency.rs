//! Ping through the tunnel while iperf3 fills it: with txq, with the plain loop, and with `wireguard-go`.
//!
//! The link between the two ends is a modem: the kernel's tbf with 20 Mbit/s and half a megabyte of buffer, each way. Needs
//! root, for network namespaces, and ip, tc, ping, iperf3 and wg.
//!
//! ```sh
//! cargo build --release -p txq-wireguard && cargo run --release -p txq-wireguard --example latency -- --svg latency.svg
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;

use anyhow::{Context, Result};
use support::shared::loaded_ping::{LoadedPing, options, picture};
use support::shared::skip::{require_root, require_tools, require_tun};
use support::{Ends, Program};
use txq_lab::plot::Size;

/// The modem.
const MODEM: &str = "tbf rate 20mbit burst 5k limit 500k";
/// Five percent below the modem's rate, and the bytes that the tunnel and Ethernet add to a packet.
const CAKE: &str = "cake bandwidth 19mbit overhead 74";
const PROGRAMS: [(&str, Program); 3] =
    [("plain loop", Program::Plain), ("wireguard-go", Program::Go), ("txq, cake", Program::Txq(CAKE))];

fn main() -> Result<()> {
    let (svg, seconds) = options("latency")?;
    let tools = ["ip", "tc", "ping", "iperf3", "wg"];
    if !(require_root("latency") && require_tools("latency", &tools) && require_tun("latency")) {
        return Ok(());
    }
    let mut rows = Vec::new();
    for (name, program) in PROGRAMS {
        if program == Program::Go && !require_tools("wireguard-go", &["wireguard-go"]) {
            continue;
        }
        eprintln!("{name}: {seconds} s ..");
        rows.push((name, measure(program, seconds)?));
    }
    println!("{:<14}{:>14}{:>10}{:>10}{:>10}", "tunnel", "TCP Mbit/s", "ping p50", "p99", "lost");
    for (name, row) in &rows {
        let [p50, p99] = [50.0, 99.0].map(|percent| row.percentile(percent));
        println!("{name:<14}{:>14.1}{p50:>7.1} ms{p99:>7.1} ms{:>10}", row.goodput / 1e6, row.lost);
    }
    if let Some(file) = svg {
        let title = "Ping through a WireGuard tunnel that four TCP streams fill; a modem of 20 Mbit/s";
        let runs = rows.iter().map(|(name, row)| (*name, row));
        let picture = picture(title, runs, Size { width: 760, height: 380, names: 120 })?;
        fs::write(&file, picture).with_context(|| format!("--svg {file}"))?;
        println!("wrote {file}");
    }
    Ok(())
}

/// Sends four TCP streams through a tunnel of two such programs, and pings meanwhile.
fn measure(program: Program, seconds: u32) -> Result<LoadedPing> {
    let own = std::env::current_exe()?;
    let mut ends = Ends::new(&own.with_file_name("../txq-wireguard"));
    for end in [0, 1] {
        ends.ends[end].netns.tc(&format!("qdisc add dev e0 root {MODEM}"));
        ends.start(end, program);
    }
    ends.wait();
    let [near, far] = &ends.ends;
    LoadedPing::measure(&near.netns, &far.netns, "10.9.0.2", seconds)
}
