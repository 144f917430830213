//! The peer kernel: packet sockets into an `ifb` under a real qdisc, in a network namespace that is removed when the run
//! ends.
//!
//! An ifb drops every packet after the whole transmit path: it is the kernel's null device. Threads call sendmmsg, which
//! is faster than a packet ring here (`peers/packet.c`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::case::Sample;
use super::child;
use super::lab::Lab;
use super::rig::LEN;

const SOURCE: &str = include_str!("../../peers/packet.c");
/// The statistic of an ifb that counts the packets given to its driver.
const COUNTER: &str = "rx_dropped";
/// Prefix of the namespaces' names, before the process id.
const PREFIX: &str = "txq-bench-";

/// The qdiscs, each on an interface of its own, and the tc commands that create them. No rate is ever reached.
pub(super) const QDISCS: [(&str, &[&str]); 3] = [
    ("pfifo_fast", &["qdisc replace dev IF root pfifo_fast"]),
    ("tbf", &["qdisc replace dev IF root tbf rate 100gbit burst 10mb limit 100mb"]),
    (
        "htb",
        &[
            "qdisc replace dev IF root handle 1: htb default 10",
            "class add dev IF parent 1: classid 1:10 htb rate 100gbit burst 10mb cburst 10mb",
        ],
    ),
];

/// The program, and the namespace that it runs in.
pub(super) struct Kernel {
    program: PathBuf,
    namespace: Namespace,
}

impl Kernel {
    /// Builds the program and the namespace and tries them; the error says why they cannot be used.
    pub(super) fn prepare(lab: &Lab) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("needs root".into());
        }
        let program = child::build("packet", SOURCE, &["-pthread".to_owned()])?;
        let namespace = Namespace::new()?;
        for (index, (_, commands)) in QDISCS.iter().enumerate() {
            let interface = interface(index);
            namespace.run("ip", &format!("link add {interface} type ifb"))?;
            namespace.run("ip", &format!("link set {interface} up"))?;
            for command in *commands {
                namespace.run("tc", &command.replace("IF", &interface))?;
            }
        }
        let kernel = Self { program, namespace };
        let tried = kernel.measure(lab, Duration::ZERO, 0, 1, 1);
        tried.map(|_| kernel).map_err(|error| error.to_string())
    }

    /// Sends through the qdisc number `qdisc`.
    pub(super) fn measure(
        &self,
        lab: &Lab,
        time: Duration,
        qdisc: usize,
        threads: u64,
        batch: u64,
    ) -> anyhow::Result<Sample> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace.0]).arg(&self.program);
        command.args([&interface(qdisc), COUNTER]);
        let numbers = [threads, batch, LEN as u64, child::millis(time)];
        command.args(numbers.map(|n| n.to_string()));
        if lab.pin {
            command.args(lab.cpus.iter().map(u32::to_string));
        }
        child::measure(lab, &mut command, time)
    }
}

fn interface(index: usize) -> String {
    format!("txq{index}")
}

/// A network namespace that is removed when its guard is dropped.
struct Namespace(String);

impl Namespace {
    fn new() -> Result<Self, String> {
        remove_orphans()?;
        let name = format!("{PREFIX}{}", std::process::id());
        ip(&format!("netns add {name}"))?;
        Ok(Self(name))
    }

    /// Runs a command of `ip` or `tc` inside the namespace.
    fn run(&self, tool: &str, words: &str) -> Result<String, String> {
        child::output(Command::new(tool).args(["-n", &self.0]).args(words.split_whitespace()))
            .map_err(|error| format!("{words}: {error}"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&format!("netns del {}", self.0));
    }
}

fn ip(words: &str) -> Result<String, String> {
    child::output(Command::new("ip").args(words.split_whitespace()))
}

/// Removes namespaces of processes that are gone: a killed run could not clean up.
fn remove_orphans() -> Result<(), String> {
    for line in ip("netns list")?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let owner = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
    Ok(())
}
