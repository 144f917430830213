//! Each user error is reported in one line with its remedy, and changes nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

/// Exit codes: bad input, and a refusal by the system.
const INPUT: i32 = 1;
const SYSTEM: i32 = 2;

fn run(command: &mut Command) -> Finished {
    Running::start(command).finish(Duration::from_secs(120))
}

fn lab(arguments: &[&str]) -> Finished {
    run(Command::new(env!("CARGO_BIN_EXE_txq-lab")).args(arguments))
}

/// Checks the exit code and the error: one line that contains `parts`, and at most one more of usage.
#[track_caller]
fn refused(ended: &Finished, code: i32, parts: &[&str]) {
    let (stdout, stderr) = (&ended.stdout, &ended.stderr);
    assert_eq!(ended.status.code(), Some(code), "{}: {stdout}{stderr}", ended.status);
    let lines: Vec<&str> = stderr.lines().collect();
    let usage = lines.get(1).is_none_or(|line| line.starts_with("Usage:"));
    assert!(matches!(lines.len(), 1 | 2) && usage, "more than a line: {stderr:?}");
    assert!(lines[0].starts_with("txq-lab: "), "{stderr:?}");
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

#[test]
fn options_of_bench() {
    for (options, parts) in [
        ("crwod", &["there is no such suite", "did you mean \"crowd\"?"][..]),
        (
            "everything",
            &[
                "there is no such suite: use crowd, pool, xps, work, path, overload, qdisc, timing, bql, isolation, rate or peers",
            ],
        ),
        ("--threads 0", &["--threads", "use 1 to 4096"]),
        ("--threads 1,2,x", &["\"x\" is no whole number"]),
        ("--batch 513", &["--batch", "use 1 to 512"]),
        ("--duration 0s", &["not above zero"]),
        ("--duration 1", &["has no unit"]),
        ("--work-ns 0", &["--work-ns", "use 1 to"]),
        ("overload --load 0", &["--load", "\"0\" is no load", "use 0.01 to 1000"]),
        ("overload --load 1,nan", &["\"nan\" is no load"]),
        ("overload --flows 0", &["--flows", "use 1 to"]),
        ("--repeat 0", &["--repeat", "use 1 to 1000"]),
        ("--discipline llist,magic", &["\"magic\"", "use one of "]),
        ("--qdisc fq_codle", &["fq_codle"]),
        ("xps --qdisc aqm", &["\"aqm\"", "leave the suite out"]),
        ("xps --qdisc slow", &["\"slow\"", "leave the suite out"]),
        ("xps --qdisc shaper", &["\"shaper\"", "leave the suite out"]),
        ("crowd --threads 2 --batch 1 --svg curves.svg", &["--svg", "more than one"]),
        ("--speed 5", &["--speed"]),
    ] {
        let mut arguments = vec!["bench"];
        arguments.extend(options.split_whitespace());
        refused(&lab(&arguments), INPUT, parts);
    }
    let tree =
        "handle 1: htb; class add parent 1: classid 1:1 htb rate 1gbit; qdisc add parent 1:1 fq_codle x";
    refused(
        &lab(&["bench", "crowd", "--qdisc", tree]),
        INPUT,
        &["part 3 of a qdisc, \"qdisc add parent 1:1 fq_codle x\"", "Unknown qdisc \"fq_codle\""],
    );
    // Refused before the measurement of 100 s.
    let unwritable = ["bench", "--svg", "/nonexistent/curves.svg", "--duration", "100s"];
    refused(&lab(&unwritable), SYSTEM, &["/nonexistent/curves.svg cannot be written"]);
    assert!(!PathBuf::from("curves.svg").exists());
}

/// Returns the options of a command whose values are times, rates or counts, from its help, each with a negative value.
fn negatives(command: &[&str]) -> Vec<(String, &'static str)> {
    let help = lab(&[command, &["--help"]].concat()).stdout;
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
    for (command, least) in [
        ("bench", 12),
        ("sim host", 2),
        ("sim calibrate", 2),
        ("sim plan", 7),
        ("sim sweep", 1),
        ("sim published", 1),
    ] {
        let command: Vec<&str> = command.split_whitespace().collect();
        let options = negatives(&command);
        assert!(options.len() >= least, "{command:?} has {options:?}");
        for (option, negative) in options {
            let ended = lab(&[&command[..], &[&option, negative]].concat());
            refused(&ended, INPUT, &[&format!("'{option} <"), &format!("'{negative}'"), "use "]);
            assert!(!ended.stderr.contains("tip"), "{}", ended.stderr);
            assert_eq!(ended.stderr.contains("is negative"), negative != "-5", "{}", ended.stderr);
        }
    }
}

#[test]
fn machines_of_sim() {
    let folder = Folder::new();
    let (_, good) = built_in_machine();
    for (from, to, parts) in [
        ("rmw", "rwm", &["unknown field `rwm`", "txq sim machines NAME"][..]),
        ("sockets = 2", "sockets = 0", &["bad.toml: topology.sockets = 0", "1 to 4096"]),
        ("hold = 0.45", "hold = nan", &["bad.toml: line.hold = NaN", "use 0 to 1"]),
        ("cores = 8", "cores = 800", &["more than 4096 CPUs"]),
    ] {
        let file = folder.file("bad.toml", good.replacen(from, to, 1));
        refused(&lab(&["sim", "machines", &file]), INPUT, parts);
    }
    refused(
        &lab(&["sim"]),
        INPUT,
        &[
            " of txq-lab sim: use run, published, explain, fit, machines, calibrate, sweep, merge, plan, cost, host or qdiscs",
        ],
    );
    refused(&lab(&["sim", "machines", "epyc"]), INPUT, &["no machine \"epyc\"", "epyc-9b45"]);
    refused(&lab(&["sim", "machines", "/nonexistent/x"]), INPUT, &["/nonexistent/x", "No such file"]);
    refused(&lab(&["sim", "calibrate", "--fill", "epyc"]), INPUT, &["no machine \"epyc\""]);
    refused(
        &lab(&["sim", "calibrate", "--out", "/nonexistent/x"]),
        INPUT,
        &["--out /nonexistent/x", "can be written"],
    );
    refused(&lab(&["sim", "calibrate", "--rounds", "0"]), INPUT, &["use 1 to 1000"]);
    refused(&lab(&["sim", "host", "--duration", "5"]), INPUT, &["has no unit"]);
}

/// Returns the name of a built-in machine, and its file.
fn built_in_machine() -> (&'static str, String) {
    let name = "epyc-9b45";
    (name, lab(&["sim", "machines", name]).stdout)
}

#[test]
fn a_machine_is_measured_and_read_again() {
    let folder = Folder::new();
    let out = folder.path("mine.toml").display().to_string();
    let ended =
        lab(&["sim", "calibrate", "--out", &out, "--duration", "200ms", "--rounds", "1", "--name", "mine"]);
    assert!(ended.status.success() && ended.stdout.is_empty(), "{}", ended.stderr);
    assert!(ended.stderr.contains("making room"), "progress: {}", ended.stderr);
    let printed = lab(&["sim", "machines", &out]);
    assert_eq!(printed.stdout, fs::read_to_string(&out).expect("the file"), "{}", printed.stderr);
    let line = lab(&["sim", "machines", &out, "--json"]).stdout;
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["name"], "mine");
    assert!(line["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{line}");
    assert!(line["access"]["rmw"].as_f64().is_some_and(|rmw| rmw > 0.0), "{line}");
    let (name, _) = built_in_machine();
    let all = lab(&["sim", "machines"]).stdout;
    assert!(all.lines().any(|line| line.starts_with(name) && line.contains(" 512 ")), "{all}");
}
