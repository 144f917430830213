//! `txq sim sweep`, `merge`, `plan` and `cost` from outside: parts that add up to the whole, tables, curves, and refusals.

mod contrib;
mod plan;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

const INPUT: i32 = 1;
const SYSTEM: i32 = 2;
/// A small machine for a short time.
const SMALL: &str =
    "p0-pinned --set machine=desktop-16 --set milliseconds=0.2 --set warmup=0.05 --set device.txqs=4";
const SENDERS: &str = "--vary workload.senders=1..8*2";

/// Runs `txq sim` with these words, in a folder.
fn sim(folder: &TempDir, words: &str) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq-lab"));
    command.arg("sim").args(words.split_whitespace()).current_dir(folder.path());
    Running::start(&mut command).finish(Duration::from_secs(120))
}

#[track_caller]
fn good(ended: Finished) -> Finished {
    assert!(ended.status.success(), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
    ended
}

/// Checks the exit code, that a line of the error contains all of `parts`, and that stdout is empty.
#[track_caller]
fn refused(ended: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(ended.status.code(), Some(code), "{}: {}{}", ended.status, ended.stdout, ended.stderr);
    assert_eq!(ended.stdout, "");
    let line = ended.stderr.lines().find(|line| line.starts_with("txq-lab: ")).expect("an error");
    parts.iter().for_each(|part| assert!(line.contains(part), "no {part:?} in {line}"));
}

#[track_caller]
fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn the_parts_of_a_sweep_are_the_whole() {
    let folder = TempDir::new();
    let two = "--vary path.discipline=spinlock,combine --quiet";
    let whole = good(sim(&folder, &format!("sweep {SMALL} {SENDERS} {two} --out whole --svg whole.svg")));
    assert_eq!(whole.stderr, "");
    for (part, options) in [("1/3", "--out one"), ("2/3", "--json --threads 1"), ("3/3", "--out three")] {
        let ended = good(sim(&folder, &format!("sweep {SMALL} {SENDERS} {two} --shard {part} {options}")));
        if part == "2/3" {
            assert_eq!(rows(&ended.stdout).len(), 3);
            fs::write(folder.path().join("two"), ended.stdout).expect("a file");
        } else {
            assert!(ended.stdout.contains(" of 8 points"), "{}", ended.stdout);
        }
    }
    let merged = good(sim(&folder, "merge three one two --out merged --svg merged.svg"));
    assert_eq!(merged.stdout, whole.stdout);
    assert_eq!(read(&folder, "merged.svg"), read(&folder, "whole.svg"));
    let mut lines: Vec<Value> = rows(&read(&folder, "whole"));
    lines.sort_by_key(|line| line["index"].as_u64());
    assert_eq!(rows(&read(&folder, "merged")), lines);
    assert_eq!(rows(&good(sim(&folder, "merge one two three --json")).stdout), lines);
    // The result is plausible: eight senders send more than one.
    let mpps = |index: usize| lines[index]["figures"]["mpps"].as_f64().expect("a figure");
    assert!(mpps(7) > 2.0 * mpps(1) && mpps(1) > 0.0, "{} {}", mpps(7), mpps(1));
    assert_eq!(lines[7]["at"].to_string(), r#"{"workload.senders":8,"path.discipline":"combine"}"#);

    refused(&sim(&folder, "merge one three"), INPUT, &["3 of 8 points are missing, the first is 1"]);
    fs::write(folder.path().join("other"), read(&folder, "one").replace("0.05", "0.06")).expect("a file");
    refused(&sim(&folder, "merge two other three"), INPUT, &["other:1: a point of another sweep"]);
    fs::write(folder.path().join("none"), "not JSON").expect("a file");
    refused(&sim(&folder, "merge none"), INPUT, &["none:1: ", "txq sim sweep"]);
    refused(&sim(&folder, "merge nowhere"), INPUT, &["nowhere cannot be read", "No such file"]);
}

#[test]
fn tables_and_curves_show_one_beside_the_other() {
    let folder = TempDir::new();
    let words = format!(
        "sweep {SMALL} {SENDERS} --vary path.discipline=spinlock,llist,lockless --svg curves.svg --figure cpu_ns_per_packet"
    );
    let ended = good(sim(&folder, &words));
    for part in [
        "p0-pinned, before, machine=desktop-16, milliseconds=0.2, warmup=0.05, device.txqs=4: 12 points",
        "workload.senders  path.discipline",
        "\ncpu_ns_per_packet\n\nworkload.senders  spinlock",
        "highest",
    ] {
        assert!(ended.stdout.contains(part), "no {part:?} in {}", ended.stdout);
    }
    assert!(ended.stderr.starts_with("0/12 points"), "{:?}", ended.stderr);
    let svg = read(&folder, "curves.svg");
    for part in [
        "CPU time a packet by senders, for each discipline",
        "CPU time a packet, ns",
        "senders, log scale",
        "spinlock",
        "llist",
        "lockless",
    ] {
        assert!(svg.contains(&format!("\n{part}\n")), "no {part:?} in {svg}");
    }
    // The disciplines' own colours: each has a curve and the stroke beside its name.
    for colour in ["#D55E00", "#0072B2", "#CC79A7"] {
        let strokes = svg.split("<polyline").filter(|rest| rest.contains(&format!("stroke=\"{colour}\"")));
        assert_eq!(strokes.count(), 2, "{svg}");
    }
}

#[test]
fn seeds_of_a_point_are_one_row_with_its_spread() {
    let folder = TempDir::new();
    let words = format!("sweep {SMALL} {SENDERS} --seeds 3 --svg curves.svg --out all --quiet");
    let ended = good(sim(&folder, &words));
    let lines = rows(&read(&folder, "all"));
    assert_eq!(lines.len(), 4 * 3);
    assert!(ended.stdout.contains("medians of 3 seeds"), "{}", ended.stdout);
    let mut mpps: Vec<f64> = lines
        .iter()
        .filter(|line| line["at"]["workload.senders"] == 8)
        .map(|line| line["figures"]["mpps"].as_f64().expect("a figure"))
        .collect();
    mpps.sort_by(f64::total_cmp);
    let row = ended.stdout.lines().rfind(|line| line.starts_with("8 ")).expect("a row");
    let cells: Vec<f64> = row.split_whitespace().map(|cell| cell.parse().expect("a number")).collect();
    let [low, high] = [cells[cells.len() - 2], cells[cells.len() - 1]];
    for (cell, exact) in [(cells[1], mpps[1]), (low, mpps[0]), (high, mpps[2])] {
        assert!((cell - exact).abs() <= 0.051, "{cell} for {exact}: {row}");
    }
    let svg = read(&folder, "curves.svg");
    assert!(svg.contains("medians of 3 seeds"), "{svg}");
    assert_eq!(good(sim(&folder, "merge all")).stdout, ended.stdout);
}

/// A sweep names real qdiscs and trees; of a tree, senders use all classes.
#[test]
fn many_senders_meet_at_real_qdiscs() {
    const QDISCS: &str = "fq,fq_codel,cake,htb-fq_codel,sfq,prio,netem,dualpi2,codel,tbf";
    let folder = TempDir::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab/many-senders.toml");
    let few = "--vary workload.senders=1,4 --set milliseconds=0.3 --set warmup=0.1 --json --quiet";
    for points in ["--point above", "--point below --set device.txqs=8"] {
        let words = format!("sweep {file} {points} --vary path.qdisc={QDISCS} {few}");
        let rows = rows(&good(sim(&folder, &words)).stdout);
        assert_eq!(rows.len(), 2 * QDISCS.split(',').count());
        for row in rows {
            assert!(row["figures"]["mpps"].as_f64() > Some(0.1), "{row}");
        }
    }
    let tree =
        "handle 1: htb; class add parent 1: classid 1:1 htb rate 1gbit; class ad parent 1: classid 1:2";
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq-lab"));
    command.args([
        "sim",
        "sweep",
        file,
        "--vary",
        "seed=1",
        "--quiet",
        "--set",
        &format!("path.qdisc={tree}"),
    ]);
    let ended = Running::start(&mut command).finish(Duration::from_secs(120));
    refused(&ended, INPUT, &["part 3 of a qdisc, \"class ad parent 1: classid 1:2\"", "\"ad\""]);
}

#[test]
fn a_point_that_cannot_be_says_so_in_its_row() {
    let folder = TempDir::new();
    let words = |qdiscs: &str| {
        format!("sweep {SMALL} --set workload.senders=4 --vary path.default_qdisc={qdiscs} --quiet")
    };
    let ended = good(sim(&folder, &(words("fq,nonesuch,pfifo") + " --out all")));
    let row =
        |name: &str| ended.stdout.lines().find(|line| line.starts_with(name)).expect("a row").to_owned();
    assert!(
        row("nonesuch").contains("  -  ") && row("nonesuch").contains("Specified qdisc"),
        "{}",
        row("nonesuch")
    );
    assert!(!row("pfifo").contains("-  "), "{}", row("pfifo"));
    // Lines are in the order in which points finish.
    for line in rows(&read(&folder, "all")) {
        assert_eq!(line["error"].is_null(), line["at"]["path.default_qdisc"] != "nonesuch", "{line}");
    }
    assert_eq!(good(sim(&folder, "merge all")).stdout, ended.stdout);
    refused(&sim(&folder, &words("nonesuch,nothing")), INPUT, &["no point could be run", "nonesuch"]);
}

#[test]
fn what_is_wrong_is_refused_before_anything_runs() {
    let folder = TempDir::new();
    for (words, parts) in [
        ("p9 --vary seed=1,2", &["\"p9\" is no file", "p0-pinned"][..]),
        ("p0-pinned", &["--vary"]),
        ("p0-pinned --vary seed", &["not PATH=VALUE,VALUE"]),
        ("p0-pinned --vary seed=1..5", &["write 1..480*2"]),
        ("p0-pinned --vary seed=1,2 --vary seed=3", &["seed is varied twice"]),
        ("p0-pinned --vary workload.senders=4,0", &["workload.senders is 0: use 1 to 16384"]),
        ("p0-pinned --vary workload.colour=1", &["unknown field `colour`"]),
        ("p0-pinned --vary seed=1,2 --point later", &["no variant \"later\": use one of before, after"]),
        ("p0-pinned --vary seed=1,2 --set seed", &["not PATH=VALUE"]),
        ("p0-pinned --vary seed=1,2 --shard 0/2", &["write 1/3"]),
        ("p0-pinned --vary seed=1,2 --threads 0", &["use 1 to 4096"]),
        ("p0-pinned --vary seed=1 --svg x.svg", &["--svg draws curves", "more than one value"]),
    ] {
        refused(&sim(&folder, &format!("sweep {words}")), INPUT, parts);
    }
    let nowhere = "sweep p0-pinned --vary seed=1,2 --out /nonexistent/x";
    refused(&sim(&folder, nowhere), SYSTEM, &["/nonexistent/x cannot be written"]);
    let unknown = sim(&folder, &format!("sweep {SMALL} --vary seed=1,2 --figure colour --quiet --json"));
    assert_eq!(unknown.status.code(), Some(INPUT));
    assert!(
        unknown.stderr.contains("--figure colour") && unknown.stderr.contains("mpps"),
        "{}",
        unknown.stderr
    );
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0, "a file was left behind");
}

#[test]
fn a_signal_ends_a_sweep_and_prints_what_there_is() {
    let folder = TempDir::new();
    let out: PathBuf = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_txq-lab"));
    let words =
        format!("sim sweep {SMALL} --vary seed=1..2000+1 --threads 1 --quiet --out {}", out.display());
    let running = Running::start(command.args(words.split_whitespace()));
    let start = std::time::Instant::now();
    while fs::read_to_string(&out).map_or(0, |text| text.lines().count()) < 2 {
        assert!(start.elapsed() < Duration::from_secs(120), "no point is done");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.signal(libc::SIGINT);
    let ended = good(running.finish(Duration::from_secs(120)));
    assert!(ended.stdout.contains(" of 2000 points"), "{}", ended.stdout);
}
