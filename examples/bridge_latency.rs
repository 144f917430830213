//! TCP's goodput and the ping beside it through `txq bridge` at 20 Mbit/s, and through the kernel's own bridge with its qdiscs.
//!
//! Four TCP streams fill the direction from near to far. The share is that of the best goodput that the rate allows: 1448 bytes
//! of payload in a frame of 1514. Needs root, for network namespaces, and ip, tc, ping and iperf3.
//!
//! ```sh
//! cargo build --release && cargo run --release -p txq-lab --example bridge_latency -- --svg bridge.svg
//! ```

mod bridges;
#[allow(dead_code, reason = "shared with tests that need more of it")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod loaded_ping;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
    pub(crate) mod tempdir;
}

use std::fs;

use anyhow::{Context, Result};
use bridges::{Course, FAR, Shaper, Way};
use support::loaded_ping::{LoadedPing, options, picture};
use support::skip::{require_af_xdp, require_root, require_tools};
use txq_lab::plot::Size;

/// The rate of all rows, in bit/s, and the best share of it that is TCP's payload.
const RATE: f64 = 20e6;
const PAYLOAD: f64 = 1448.0 / 1514.0;
const SHAPER: &str = "handle 1: tbf rate 20mbit burst 5k limit 3m";

/// A row: its name, what bridges, the root qdisc, and what is below it.
const ROWS: [(&str, Way, &str, &[&str]); 9] = [
    ("txq, cake", Way::AfPacket, "cake bandwidth 20mbit", &[]),
    ("txq on AF_XDP, cake", Way::AfXdp, "cake bandwidth 20mbit", &[]),
    ("txq, tbf fq_codel", Way::AfPacket, SHAPER, &["qdisc add parent 1:1 handle 2: fq_codel"]),
    ("kernel, tbf fq_codel", Way::Kernel, SHAPER, &["qdisc add parent 1:1 handle 2: fq_codel"]),
    (
        "kernel, htb fq_codel",
        Way::Kernel,
        "handle 1: htb default 1",
        &["class add parent 1: classid 1:1 htb rate 20mbit", "qdisc add parent 1:1 handle 2: fq_codel"],
    ),
    (
        "kernel, htb pfifo",
        Way::Kernel,
        "handle 1: htb default 1",
        &[
            "class add parent 1: classid 1:1 htb rate 20mbit",
            "qdisc add parent 1:1 handle 2: pfifo limit 1000",
        ],
    ),
    ("txq, tbf pfifo", Way::AfPacket, SHAPER, &["qdisc add parent 1:1 handle 2: pfifo limit 1000"]),
    ("kernel, tbf pfifo", Way::Kernel, SHAPER, &["qdisc add parent 1:1 handle 2: pfifo limit 1000"]),
    ("txq, no shaper", Way::AfPacket, "fq_codel", &[]),
];

fn main() -> Result<()> {
    let (svg, seconds) = options("bridge_latency")?;
    if !(require_root("bridge_latency") && require_tools("bridge_latency", &["ip", "tc", "ping", "iperf3"])) {
        return Ok(());
    }
    let mut rows = Vec::new();
    for (name, way, root, below) in ROWS {
        let below = below.iter().map(|&command| command.to_owned()).collect();
        let shaper = Shaper { root: root.to_owned(), below };
        if way == Way::AfXdp && !require_af_xdp(name) {
            continue;
        }
        if way == Way::Kernel && !shaper.is_in_kernel() {
            eprintln!("SKIP {name}: the kernel lacks one of its qdiscs");
            continue;
        }
        eprintln!("{name}: {seconds} s ..");
        let course = Course::new(way, &shaper)?;
        rows.push((name, LoadedPing::measure(&course.near, &course.far, FAR, seconds)?));
    }
    println!(
        "{:<22}{:>12}{:>8}{:>10}{:>10}{:>8}",
        "bridge", "TCP Mbit/s", "share", "ping p50", "p99", "lost"
    );
    for (name, row) in &rows {
        let [p50, p99] = [50.0, 99.0].map(|percent| row.percentile(percent));
        let (goodput, share) = (row.goodput / 1e6, row.goodput / (RATE * PAYLOAD));
        let share = if name.ends_with("no shaper") { "-".to_owned() } else { format!("{share:.3}") };
        println!("{name:<22}{goodput:>12.1}{share:>8}{p50:>7.1} ms{p99:>7.1} ms{:>8}", row.lost);
    }
    if let Some(file) = svg {
        let title = "Ping through a bridge of 20 Mbit/s that four TCP streams fill";
        let runs = rows.iter().map(|(name, row)| (*name, row));
        let picture = picture(title, runs, Size { width: 760, height: 420, names: 150 })?;
        fs::write(&file, picture).with_context(|| format!("--svg {file}"))?;
        println!("wrote {file}");
    }
    Ok(())
}
