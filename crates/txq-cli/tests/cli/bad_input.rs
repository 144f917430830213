//! Each user error is reported in one line with its remedy, and changes nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Running};
use crate::support::skip::{require_root, require_tools};
use crate::support::tempdir::TempDir;

/// Exit codes: bad input, and a refusal by the system.
const INPUT: i32 = 1;
const SYSTEM: i32 = 2;

fn run(command: &mut Command) -> Finished {
    Running::start(command).finish(Duration::from_secs(120))
}

fn txq(arguments: &[&str]) -> Finished {
    run(Command::new(env!("CARGO_BIN_EXE_txq")).args(arguments))
}

/// Checks the exit code and the error: one line that contains `parts`, and at most one more of usage.
#[track_caller]
fn refused(ended: &Finished, code: i32, parts: &[&str]) {
    let (stdout, stderr) = (&ended.stdout, &ended.stderr);
    assert_eq!(ended.status.code(), Some(code), "{}: {stdout}{stderr}", ended.status);
    let lines: Vec<&str> = stderr.lines().collect();
    let usage = lines.get(1).is_none_or(|line| line.starts_with("Usage:"));
    assert!(matches!(lines.len(), 1 | 2) && usage, "more than a line: {stderr:?}");
    assert!(lines[0].starts_with("txq: "), "{stderr:?}");
    for part in parts {
        assert!(lines[0].contains(part), "no {part:?} in {stderr:?}");
    }
    assert_eq!(stdout, "", "nothing but the error");
}

/// A folder with a file in it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Returns a capture of one frame of 60 bytes.
fn pcap() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 0, 0, 60, 60] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([0x22; 60]);
    bytes
}

#[test]
fn files_for_run() {
    let folder = Folder::new();
    let both = "[[device]]\n[[sender]]\n";
    for (text, parts) in [
        ("[[device]\n", &["bad.toml:1"][..]),
        ("[[device]]\ntxsq = 2\n", &["bad.toml:2", "did you mean \"txqs\"?"]),
        ("[[device]]\ntxqs = 0\n", &["bad.toml:2", "\"txqs\"", "use 1 to 4096"]),
        ("[[device]]\nnull = { ring = 0 }\n", &["bad.toml:2", "0 is out of range"]),
        ("[[device]]\npool.buffers = 0\n", &["pool.buffers", "0 is out of range"]),
        ("[[device]]\n[[sender]]\npacket = 0\n", &["bad.toml:3", "use 42 to 9014"]),
        ("[[device]]\n[[sender]]\npacket = 100000\n", &["use 42 to 9014"]),
        ("[[device]]\n[[sender]]\nthreads = 0\n", &["use 1 to 4096"]),
        ("[[device]]\n[[sender]]\nthreads = 1000000000000\n", &["use 1 to 4096"]),
        ("[[device]]\n[[sender]]\nthreads = 99999999999999999999\n", &["bad.toml:3"]),
        ("[[device]]\n[[sender]]\nrate = \"0pps\"\n", &["not above zero", "such as 10kpps"]),
        ("[[device]]\n[[sender]]\nrate = 5\n", &["bad.toml:3", "rate"]),
        ("[[device]]\nqdisc = \"fq_codle\"\n[[sender]]\n", &["fq_codle"]),
        ("[[device]]\nqdisc = \"pfifo limti 5\"\n[[sender]]\n", &["did you mean \"limit\"?"]),
        (
            "[[device]]\nqdisc = \"pfifo\"\ntxq_qdiscs = { 0 = \"pfifo\" }\n[[sender]]\n",
            &["use \"mq\" as the root"],
        ),
        ("[[device]]\ndiscipline = \"magic\"\n[[sender]]\n", &["use one of combine, llist"]),
        ("[[device]]\nxps = [\"1\", \"1\"]\n[[sender]]\n", &["a mask for txq 1", "leave it out"]),
        ("[[device]]\nxps = [\"g\"]\n[[sender]]\n", &["XPS of txq 0", "hexadecimal"]),
        (
            "[[device]]\nxps = [\"ffffffff,ffffffff,ffffffff,ffffffff,ffffffff,ffffffff\"]\n[[sender]]\n",
            &["XPS of txq 0"],
        ),
        ("[[device]]\n[[sender]]\ndevice = \"eth7\"\n", &["\"eth7\" does not exist: use one of dev0"]),
        ("", &["device"]),
        ("[[sender]]\n", &["device"]),
    ] {
        let file = folder.file("bad.toml", text);
        refused(&txq(&["run", &file]), INPUT, parts);
    }
    let file = folder.file("bad.toml", [0xff, 0xfe, 0]);
    refused(&txq(&["run", &file]), INPUT, &["UTF-8"]);
    refused(&txq(&["run", "/nonexistent/x.toml"]), INPUT, &["/nonexistent/x.toml cannot be read"]);
    let file = folder.file("good.toml", both);
    refused(&txq(&["run", &file, "--duration", "5"]), INPUT, &["has no unit", "such as 5s"]);
    refused(&txq(&["run", &file, "--discipline", "magic"]), INPUT, &["use one of combine, llist"]);
    refused(&txq(&["run", &file, "--dicsipline", "llist"]), INPUT, &["--dicsipline"]);
}

#[test]
fn a_cpu_that_does_not_exist() {
    let folder = Folder::new();
    for cpu in [1000, 60_000] {
        let file = folder.file("cpu.toml", format!("[[device]]\n[[sender]]\ncpus = [{cpu}]\n"));
        let ended = txq(&["run", &file, "--quiet", "--json"]);
        assert_eq!(ended.status.code(), Some(SYSTEM), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("CPU {cpu}")), "{}", ended.stderr);
    }
}

#[test]
fn options_of_replay() {
    let folder = Folder::new();
    let file = folder.file("one.pcap", pcap());
    for (options, parts) in [
        ("--threads 0", &["--threads", "use 1 to 4096"][..]),
        ("--threads 1000000000000", &["use 1 to 4096"]),
        ("--threads many", &["\"many\" is no whole number"]),
        ("--txqs 0", &["use 1 to 4096"]),
        ("--txqs 70000", &["use 1 to 4096"]),
        ("--buffers 0", &["0 is out of range"]),
        ("--rate 0", &["has no unit"]),
        ("--rate 0pps", &["not above zero"]),
        ("--rate 5parsecs", &["such as 10kpps"]),
        ("--rate -5kpps", &["--rate"]),
        ("--loop -1", &["--loop", "-1 is out of range"]),
        ("--loop x", &["--loop"]),
        ("--duration 0s", &["not above zero"]),
        ("--xps 1:1:1", &["a mask for txq 1"]),
        ("--txqs 2 --xps 1:x", &["XPS of txq 1", "hexadecimal"]),
        ("--qdisc fq_codle", &["fq_codle"]),
        ("--qdisc mqq", &["did you mean \"mq\"?"]),
        ("--qdisc", &["--qdisc"]),
        ("--default-qdisc mq --txqs 2", &["mq"]),
        ("--discipline spinlok", &["use one of combine, llist"]),
        ("--dev pcap:", &["use null, pcap:FILE, IFACE"]),
        ("--speed 5", &["--speed"]),
    ] {
        let mut arguments = vec!["replay", file.as_str()];
        arguments.extend(options.split_whitespace());
        refused(&txq(&arguments), INPUT, parts);
    }
    refused(&txq(&["replay"]), INPUT, &["<FILE>"]);
    refused(&txq(&[]), INPUT, &[]);
    refused(&txq(&["reply"]), INPUT, &["reply"]);
}

#[test]
fn options_of_trace_and_web() {
    for (command, parts) in [
        ("trace --txq x", &["--txq", "\"x\" is no whole number: use 0 to 65535"][..]),
        ("trace --txq 65536", &["65536 is out of range: use 0 to 65535"]),
        ("trace -c 0", &["0 is out of range: use 1 to"]),
        ("trace -c 1k", &["\"1k\" is no whole number"]),
        ("web --listen 9119", &["\"9119\" is no ADDRESS:PORT", "127.0.0.1:9119"]),
        ("web --listen localhost:9119", &["write a numeric address and a port"]),
    ] {
        let arguments: Vec<_> = command.split_whitespace().collect();
        refused(&txq(&arguments), INPUT, parts);
    }
}

/// Returns the options of a command whose values are times, rates or counts, from its help, each with a negative value.
fn negatives(command: &[&str]) -> Vec<(String, &'static str)> {
    let help = txq(&[command, &["--help"]].concat()).stdout;
    let option = |line: &str| {
        let (option, value) = line.trim().strip_prefix("--")?.split_once(" <")?;
        let negative = match value.split(['>', '[']).next()? {
            "TIME" => "-5s",
            "RATE" => "-5kbit",
            "N" | "X" | "NS" => "-5",
            _ => return None,
        };
        Some((format!("--{option}"), negative))
    };
    help.lines().filter_map(option).collect()
}

#[test]
fn negative_times_rates_and_counts() {
    for (command, least) in [("run", 2), ("replay", 6), ("contention", 2), ("hist", 2)] {
        let command: Vec<&str> = command.split_whitespace().collect();
        let options = negatives(&command);
        assert!(options.len() >= least, "{command:?} has {options:?}");
        for (option, negative) in options {
            let ended = txq(&[&command[..], &[&option, negative]].concat());
            refused(&ended, INPUT, &[&format!("'{option} <"), &format!("'{negative}'"), "use "]);
            assert!(!ended.stderr.contains("tip"), "{}", ended.stderr);
            assert_eq!(ended.stderr.contains("is negative"), negative != "-5", "{}", ended.stderr);
        }
    }
    let words = txq(&["dev", "add", "d0", "mtu", "-5"]);
    assert!(words.stderr.contains("mtu \"-5\": use a number from 68"), "{}", words.stderr);
    // An option in place of the value is no value either.
    refused(
        &txq(&["run", "--duration", "--json"]),
        INPUT,
        &["--duration", "\"--json\" is none", "such as 5s"],
    );
}

#[test]
fn what_is_missing_is_said() {
    let folder = Folder::new();
    let file = folder.file("plain", b"text");
    refused(&txq(&["ls", "/nope"]), INPUT, &["/nope: there is no such socket"]);
    refused(&txq(&["ls", &file]), INPUT, &["it is no socket"]);
    refused(&txq(&["hist", "--dev", "x"]), INPUT, &["--dev needs a running program", "--name"]);
    refused(&txq(&["contention", "--dev", "x"]), INPUT, &["--dev needs a running program", "--name"]);
}

#[test]
fn captures_that_are_none() {
    let folder = Folder::new();
    let whole = pcap();
    let header = &whole[..24];
    let mut wrong_link = whole.clone();
    wrong_link[20] = 105;
    for (name, bytes, parts) in [
        ("empty.pcap", &[][..], &["is empty"][..]),
        ("garbage.pcap", &[0x55; 1000][..], &["is not a capture"]),
        ("cut.pcap", &whole[..whole.len() - 1], &["frame 1", "ends within it"]),
        ("half.pcap", &whole[..10], &["header"]),
        ("none.pcap", header, &["holds no frame"]),
        ("link.pcap", &wrong_link, &["not Ethernet"]),
    ] {
        let file = folder.file(name, bytes);
        let out = folder.path("out.pcap");
        let dev = format!("pcap:{}", out.display());
        refused(&txq(&["replay", &file, "--dev", &dev]), INPUT, parts);
        assert!(!out.exists(), "{name}: written although the input is bad");
    }
    refused(&txq(&["replay", "/nonexistent.pcap"]), INPUT, &["/nonexistent.pcap", "cannot be read"]);
}

#[test]
fn a_bad_qdisc_leaves_no_file() {
    let folder = Folder::new();
    let file = folder.file("one.pcap", pcap());
    let out = folder.path("out.pcap");
    let dev = format!("pcap:{}", out.display());
    refused(&txq(&["replay", &file, "--dev", &dev, "--qdisc", "nonsense"]), INPUT, &["nonsense"]);
    assert!(!out.exists());
}

#[test]
fn a_capture_is_not_overwritten() {
    let folder = Folder::new();
    let file = folder.file("one.pcap", pcap());
    for out in [folder.path("one.pcap"), folder.path("./one.pcap")] {
        let dev = format!("pcap:{}", out.display());
        refused(&txq(&["replay", &file, "--dev", &dev]), INPUT, &["overwrite"]);
    }
    assert_eq!(fs::read(&file).expect("the file"), pcap());
}

#[test]
fn devices_that_do_not_open() {
    let folder = Folder::new();
    let file = folder.file("one.pcap", pcap());
    refused(&txq(&["replay", &file, "--dev", "nosuchif0"]), SYSTEM, &["nosuchif0"]);
    refused(
        &txq(&["replay", &file, "--dev", "a-name-longer-than-any-interface"]),
        SYSTEM,
        &["a-name-longer"],
    );
    refused(
        &txq(&["replay", &file, "--dev", "pcap:/nonexistent/out.pcap"]),
        SYSTEM,
        &["/nonexistent/out.pcap"],
    );
}

/// Each device has a file: a process that may have 40 descriptors has no 60 of them.
#[test]
fn too_many_descriptors() {
    const REMEDY: &str = "as it may have, 40: raise `ulimit -n`, or LimitNOFILE= of its unit";
    let folder = Folder::new();
    let device = |n: usize| {
        format!(
            "[[device]]\nname = \"d{n}\"\npcap = {{ file = \"{}\" }}\n",
            folder.path(&format!("{n}.pcap")).display()
        )
    };
    let limited = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_txq")]).args(arguments);
        command
    };
    let sender = "[[sender]]\ndevice = \"d0\"\n";
    let config = folder.file("run.toml", (0..60).map(device).collect::<String>() + sender);
    refused(&run(&mut limited(&["run", &config])), SYSTEM, &[REMEDY]);
    // A daemon says it to the program that asks it for one more.
    let (config, socket) =
        (folder.file("daemon.toml", device(0)), folder.path("socket").display().to_string());
    let mut daemon = Running::start(&mut limited(&["daemon", "--config", &config, "--socket", &socket]));
    daemon.wait_for_text("listening on", Duration::from_secs(120));
    let ended = (1..60).map(|n| {
        let (name, file) = (format!("d{n}"), folder.path(&format!("{n}.pcap")).display().to_string());
        txq(&["dev", "--socket", &socket, "add", &name, "type", "pcap", "file", &file])
    });
    // A daemon without a descriptor for the next client first closes an idle connection, and says so.
    let ended = ended.into_iter().find(|ended| ended.stderr.contains(REMEDY)).expect("an error");
    assert_eq!(ended.status.code(), Some(SYSTEM));
    daemon.signal(libc::SIGTERM);
    assert!(daemon.finish(Duration::from_secs(120)).status.success());
}

#[test]
fn a_user_without_permission() {
    const TEST: &str = "a_user_without_permission";
    if !(require_root(TEST) && require_tools(TEST, &["setpriv"])) {
        return;
    }
    let nobody = |arguments: &[&str]| {
        let options = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        run(Command::new("setpriv").args(options).arg(env!("CARGO_BIN_EXE_txq")).args(arguments))
    };
    if !nobody(&["--version"]).status.success() {
        eprintln!("SKIP {TEST}: the build folder is closed to other users");
        return;
    }
    let folder = Folder::new();
    let file = folder.file("one.pcap", pcap());
    refused(&nobody(&["replay", &file, "--dev", "lo"]), SYSTEM, &["lo", "CAP_NET_RAW"]);
}
