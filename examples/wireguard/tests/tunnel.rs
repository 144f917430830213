//! The tunnel against Debian's `wireguard-go`, and under ping, iperf3 and `txq tc`'s protocol: programs that we did not write.

mod support;

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::shared::process::Running;
use support::shared::skip::{require_root, require_tools, require_tun};
use support::{Ends, LONG, Program};
use txq_control::tc::Show;

const CAKE: Program = Program::Txq("cake bandwidth 30mbit");

fn ends(test: &str, tools: &[&str]) -> Option<Ends> {
    let all = [&["ip", "tc", "wg", "ping"], tools].concat();
    let can = require_root(test) && require_tools(test, &all) && require_tun(test);
    can.then(|| Ends::new(Path::new(env!("CARGO_BIN_EXE_txq-wireguard"))))
}

/// Sends for a second by iperf3 from end `from` to the other, and returns the bits received and the seconds.
fn iperf3(ends: &Ends, from: usize, words: &str) -> (f64, f64) {
    let to = &ends.ends[1 - from].netns;
    let mut server = Running::start(to.command("iperf3").args(["-s", "-1", "--forceflush"]));
    server.wait_for_text("listening", LONG);
    let mut client = ends.ends[from].netns.command("iperf3");
    client.args(["-c", &format!("10.9.0.{}", 2 - from), "-t", "1", "-J"]).args(words.split_whitespace());
    let ended = Running::start(&mut client).finish(LONG);
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let received = &report["end"]["sum_received"];
    (received["bytes"].as_f64().expect("bytes") * 8.0, received["seconds"].as_f64().expect("seconds"))
}

/// Each pair of programs carries TCP both ways, and the shaper's rate is an upper bound.
fn carries_tcp(test: &str, pair: [Program; 2]) {
    let tools: &[&str] = if pair.contains(&Program::Go) { &["iperf3", "wireguard-go"] } else { &["iperf3"] };
    let Some(mut ends) = ends(test, tools) else { return };
    ends.start(0, pair[0]);
    ends.start(1, pair[1]);
    ends.wait();
    for from in [0, 1] {
        let (bits, seconds) = iperf3(&ends, from, "-P 2");
        assert!(bits > 0.0, "nothing arrived from end {from}");
        if pair[from] == CAKE {
            // The bytes in the socket buffers when the clock starts and ends come on top: half a megabyte at most.
            assert!(bits <= 30e6 * seconds + 4e6, "{bits} bits in {seconds} s");
        }
    }
}

#[test]
fn two_peers_carry_tcp() {
    carries_tcp("two_peers_carry_tcp", [CAKE, Program::Txq("fq_codel")]);
}

#[test]
fn a_peer_and_wireguard_go_carry_tcp() {
    carries_tcp("a_peer_and_wireguard_go_carry_tcp", [CAKE, Program::Go]);
}

#[test]
fn the_plain_loop_and_wireguard_go_carry_tcp() {
    carries_tcp("the_plain_loop_and_wireguard_go_carry_tcp", [Program::Plain, Program::Go]);
}

/// Datagrams that are no messages harm nothing, and a peer that was killed is back with its next start.
#[test]
fn garbage_and_a_killed_peer_are_survived() {
    let Some(mut ends) = ends("garbage_and_a_killed_peer_are_survived", &[]) else { return };
    ends.start(0, CAKE);
    ends.start(1, Program::Txq("fq_codel"));
    ends.wait();
    ends.ends[1].netns.call(|| {
        let socket = UdpSocket::bind("10.0.0.2:0").expect("a socket");
        for len in (0..1400).step_by(7) {
            for kind in 0..6 {
                let mut bytes = vec![0x5a; len];
                bytes.iter_mut().take(4).zip([kind, 0, 0, 0]).for_each(|(byte, value)| *byte = value);
                socket.send_to(&bytes, "10.0.0.1:51820").expect("sent");
            }
        }
    });
    ends.wait();
    ends.kill(1);
    ends.start(1, Program::Txq("fq_codel"));
    // The new process begins a session; the old one is forgotten.
    let ping =
        ends.ends[1].netns.command("ping").args(["-c", "1", "-W", "20", "10.9.0.1"]).output().expect("ping");
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
    ends.wait();
}

#[test]
fn the_operator_reaches_the_tunnels_qdisc() {
    let Some(mut ends) = ends("the_operator_reaches_the_tunnels_qdisc", &[]) else { return };
    ends.start(0, CAKE);
    ends.start(1, Program::Txq("fq_codel"));
    ends.wait();
    let mut client = txq_control::Client::connect(ends.socket(0)).expect("the control socket");
    let shown = client.tc(&["qdisc", "show"], Show::default()).expect("an answer").out;
    assert!(shown.contains("qdisc cake") && shown.contains("bandwidth 30Mbit"), "{shown}");
}

#[test]
fn bad_input_is_named() {
    let key = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wireguard-bad.key");
    std::fs::write(&key, "not a key\n").expect("a file");
    let key = key.display().to_string();
    for (words, expected) in [
        ("--tunnel wg0", "unexpected argument '--tunnel'"),
        ("--tun wg0", "--private-key <FILE>"),
        ("--private-key /nowhere", "invalid value '/nowhere' for '--private-key <FILE>': No such file"),
        (&format!("--private-key {key}"), "not 32 bytes in base64, as `wg` prints keys"),
        ("--peer AAAA", "invalid value 'AAAA' for '--peer <KEY>': not 32 bytes"),
        ("--endpoint nowhere", "invalid value 'nowhere' for '--endpoint <ADDR:PORT>'"),
    ] {
        let ended = Command::new(env!("CARGO_BIN_EXE_txq-wireguard"))
            .args(words.split(' '))
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && text.contains(expected), "{words}: {text}");
    }
}
