//! `txq doctor` and `txq xps`, on a real interface of the kernel in a namespace of its own.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::netns::Netns;
use crate::support::process::Running;
use crate::support::skip::{require_root, require_tools};
use crate::support::tempdir::TempDir;

/// Runs `txq` in a namespace; returns its exit code and what it printed.
fn txq(namespace: &Netns, words: &str) -> (i32, String) {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_txq"));
    let out = command.args(words.split_whitespace()).output().expect("txq runs");
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    (out.status.code().expect("an exit code"), said.into_owned())
}

/// Returns the findings of `txq doctor v0`: what is so, and the command that changes it.
fn findings(namespace: &Netns) -> Vec<[String; 2]> {
    let (code, text) = txq(namespace, "doctor v0 --json");
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(code, 0, "{text}");
    let text = |finding: &Value, key: &str| finding[key].as_str().expect("a text").to_owned();
    let findings = found[0]["findings"].as_array().expect("findings");
    findings.iter().map(|finding| [text(finding, "what"), text(finding, "remedy")]).collect()
}

#[test]
fn the_commands_that_it_prints_mend_what_it_found() {
    let test = "the_commands_that_it_prints_mend_what_it_found";
    if !require_root(test) || !require_tools(test, &["ip", "tc", "ethtool"]) {
        return;
    }
    let namespace = Netns::new();
    namespace
        .ip("link add v0 numtxqueues 4 numrxqueues 4 type veth peer name v1 numtxqueues 4 numrxqueues 4");
    namespace.ip("link set v1 up");
    let mend = |namespace: &Netns, part: &str| {
        let found = findings(namespace);
        let finding = found.iter().find(|[what, _]| what.contains(part));
        let [_, remedy] = finding.unwrap_or_else(|| panic!("{part}: not among {found:?}"));
        let binary = env!("CARGO_BIN_EXE_txq");
        let command = remedy.strip_prefix("txq ").map_or(remedy.clone(), |rest| format!("{binary} {rest}"));
        let out = namespace.command("sh").args(["-c", &command]).output().expect("sh runs");
        assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
        let found = findings(namespace);
        assert!(!found.iter().any(|[what, _]| what.contains(part)), "{command} did not mend {found:?}");
    };
    mend(&namespace, "it is down");
    mend(&namespace, "no XPS");
    let root = namespace.command("tc").args("qdisc replace dev v0 root htb".split(' ')).status();
    assert!(root.expect("tc runs").success());
    mend(&namespace, "one htb for 4 txqs");
    let off = namespace.command("ethtool").args(["-K", "v0", "tso", "off"]).status();
    assert!(off.expect("ethtool runs").success());
    mend(&namespace, "tcp-segmentation-offload is off");
    let (code, text) = txq(&namespace, "doctor v0");
    assert!(code == 0 && text.contains("Nothing to change is found") && text.contains(" mq "), "{text}");
}

#[test]
fn xps_is_written_shown_and_removed() {
    let test = "xps_is_written_shown_and_removed";
    if !require_root(test) || !require_tools(test, &["ip"]) {
        return;
    }
    let namespace = Netns::new();
    namespace.ip("link add v0 numtxqueues 2 type veth peer name v1 numtxqueues 1 numrxqueues 1");
    let mask = |txq| {
        let file = format!("/sys/class/net/v0/queues/tx-{txq}/xps_cpus");
        let out = namespace.command("cat").arg(file).output().expect("cat runs");
        String::from_utf8(out.stdout).expect("a mask").trim().replace([',', '0'], "")
    };
    let (code, planned) = txq(&namespace, "xps auto v0 --dry-run");
    assert!(code == 0 && planned.starts_with("echo ") && planned.contains("/tx-1/xps_cpus"), "{planned}");
    assert!(mask(0).is_empty() && mask(1).is_empty());
    let (code, text) = txq(&namespace, "xps auto v0");
    assert!(code == 0 && text.is_empty(), "{text}");
    assert!(!mask(0).is_empty(), "no CPU has txq 0");
    let (code, shown) = txq(&namespace, "xps show v0");
    assert!(code == 0 && shown.starts_with("txq 0: CPUs "), "{shown}");
    assert_eq!(txq(&namespace, "xps none v0"), (0, String::new()));
    assert!(mask(0).is_empty() && mask(1).is_empty());
    let (code, text) = txq(&namespace, "xps auto nowhere");
    assert!(code == 1 && text.contains("there are lo, v0, v1"), "{text}");
    let (code, text) = txq(&namespace, "xps auto v1");
    assert!(code == 1 && text.contains("has 1 txq"), "{text}");
    let (code, text) = txq(&namespace, "doctor ../etc");
    assert!(code == 1 && text.contains("there is none here"), "{text}");
}

/// Each thread of a daemon has the niceness that its option names.
#[test]
fn a_daemon_has_its_niceness() {
    let folder = TempDir::new();
    let (file, socket) = (folder.path().join("txq.toml"), folder.path().join("socket"));
    std::fs::write(&file, "[[device]]\nname = \"d0\"\nnull = {}\n").expect("a file");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_txq"));
    let daemon = daemon.args(["daemon", "--nice", "7", "--config"]).arg(&file).arg("--socket").arg(&socket);
    let mut daemon = Running::start(daemon);
    daemon.wait_for_text("listening on", Duration::from_secs(60));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.status("Pid:"))).expect("threads");
    let nice = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).expect("a thread");
        // The name, in parentheses, is the second field, and the niceness the 19th.
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(16)?.parse().ok())
    };
    let all: Vec<Option<i32>> = tasks.map(|task| nice(task.expect("a thread"))).collect();
    assert!(all.len() > 1 && all.iter().all(|nice| *nice == Some(7)), "{all:?}");
}

/// The threads that move packets have the real-time priority that the option names, also after a reload; those that serve commands
/// have none.
#[test]
fn a_daemon_has_its_realtime_priority() {
    const TEST: &str = "a_daemon_has_its_realtime_priority";
    if !require_root(TEST) {
        return;
    }
    let folder = TempDir::new();
    let (file, socket) = (folder.path().join("txq.toml"), folder.path().join("socket"));
    std::fs::write(&file, "[[device]]\nname = \"d0\"\nnull = {}\n").expect("a file");
    let command = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_txq"));
        command.args(["daemon", "--config"]).arg(&file).arg("--socket").arg(&socket).args(options);
        command
    };
    let mut daemon = Running::start(&mut command(&["--rt", "7"]));
    daemon.wait_for_text("listening on", Duration::from_secs(60));
    let pid = daemon.status("Pid:").to_string();
    // The name, in parentheses, is the second field, the priority the 40th, and the policy the 41st.
    let threads = || -> Vec<(String, [u32; 2])> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
        let read = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).expect("a thread");
            let (name, rest) = stat.rsplit_once(')').expect("a name");
            let fields: Vec<_> = rest.split_whitespace().collect();
            let name = name.split_once('(').expect("a name").1.to_owned();
            (name, [38, 37].map(|at| fields[at].parse().expect("a number")))
        };
        tasks.map(|task| read(task.expect("a thread"))).collect()
    };
    // The reload opens another device, with a worker of its own.
    for _ in 0..2 {
        let all = threads();
        let is_worker = |name: &str| name.starts_with("txq-worker");
        assert!(all.iter().any(|(name, _)| is_worker(name)), "no worker in {all:?}");
        for (name, priority) in &all {
            let expected = if is_worker(name) { [2, 7] } else { [0, 0] };
            assert_eq!(*priority, expected, "{name} of {all:?}");
        }
        std::fs::write(&file, "[[device]]\nname = \"d1\"\nnull = {}\n").expect("a file");
        let mut reload = Command::new(env!("CARGO_BIN_EXE_txq"));
        assert!(reload.args(["reload", "--socket"]).arg(&socket).status().expect("txq").success());
    }
    drop(daemon);
    // Without the permission, nothing is served.
    let mut nobody = Command::new("setpriv");
    let options =
        ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
    nobody.args(options).arg(env!("CARGO_BIN_EXE_txq")).args([
        "daemon",
        "--rt",
        "7",
        "--socket",
        "/tmp/txq-rt.sock",
    ]);
    if !require_tools(TEST, &["setpriv"]) {
        return;
    }
    let ended = nobody.output().expect("setpriv runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("failed to execute") {
        eprintln!("SKIP {TEST}: the build folder is closed to other users");
        return;
    }
    assert_eq!(ended.status.code(), Some(2), "{said}");
    let remedy =
        "--rt 7: only root, programs with CAP_SYS_NICE and those with as much `ulimit -r` may have it";
    assert!(said.contains(remedy), "{said}");
}
