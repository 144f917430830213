//! Programs that we did not write: iperf3, dig, a QUIC client, and one in Go.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Bench, LONG, counters, end, report};
use crate::support::dns::DnsServer;
use crate::support::netns::Netns;
use crate::support::process::Running;
use crate::support::skip::{require, require_root, require_tools};

/// Runs iperf3 under txq against a server, for two seconds of datagrams; returns what it and txq report. `None` if the machine lacks
/// something.
pub(super) fn iperf3(way: [&str; 2], options: &[&str]) -> Option<(Value, Value)> {
    if !(require_root("iperf3") && require_tools("iperf3", &["ip", "iperf3"])) {
        return None;
    }
    let (bench, namespace) = (Bench::new(), Netns::new());
    let mut server = namespace.command("iperf3");
    let mut server = Running::start(server.args(["-s", "-1", "--forceflush"]));
    server.wait_for_text("Server listening", LONG);
    let mut command = namespace.command(env!("CARGO_BIN_EXE_txq"));
    bench.prepare(&mut command);
    command.args(["exec", "--json"]).args(way).args(["--", "iperf3", "-J", "-u", "-c", "127.0.0.1"]);
    let ended = end(command.args(["-l", "1400", "-t", "2"]).args(options));
    assert_eq!(ended.status.code(), Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = serde_json::from_str(&ended.stdout).expect("iperf3's JSON");
    server.finish(LONG);
    Some((result, report(&ended)))
}

#[test]
fn iperf3_sends_no_more_than_the_rate_and_little_is_lost() {
    let Some((result, report)) = iperf3(["--qdisc", "fq maxrate 20mbit"], &["-b", "200M"]) else { return };
    let received = &result["end"]["sum_received"];
    let (bytes, seconds) = (received["bytes"].as_f64().unwrap(), received["seconds"].as_f64().unwrap());
    let process = counters(&report);
    // fq's initial quantum, ten packets, leaves at once; all else at the rate, for as long as the device existed.
    let whole = process["seconds"].as_f64().unwrap().max(seconds);
    assert!(bytes * 8.0 <= 20e6 * whole + 8.0 * 15_140.0, "{received} {report}");
    assert!(process["sent"].as_u64() > Some(10), "{report}");
    let (lost, all) = (received["lost_packets"].as_f64().unwrap(), received["packets"].as_f64().unwrap());
    // A receiver that does not run in time loses some.
    assert!(lost <= all / 2.0, "{received}");
    assert_eq!(process["passed"], 0, "{report}");
}

#[test]
fn dig_gets_its_answer() {
    if !(require_root("dig") && require_tools("dig", &["ip", "dig"])) {
        return;
    }
    let (bench, namespace) = (Bench::new(), Netns::new());
    let _server = DnsServer::start(&namespace, "127.0.0.1");
    let mut command = namespace.command(env!("CARGO_BIN_EXE_txq"));
    bench.prepare(&mut command);
    command.args(["exec", "--json", "--qdisc", "fq maxrate 1mbit", "--"]);
    let ended = end(command.args(["dig", "@127.0.0.1", "+short", "+tries=3", "+time=20", "name.example"]));
    assert_eq!((ended.status.code(), ended.stdout.trim()), (Some(0), "192.0.2.1"), "{}", ended.stderr);
    let report = report(&ended);
    assert!(counters(&report)["sent"].as_u64() >= Some(1), "{report}");
}

/// A file over HTTP/3, whose sender is aioquic's server under a shaper.
#[test]
fn a_quic_connection_survives_a_shaper() {
    let python = std::env::var("TXQ_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has =
        Command::new(&python).args(["-c", "import aioquic"]).output().is_ok_and(|done| done.status.success());
    if !require(
        "quic",
        has,
        "needs Python with aioquic: pip install aioquic, and name that Python in TXQ_TEST_PYTHON",
    ) {
        return;
    }
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/exec_programs/quic.py");
    let ended = end(bench.exec("fq maxrate 20mbit").args(["--", &python]).arg(script));
    assert_eq!(
        (ended.status.code(), ended.stdout.trim()),
        (Some(0), "1000000 bytes arrived"),
        "{}",
        ended.stderr
    );
    let report = report(&ended);
    // A million bytes are more than 700 packets of a QUIC connection.
    assert!(counters(&report)["sent"].as_u64() > Some(700), "{report}");
}

#[test]
fn a_program_in_go_is_named_as_the_reason() {
    if !require_tools("go", &["go", "gcc"]) {
        return;
    }
    let bench = Bench::new();
    let source = bench.0.path().join("main.go");
    let text = "package main\n\nimport \"C\"\nimport \"net\"\n\nfunc main() {\n\tc, err := net.Dial(\"udp\", \"127.0.0.1:9\")\n\t\
                if err == nil {\n\t\tc.Write([]byte(\"x\"))\n\t}\n}\n";
    fs::write(&source, text).unwrap();
    let program = bench.0.path().join("go");
    if !build(&source, &program, "1") {
        return;
    }
    let ended = end(bench.exec("fq").arg("--").arg(&program));
    let told = report(&ended)["notes"][0].as_str().unwrap().to_owned();
    assert!(told.starts_with("0 packets went through txq: ") && told.contains("written in Go"), "{told}");
}

#[test]
fn a_static_program_in_go_is_refused_in_words_for_go() {
    if !require_tools("go", &["go"]) {
        return;
    }
    let bench = Bench::new();
    let (source, program) = (bench.0.path().join("main.go"), bench.0.path().join("go"));
    fs::write(&source, "package main\n\nfunc main() {}\n").unwrap();
    if !build(&source, &program, "0") {
        return;
    }
    let ended = end(bench.exec("fq").arg("--").arg(&program));
    assert_eq!(ended.status.code(), Some(126), "{}", ended.stderr);
    assert!(ended.stderr.contains("written in Go") && ended.stderr.contains("cgo"), "{}", ended.stderr);
}

/// Builds a program in Go, with cgo or without; returns whether this machine's Go can do that.
fn build(source: &Path, program: &Path, cgo: &str) -> bool {
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(program).arg(source);
    command
        .env("CGO_ENABLED", cgo)
        .env("GO111MODULE", "off")
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
    let built = end(&mut command);
    require("go", built.status.success(), "needs a Go that builds this program")
}
