//! `txq exec` around programs that know nothing of it: our own in C, which check each call, and those of others.

mod down;
mod edges;
mod programs;
mod waits;

use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::process::{Finished, Running, run, wait_until};
use crate::support::skip::{require, require_root, require_tools};
use crate::support::tempdir::TempDir;

/// How long a busy machine may need for work of a second on a quiet one.
const LONG: Duration = Duration::from_secs(120);

/// A folder with a test's programs and control sockets.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(TempDir::new())
    }

    /// Returns a command of txq.
    fn txq(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        // Cargo builds the library for this test, next to it.
        let test = std::env::current_exe().expect("a test has a path");
        let library = test.with_file_name("libtxq_preload.so");
        assert!(library.is_file(), "cargo has not built {}", library.display());
        command.env("TXQ_PRELOAD", library).env("XDG_RUNTIME_DIR", self.0.path());
    }

    /// Returns `txq exec`, up to its options.
    fn exec(&self, qdisc: &str) -> Command {
        let mut command = self.txq();
        command.args(["exec", "--json", "--qdisc", qdisc]);
        command
    }

    /// Compiles a program of `tests/exec_programs`; `None` if the machine has no compiler.
    fn compile(&self, test: &str, name: &str) -> Option<PathBuf> {
        if !require_tools(test, &["gcc"]) {
            return None;
        }
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/exec_programs").join(format!("{name}.c"));
        let program = self.0.path().join(name);
        let mut command = Command::new("gcc");
        command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"]).arg(&program).arg(source);
        run(&mut command);
        Some(program)
    }
}

/// Runs a command to its end.
fn end(command: &mut Command) -> Finished {
    Running::start(command).finish(LONG)
}

/// Returns the report on the last line of stderr.
fn report(ended: &Finished) -> Value {
    let line = ended.stderr.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr))
}

/// Returns the counters of the first process with a device; asserts that they add up.
#[track_caller]
fn counters(report: &Value) -> &Value {
    let process = &report["processes"][0];
    assert_eq!(process["event"], "ended", "{report}");
    let number = |key: &str| process[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    let dropped: u64 =
        process["dropped"].as_object().expect("drops").values().filter_map(Value::as_u64).sum();
    assert_eq!(
        number("accepted") + number("created"),
        number("sent") + dropped + number("queued"),
        "{report}"
    );
    process
}

/// A thread that receives on the loopback address and counts.
struct Receiver {
    port: u16,
    stop: Arc<AtomicBool>,
    datagrams: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    fn start() -> Self {
        Self::with(|_| {})
    }

    /// As `start`, on a socket that `prepare` has changed.
    fn with(prepare: impl Fn(&UdpSocket)) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        prepare(&socket);
        let port = socket.local_addr().unwrap().port();
        let (stop, datagrams, bytes) = (Arc::default(), Arc::default(), Arc::default());
        let (stopped, n, sum) = (
            Arc::<AtomicBool>::clone(&stop),
            Arc::<AtomicU64>::clone(&datagrams),
            Arc::<AtomicU64>::clone(&bytes),
        );
        let receive = move || {
            let mut buffer = [0; 65_536];
            while !stopped.load(SeqCst) {
                if let Ok(len) = socket.recv(&mut buffer) {
                    sum.fetch_add(len as u64, SeqCst);
                    n.fetch_add(1, SeqCst);
                }
            }
        };
        Self { port, stop, datagrams, bytes, thread: Some(thread::spawn(receive)) }
    }

    fn datagrams(&self) -> u64 {
        self.datagrams.load(SeqCst)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Gives a socket a receive buffer for seconds of a test's traffic, as root; for as much as the system allows, else.
fn enlarge(socket: &UdpSocket) {
    let bytes: libc::c_int = 8 << 20;
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        let len = size_of_val(&bytes) as libc::socklen_t;
        // SAFETY: the option's value is an integer of this length.
        unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const bytes).cast(), len)
        };
    }
}

#[test]
fn every_call_of_a_program_does_what_it_does_without_txq() {
    let bench = Bench::new();
    let Some(program) = bench.compile("every_call", "calls") else { return };
    let bare = run(&mut Command::new(&program));
    for qdisc in [
        "pfifo_fast",
        "fq",
        // One tin: the datagrams of two types of service wait in two otherwise, and may overtake each other.
        "cake bandwidth 1gbit besteffort",
        "tbf rate 100mbit burst 100k latency 500ms",
        "netem delay 2ms",
    ] {
        let ended = end(bench.exec(qdisc).arg("--").arg(&program));
        assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &bare), "{qdisc}: {}", ended.stderr);
        let report = report(&ended);
        // The child that sends has a device of its own; the one that does not has none.
        assert_eq!(report["processes"].as_array().map(Vec::len), Some(2), "{report}");
        let all = report["processes"].as_array().unwrap();
        let main = all.iter().max_by_key(|process| process["accepted"].as_u64()).unwrap();
        // At least those that the program sends without an error, to one family: 300 of threads, 40 of sendmmsg, and others.
        assert!(main["sent"].as_u64() >= Some(360), "{report}");
        assert_eq!(main["queued"], 0, "{report}");
        assert_eq!(main["name"], "calls", "{report}");
        let child = all.iter().find(|process| process["pid"] != main["pid"]).unwrap();
        assert_eq!((&child["sent"], &child["name"]), (&1.into(), &format!("calls-{}", child["pid"]).into()));
    }
}

#[test]
fn datagrams_leave_at_the_rate_of_the_qdisc_and_none_is_lost() {
    let bench = Bench::new();
    let Some(program) = bench.compile("rate", "stream") else { return };
    let receiver = Receiver::with(enlarge);
    let started = Instant::now();
    let mut command = bench.exec("tbf rate 2mbit burst 10k limit 1mb");
    let ended =
        end(command.args(["--drain", "20s", "--"]).arg(program).args([&receiver.port.to_string(), "1000"]));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let report = report(&ended);
    let sent = counters(&report)["sent"].as_u64().unwrap();
    assert_eq!(Some(sent), ended.stdout.trim().parse().ok(), "{}", ended.stderr);
    // The receiver's buffer holds a third of a second of this rate even without root.
    assert!(wait_until(LONG, || receiver.datagrams() == sent), "{} of {sent}", receiver.datagrams());
    let bits = (receiver.bytes() + 28 * sent) as f64 * 8.0;
    assert!(bits <= 2e6 * started.elapsed().as_secs_f64() + 8.0 * 10_240.0, "{bits} bits: {report}");
    assert!(sent > 10, "{report}");
}

#[test]
fn a_running_program_is_shown_and_reshaped() {
    let bench = Bench::new();
    let Some(program) = bench.compile("reshape", "stream") else { return };
    let receiver = Receiver::start();
    let mut command = bench.exec("tbf rate 80mbit burst 20k latency 50ms");
    command.args(["--name", "shaped", "--"]).arg(program).args([&receiver.port.to_string(), "0"]);
    let running = Running::start(&mut command);
    assert!(wait_until(LONG, || receiver.datagrams() > 1000), "{}", receiver.datagrams());
    assert!(run(bench.txq().arg("ls")).contains("shaped "));
    let shown = run(bench.txq().args(["tc", "--name", "shaped", "-s", "qdisc", "show", "dev", "udp0"]));
    assert!(shown.starts_with("qdisc tbf") && shown.contains("rate 80Mbit"), "{shown}");
    let change = "tc --name shaped qdisc replace dev udp0 root tbf rate 800kbit burst 10k latency 50ms";
    run(bench.txq().args(change.split(' ')));
    let (before, at) = (receiver.bytes(), Instant::now());
    thread::sleep(Duration::from_secs(2));
    let bits = (receiver.bytes() - before) as f64 * 8.0;
    // The datagrams that were in the receiver's buffer come on top, at most what the former rate sends in a tenth of a second.
    let bound = 800e3 * at.elapsed().as_secs_f64() + 8.0 * 10_240.0 + 8e6;
    assert!(bits <= bound, "{bits} of {bound}");
    // SIGTERM goes on to the program, which has no handler.
    running.signal(libc::SIGTERM);
    let ended = running.finish(LONG);
    assert_eq!(ended.status.code(), Some(128 + libc::SIGTERM), "{}", ended.stderr);
    let report = report(&ended);
    assert!(report["notes"][0].as_str().unwrap().contains("ended without a report"), "{report}");
    // The last reading of the device's counters.
    assert!(report["processes"][0]["text"].as_str().unwrap().starts_with("qdisc tbf"), "{report}");
}

#[test]
fn a_full_queue_holds_back_the_program_as_the_kernel_does() {
    let bench = Bench::new();
    let Some(program) = bench.compile("full", "full") else { return };
    let receiver = Receiver::start();
    let mut command = bench.exec("tbf rate 16kbit burst 1600 limit 10mb");
    let ended = end(command.args(["--drain", "60s", "--"]).arg(program).arg(receiver.port.to_string()));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let accepted: u64 = ended.stdout.trim().parse().expect("a number");
    // The least send buffer holds two datagrams, and the qdisc's burst lets one pass.
    assert!((2..100).contains(&accepted), "{accepted}");
    let report = report(&ended);
    assert_eq!(counters(&report)["sent"], accepted, "{report}");
    assert!(wait_until(LONG, || receiver.datagrams() == accepted), "{} of {accepted}", receiver.datagrams());
}

#[test]
fn filters_see_the_ports_and_classes_the_flows() {
    let bench = Bench::new();
    let Some(program) = bench.compile("filters", "each") else { return };
    let (one, two) = (Receiver::start(), Receiver::start());
    let file = bench.0.path().join("classes.tc");
    let text = format!(
        "# Two bands, by port.\nqdisc replace dev udp0 root handle 1: prio bands 3\n\
         qdisc add dev udp0 parent 1:1 handle 10: fq\nqdisc add dev udp0 parent 1:2 handle 20: pfifo limit 100\n\n\
         filter add dev udp0 parent 1: protocol ip prio 1 flower ip_proto udp dst_port {} classid 1:1\n\
         filter add dev udp0 parent 1: protocol ip prio 2 flower ip_proto udp dst_ip 127.0.0.1 classid 1:2\n",
        one.port
    );
    fs::write(&file, text).unwrap();
    let ports = [one.port, one.port, one.port, two.port].map(|port| port.to_string());
    let ended = end(bench.exec("pfifo").arg("--batch").arg(&file).arg("--").arg(program).args(ports));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(wait_until(LONG, || (one.datagrams(), two.datagrams()) == (3, 1)));
    let report = report(&ended);
    let qdiscs = counters(&report)["qdiscs"].as_array().unwrap();
    let packets =
        |handle: &str| qdiscs.iter().find(|qdisc| qdisc["handle"] == handle).map(|qdisc| &qdisc["packets"]);
    assert_eq!((packets("10:"), packets("20:")), (Some(&3.into()), Some(&1.into())), "{report}");
}

#[test]
fn what_cannot_work_is_refused_before_anything_runs() {
    let bench = Bench::new();
    let ran = bench.0.path().join("ran");
    let touch = ["touch", ran.to_str().unwrap()];
    let told = |command: &mut Command, code: i32, words: &[&str]| {
        let ended = end(command);
        assert_eq!(ended.status.code(), Some(code), "{words:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
        for word in words {
            assert!(
                ended.stderr.starts_with("txq: ") && ended.stderr.contains(word),
                "{word}: {}",
                ended.stderr
            );
        }
        assert!(!ran.exists(), "{words:?}");
    };
    told(
        bench.exec("tbf rate 1mbit").arg("--").args(touch),
        125,
        &["--qdisc: ", "the \"burst\" parameter is mandatory"],
    );
    let file = bench.0.path().join("wrong.tc");
    fs::write(&file, "\nqdisc add dev udp0 root nonsense\n").unwrap();
    told(
        bench.exec("fq").arg("--batch").arg(&file).arg("--").args(touch),
        125,
        &["--batch line 2: ", "nonsense"],
    );
    told(bench.exec("fq").args(["--name", "a/b", "--"]).args(touch), 125, &["--name: ", "1 to 64"]);
    told(bench.exec("fq").env("TXQ_PRELOAD", "/no/such/file").arg("--").args(touch), 125, &["TXQ_PRELOAD"]);
    told(bench.exec("fq").args(["--", "no such program"]), 127, &["PATH"]);
    told(bench.exec("fq").args(["--", "/no/such/program"]), 127, &["No such file"]);
    told(bench.exec("fq").args(["--", "/"]), 126, &["cannot be executed"]);
    let text = bench.0.path().join("text");
    fs::write(&text, "no program").unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    told(bench.exec("fq").arg("--").arg(&text), 126, &["no whole ELF file"]);
    let own = bench.0.path().join("setuid");
    fs::copy("/bin/true", &own).unwrap();
    // Its own user's right changes nothing.
    fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(end(bench.exec("fq").arg("--").arg(&own)).status.code(), Some(0));
    if require_root("setuid") {
        chown(&own, Some(65_534), None).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
        told(bench.exec("fq").arg("--").arg(&own), 126, &["setuid", "as that user"]);
        // A script's interpreter counts, not the script.
        let script = bench.0.path().join("script");
        fs::write(&script, format!("#!{}\n", own.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        told(bench.exec("fq").arg("--").arg(&script), 126, &["setuid"]);
    }
    if !require_tools("static", &["gcc"]) {
        return;
    }
    let source = bench.0.path().join("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = bench.0.path().join("static");
    let built = Command::new("gcc").args(["-static", "-o"]).arg(&program).arg(&source).status();
    if require("static", built.is_ok_and(|status| status.success()), "needs a static C library") {
        told(
            bench.exec("fq").arg("--").arg(&program),
            126,
            &["statically linked", "dynamically linked build"],
        );
    }
}

#[test]
fn the_program_keeps_its_exit_code_its_streams_and_its_libraries() {
    let bench = Bench::new();
    let script = "echo out; echo \"$LD_PRELOAD\"; exit 42";
    let test = std::env::current_exe().unwrap().with_file_name("libtxq_preload.so");
    for (before, expected) in
        [(None, format!("{}", test.display())), (Some("libm.so.6"), format!("libm.so.6:{}", test.display()))]
    {
        let mut command = bench.exec("fq");
        command.env_remove("LD_PRELOAD");
        command.envs(before.map(|before| ("LD_PRELOAD", before)));
        let ended = end(command.args(["--", "sh", "-c", script]));
        assert_eq!(ended.status.code(), Some(42), "{}", ended.stderr);
        assert_eq!(ended.stdout, format!("out\n{expected}\n"), "{}", ended.stderr);
        let report = report(&ended);
        assert_eq!(
            (&report["exit_code"], report["processes"].as_array().map(Vec::len)),
            (&42.into(), Some(0))
        );
        assert!(report["notes"][0].as_str().unwrap().starts_with("0 packets went through txq: "), "{report}");
    }
    let ended = end(bench.txq().args(["exec", "--quiet", "--", "sh", "-c", "kill -USR1 $$"]));
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(128 + libc::SIGUSR1), ""));
}

#[test]
fn a_txq_without_other_files_contains_the_library() {
    let bench = Bench::new();
    let [alone, home] = ["alone", "home"].map(|name| bench.0.path().join(name));
    for folder in [&alone, &home] {
        fs::create_dir(folder).unwrap();
    }
    let txq = alone.join("txq");
    fs::copy(env!("CARGO_BIN_EXE_txq"), &txq).unwrap();
    let mut command = Command::new(&txq);
    bench.prepare(&mut command);
    command.env("HOME", &home);
    for name in ["TXQ_PRELOAD", "XDG_CACHE_HOME", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    let ended = end(command.args(["exec", "--qdisc", "fq", "--", "sh", "-c", "echo $LD_PRELOAD"]));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let loaded = Path::new(ended.stdout.trim());
    assert!(loaded.starts_with(home.join(".cache/txq")), "{}", ended.stdout);
    let built = std::env::current_exe().unwrap().with_file_name("libtxq_preload.so");
    assert!(fs::read(loaded).unwrap() == fs::read(built).unwrap());
}

#[test]
fn a_killed_program_leaves_nothing_that_hinders_the_next_one() {
    let bench = Bench::new();
    let Some(program) = bench.compile("kill", "stream") else { return };
    for round in 0..2 {
        let receiver = Receiver::start();
        let mut command = bench.exec("tbf rate 8mbit burst 10k latency 50ms");
        command.args(["--name", "doomed", "--"]).arg(&program).args([&receiver.port.to_string(), "0"]);
        let running = Running::start(&mut command);
        assert!(wait_until(LONG, || receiver.datagrams() > 10), "{round}: {}", receiver.datagrams());
        // The second round has the name that the first one left.
        let listed: Value = serde_json::from_str(&run(bench.txq().args(["ls", "--json"]))).unwrap();
        let live: Vec<_> =
            listed.as_array().unwrap().iter().filter(|found| found["state"] == "live").collect();
        assert_eq!((live.len(), &live[0]["name"]), (1, &"doomed".into()), "{round}: {listed}");
        let pid = live[0]["pid"].as_i64().unwrap();
        // SAFETY: kill takes integers; the process is a child of `running`'s, which has not ended.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        let ended = running.finish(LONG);
        assert_eq!(ended.status.code(), Some(128 + libc::SIGKILL), "{}", ended.stderr);
        assert!(report(&ended)["notes"][0].as_str().unwrap().contains("by a signal"), "{}", ended.stderr);
        let left: Vec<_> = fs::read_dir(bench.0.path().join("txq")).unwrap().collect();
        assert!(left.is_empty(), "{round}: {left:?}");
    }
}

#[test]
fn handlers_that_jump_and_forks_among_threads_leave_no_lock_taken() {
    let bench = Bench::new();
    let Some(program) = bench.compile("stress", "stress") else { return };
    let receiver = Receiver::start();
    for (qdisc, down) in
        [("pfifo_fast", "netem delay 1ms"), ("tbf rate 80mbit burst 20k latency 50ms", "pfifo")]
    {
        let mut command = bench.exec(qdisc);
        let ended = end(command.args(["--down", down, "--"]).arg(&program).arg(receiver.port.to_string()));
        assert_eq!(
            (ended.status.code(), ended.stdout.as_str()),
            (Some(0), "done\n"),
            "{qdisc}: {}",
            ended.stderr
        );
        let report = report(&ended);
        // The program and its children.
        assert_eq!(report["processes"].as_array().map(Vec::len), Some(31), "{report}");
    }
}
