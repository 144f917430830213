//! `examples/forward.rs` between two namespaces, under programs that we did not write: ping, iperf3, dig, tcpdump. With and without
//! the kernel's offloads, so with frames of one segment and of many.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod support {
    pub(crate) mod dns;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
}
#[allow(dead_code, reason = "the test calls `run`")]
#[path = "../examples/forward.rs"]
mod forward;

use std::time::Duration;

use support::dns::DnsServer;
use support::netns::Netns;
use support::offload;
use support::process::{Running, run, wait_until};
use support::skip::{require_af_xdp, require_root, require_tools, require_tun};

const LONG: Duration = Duration::from_secs(20);

/// Two namespaces, and one between them whose two interfaces are ports of the forwarder.
struct Bench {
    near: Netns,
    far: Netns,
    #[allow(dead_code, reason = "it lives as long as the ports")]
    middle: Netns,
}

impl Bench {
    fn new(test: &str, qdisc: &str, offloads: bool) -> Option<Self> {
        Self::between(test, ["af_packet", "af_packet"], [qdisc, "0"], offloads)
    }

    /// Starts the forwarder with ports of these kinds, a qdisc and a time to poll; near is behind the first.
    fn between(test: &str, kinds: [&str; 2], options: [&str; 2], offloads: bool) -> Option<Self> {
        let can = require_root(test)
            && require_tools(test, &["ip", "tc", "ping", "iperf3", "tcpdump", "dig"])
            && (!kinds.contains(&"af_xdp") || require_af_xdp(test))
            && (!kinds.iter().any(|kind| kind.starts_with('t')) || require_tun(test));
        if !can {
            return None;
        }
        let (near, middle, far) = (Netns::new(), Netns::new(), Netns::new());
        let mut args = Vec::new();
        for (kind, end, port) in [(kinds[0], &near, "m0"), (kinds[1], &far, "m1")] {
            args.push(format!("{kind}:{port}"));
            if kind.starts_with('t') {
                continue;
            }
            middle.ip(&format!("link add name {port} type veth peer name e0 netns {}", end.name()));
            middle.ip(&format!("link set {port} up"));
            if !offloads {
                let name = port.to_owned();
                middle.call(move || offload::switch_off(&name));
                end.call(|| offload::switch_off("e0"));
            }
            middle.receive_on_one_cpu(port);
            end.ip("link set e0 up");
            end.wait_carrier("e0");
        }
        args.extend(options.map(str::to_owned));
        // It forwards until the test's process ends.
        drop(middle.spawn(move || forward::run(&args).unwrap_or_else(|error| panic!("{error}"))));
        for (kind, end, port, addresses) in [
            (kinds[0], &near, "m0", ["10.77.0.1", "10.77.0.2"]),
            (kinds[1], &far, "m1", ["10.77.0.2", "10.77.0.1"]),
        ] {
            if kind.starts_with('t') {
                // The interface moves to the end that uses it; the forwarder keeps its other side.
                let moves = format!("link set {port} netns {} name e0", end.name());
                assert!(wait_until(LONG, || middle.ip("link show").contains(port)), "no {port}");
                middle.ip(&moves);
                end.ip("link set e0 up");
            }
            end.receive_on_one_cpu("e0");
            let [own, other] = addresses;
            match kind {
                "tun" => end.ip(&format!("addr add {own} peer {other} dev e0")),
                _ => end.ip(&format!("addr add {own}/24 dev e0")),
            };
        }
        let bench = Self { near, far, middle };
        // The first packets may be sent before both receivers are open.
        run(bench.near.command("ping").args(["-c", "1", "-w", "20", "10.77.0.2"]));
        Some(bench)
    }

    /// Runs iperf3 from near to far; returns its report.
    fn iperf3(&self, args: &str) -> serde_json::Value {
        let mut server = Running::start(self.far.command("iperf3").args(["-s", "-1", "--forceflush"]));
        server.wait_for_text("Server listening", Duration::from_secs(20));
        let client = ["-c", "10.77.0.2", "-J"].into_iter().chain(args.split_whitespace());
        let report = run(self.near.command("iperf3").args(client));
        drop(server.finish(Duration::from_secs(20)));
        serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error} in {report}"))
    }

    fn check(&self) {
        // Until all are answered: without -w, ping waits for the last answers only twice as long as for the others.
        let ping = run(self.near.command("ping").args([
            "-c",
            "50",
            "-w",
            "60",
            "-i",
            "0.01",
            "-s",
            "1400",
            "10.77.0.2",
        ]));
        let received = ping.split(", ").find_map(|part| part.strip_suffix(" received")?.parse::<u32>().ok());
        assert!(received >= Some(50), "{ping}");
        assert!(!ping.contains("DUP") && !ping.contains("wrong data"), "{ping}");
        let dns = DnsServer::start(&self.far, "10.77.0.2");
        let query = ["@10.77.0.2", "+short", "+tries=10", "txq.example", "A"];
        assert_eq!(run(self.near.command("dig").args(query)).trim(), "192.0.2.1");
        drop(dns);
        let tcp = self.iperf3("-n 20M");
        // The server ends when the client does, and has not counted what is still on the way.
        assert!(tcp["end"]["sum_sent"]["bytes"].as_u64() >= Some(20 << 20), "{tcp}");
        assert!(tcp["end"]["sum_received"]["bytes"].as_u64() >= Some(10 << 20), "{tcp}");
        let udp = self.iperf3("-u -b 20M -l 1000 -t 1");
        assert_eq!(udp["end"]["streams"][0]["udp"]["out_of_order"].as_u64(), Some(0), "{udp}");
        assert!(udp["end"]["sum"]["packets"].as_u64() > Some(100), "{udp}");
    }
}

fn programs_talk_through_it(test: &str, offloads: bool) {
    if let Some(bench) = Bench::new(test, "fq_codel", offloads) {
        bench.check();
    }
}

#[test]
fn programs_talk_through_it_without_segments() {
    programs_talk_through_it("programs_talk_through_it_without_segments", false);
}

#[test]
fn programs_talk_through_it_with_segments() {
    programs_talk_through_it("programs_talk_through_it_with_segments", true);
}

/// Makes a test of two devices: their kinds, how long receivers poll, and whether the ends keep their offloads.
macro_rules! pairs {
    ($($name:ident: $kinds:expr, $poll:literal, $offloads:literal;)+) => {
        /// Programs talk between any two devices that carry the same packets; one pair of each kind with receivers that poll.
        mod programs_talk_between {
            $(
                #[test]
                fn $name() {
                    let test = concat!("programs_talk_between::", stringify!($name));
                    if let Some(bench) = super::Bench::between(test, $kinds, ["fq_codel", $poll], $offloads) {
                        bench.check();
                    }
                }
            )+
        }
    };
}

pairs! {
    af_xdp_and_af_xdp: ["af_xdp", "af_xdp"], "100", false;
    af_xdp_and_af_packet: ["af_xdp", "af_packet"], "0", false;
    tap_and_af_packet: ["tap", "af_packet"], "100", true;
    tap_and_af_xdp: ["tap", "af_xdp"], "0", false;
    tap_and_tap: ["tap", "tap"], "0", true;
    tun_and_tun: ["tun", "tun"], "0", true;
}

/// Every checksum that arrives is right, as tcpdump judges, though the sender leaves them to a card that does not exist.
#[test]
fn checksums_left_to_a_card_are_right() {
    let test = "checksums_left_to_a_card_are_right";
    let Some(bench) = Bench::new(test, "pfifo", false) else { return };
    bench.near.call(|| offload::leave_checksums("e0"));
    let dump = ["-i", "e0", "-Q", "in", "-vvv", "-n", "-l", "-c", "40", "udp or tcp"];
    let mut dump = Running::start(bench.far.command("tcpdump").args(dump));
    dump.wait_for_text("listening on", Duration::from_secs(20));
    bench.iperf3("-u -b 1M -l 200 -t 1");
    let seen = dump.finish(Duration::from_secs(20)).stdout;
    assert!(seen.contains("udp sum ok") && seen.contains("(correct)"), "{seen}");
    assert!(!seen.contains("bad udp cksum") && !seen.contains("incorrect"), "{seen}");
}

/// A shaped port holds its rate, whatever arrives.
#[test]
fn a_shaped_port_holds_its_rate() {
    let Some(bench) =
        Bench::new("a_shaped_port_holds_its_rate", "tbf rate 20mbit burst 20k latency 50ms", true)
    else {
        return;
    };
    let tcp = bench.iperf3("-t 2");
    let rate = tcp["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    assert!((1e3..22e6).contains(&rate), "{rate} bit/s");
}
