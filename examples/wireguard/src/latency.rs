//! Ping through the tunnel while iperf3 fills it: with txq, with the plain loop, and with `wireguard-go`.
//!
//! The link between the two ends is a modem: the kernel's tbf with 20 Mbit/s and half a megabyte of buffer, each way. Needs
//! root, for network namespaces, and ip, tc, ping, iperf3 and wg.
//!
//! ```sh
//! cargo build --release -p txq-wireguard && cargo run --release -p txq-wireguard --bin latency -- --svg latency.svg
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use support::shared::process::Running;
use support::shared::skip::{require_root, require_tools, require_tun};
use support::{Ends, LONG, Program};
use txq_cli_common::plot::{At, Curve, Curves, Size, curves};

/// The modem.
const MODEM: &str = "tbf rate 20mbit burst 5k limit 500k";
/// Five percent below the modem's rate, and the bytes that the tunnel and Ethernet add to a packet.
const CAKE: &str = "cake bandwidth 19mbit overhead 74";
const PROGRAMS: [(&str, Program); 3] =
    [("plain loop", Program::Plain), ("wireguard-go", Program::Go), ("txq, cake", Program::Txq(CAKE))];
/// The percentiles of the picture.
const PERCENTILES: [f64; 9] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0];

/// What one program did.
struct Row {
    name: &'static str,
    /// Mbit/s of TCP.
    goodput: f64,
    /// Round-trip times in milliseconds, ascending.
    pings: Vec<f64>,
    lost: usize,
}

fn main() -> Result<()> {
    let (mut svg, mut seconds, mut args) = (None, 10, std::env::args().skip(1));
    while let Some(option) = args.next() {
        let value = args.next().with_context(|| format!("{option} needs a value"));
        match option.as_str() {
            "--svg" => svg = Some(value?),
            "--seconds" => seconds = value?.parse().context("--seconds: not a number of seconds")?,
            _ => bail!("unknown option {option}; use: latency [--svg FILE] [--seconds N]"),
        }
    }
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
        rows.push(measure(name, program, seconds)?);
    }
    println!("{:<14}{:>14}{:>10}{:>10}{:>10}", "tunnel", "TCP Mbit/s", "ping p50", "p99", "lost");
    for row in &rows {
        let [p50, p99] = [50.0, 99.0].map(|percent| percentile(&row.pings, percent));
        println!("{:<14}{:>14.1}{p50:>7.1} ms{p99:>7.1} ms{:>10}", row.name, row.goodput, row.lost);
    }
    if let Some(file) = svg {
        fs::write(&file, picture(&rows)?).with_context(|| format!("--svg {file}"))?;
        println!("wrote {file}");
    }
    Ok(())
}

/// Sends four TCP streams through a tunnel of two such programs, and pings meanwhile.
fn measure(name: &'static str, program: Program, seconds: u32) -> Result<Row> {
    let own = std::env::current_exe()?;
    let mut ends = Ends::new(&own.with_file_name("txq-wireguard"));
    for end in [0, 1] {
        ends.ends[end].netns.tc(&format!("qdisc add dev e0 root {MODEM}"));
        ends.start(end, program);
    }
    ends.wait();
    let [near, far] = &ends.ends;
    let mut server = Running::start(far.netns.command("iperf3").args(["-s", "-1", "--forceflush"]));
    server.wait_for_text("listening", LONG);
    let mut iperf3 = near.netns.command("iperf3");
    iperf3.args(["-c", "10.9.0.2", "-P", "4", "-J", "-t", &(seconds + 2).to_string()]);
    let iperf3 = Running::start(&mut iperf3);
    // The pings begin when the streams have filled the queue.
    std::thread::sleep(Duration::from_secs(2));
    let count = 50 * (seconds - seconds.min(1)).max(1);
    let mut ping = near.netns.command("ping");
    ping.args(["-i", "0.02", "-c", &count.to_string(), "-W", "2", "10.9.0.2"]);
    let ping = Running::start(&mut ping).finish(LONG * 2);
    let iperf3 = iperf3.finish(LONG * 2);
    let report: Value =
        serde_json::from_str(&iperf3.stdout).with_context(|| format!("iperf3: {}", iperf3.stdout))?;
    let goodput =
        report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 has no result")? / 1e6;
    let times =
        ping.stdout.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok());
    let mut pings: Vec<f64> = times.collect();
    pings.sort_by(f64::total_cmp);
    Ok(Row { name, goodput, lost: count as usize - pings.len(), pings })
}

fn percentile(ascending: &[f64], percent: f64) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((last as f64 * percent / 100.0).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Draws the distribution of the pings, a curve for each program.
fn picture(rows: &[Row]) -> Result<String> {
    let at = |row: &Row| {
        let values = PERCENTILES.iter().enumerate();
        values
            .map(|(step, &percent)| At { step, value: percentile(&row.pings, percent), spread: None })
            .collect()
    };
    let panel = Curves {
        title: "Ping through a WireGuard tunnel that four TCP streams fill; a modem of 20 Mbit/s".to_owned(),
        over: "percentile of the pings".to_owned(),
        figure: "round trip, ms".to_owned(),
        steps: PERCENTILES.iter().enumerate().map(|(i, percent)| (format!("{percent}"), i as f64)).collect(),
        curves: rows.iter().map(|row| Curve { name: row.name.to_owned(), at: at(row) }).collect(),
    };
    curves(&[panel], Size { width: 760, height: 380, names: 120 }, 1)
}
