//! Network namespaces that are removed when their guard is dropped, and veth pairs between them.

use super::offload;
use super::process::{run, wait_until};
use serde_json::Value;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A network namespace that sends nothing by itself: without IPv6 there are no router solicitations and no MLD, so every
/// counted frame is the test's.
pub(crate) struct Netns {
    name: String,
}

/// The kernel's counters of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
}

impl Netns {
    pub(crate) fn new() -> Self {
        static SWEEP: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        SWEEP.call_once(remove_orphans);
        let name = format!("txq-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Self { name };
        namespace.call(|| {
            for scope in ["all", "default"] {
                // A kernel without IPv6 has no such file and nothing to silence.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
            }
        });
        namespace.ip("link set lo up");
        namespace
    }

    /// Returns the namespace's name (`ip netns`).
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that will run inside.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` in the namespace, with arguments split at blanks; returns its output.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments.split_whitespace()))
    }

    pub(crate) fn tc(&self, arguments: &str) -> String {
        run(Command::new("tc").args(["-n", &self.name]).args(arguments.split_whitespace()))
    }

    /// Runs `work` on a thread of its own inside the namespace.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let handle = File::open(format!("/run/netns/{}", self.name)).expect("namespace handle");
        std::thread::spawn(move || {
            // SAFETY: setns changes only the calling thread, which ends with `work`, and `handle` is open.
            let entered = unsafe { libc::setns(handle.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "setns: {}", std::io::Error::last_os_error());
            work()
        })
    }

    /// Runs `work` inside and waits for it.
    pub(crate) fn call<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(work).join().expect("work inside the namespace")
    }

    /// Connects `interface` here with `peer_interface` there and waits until both carry traffic.
    pub(crate) fn connect(&self, interface: &str, peer: &Self, peer_interface: &str, queues: u32) {
        let size = format!("numtxqueues {queues} numrxqueues {queues}");
        self.ip(&format!(
            "link add name {interface} {size} type veth peer name {peer_interface} netns {} {size}",
            peer.name()
        ));
        for (namespace, interface) in [(self, interface), (peer, peer_interface)] {
            let name = interface.to_owned();
            namespace.call(move || offload::switch_off(&name));
            namespace.receive_on_one_cpu(interface);
            namespace.ip(&format!("link set {interface} up"));
        }
        self.wait_carrier(interface);
        peer.wait_carrier(peer_interface);
    }

    /// Lets one CPU receive all frames of an interface. A veth hands each frame to the CPU that sent it, and the backlogs
    /// of two CPUs are no queue: when a sender moves, or tbf's timer fires on the other CPU, frames arrive in another
    /// order than they were sent.
    pub(crate) fn receive_on_one_cpu(&self, interface: &str) {
        let write =
            format!("for file in /sys/class/net/{interface}/queues/rx-*/rps_cpus; do echo 1 > $file; done");
        run(self.command("sh").args(["-ec", &write]));
    }

    /// Waits until the interface is up. The kernel attaches the qdisc some time after the carrier; until then it discards
    /// silently.
    pub(crate) fn wait_carrier(&self, interface: &str) {
        let up = wait_until(Duration::from_secs(5), || self.link(interface)["operstate"] == "UP");
        assert!(up, "{interface} has no carrier");
    }

    pub(crate) fn counters(&self, interface: &str) -> Counters {
        let link = self.link(interface);
        let tx =
            |key: &str| link["stats64"]["tx"][key].as_u64().unwrap_or_else(|| panic!("no {key} in {link}"));
        Counters { tx_packets: tx("packets"), tx_bytes: tx("bytes") }
    }

    fn link(&self, interface: &str) -> Value {
        first(&self.ip(&format!("-s -j link show dev {interface}")))
    }

    /// Returns the statistics of the interface's root qdisc, as tc prints them.
    pub(crate) fn root_qdisc(&self, interface: &str) -> Value {
        first(&self.tc(&format!("-s -j qdisc show dev {interface} root")))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

impl Counters {
    pub(crate) fn since(self, before: Self) -> Self {
        Self { tx_packets: self.tx_packets - before.tx_packets, tx_bytes: self.tx_bytes - before.tx_bytes }
    }
}

fn first(json: &str) -> Value {
    let list: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json:?}"));
    list[0].clone()
}

/// Removes namespaces of processes that are gone: a killed test run cannot clean up.
fn remove_orphans() {
    for line in run(Command::new("ip").args(["netns", "list"])).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let owner = name.strip_prefix("txq-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
