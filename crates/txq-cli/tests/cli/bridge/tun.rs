//! A namespace's traffic through two TUN interfaces: routed into one, shaped, out of the other.

use super::bench::{Bench, FAR, LONG, end};
use crate::support::netns::Netns;
use crate::support::process::{Running, run, wait_until};
use crate::support::skip::require_tun;

/// near has no interface but its TUN, as its default route; the router, which is the middle, has the other and a veth to far.
struct Routed {
    bench: Bench,
    inner: Netns,
}

impl Routed {
    fn new(test: &str) -> Option<Self> {
        if !require_tun(test) {
            return None;
        }
        let bench = Bench::new(test, "tun", true)?;
        // m1 is the router's own interface here.
        bench.middle.ip("addr add 10.78.0.254/24 dev m1");
        bench.middle.ip("link del m0");
        let forward = |file: &str| std::fs::write(file, "1").expect(file);
        bench.middle.call(move || forward("/proc/sys/net/ipv4/ip_forward"));
        bench.far.ip("route add 10.80.0.0/24 via 10.78.0.254");
        Some(Self { bench, inner: Netns::new() })
    }

    fn file(&self, qdisc: &str) -> String {
        format!(
            "[[device]]\nname = \"inside\"\ntun = {{ interface = \"t0\", namespace = \"{}\" }}\nqdisc = \"fq_codel\"\n\
             [[device]]\nname = \"outside\"\ntun = {{ interface = \"t1\" }}\nqdisc = \"{qdisc}\"\n\
             [[bridge]]\ndevices = [\"inside\", \"outside\"]\n",
            self.inner.name()
        )
    }

    /// Gives both interfaces their addresses and routes.
    fn address(&self) {
        self.inner.ip("addr add 10.80.0.1/24 dev t0");
        self.inner.ip("route add default dev t0");
        self.bench.middle.ip("addr add 10.80.0.254/24 dev t1");
    }

    fn ping(&self) -> bool {
        wait_until(LONG, || {
            let mut ping = self.inner.command("ping");
            ping.args(["-n", "-c", "1", "-W", "1", FAR]).output().is_ok_and(|done| done.status.success())
        })
    }
}

#[test]
fn a_namespace_reaches_the_world_through_the_shaper() {
    let Some(routed) = Routed::new("a_namespace_reaches_the_world_through_the_shaper") else { return };
    let bench = &routed.bench;
    let daemon = bench.daemon(&routed.file("tbf rate 40mbit burst 20k latency 50ms"));
    routed.address();
    assert!(routed.ping());
    let mut server = Running::start(bench.far.command("iperf3").args(["-s", "--forceflush"]));
    server.wait_for_text("Server listening", LONG);
    for words in ["-n 4M", "-n 4M -R"] {
        let client = ["-c", FAR, "-J"].into_iter().chain(words.split_whitespace());
        let report: serde_json::Value =
            serde_json::from_str(&run(routed.inner.command("iperf3").args(client))).expect("a report");
        assert!(report["end"]["sum_sent"]["bytes"].as_u64() >= Some(4 << 20), "{report}");
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
        assert!(words.ends_with("-R") || rate < 42e6, "{rate} bit/s");
    }
    for (from, to) in [("inside", "outside"), ("outside", "inside")] {
        bench.assert_explained(from, to);
    }
    drop(end(daemon));
    // The interfaces are gone with the daemon.
    assert!(!routed.inner.ip("link show").contains("t0") && !bench.middle.ip("link show").contains("t1"));
}

/// After a kill, the interfaces are gone, and the next daemon makes them again.
#[test]
fn a_killed_tunnel_can_start_again() {
    let Some(routed) = Routed::new("a_killed_tunnel_can_start_again") else { return };
    for _ in 0..2 {
        let daemon = routed.bench.daemon(&routed.file("fq_codel"));
        routed.address();
        assert!(routed.ping());
        daemon.signal(libc::SIGKILL);
        drop(daemon.finish(LONG));
        let gone = || {
            !routed.inner.ip("link show").contains("t0")
                && !routed.bench.middle.ip("link show").contains("t1")
        };
        assert!(wait_until(LONG, gone));
    }
}
