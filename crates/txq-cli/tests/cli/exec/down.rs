//! Programs whose received datagrams pass a qdisc, too.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::programs::iperf3;
use super::{Bench, LONG, counters, end, report};
use crate::support::dns::DnsServer;
use crate::support::netns::Netns;
use crate::support::process::{Finished, Running, run, wait_until};
use crate::support::skip::{require_root, require_tools};

/// Returns the counters of what the first process has received; asserts that they add up.
#[track_caller]
fn received(report: &Value) -> &Value {
    let down = &counters(report)["down"];
    let number = |key: &str| down[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    let dropped: u64 = down["dropped"].as_object().expect("drops").values().filter_map(Value::as_u64).sum();
    assert_eq!(
        number("accepted") + number("created"),
        number("sent") + dropped + number("queued"),
        "{report}"
    );
    down
}

/// Waits for a line of a program's output; returns it.
fn line(running: &Running, number: usize) -> String {
    let found = || {
        running
            .text()
            .split_inclusive('\n')
            .nth(number)
            .filter(|line| line.ends_with('\n'))
            .map(str::to_owned)
    };
    assert!(wait_until(LONG, || found().is_some()), "{}", running.text());
    found().unwrap().trim_end().to_owned()
}

/// A program that receives on a port (`sink.c`).
struct Sink {
    running: Running,
    to: UdpSocket,
}

impl Sink {
    /// Starts it; `None` if the machine has no compiler.
    fn start(bench: &Bench, down: &str, how: &str) -> Option<Self> {
        let program = bench.compile(how, "sink")?;
        let mut command = bench.exec("pfifo_fast");
        let running =
            Running::start(command.args(["--name", "sink", "--down", down, "--"]).arg(program).arg(how));
        let port = line(&running, 0);
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        to.connect(format!("127.0.0.1:{}", port)).unwrap();
        Some(Self { running, to })
    }

    fn give(&self, datagrams: usize) {
        for n in 0..datagrams {
            self.to.send(&[0; 100]).unwrap();
            if n % 50 == 49 {
                // The socket's buffer is small without root.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Ends it, under a qdisc that drops nothing; returns how many datagrams it had, and how many were marked.
    fn end(self, bench: &Bench) -> (u64, u64, Finished) {
        run(bench.txq().args("tc --name sink qdisc replace dev down root pfifo".split(' ')));
        self.to.send(b"end").unwrap();
        let ended = self.running.finish(LONG);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let counts: Vec<u64> =
            ended.stdout.lines().last().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        (counts[0], counts[1], ended)
    }
}

#[test]
fn every_call_receives_what_it_does_without_txq() {
    let bench = Bench::new();
    for name in ["receives", "calls"] {
        let Some(program) = bench.compile("every_call", name) else { return };
        let bare = run(&mut Command::new(&program));
        for down in ["pfifo", "netem delay 2ms", "cake bandwidth 1gbit besteffort"] {
            let ended = end(bench.exec("pfifo_fast").args(["--down", down, "--"]).arg(&program));
            assert_eq!(
                (ended.status.code(), &ended.stdout),
                (Some(0), &bare),
                "{name} {down}: {}",
                ended.stderr
            );
            let report = report(&ended);
            let all = report["processes"].as_array().unwrap();
            let main = all.iter().max_by_key(|process| process["accepted"].as_u64()).unwrap();
            assert!(main["down"]["sent"].as_u64() >= Some(400), "{name} {down}: {report}");
            assert_eq!(main["received_past"], 0, "{name} {down}: {report}");
        }
    }
}

/// Runs a program under txq as nobody, to whom the folders of the test may be closed: copies are in a mount namespace, at `/mnt`.
const AS_NOBODY: &str = "set -e; mount -t tmpfs -o mode=755 txq /mnt; cp \"$1\" /mnt/txq; cp \"$2\" /mnt/lib.so; cp \"$3\" /mnt/program
mkdir -m 700 /mnt/run; chown 65534:65534 /mnt/run; export XDG_RUNTIME_DIR=/mnt/run TXQ_PRELOAD=/mnt/lib.so
exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/txq exec --json --preset lte -- /mnt/program";

#[test]
fn an_ordinary_user_needs_no_rights() {
    if !(require_root("ordinary user") && require_tools("ordinary user", &["unshare", "setpriv"])) {
        return;
    }
    let bench = Bench::new();
    let Some(program) = bench.compile("ordinary user", "receives") else { return };
    let library = std::env::current_exe().unwrap().with_file_name("libtxq_preload.so");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", AS_NOBODY, "sh", env!("CARGO_BIN_EXE_txq")]).arg(library).arg(program);
    let ended = end(&mut command);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "all received\n"), "{}", ended.stderr);
    let report = report(&ended);
    let main = report["processes"].as_array().unwrap().iter().max_by_key(|one| one["accepted"].as_u64());
    assert!(main.unwrap()["down"]["sent"].as_u64() > Some(400), "{report}");
}

#[test]
fn losses_and_marks_are_those_of_the_qdisc() {
    let bench = Bench::new();
    for how in ["call", "loop"] {
        let Some(sink) = Sink::start(&bench, "netem loss 20% limit 10000", how) else { return };
        sink.give(1000);
        let (all, marked, ended) = sink.end(&bench);
        let report = report(&ended);
        let down = received(&report);
        assert_eq!(
            (down["accepted"].as_u64(), down["sent"].as_u64()),
            (Some(1001), Some(all + 1)),
            "{report}"
        );
        // Seven deviations of 13 datagrams.
        assert!((709..=891).contains(&all), "{all}: {report}");
        assert_eq!(marked, 0);
    }
    let Some(sink) = Sink::start(&bench, "netem loss 100% ecn", "loop") else { return };
    rustix::net::sockopt::set_ip_tos(&sink.to, 2).unwrap();
    sink.give(200);
    let (all, marked, ended) = sink.end(&bench);
    assert_eq!((all, marked), (200, 200), "{}", ended.stderr);
}

#[test]
fn what_is_received_is_delayed_and_reshaped_while_the_program_runs() {
    let bench = Bench::new();
    let Some(program) = bench.compile("delay", "pings") else { return };
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = peer.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut bytes = [0; 100];
        while let Ok((n, from)) = peer.recv_from(&mut bytes) {
            let _ = peer.send_to(&bytes[..n], from);
        }
    });
    let mut command = bench.exec("netem delay 20ms");
    command.args(["--name", "pings", "--down", "netem delay 50ms", "--"]).arg(program).arg(port.to_string());
    let running = Running::start(&mut command);
    let takes = |round: usize, least: u64| {
        let micros: u64 = line(&running, round).parse().expect("microseconds");
        assert!(micros >= least, "{micros}");
    };
    (0..3).for_each(|round| takes(round, 70_000));
    run(bench.txq().args("tc --name pings qdisc replace dev down root netem delay 300ms".split(' ')));
    // One may have been on its way.
    let next = running.text().lines().count() + 1;
    takes(next, 320_000);
    running.signal(libc::SIGTERM);
    running.finish(LONG);
}

#[test]
fn datagrams_arrive_at_the_rate_of_the_qdisc() {
    let bench = Bench::new();
    let since = Instant::now();
    let Some(sink) = Sink::start(&bench, "tbf rate 1mbit burst 2k limit 1mb", "loop") else { return };
    sink.give(300);
    sink.to.send(b"end").unwrap();
    let ended = sink.running.finish(LONG);
    assert_eq!(ended.stdout.lines().last(), Some("300 0"), "{}", ended.stderr);
    // A datagram has 128 bytes with its headers, and the burst comes at once.
    let least = (300.0 * 128.0 - 2048.0) * 8.0 / 1e6;
    assert!(since.elapsed().as_secs_f64() >= least, "{:?}", since.elapsed());
}

#[test]
fn a_program_that_restricts_itself_receives_on() {
    let bench = Bench::new();
    let Some(sink) = Sink::start(&bench, "netem delay 1ms", "restrict") else { return };
    sink.give(1);
    assert_eq!(line(&sink.running, 1), "restricted");
    sink.give(10);
    sink.to.send(b"end").unwrap();
    let ended = sink.running.finish(LONG);
    assert_eq!(ended.stdout.lines().last(), Some("11 0"), "{}", ended.stderr);
    let report = report(&ended);
    assert_eq!(report["processes"][0]["down"]["sent"], 1, "{report}");
}

#[test]
fn a_socket_that_hidden_calls_wait_for_is_received_past_the_qdisc_and_the_report_says_so() {
    let bench = Bench::new();
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(sink) = Sink::start(&bench, "netem loss 100%", "hidden") else { return };
    sink.give(10);
    sink.to.send(b"end").unwrap();
    let ended = sink.running.finish(LONG);
    assert_eq!(ended.stdout.lines().last(), Some("10 0"), "{}", ended.stderr);
    let report = report(&ended);
    assert_eq!(report["processes"][0]["received_past"], 1, "{report}");
    assert!(
        report["notes"][0]
            .as_str()
            .unwrap()
            .starts_with("sink received from 1 socket past the qdisc of --down: "),
        "{report}"
    );
}

/// A socket that finds no descriptors left is the kernel's, and reports no more than the program has asked for.
#[test]
fn sockets_beyond_the_descriptors_are_the_kernels() {
    if !require_tools("descriptors", &["python3"]) {
        return;
    }
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/exec_programs/many_sockets.py");
    let mut command = bench.exec("pfifo_fast");
    let ended = end(command.args(["--down", "netem delay 1ms", "--", "python3"]).arg(script));
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "300 0\n"), "{}", ended.stderr);
    let report = report(&ended);
    assert!(report["processes"][0]["received_past"].as_u64() > Some(0), "{report}");
    assert!(received(&report)["sent"].as_u64() > Some(0), "{report}");
}

#[test]
fn dig_waits_for_a_delayed_answer() {
    if !(require_root("dig") && require_tools("dig", &["ip", "dig"])) {
        return;
    }
    let (bench, namespace) = (Bench::new(), Netns::new());
    let _server = DnsServer::start(&namespace, "127.0.0.1");
    let mut command = namespace.command(env!("CARGO_BIN_EXE_txq"));
    bench.prepare(&mut command);
    command.args(["exec", "--json", "--up", "netem delay 50ms", "--down", "netem delay 150ms", "--"]);
    let ended = end(command.args(["dig", "@127.0.0.1", "+tries=3", "+time=20", "name.example"]));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let time = ended.stdout.split_once("Query time: ").and_then(|(_, rest)| rest.split(' ').next());
    let millis: u64 = time.expect("dig's time").parse().unwrap();
    assert!(millis >= 200, "{}", ended.stdout);
    assert!(ended.stdout.contains("192.0.2.1"), "{}", ended.stdout);
    assert!(received(&report(&ended))["sent"].as_u64() >= Some(1), "{}", ended.stderr);
}

#[test]
fn iperf3_receives_no_more_than_the_rate() {
    let down = ["--down", "tbf rate 20mbit burst 10k latency 20ms"];
    let Some((result, report)) = iperf3(down, &["-R", "-b", "60M"]) else { return };
    let bytes = result["end"]["sum_received"]["bytes"].as_f64().unwrap();
    let down = received(&report);
    let whole = counters(&report)["seconds"].as_f64().unwrap();
    assert!(bytes * 8.0 <= 20e6 * whole + 8.0 * 10_240.0, "{bytes}: {report}");
    // The server sends three times the rate.
    assert!(down["dropped"]["QDISC_OVERLIMIT"].as_u64() > Some(0), "{report}");
    assert!(down["sent"].as_u64() > Some(10), "{report}");
}
