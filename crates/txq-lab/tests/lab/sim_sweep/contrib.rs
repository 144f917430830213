//! The scripts of contrib/sweep: each runs the parts of a sweep, and their points are the whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{SENDERS, SMALL, good, sim};
use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

const PARTS: usize = 3;

fn script(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    root.join("contrib/sweep").join(name)
}

/// Runs a command in a folder, with this build's txq-lab first on its PATH.
#[track_caller]
fn run(command: &mut Command, folder: &TempDir) -> Finished {
    let bin = Path::new(env!("CARGO_BIN_EXE_txq-lab")).parent().expect("a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{bin}:{path}")).current_dir(folder.path());
    good(Running::start(command).finish(Duration::from_secs(120)))
}

/// Returns the words of the sweep, and what the whole of it prints.
fn sweep(folder: &TempDir) -> (String, String) {
    let words = format!("{SMALL} {SENDERS} --seeds 2");
    let whole = good(sim(folder, &format!("sweep {words} --quiet"))).stdout;
    (words, whole)
}

#[test]
fn parallel_runs_the_parts_and_merges_them() {
    if Command::new("parallel").arg("--version").output().is_err() {
        return println!("SKIP parallel_runs_the_parts_and_merges_them: needs GNU parallel");
    }
    let folder = TempDir::new();
    let (words, whole) = sweep(&folder);
    let mut command = Command::new(script("parallel.sh"));
    command.args([&PARTS.to_string(), "results"]).args(words.split_whitespace());
    assert_eq!(run(&mut command, &folder).stdout, whole);
    // All parts have ended: called again, it runs none of them, and prints the same.
    let points = || fs::read(folder.path().join("results/points.jsonl")).expect("the points");
    let before = points();
    assert_eq!(run(&mut command, &folder).stdout, whole);
    assert!(before == points(), "a part ran again");
}

#[test]
fn an_array_job_of_slurm_runs_the_parts() {
    let folder = TempDir::new();
    let (words, whole) = sweep(&folder);
    for part in 1..=PARTS {
        let mut command = Command::new(script("slurm.sh"));
        command.env("SLURM_ARRAY_TASK_ID", part.to_string()).env("SLURM_CPUS_PER_TASK", "1");
        run(command.args([&PARTS.to_string(), "results"]).args(words.split_whitespace()), &folder);
    }
    let merged = good(sim(&folder, "merge results/2.jsonl results/1.jsonl results/3.jsonl"));
    assert_eq!(merged.stdout, whole);
}

#[test]
fn an_indexed_job_of_kubernetes_runs_the_parts() {
    let folder = TempDir::new();
    let (words, whole) = sweep(&folder);
    let job = fs::read_to_string(script("kubernetes.yaml")).expect("the job");
    let value = |key: &str| {
        let line = job.lines().map(str::trim).find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("no {key} in {job}"))[key.len()..].trim().to_owned()
    };
    assert_eq!(
        (value("completionMode:"), value("completions:")),
        ("Indexed".to_owned(), value("parallelism:"))
    );
    // The first value is that of PARTS.
    assert_eq!(value("value:").trim_matches('"'), value("completions:"));
    let shell = value("- set -f;");
    assert_eq!(value("command:"), r#"["/bin/sh", "-euc"]"#);
    let mut points = String::new();
    for index in 0..PARTS {
        let mut command = Command::new("/bin/sh");
        command.args(["-euc", &format!("set -f; {shell}")]);
        command
            .env("JOB_COMPLETION_INDEX", index.to_string())
            .env("PARTS", PARTS.to_string())
            .env("SWEEP", &words);
        points += &run(&mut command, &folder).stdout;
    }
    fs::write(folder.path().join("points.jsonl"), points).expect("a file");
    assert_eq!(good(sim(&folder, "merge points.jsonl")).stdout, whole);
}
