//! Two namespaces, and one between them that bridges.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::netns::Netns;
use crate::support::offload;
use crate::support::process::{Running, run, wait_until};
use crate::support::skip::{require_af_xdp, require_root, require_tools};
use crate::support::tempdir::TempDir;

/// How long a busy machine may need.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The addresses of the two ends.
pub(crate) const NEAR: &str = "10.78.0.1";
pub(crate) const FAR: &str = "10.78.0.2";

/// The output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) rc: i32,
}

impl Said {
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!((self.rc, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }
}

/// `near` -- `middle`, where m0 and m1 are bridged -- `far`.
pub(crate) struct Bench {
    pub(crate) near: Netns,
    pub(crate) middle: Netns,
    pub(crate) far: Netns,
    pub(crate) folder: TempDir,
}

impl Bench {
    /// Connects the namespaces; `None` if the machine cannot run the test.
    pub(crate) fn new(test: &str, kind: &str, offloads: bool) -> Option<Self> {
        let can = require_root(test)
            && require_tools(test, &["ip", "ping", "iperf3", "tcpdump", "ethtool"])
            && (kind != "af_xdp" || require_af_xdp(test));
        if !can {
            return None;
        }
        let bench =
            Self { near: Netns::new(), middle: Netns::new(), far: Netns::new(), folder: TempDir::new() };
        bench.connect("m0", &bench.near, NEAR, offloads);
        bench.connect("m1", &bench.far, FAR, offloads);
        Some(bench)
    }

    /// Makes the pair of `port` in the middle and `e0` in `end`.
    pub(crate) fn connect(&self, port: &str, end: &Netns, address: &str, offloads: bool) {
        // The same address for an interface that is made again, which its neighbours know.
        let mac = format!("02:00:00:00:00:0{}", address.rsplit('.').next().expect("an address"));
        let peer = format!("peer name e0 address {mac} netns {}", end.name());
        // It gets its name last: a daemon that waits for the name finds it complete.
        self.middle.ip(&format!("link add name new type veth {peer}"));
        if !offloads {
            self.middle.call(|| offload::switch_off("new"));
            end.call(|| offload::switch_off("e0"));
        }
        self.middle.ip(&format!("link set new name {port}"));
        self.middle.ip(&format!("link set {port} up"));
        self.middle.receive_on_one_cpu(port);
        end.ip("link set e0 up");
        end.receive_on_one_cpu("e0");
        end.wait_carrier("e0");
        end.ip(&format!("addr add {address}/24 dev e0"));
    }

    /// Starts a txq in the middle, and waits until it listens.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        self.start_with(words, &[])
    }

    /// As [`start`](Self::start), with variables in its environment.
    pub(crate) fn start_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = self.middle.command(env!("CARGO_BIN_EXE_txq"));
        command.args(words).args(["--socket", &self.socket()]).envs(variables.iter().copied());
        let mut running = Running::start(&mut command);
        running.wait_for_text("listening on", LONG);
        running
    }

    /// Starts a daemon with a file.
    pub(crate) fn daemon(&self, file: &str) -> Running {
        self.start(&["daemon", "--config", &self.write(file)])
    }

    /// Starts a trace of drops on `near`, and waits until it runs.
    pub(crate) fn trace_too_long(&self) -> Running {
        let mut command = self.middle.command(env!("CARGO_BIN_EXE_txq"));
        let socket = self.socket();
        let mut running = Running::start(command.args([
            "trace",
            "--socket",
            &socket,
            "-i",
            "near",
            "--event",
            "kfree_skb",
        ]));
        running.wait_for_text("tracing near", LONG);
        running
    }

    /// Writes the daemon's file; returns its path. A daemon that reads it meanwhile finds the old file or the new one, whole.
    pub(crate) fn write(&self, text: &str) -> String {
        let (path, new) = (self.folder.path().join("txq.toml"), self.folder.path().join("txq.toml.new"));
        fs::write(&new, text).expect("a file");
        fs::rename(&new, &path).expect("a file");
        path.display().to_string()
    }

    pub(crate) fn socket(&self) -> String {
        self.folder.path().join("control.sock").display().to_string()
    }

    /// Runs a command of txq for the bridge.
    pub(crate) fn txq(&self, words: &str) -> Said {
        let mut words: Vec<_> = words.split_whitespace().collect();
        let (command, socket) = (words.remove(0), self.socket());
        words.splice(0..0, [command, "--socket", &socket]);
        self.fed(&words, "")
    }

    /// Runs a txq with a text on its standard input.
    pub(crate) fn fed(&self, words: &[&str], text: &str) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
        let piped = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("txq");
        // The write fails if the command does not read.
        let _ = child.stdin.take().expect("piped").write_all(text.as_bytes());
        let done = child.wait_with_output().expect("an end");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Said { out: text(done.stdout), err: text(done.stderr), rc: done.status.code().expect("a code") }
    }

    /// Waits until a ping from near to far is answered; returns whether it was in time.
    pub(crate) fn answers(&self, within: Duration) -> bool {
        let once = || {
            let mut ping = self.near.command("ping");
            ping.args(["-c", "1", "-W", "1", "-n", FAR]).stdout(Stdio::null()).stderr(Stdio::null());
            ping.status().is_ok_and(|status| status.success())
        };
        wait_until(within, once)
    }

    /// Pings from near to far until `count` are answered.
    pub(crate) fn ping(&self, count: u32, size: u32) {
        let (count_word, size) = (count.to_string(), size.to_string());
        let words = ["-n", "-c", &count_word, "-w", "60", "-i", "0.02", "-s", &size, FAR];
        let text = run(self.near.command("ping").args(words));
        let received = text.split(", ").find_map(|part| part.strip_suffix(" received")?.parse::<u32>().ok());
        assert!(received >= Some(count), "{text}");
        assert!(!text.contains("DUP") && !text.contains("wrong data"), "{text}");
    }

    /// Runs iperf3 from near to far; returns its report.
    pub(crate) fn iperf3(&self, words: &str) -> Value {
        let mut server = Running::start(self.far.command("iperf3").args(["-s", "-1", "--forceflush"]));
        server.wait_for_text("Server listening", LONG);
        let client = ["-c", FAR, "-J"].into_iter().chain(words.split_whitespace());
        let report = run(self.near.command("iperf3").args(client));
        drop(server.finish(LONG));
        serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error} in {report}"))
    }

    /// Returns a counter of a device; 0 if it has none of this name.
    pub(crate) fn counter(&self, dev: &str, name: &str) -> u64 {
        let all = self.txq(&format!("stat {dev} --json")).good();
        let all: Value = serde_json::from_str(&all).expect("JSON");
        all[0]["counters"][name].as_u64().unwrap_or(0)
    }

    /// Waits until the counters of a direction agree: what one device has received, the other has sent, dropped with a
    /// reason, or queued.
    #[track_caller]
    pub(crate) fn assert_explained(&self, from: &str, to: &str) {
        let mut last = String::new();
        let agree = wait_until(LONG, || {
            let received = self.counter(from, "rx_packets") + self.counter(from, "rx_added_by_cuts");
            let [accepted, created, sent, dropped, queued] =
                ["accepted", "created", "tx_packets", "tx_dropped", "queued"]
                    .map(|name| self.counter(to, name));
            last = format!(
                "{received} received, {accepted} accepted, {created} created, {sent} sent, {dropped} dropped, {queued} queued"
            );
            received == accepted && accepted + created == sent + dropped + queued && queued == 0
        });
        assert!(agree, "{from} to {to}: {last}\n{}", self.txq("stat").out);
        let faults =
            ["rx_missed_errors", "rx_length_errors", "rx_errors"].map(|name| self.counter(from, name));
        assert_eq!(faults, [0; 3], "{}", self.txq("stat").out);
    }
}

/// Ends a txq, which must have no error; returns what it said on stderr.
#[track_caller]
pub(crate) fn end(running: Running) -> String {
    running.signal(libc::SIGTERM);
    let ended = running.finish(LONG);
    assert!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
    ended.stderr
}
