//! `txq contention` and `txq hist` from outside: their tables, their sums, and the real tools' formats.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use txq::stats::log2::Log2;
use txq_cli::common::bars;

use crate::support::process::{Finished, Running};
use crate::support::skip::{require_root, require_tools};
use crate::support::tempdir::TempDir;

fn run(command: &mut Command) -> Finished {
    Running::start(command).finish(Duration::from_secs(120))
}

#[track_caller]
fn txq(arguments: &[&str]) -> Finished {
    let ended = run(Command::new(env!("CARGO_BIN_EXE_txq")).args(arguments));
    assert!(ended.status.success(), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
    ended
}

#[track_caller]
fn json(ended: &Finished) -> Value {
    serde_json::from_str(ended.stdout.lines().last().expect("a line")).expect("JSON")
}

fn sum(rows: &[Value], key: &str) -> u64 {
    rows.iter().map(|row| row[key].as_u64().expect("a count")).sum()
}

fn samples(buckets: &Value) -> u64 {
    sum(buckets.as_array().expect("buckets"), "count")
}

/// Writes a file with one txq for all threads; returns its path.
fn crowd(folder: &TempDir, more: &str) -> String {
    let path = folder.path().join("crowd.toml");
    let text = "[[device]]\nqdisc = \"pfifo\"\n[[sender]]\nthreads = 4\nbatch = 1\n";
    fs::write(&path, text.to_owned() + more).expect("a file");
    path.display().to_string()
}

const HEADER: &str = " contended   total wait     max wait     avg wait         type   caller";

#[test]
fn a_crowd_at_one_lock_is_recorded_and_everything_adds_up() {
    let folder = TempDir::new();
    let file = crowd(&folder, "");
    for discipline in ["spinlock", "llist"] {
        let line =
            json(&txq(&["contention", &file, "--duration", "200ms", "--discipline", discipline, "--json"]));
        let sites = line["sites"].as_array().expect("sites");
        let at = |lock: &str, caller: &str, key: &str| {
            let row = sites.iter().find(|row| row["lock"] == lock && row["caller"] == caller);
            row.map_or(0, |row| row[key].as_u64().expect("a count"))
        };
        let sent = line["sent"].as_u64().expect("sent");
        assert!(sent >= 4, "each thread sends a batch before it checks for a stop: {line}");
        assert_eq!(sum(sites, "contended"), sum(sites, "waited_for"), "each wait is for somebody: {line}");
        for row in sites {
            assert!(row["contended"].as_u64() <= row["acquisitions"].as_u64(), "{row}");
            assert_eq!(samples(&row["waits_ns"]), row["contended"].as_u64().expect("a count"), "{row}");
        }
        let taken = |caller| at("root lock", caller, "acquisitions");
        let drained = samples(&line["drained_packets"]);
        match discipline {
            "spinlock" => assert_eq!((taken("__dev_queue_xmit"), drained), (sent, 0), "{line}"),
            // Acquired by a sender that found the list empty, or that replaced an owner whose turn was over.
            _ => assert!((1..=sent).contains(&taken("__dev_queue_xmit")) && drained > 0, "{line}"),
        }
        let driver = at("tx lock", "sch_direct_xmit", "acquisitions");
        let again = taken("dev_hard_start_xmit");
        assert_eq!(again, driver, "the root lock is taken again after each batch: {line}");
        let device = &line["devices"][0];
        assert_eq!((&device["discipline"], &device["sites"]), (&discipline.into(), &line["sites"]));
        for key in ["retries", "hand_offs", "mpps", "seconds", "stopped_by"] {
            assert!(!line[key].is_null(), "no {key} in {line}");
        }
    }
}

#[test]
fn the_text_has_both_tables() {
    let folder = TempDir::new();
    let file = crowd(&folder, "");
    let text = txq(&["contention", &file, "--duration", "200ms", "--discipline", "llist", "--quiet"]).stdout;
    assert_eq!(text.lines().take(2).collect::<Vec<_>>(), [HEADER, ""]);
    for part in [
        ", llist\nlock ",
        "\nroot lock        enqueue ",
        "\nretries     push to the defer list ",
        "\nhand-offs   to the worker ",
        "@drained_packets:\n[",
        "Mpps\n",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let stat = txq(&["contention", &file, "--duration", "100ms", "--lock-stat"]).stdout;
    assert!(stat.starts_with("lock_stat version 0.4\n-----"), "{stat}");
    let row = stat.lines().find(|line| line.contains("&sch->root_lock_key:")).expect("a row");
    assert_eq!(row.split_whitespace().count(), 13, "{row:?}");
}

/// The first table has rows, or names the command that records some. Waits depend on the machine, so either may occur.
#[test]
fn a_table_without_rows_says_what_to_do() {
    const NONE: &str = "no thread waited for a lock";
    let folder = TempDir::new();
    let path = folder.path().join("alone.toml");
    fs::write(&path, "[[device]]\nqdisc = \"noqueue\"\n[[sender]]\nrate = \"1pps\"\n").expect("a file");
    let file = path.display().to_string();
    for (discipline, advice) in [("combine", "--discipline spinlock"), ("spinlock", "--duration 10s")] {
        let run = |more: &[&str]| {
            let arguments = ["contention", &file, "--duration", "20ms", "--discipline", discipline];
            txq(&[&arguments, more].concat())
        };
        let text = run(&[]).stdout;
        let table: Vec<&str> = text.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        assert!(!table.is_empty(), "{text}");
        if table[0].starts_with(NONE) {
            assert_eq!(table[1..], [format!("  txq contention {file} {advice}")], "{text}");
        }
        let stat = run(&["--lock-stat"]);
        assert!(
            stat.stdout.starts_with("lock_stat version 0.4\n") && !stat.stdout.contains(NONE),
            "{}",
            stat.stdout
        );
        assert_eq!(run(&["--lock-stat", "--quiet"]).stderr, "");
    }
    let text = txq(&["contention", "--duration", "20ms"]).stdout;
    let first = text.lines().nth(2).expect("a line");
    assert!(!first.is_empty(), "{text}");
    assert!(
        !first.starts_with(NONE) || text.contains("\n  txq contention --discipline spinlock\n"),
        "{text}"
    );
}

#[test]
fn wrong_arguments_are_refused() {
    let ended = run(Command::new(env!("CARGO_BIN_EXE_txq")).args(["contention", "--lock-stat", "--json"]));
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.stderr.starts_with("txq: the argument '--lock-stat' cannot be used with"),
        "{}",
        ended.stderr
    );
    let ended = run(Command::new(env!("CARGO_BIN_EXE_txq")).args(["hist", "--what", "nothing"]));
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("possible values: xmit, driver, completion"), "{}", ended.stderr);
}

#[test]
fn a_histogram_has_every_call_and_every_packet() {
    let folder = TempDir::new();
    let file = crowd(&folder, "rate = \"5kpps\"\n");
    for what in ["xmit", "driver", "completion"] {
        let arguments = ["hist", &file, "--what", what, "--duration", "200ms", "--json"];
        let line = json(&txq(&arguments));
        let count = line["samples"].as_u64().expect("a count");
        // About a thousand samples, plus one for each thread at the start; a busy machine changes the number.
        assert!(count >= 4, "{line}");
        assert_eq!((samples(&line["buckets"]), &line["what"]), (count, &what.into()));
        assert_eq!(line["devices"][0]["buckets"], line["buckets"]);
    }
    let text = txq(&["hist", &file, "--duration", "100ms"]).stdout;
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows[0], "@xmit_ns:");
    assert!(rows[1..].iter().all(|row| row.len() >= 79 && row.ends_with('|')), "{text}");
    assert!(text.contains(&"@".repeat(52)), "{text}");
}

#[test]
fn a_histogram_of_nothing_is_an_error_that_says_why() {
    let folder = TempDir::new();
    let path = folder.path().join("off.toml");
    fs::write(&path, "[[device]]\nsampling = \"off\"\n[[sender]]\n").expect("a file");
    let file = path.display().to_string();
    let arguments = ["hist", &file, "--what", "driver", "--duration", "50ms"];
    let ended = run(Command::new(env!("CARGO_BIN_EXE_txq")).args(arguments));
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.starts_with("txq: --what driver: nothing was measured"), "{}", ended.stderr);
}

/// Compares with perf itself on the locks of this kernel: the header, and the columns' ends.
#[test]
fn perf_prints_the_same_table() {
    let name = "perf_prints_the_same_table";
    if !require_root(name) || !require_tools(name, &["perf"]) {
        return;
    }
    let folder = TempDir::new();
    let data = folder.path().join("perf.data").display().to_string();
    let recorded = run(Command::new("perf").args(["lock", "record", "-a", "-o", &data, "sleep", "0.1"]));
    let printed = run(Command::new("perf").args(["lock", "contention", "-i", &data]));
    if !recorded.status.success() || !printed.status.success() {
        eprintln!("SKIP {name}: perf cannot record locks here: {}{}", recorded.stderr, printed.stderr);
        return;
    }
    let all = printed.stdout + &printed.stderr;
    let mut lines = all.lines().skip_while(|line| !line.contains("contended"));
    assert_eq!(lines.next(), Some(HEADER));
    assert_eq!(lines.next(), Some(""));
    let ours = txq(&["contention", "--duration", "100ms", "--discipline", "spinlock"]).stdout;
    // A busy machine may not let two threads meet at a lock; then the table has advice instead of rows.
    let advice = ours.contains("no thread waited for a lock");
    let ours = ours.lines().skip(2).take_while(|line| !advice && !line.is_empty());
    for row in lines.filter(|line| !line.is_empty()).chain(ours) {
        // A count in 10 columns, three times in 13 columns that end with the unit, a type in 13, and the caller after 3
        // more.
        let (numbers, caller) = row.split_at(62);
        assert!(numbers[..10].trim().parse::<u64>().is_ok(), "{row:?}");
        for time in [&numbers[10..23], &numbers[23..36], &numbers[36..49]] {
            let (value, unit) = time.trim().split_once(' ').unwrap_or_else(|| panic!("{row:?}"));
            assert!(value.parse::<f64>().is_ok() && ["s", "ms", "us", "ns"].contains(&unit), "{row:?}");
            assert_eq!(time.trim_end().len(), if unit == "s" { 12 } else { 13 }, "{row:?}");
        }
        assert!(caller.starts_with("   ") && !caller[3..].starts_with(' '), "{row:?}");
    }
}

/// Compares with bpftrace itself: equal values produce equal rows. (bpftrace pads the map's name; its newer versions do
/// not.)
#[test]
fn bpftrace_prints_the_same() {
    let name = "bpftrace_prints_the_same";
    if !require_root(name) || !require_tools(name, &["bpftrace"]) {
        return;
    }
    let values = [7, 7, 7, 100, 255, 256, 300, 511, 512, 70_000, 70_001, 5_000_000, 3_000_000_000];
    let calls: String = values.iter().map(|value| format!("@ns = hist({value}); ")).collect();
    let program = format!("BEGIN {{ {calls}exit(); }}");
    let out = Command::new("bpftrace").args(["-e", &program]).output().expect("bpftrace is there");
    let printed = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() || !printed.contains("@ns:") {
        eprintln!("SKIP {name}: bpftrace cannot run here: {}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let printed: Vec<_> = printed.lines().skip_while(|line| !line.starts_with("@ns:")).collect();
    let printed = printed.iter().map(|line| line.trim_end()).take_while(|line| !line.is_empty());
    let mut log2 = Log2::new();
    values.iter().for_each(|&value| log2.record(value));
    let ours = bars::text("ns", &log2);
    assert_eq!(ours.lines().collect::<Vec<_>>(), printed.collect::<Vec<_>>());
}
