//! The shell blocks of README.md and docs/daemon.md, as they stand: what a new operator types must work.
//!
//! Each block runs in bash, in namespaces of its own (network, mounts, processes) with an empty `/run` and `/tmp`, and ends at the first
//! command that fails. `cargo build` does nothing there: `target/release` has the programs that were built with the test.

#[path = "../../../tests/support/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../tests/support/skip.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod skip;
#[path = "../../../tests/support/tempdir.rs"]
mod tempdir;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use process::{Finished, Running};
use skip::{note_missing, require_root, require_tools, require_tun};
use tempdir::TempDir;

/// How long a block may need on a busy machine.
const LONG: Duration = Duration::from_secs(180);
const TXQ: &str = env!("CARGO_BIN_EXE_txq");

/// Returns the fenced blocks of a language, in the order of the document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = fs::read_to_string(&path).expect(document);
    let fence = format!("\n```{language}\n");
    text.split(&fence)
        .skip(1)
        .map(|rest| rest.split("\n```").next().expect("a part").to_owned() + "\n")
        .collect()
}

/// Returns the only shell block of a document that contains `part`.
fn block(document: &str, part: &str) -> String {
    let mut found = blocks(document, "sh");
    found.retain(|block| block.contains(part));
    assert_eq!(found.len(), 1, "shell blocks with {part:?} in {document}");
    found.remove(0)
}

/// Runs a block in a folder with the programs; fails the test if a command of it fails.
fn execute(block: &str) -> String {
    let folder = TempDir::new();
    let examples = folder.path().join("target/release/examples");
    fs::create_dir_all(&examples).expect("a folder");
    symlink(TXQ, folder.path().join("target/release/txq")).expect("a link");
    symlink(served(), examples.join("served")).expect("a link");
    // The folder is mounted before /tmp, in which it is, becomes empty.
    let script = format!(
        "set -e\nmount --make-rprivate /\n\
         mount -t tmpfs none /mnt; mkdir /mnt/work; mount --bind {folder} /mnt/work\n\
         mount -t tmpfs none /run; mount -t tmpfs none /tmp; cd /mnt/work; ip link set lo up\n\
         cargo() {{ [ \"$1\" = build ]; }}\nPATH=$PWD/target/release:$PATH\nexport XDG_RUNTIME_DIR=\n{block}",
        folder = folder.path().display(),
    );
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
        &script,
    ]);
    let Finished { status, stdout, stderr } = Running::start(&mut command).finish(LONG);
    assert!(status.success(), "{status}\n{block}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
    stdout + &stderr
}

fn served() -> std::path::PathBuf {
    Path::new(TXQ).with_file_name("examples").join("served")
}

fn can(test: &str, tools: &[&str]) -> bool {
    require_root(test) && require_tools(test, &["unshare", "bash", "ip"]) && require_tools(test, tools)
}

/// Returns the smallest round trip of each ping, in milliseconds.
fn fastest(said: &str) -> Vec<f64> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    lines.map(|times| times.split('/').next().expect("a time").parse().expect("a time")).collect()
}

#[test]
fn a_bridge_is_tried_and_changed() {
    if !can("a_bridge_is_tried_and_changed", &["ping"]) {
        return;
    }
    let said = execute(&block("docs/daemon.md", "txq bridge m-near m-far --up"));
    assert_eq!(said.matches("3 received, 0% packet loss").count(), 2, "{said}");
    // The second ping goes through netem.
    assert!(fastest(&said)[1] >= 50.0, "{said}");
    assert!(said.contains("qdisc netem") && said.contains("tx_packets: "), "{said}");
}

#[test]
fn a_packet_is_followed() {
    if !can("a_packet_is_followed", &["ping"]) {
        return;
    }
    let said = execute(&block("docs/daemon.md", "txq trace --name try"));
    let line = |event: &str| {
        said.lines()
            .find(|line| line.contains(&format!(" m-far:0 1: {event} len 98 10.9.0.1 > 10.9.0.2 icmp")))
    };
    assert!(line("qdisc_enqueue").is_some() && said.contains("txq: 8 events, 0 lost"), "{said}");
    // Each of the first three packets has an event at least, and the last of eight comes when one has left or is dropped.
    let end = line("kfree_skb").or(line("qdisc_dequeue")).unwrap_or_else(|| panic!("{said}"));
    assert!(end.contains(" reason QDISC_OVERLIMIT") || end.contains(" sojourn "), "{said}");
}

#[test]
fn a_namespace_is_shaped() {
    if !(can("a_namespace_is_shaped", &["ping"]) && require_tun("a_namespace_is_shaped")) {
        return;
    }
    let said = execute(&block("docs/daemon.md", "txq daemon --config /tmp/blue.toml"));
    assert!(said.contains("3 received, 0% packet loss"), "{said}");
}

#[test]
fn the_daemon_has_a_device_and_its_queues() {
    if !can("the_daemon_has_a_device_and_its_queues", &[]) {
        return;
    }
    let said = execute(&block("README.md", "txq dev add d0"));
    assert!(said.contains("qdisc tbf 1: root refcnt 5 rate 10Mbit"), "{said}");
}

#[test]
fn a_program_is_shaped_while_it_sends() {
    let test = "a_program_is_shaped_while_it_sends";
    if !can(test, &[]) {
        return;
    }
    if !served().is_file() {
        return note_missing(test, "examples/served is not built: cargo build -p txq-cli --examples");
    }
    let said = execute(&block("README.md", "target/release/examples/served &"));
    assert!(said.contains("served") && said.contains("qdisc tbf"), "{said}");
}

#[test]
fn a_capture_is_replayed_into_an_interface() {
    if !can("a_capture_is_replayed_into_an_interface", &["iperf3", "tcpdump", "ethtool", "sysctl"]) {
        return;
    }
    let said = execute(&block("README.md", "txq replay real.pcap"));
    assert!(said.contains("w1") && said.contains("RX:"), "{said}");
}

/// The files of the documents are those of a daemon.
#[test]
fn the_files_are_good() {
    let mut files = blocks("docs/daemon.md", "toml");
    // A replay is shown as a part of a file, because its capture would have to exist.
    files.retain(|file| !file.starts_with("[[replay]]"));
    assert!(!files.is_empty());
    let folder = TempDir::new();
    for file in files {
        let path = folder.path().join("txq.toml");
        fs::write(&path, &file).expect("a file");
        let done = Command::new(TXQ).arg("check").arg(&path).output().expect("txq");
        assert!(done.status.success(), "{file}{}", String::from_utf8_lossy(&done.stderr));
    }
}
