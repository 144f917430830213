//! `txq bench` and `txq sim` execute `txq-lab`: which program, with what, and the error without one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Running};
use crate::support::tempdir::TempDir;

/// A program that prints its name, its process and its arguments, a variable, and what it reads, and ends with 7.
const LAB: &str = "#!/bin/sh\necho \"$0 $$\"; printf '[%s]' \"$@\"; echo; echo \"$TXQ_TEST\"; cat; echo error >&2; exit 7\n";

/// Copies the command into a folder, which has no `txq-lab`.
fn command(folder: &TempDir) -> PathBuf {
    let txq = folder.path().join("txq");
    install(Path::new(env!("CARGO_BIN_EXE_txq")), &txq);
    txq
}

/// Copies a program. Another process writes it: a child of another test would inherit this one's file, and `exec` would fail.
fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-D", "-m", "755"]).args([from, to]).status();
    assert!(status.expect("install").success());
}

/// Writes a `txq-lab`.
fn lab(path: &Path) {
    let source = TempDir::new();
    let text = source.path().join("text");
    fs::write(&text, LAB).expect("a file");
    install(&text, path);
}

fn run(txq: &Path, words: &[&str], path: &Path) -> Finished {
    let mut command = Command::new("/bin/sh");
    // The shell's pipe is the program's stdin.
    let script = "printf 'from stdin' | \"$@\"";
    command.args(["-c", script, "sh"]).arg(txq).args(words);
    let usual = "/usr/bin:/bin";
    command.env("TXQ_TEST", "a variable").env("PATH", format!("{}:{usual}", path.display()));
    Running::start(&mut command).finish(Duration::from_secs(120))
}

#[test]
fn the_program_beside_txq_gets_all() {
    let (folder, path) = (TempDir::new(), TempDir::new());
    let txq = command(&folder);
    lab(&folder.path().join("txq-lab"));
    lab(&path.path().join("txq-lab"));
    for (words, shown) in [
        (&["bench", "--help"][..], "[bench][--help]"),
        (&["bench", "--", "-h", "--json"], "[bench][--][-h][--json]"),
        (&["sim"], "[sim]"),
        (&["sim", "cost", "--", "./a b", "{}"], "[sim][cost][--][./a b][{}]"),
    ] {
        let ended = run(&txq, words, path.path());
        let lines: Vec<&str> = ended.stdout.lines().collect();
        let beside = folder.path().join("txq-lab").display().to_string();
        assert!(lines[0].starts_with(&format!("{beside} ")), "{:?}", ended.stdout);
        assert_eq!(lines[1..], [shown, "a variable", "from stdin"]);
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(7), "error\n"));
    }
}

#[test]
fn the_program_of_path_is_the_second_choice() {
    let (folder, path) = (TempDir::new(), TempDir::new());
    let txq = command(&folder);
    lab(&path.path().join("txq-lab"));
    let ended = run(&txq, &["sim", "machines"], path.path());
    assert!(ended.stdout.starts_with(&path.path().display().to_string()), "{:?}", ended.stdout);
    assert_eq!(ended.status.code(), Some(7));
}

#[test]
fn without_the_program_the_error_names_the_remedy() {
    let (folder, path) = (TempDir::new(), TempDir::new());
    let txq = command(&folder);
    for word in ["bench", "sim"] {
        let ended = run(&txq, &[word], path.path());
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(2), ""));
        assert_eq!(ended.stderr.lines().count(), 1, "{:?}", ended.stderr);
        let parts = ["txq: ", "neither beside txq nor in PATH", "cargo build --release -p txq-lab"];
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{:?}", ended.stderr);
    }
}

#[test]
fn the_help_has_headings_and_the_laboratory() {
    let help = run(Path::new(env!("CARGO_BIN_EXE_txq")), &["--help"], Path::new("/")).stdout;
    for heading in ["Send:", "Shape:", "Watch:", "tc:", "Machine:", "Laboratory:", "Packaging:"] {
        assert!(help.lines().any(|line| line == heading), "no {heading:?} in {help}");
    }
    assert!(help.contains("\n  bench ") && help.contains("\n  sim "), "{help}");
}
