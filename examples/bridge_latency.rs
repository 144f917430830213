//! TCP's goodput and the ping beside it through `txq bridge` at 20 Mbit/s, and through the kernel's own bridge with its qdiscs.
//!
//! Four TCP streams fill the direction from near to far. The share is that of the best goodput that the rate allows: 1448 bytes
//! of payload in a frame of 1514. Needs root, for network namespaces, and ip, tc, ping and iperf3.
//!
//! ```sh
//! cargo build --release && cargo run --release -p txq-cli --example bridge_latency -- --svg bridge.svg
//! ```

#[allow(dead_code, reason = "shared with tests that need more of it")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod loaded_ping;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
}

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use support::loaded_ping::{LoadedPing, options, picture};
use support::netns::Netns;
use support::process::{Running, run};
use support::skip::{require_af_xdp, require_root, require_tools};
use txq_cli_common::plot::Size;

const LONG: Duration = Duration::from_secs(120);
/// The rate of all rows, in bit/s, and the best share of it that is TCP's payload.
const RATE: f64 = 20e6;
const PAYLOAD: f64 = 1448.0 / 1514.0;
const SHAPER: &str = "handle 1: tbf rate 20mbit burst 5k limit 3m";

/// A row: its name, the kind of txq's devices or none for the kernel's bridge, the root qdisc, and what is below it.
const ROWS: [(&str, Option<&str>, &str, &[&str]); 9] = [
    ("txq, cake", Some("af_packet"), "cake bandwidth 20mbit", &[]),
    ("txq on AF_XDP, cake", Some("af_xdp"), "cake bandwidth 20mbit", &[]),
    ("txq, tbf fq_codel", Some("af_packet"), SHAPER, &["qdisc add parent 1:1 handle 2: fq_codel"]),
    ("kernel, tbf fq_codel", None, SHAPER, &["qdisc add parent 1:1 handle 2: fq_codel"]),
    (
        "kernel, htb fq_codel",
        None,
        "handle 1: htb default 1",
        &["class add parent 1: classid 1:1 htb rate 20mbit", "qdisc add parent 1:1 handle 2: fq_codel"],
    ),
    (
        "kernel, htb pfifo",
        None,
        "handle 1: htb default 1",
        &[
            "class add parent 1: classid 1:1 htb rate 20mbit",
            "qdisc add parent 1:1 handle 2: pfifo limit 1000",
        ],
    ),
    ("txq, tbf pfifo", Some("af_packet"), SHAPER, &["qdisc add parent 1:1 handle 2: pfifo limit 1000"]),
    ("kernel, tbf pfifo", None, SHAPER, &["qdisc add parent 1:1 handle 2: pfifo limit 1000"]),
    ("txq, no shaper", Some("af_packet"), "fq_codel", &[]),
];

fn main() -> Result<()> {
    let (svg, seconds) = options("bridge_latency")?;
    if !(require_root("bridge_latency") && require_tools("bridge_latency", &["ip", "tc", "ping", "iperf3"])) {
        return Ok(());
    }
    let mut rows = Vec::new();
    for (name, kind, root, below) in ROWS {
        if kind == Some("af_xdp") && !require_af_xdp(name) {
            continue;
        }
        if kind.is_none() && !kernel_has(root, below) {
            eprintln!("SKIP {name}: the kernel lacks one of its qdiscs");
            continue;
        }
        eprintln!("{name}: {seconds} s ..");
        rows.push((name, measure(kind, root, below, seconds)?));
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

/// Returns whether the kernel has these qdiscs.
fn kernel_has(root: &str, below: &[&str]) -> bool {
    let netns = Netns::new();
    let tc = |command: String| {
        let mut tc = netns.command("tc");
        tc.args(command.split_whitespace()).output().is_ok_and(|done| done.status.success())
    };
    let add = |command: &&str| tc(command.replacen(" add ", " add dev lo ", 1));
    tc(format!("qdisc add dev lo root {root}")) && below.iter().all(add)
}

/// Sends four TCP streams through a bridge, and pings meanwhile.
fn measure(kind: Option<&str>, root: &str, below: &[&str], seconds: u32) -> Result<LoadedPing> {
    let (near, middle, far) = (Netns::new(), Netns::new(), Netns::new());
    for (port, end, address) in [("m0", &near, "10.78.0.1"), ("m1", &far, "10.78.0.2")] {
        middle.ip(&format!("link add name {port} type veth peer name e0 netns {}", end.name()));
        if kind == Some("af_xdp") {
            end.call(|| support::offload::switch_off("e0"));
        }
        middle.ip(&format!("link set {port} up"));
        end.ip("link set e0 up");
        end.ip(&format!("addr add {address}/24 dev e0"));
    }
    let folder = std::env::temp_dir().join(format!("txq-bridge-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let _bridge = bridge(&middle, kind, root, below, &folder)?;
    run(near.command("ping").args(["-c", "1", "-w", "20", "10.78.0.2"]));
    let measured = LoadedPing::measure(&near, &far, "10.78.0.2", seconds)?;
    fs::remove_dir_all(&folder)?;
    Ok(measured)
}

/// Bridges m0 and m1, with a qdisc from near to far.
fn bridge(
    middle: &Netns,
    kind: Option<&str>,
    root: &str,
    below: &[&str],
    folder: &Path,
) -> Result<Option<Running>> {
    let Some(kind) = kind else {
        middle.ip("link add br0 type bridge");
        for port in ["m0", "m1"] {
            middle.ip(&format!("link set {port} master br0"));
        }
        middle.ip("link set br0 up");
        middle.tc(&format!("qdisc add dev m1 root {root}"));
        for command in below {
            let (object, rest) = command.split_once(" add ").context("a command that adds")?;
            middle.tc(&format!("{object} add dev m1 {rest}"));
        }
        return Ok(None);
    };
    let file = folder.join("txq.toml");
    let device = |name, qdisc: &str, tc: &[&str]| {
        format!(
            "[[device]]\nname = \"{name}\"\n{kind} = {{ interface = \"{name}\" }}\nqdisc = \"{qdisc}\"\ntc = {tc:?}\n"
        )
    };
    let [lan, wan] = [device("m0", "fq_codel", &[]), device("m1", root, below)];
    fs::write(&file, format!("{lan}{wan}[[bridge]]\ndevices = [\"m0\", \"m1\"]\n"))?;
    let own = std::env::current_exe()?;
    let txq = own.parent().and_then(Path::parent).context("target/release/examples")?.join("txq");
    if !txq.is_file() {
        bail!("{} is absent: cargo build --release", txq.display());
    }
    let mut command = middle.command(&txq.display().to_string());
    let (file, socket) = (file.display().to_string(), folder.join("socket").display().to_string());
    let mut running = Running::start(command.args(["daemon", "--config", &file, "--socket", &socket]));
    running.wait_for_text("listening on", LONG);
    Ok(Some(running))
}
