//! What the measurements of bridges share: two namespaces, and one between them that bridges by txq or by the kernel.
#![allow(dead_code, reason = "each measurement needs a part of it")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::support::netns::Netns;
use crate::support::offload;
use crate::support::process::{Running, run};
use crate::support::tempdir::TempDir;

/// How long a busy machine may need.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// The addresses of the two ends.
pub(crate) const NEAR: &str = "10.78.0.1";
pub(crate) const FAR: &str = "10.78.0.2";

/// What bridges.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    AfPacket,
    AfXdp,
    Tun,
    /// The kernel's own bridge.
    Kernel,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Tun => "tun",
            Self::Kernel => "kernel",
        }
    }
}

/// The qdiscs from near to far: the root, and commands of tc for what is below it.
pub(crate) struct Shaper {
    pub(crate) root: String,
    pub(crate) below: Vec<String>,
}

impl Shaper {
    /// Returns whether the kernel has these qdiscs.
    pub(crate) fn is_in_kernel(&self) -> bool {
        let netns = Netns::new();
        let tc = |command: String| {
            let mut tc = netns.command("tc");
            tc.args(command.split_whitespace()).output().is_ok_and(|done| done.status.success())
        };
        tc(format!("qdisc add dev lo root {}", self.root))
            && self.below.iter().all(|command| tc(command.replacen(" add ", " add dev lo ", 1)))
    }
}

/// `near` -- `middle`, which bridges -- `far`.
pub(crate) struct Course {
    pub(crate) near: Netns,
    pub(crate) far: Netns,
    /// Ends with the course.
    txq: Option<Running>,
    middle: Netns,
    folder: TempDir,
}

impl Course {
    /// Connects the namespaces, and waits until a ping passes.
    pub(crate) fn new(way: Way, shaper: &Shaper) -> Result<Self> {
        let [near, middle, far] = [Netns::new(), Netns::new(), Netns::new()];
        let mut course = Self { near, far, middle, txq: None, folder: TempDir::new() };
        let ends = [("m0", &course.near, NEAR), ("m1", &course.far, FAR)];
        if way != Way::Tun {
            for (port, end, address) in ends {
                course
                    .middle
                    .ip(&format!("link add name {port} type veth peer name e0 netns {}", end.name()));
                if way == Way::AfXdp {
                    end.call(|| offload::switch_off("e0"));
                }
                course.middle.ip(&format!("link set {port} up"));
                end.ip("link set e0 up");
                end.ip(&format!("addr add {address}/24 dev e0"));
            }
        }
        match way {
            Way::Kernel => course.bridge(shaper),
            way => course.txq = Some(course.daemon(way, shaper)?),
        }
        if way == Way::Tun {
            for (end, address) in [(&course.near, NEAR), (&course.far, FAR)] {
                end.ip(&format!("addr add {address}/24 dev e0"));
                end.ip("link set e0 up");
            }
        }
        run(course.near.command("ping").args(["-c", "1", "-w", "20", FAR]));
        Ok(course)
    }

    /// Bridges m0 and m1 in the kernel.
    fn bridge(&self, shaper: &Shaper) {
        self.middle.ip("link add br0 type bridge");
        for port in ["m0", "m1"] {
            self.middle.ip(&format!("link set {port} master br0"));
        }
        self.middle.ip("link set br0 up");
        self.middle.tc(&format!("qdisc add dev m1 root {}", shaper.root));
        for command in &shaper.below {
            self.middle.tc(&command.replacen(" add ", " add dev m1 ", 1));
        }
    }

    /// Bridges m0 and m1, or two TUN interfaces, by txq.
    fn daemon(&self, way: Way, shaper: &Shaper) -> Result<Running> {
        let file = self.folder.path().join("txq.toml");
        let place = |port: &str, end: &Netns| match way {
            Way::Tun => format!("tun = {{ interface = \"e0\", namespace = \"{}\" }}", end.name()),
            way => format!("{} = {{ interface = \"{port}\" }}", way.name()),
        };
        let [lan, wan] = [place("m0", &self.near), place("m1", &self.far)];
        let (root, below) = (&shaper.root, &shaper.below);
        let text = format!(
            "[[device]]\nname = \"m0\"\n{lan}\nqdisc = \"fq_codel\"\n\
             [[device]]\nname = \"m1\"\n{wan}\nqdisc = \"{root}\"\ntc = {below:?}\n\
             [[bridge]]\ndevices = [\"m0\", \"m1\"]\n"
        );
        fs::write(&file, text)?;
        let own = std::env::current_exe()?;
        let txq = own.parent().and_then(Path::parent).context("target/release/examples")?.join("txq");
        if !txq.is_file() {
            bail!("{} is absent: cargo build --release", txq.display());
        }
        // The process of `ip` becomes the daemon.
        let mut command = self.middle.command(&txq.display().to_string());
        let socket = self.folder.path().join("socket").display().to_string();
        let words = ["daemon", "--config", &file.display().to_string(), "--socket", &socket];
        let mut running = Running::start(command.args(words));
        running.wait_for_text("listening on", LONG);
        Ok(running)
    }
}

/// Returns how many seconds this machine's CPUs have worked so far.
pub(crate) fn busy() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let fields: Vec<f64> = first.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let worked = |i: &usize| ![3, 4].contains(i) && *i < 8;
    (0..fields.len()).filter(worked).map(|i| fields[i]).sum::<f64>() / 100.0
}
