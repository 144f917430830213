//! A network namespace with a veth pair of four queues, for tests that run the real tc.

use std::process::{Command, Output};

/// The device under test; its peer is `Y`.
pub(crate) const DEV: &str = "X";

/// A namespace that is removed with this value, also when a test panics.
pub(crate) struct Netns {
    name: String,
}

impl Netns {
    /// Creates the namespace; prints a line that begins with `SKIP` and returns `None` where this machine cannot.
    pub(crate) fn new(test: &str) -> Option<Netns> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP {test}: needs root, for a network namespace");
            return None;
        }
        for tool in ["ip", "tc"] {
            let Ok(version) = Command::new(tool).arg("-V").output() else {
                println!("SKIP {test}: needs {tool} (iproute2)");
                return None;
            };
            // Texts differ a little between versions, so a failure needs this one.
            print!("compared with {}", String::from_utf8_lossy(&version.stdout));
        }
        let netns = Netns { name: format!("txq-{test}-{}", std::process::id()) };
        let made = Command::new("ip").args(["netns", "add", &netns.name]).output().unwrap();
        if !made.status.success() {
            println!("SKIP {test}: cannot make a namespace: {}", String::from_utf8_lossy(&made.stderr));
            return None;
        }
        // Without IPv6, only the test sends packets.
        netns.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true"]);
        let veth = "ip link add X numtxqueues 4 numrxqueues 4 type veth peer name Y numtxqueues 4 numrxqueues 4 \
                    && ip link set X up && ip link set Y up \
                    && ip addr add 192.0.2.1/24 dev X \
                    && ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev X";
        let made = netns.run("sh", &["-c", veth]);
        if !made.status.success() {
            println!("SKIP {test}: cannot make a veth: {}", String::from_utf8_lossy(&made.stderr));
            return None;
        }
        Some(netns)
    }

    /// Runs a program inside.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> Output {
        Command::new("ip").args(["netns", "exec", &self.name, program]).args(args).output().unwrap()
    }

    /// Attaches a qdisc, given as words after `dev X`. If this kernel lacks the kind, prints a line that begins with `SKIP`
    /// and returns false.
    pub(crate) fn replace(&self, words: &[&str]) -> bool {
        let output = self.run("tc", &[&["qdisc", "replace", "dev", DEV], words].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        if error.contains("qdisc kind is unknown") {
            println!("SKIP {words:?}: this kernel lacks the kind");
            return false;
        }
        assert!(output.status.success(), "tc qdisc replace dev {DEV} {words:?}: {error}");
        true
    }

    /// Removes the root qdisc.
    pub(crate) fn delete(&self) {
        self.run("tc", &["qdisc", "del", "dev", DEV, "root"]);
    }

    /// Runs tc; returns its output.
    pub(crate) fn tc(&self, args: &[&str]) -> String {
        let output = self.run("tc", args);
        assert!(output.status.success(), "tc {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // A failure is ignored: a panic may already be under way.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}
